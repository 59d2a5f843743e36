"""Progress in the lines that workers write."""

from __future__ import annotations

import pytest

from planaria.contract.control import Progress
from planaria.errors import UsageError
from planaria.process.pattern import Reader, Seen, check


def read(pattern: str, text: str) -> list[Seen]:
    return [*Reader(pattern).read(text.encode())]


def test_named_groups_become_step_samples_phase_and_values() -> None:
    pattern = r"(?:phase (?P<phase>\w+))?.*?step (?P<step>[\d,]+) seen (?P<samples>\d+) loss (?P<loss>\S+)"
    found = read(pattern, "hello\nstep 1,200 seen 64 loss 0.5\nphase evaluation step 3 seen 9 loss nan\nstep x\n")
    assert found[0] == Seen(None, Progress(1200, (("samples", 64.0), ("loss", 0.5))))
    assert found[1].phase == "evaluation"
    assert found[1].progress is not None
    assert found[1].progress.step == 3
    assert len(found) == 2


def test_without_a_step_every_line_that_matches_is_one() -> None:
    assert [seen.progress for seen in read(r"saw (?P<samples>\d+)", "saw 8\nno\nsaw 16\n")] == [
        Progress(1, (("samples", 8.0),)),
        Progress(2, (("samples", 16.0),)),
    ]


def test_a_life_is_in_no_phase_of_the_one_before_and_counts_on() -> None:
    reader = Reader(r"^(?P<phase>eval)|saw (?P<samples>\d+)")
    assert [*reader.read(b"saw 8\neval\n")] == [Seen(None, Progress(1, (("samples", 8.0),))), Seen("eval")]
    reader.begin()
    assert [*reader.read(b"saw 9\n")] == [Seen(None, Progress(2, (("samples", 9.0),)))]


def test_a_phase_alone_is_no_progress_and_the_phase_step_ends_any_other() -> None:
    assert read(r"now: (?P<phase>\w+)", "now: evaluation\nnow: step\n") == [Seen("evaluation"), Seen("")]


def test_a_step_in_a_line_without_a_phase_ends_the_phase_before_it() -> None:
    assert read(r"^(?P<phase>eval)|step (?P<step>\d+)", "eval\nstep 4\nstep 5\n") == [
        Seen("eval"),
        Seen("", Progress(4)),
        Seen(None, Progress(5)),
    ]
    both = r"(?P<phase>eval )?step (?P<step>\d+)"
    assert [seen.phase for seen in read(both, "step 1\neval step 2\neval step 3\nstep 4\n")] == [
        None,
        "eval",
        "eval",
        "",
    ]


def test_lines_without_sense_are_passed_over() -> None:
    assert read(r"step (?P<step>\d+)", "step " + "9" * 60 + "\n") == [Seen()]
    assert read(r"step (?P<step>\S+)", "step \xff\n") == [Seen()]
    assert read(r"step (?P<step>\d+)", "x" * 10_000 + "step 4\n") == []


@pytest.mark.parametrize("pattern", ["(", r"step (\d+)", r"(?P<loss>\d+)", "x{1,99999999999}"])
def test_what_is_no_pattern_or_names_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--progress-pattern expects a "):
        check(pattern, "--progress-pattern")
