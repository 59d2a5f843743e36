from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria import contract
from planaria.contract import blackbox, standby
from planaria.contract.env import RANK_VARIABLES, Round, worker_environment
from planaria.contract.standby import Report

# What can be in an environment or in a file name: any bytes but NUL, read as text.
TEXT = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
TRIPLES = st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=5)
WORKER = Path(contract.__file__).parents[1] / "worker"


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """The standby's own file: it must not import ours."""
    return runpy.run_path(str(WORKER / "standby.py"))


@given(TRIPLES)
def test_both_sides_write_and_read_the_same(theirs: dict[str, Any], triples: list[standby.Triple]) -> None:
    data = standby.encode(triples)
    assert theirs["encode"](triples) == data
    assert theirs["decode"](data) == standby.decode(data) == triples


def test_both_sides_know_the_same_words_about_memory(theirs: dict[str, Any]) -> None:
    assert theirs["_DESCRIPTORS"] == standby.MOST_MEMORIES
    assert theirs["_MEMORY"] == standby.MEMORY


@given(st.binary(max_size=60))
def test_nothing_that_a_standby_writes_is_an_error(data: bytes) -> None:
    standby.read_report(data)
    assert all(len(triple) == 3 for triple in standby.decode(data))


def test_a_torn_end_is_left_out() -> None:
    whole = standby.encode([("a", "b", "c")])
    assert standby.decode(whole + b"d\0e\0f") == standby.decode(whole) == [("a", "b", "c")]


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        standby.encode([("set", "A", "x\0y")])


def test_a_report_is_read_by_its_words() -> None:
    told = [
        ("failed", "a", "ImportError: no"),
        ("differs", "json", "/x"),
        ("reads", "b.c", "RANK"),
        ("device", "d", ""),
        ("draws", "e", ""),
        ("watch", "/m.py", ""),
        ("later", "word", ""),
    ]
    report = standby.read_report(standby.encode(told))
    assert report == Report(
        (("a", "ImportError: no"),), (("json", "/x"),), (("b.c", "RANK"),), ("d",), ("/m.py",), ("e",)
    )
    assert report.unfit == {"json", "b.c", "d", "e"}


def test_the_variables_of_a_round_are_those_that_differ_between_two_rounds() -> None:
    def environment(number: int) -> dict[str, str]:
        life = Round(
            number=number,
            run_id="run",
            role="role",
            group_rank=number,
            group_world_size=number,
            first_rank=number,
            world_size=number,
            first_role_rank=number,
            role_world_size=number,
            local_world_size=8,
            master_addr=f"host{number}",
            master_port=number,
            restart_count=number,
            max_restarts=3,
            restart_reason=f"reason {number}",
        )
        error_file = f"/logs/attempt_{number}/error.json"
        return worker_environment({"HOME": "/"}, life, 1, error_file=error_file, control="/c", virtual_rank=False)

    first, second = environment(1), environment(7)
    assert {name for name in first if first[name] != second[name]} == RANK_VARIABLES


MODULES = b"\x1emodules\0os\0/lib/os.py\0sys\0\n"


def test_what_was_learned_is_read_and_is_no_ending_and_no_text() -> None:
    joins = b"\x1ejoins\x001.25\x00/main.py\n"
    data = b'\x1e{"started":1.5}\n' + MODULES + b"stack\n\x1emodules\0json\0/lib/json.py\n" + joins
    assert blackbox.learned(data, 2) == blackbox.Learned(
        (("os", "/lib/os.py"), ("sys", ""), ("json", "/lib/json.py")), (blackbox.Join(2, 1.25, "/main.py"),)
    )
    found = blackbox.read(data)
    assert (found.ending, found.text) == (None, "stack\n")
    assert blackbox.started_at(data[: blackbox.SIGN_BYTES]) == 1.5


@pytest.mark.parametrize("told", [b"1.5\0/m.py", b"\n", b"soon\0/m.py\n", b"nan\0\n", b"inf\0\n", b"-1\0\n"])
def test_a_torn_or_senseless_word_that_a_program_joins_is_left_out(told: bytes) -> None:
    assert blackbox.learned(b"\x1ejoins\0" + told) == blackbox.Learned()


def test_a_torn_list_of_modules_is_left_out() -> None:
    assert blackbox.learned(MODULES + MODULES[:-3]).files == (("os", "/lib/os.py"), ("sys", ""))
    assert blackbox.learned(MODULES[:-1]) == blackbox.Learned()


@given(st.binary(max_size=80))
def test_no_black_box_teaches_an_error(data: bytes) -> None:
    blackbox.learned(data)
    blackbox.learned(b"\x1emodules\0" + data)
    blackbox.learned(b"\x1ejoins\0" + data)


def test_what_is_written_down_fits_into_what_is_read() -> None:
    names = runpy.run_path(str(WORKER / "learn.py"))
    crash = runpy.run_path(str(WORKER / "crash.py"))
    assert names["LIMIT_BYTES"] + 3 * 12 * crash["LIMIT_CHARACTERS"] < blackbox.LIMIT_BYTES
