from __future__ import annotations

import pytest

from planaria.base.value import replace
from planaria.process.command import BOOTSTRAP, worker_argv
from planaria.process.model import Command, StreamMask

SCRIPT = Command("script", "train.py", ("-x", "${local_rank}"), "/py")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SCRIPT, ["/py", "-u", BOOTSTRAP, "9", "script", "train.py", "-x", "3"]),
        (replace(SCRIPT, bootstrap=False), ["/py", "-u", "train.py", "-x", "3"]),
        (replace(SCRIPT, kind="module"), ["/py", "-u", BOOTSTRAP, "9", "module", "train.py", "-x", "3"]),
        (replace(SCRIPT, kind="module", bootstrap=False), ["/py", "-u", "-m", "train.py", "-x", "3"]),
        (replace(SCRIPT, kind="path"), ["/py", "-u", BOOTSTRAP, "9", "path", "train.py", "-x", "3"]),
        (replace(SCRIPT, kind="program"), ["train.py", "-x", "3"]),
        (replace(SCRIPT, kind="program", bootstrap=False), ["train.py", "-x", "3"]),
    ],
)
def test_each_kind_of_program_has_its_command_line(command: Command, expected: list[str]) -> None:
    assert list(worker_argv(command, 3, 9)) == expected


def test_a_worker_that_writes_down_what_it_loads_is_told_so_by_a_word() -> None:
    assert worker_argv(SCRIPT, 3, 9, learn=True)[2:6] == (BOOTSTRAP, "9", "learn", "script")
    assert worker_argv(replace(SCRIPT, bootstrap=False), 3, 9, learn=True) == ("/py", "-u", "train.py", "-x", "3")


def test_runpy_without_the_bootstrap_is_a_line_of_python() -> None:
    words = worker_argv(replace(SCRIPT, kind="path", bootstrap=False), 3, 9)
    assert words[:3] == ("/py", "-u", "-c")
    assert words[4:] == ("train.py", "-x", "3")
    compile(words[3], "line", "exec")


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ("${local_rank}${local_rank}", "55"),
        ("a=${local_rank}.log", "a=5.log"),
        ("$local_rank", "$local_rank"),
        ("$$", "$$"),
    ],
)
def test_only_the_macro_is_replaced_in_arguments(arg: str, expected: str) -> None:
    assert worker_argv(Command("program", "p", (arg,)), 5, 9) == ("p", expected)


def test_the_program_itself_is_taken_as_it_is() -> None:
    assert worker_argv(Command("program", "${local_rank}"), 5, 9) == ("${local_rank}",)


def test_a_list_of_ranks_that_does_not_name_a_rank_means_no_stream() -> None:
    assert [StreamMask(3).of(rank) for rank in (0, 9)] == [3, 3]
    assert [StreamMask(3, ((0, 1), (12, 2))).of(rank) for rank in (0, 1, 12)] == [1, 0, 2]
