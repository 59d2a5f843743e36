"""What is read about a process that hangs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from planaria.agent import proc
from planaria.agent.suspects import Count, Examined, judge


def status(begun: int, done: int) -> dict[str, str]:
    return {"last_enqueued_collective": str(begun), "last_completed_collective": str(done)}


def entry(name: str, number: int, group: int = 0, **changes: Any) -> dict[str, Any]:
    made = {"profiling_name": name, "collective_seq_id": number, "retired": False, "state": "scheduled"}
    return {**made, "pg_id": group, "process_group": [f"name {group}", "undefined"], **changes}


FLIGHT: dict[str, Any] = {
    "entries": [
        entry("gloo:all_reduce", 1, retired=True),
        entry("gloo:barrier", 2),
        entry("gloo:send", 3, state="completed"),
    ],
    "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},  # as Gloo leaves it
    "pg_status": {"0": status(2, 1)},
}


def of_gloo(flight: dict[str, Any]) -> tuple[str, tuple[Count, ...]]:
    return proc.collective({"generic": flight})


def test_the_collective_is_the_newest_that_is_not_over() -> None:
    assert of_gloo(FLIGHT) == ("gloo:barrier number 2", (Count("generic:name 0", "", 2, is_open=True),))
    done = {**FLIGHT, "pg_status": {"0": status(3, 3)}}
    assert of_gloo(done) == ("", (Count("generic:name 0", "", 3),))


def test_process_groups_have_the_names_and_members_that_all_ranks_know() -> None:
    flight = {
        "entries": [entry("nccl:all_reduce", 7), entry("nccl:all_gather", 4, group=5)],
        "pg_config": {f"name {number}": {"name": "x", "desc": "x", "ranks": f"[0, {number}]"} for number in (0, 5, 6)},
        "pg_status": {"0": status(7, 7), "5": status(4, 3)},
    }
    expected = (
        Count("nccl:name 0", "[0, 0]", 7),
        Count("nccl:name 5", "[0, 5]", 4, is_open=True),
        Count("nccl:name 6", "[0, 6]", 0),
    )
    assert proc.collective({"nccl": flight})[1] == expected
    # What the recorder has no room for any more has a number, and nobody knows whose: it may be that of any group.
    flight["pg_status"]["9"] = status(1, 1)  # type: ignore[index]
    assert proc.collective({"nccl": flight})[1] == expected[:2]


NCCL: dict[str, Any] = {
    "entries": [entry("nccl:all_reduce", number, retired=number < 5) for number in range(6)],
    "pg_config": {"name 0": {"name": "name 0", "desc": "x", "ranks": "[0, 1]"}},
    "pg_status": {"0": status(5, 4)},
}


def test_what_two_recorders_tell_of_one_group_is_kept_apart() -> None:
    """NCCL and Gloo number their groups and collectives each for itself: the number 0 is not the same in both."""
    of_nccl, of_generic = Count("nccl:name 0", "[0, 1]", 5, is_open=True), Count("generic:name 0", "", 2, is_open=True)
    assert proc.collective({"nccl": NCCL, "generic": FLIGHT}) == (
        "nccl:all_reduce number 5 and gloo:barrier number 2",
        (of_nccl, of_generic),
    )
    idle = {"pg_config": {}, "pg_status": {}, "version": "2.10"}  # Gloo's in a job of NCCL: no entries at all
    assert proc.collective({"nccl": NCCL, "generic": idle}) == ("nccl:all_reduce number 5", (of_nccl,))
    assert proc.collective({"nccl": {}, "generic": FLIGHT}) == ("gloo:barrier number 2", (of_generic,))


def test_what_two_recorders_tell_alike_is_told_once() -> None:
    assert proc.collective({"nccl": NCCL, "generic": NCCL}) == proc.collective({"nccl": NCCL})
    later = {**NCCL, "version": "2.11"}
    assert proc.collective({"nccl": NCCL, "generic": later})[0] == "nccl:all_reduce number 5"


def test_the_rank_that_misses_a_collective_of_nccl_is_behind() -> None:
    """The main thread of the other one waits in C code, where its stack says nothing."""
    idle = {"pg_config": {}, "pg_status": {}}
    before = {**NCCL, "entries": NCCL["entries"][:5], "pg_status": {"0": status(4, 4)}}
    found = []
    for rank, flight in enumerate((NCCL, before)):
        doing, begun = proc.collective({"nccl": flight, "generic": idle})
        known = Examined(rank, rank, 100 + rank, "step", 4, 9.0, 0.1, state="S", collective=doing, begun=begun)
        found.append(known)
    verdict = judge(found, host="a", is_alone=True)
    assert (verdict.ranks, verdict.waiting) == ((1,), (0,))
    assert "rank 0 waits in nccl:all_reduce number 5" in verdict.sentence


def test_what_is_not_what_it_should_be_says_nothing() -> None:
    for flight in (
        {},
        {"pg_status": 7},
        {"pg_status": {"0": None}},
        {"pg_status": {"0": {"last_enqueued_collective": "x"}}},
        {"pg_status": {"0": status(2, 2)}, "entries": 7, "pg_config": 7},
        {"pg_status": {"0": status(2, 2)}, "entries": [{"process_group": "0"}], "pg_config": {"0": 7}},
    ):
        assert of_gloo(flight) == ("", ())
    assert proc.collective({}) == proc.collective({"nccl": 7, "generic": None}) == ("", ())
    assert of_gloo({"pg_status": FLIGHT["pg_status"], "entries": [None, 3]}) == ("unknown", ())
    assert proc.as_object(b"[1]") == proc.as_object(b"{") == proc.as_object(b"") == {}


def test_a_process_is_described_and_one_that_is_gone_is_no_error() -> None:
    own = proc.process(os.getpid())
    assert "State:" in own
    assert f"\n{os.getpid()} " in own
    assert proc.state(os.getpid()) in "RS"
    assert proc.cpu_s(os.getpid()) is not None
    gone = 2**22 + 1
    assert (proc.state(gone), proc.cpu_s(gone), proc.wchan(gone)) == ("", None, "")
    assert "threads" in proc.process(gone)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("python train.py --lr 3 --epochs=5", "python train.py --lr 3 --epochs=5"),
        ("a --wandb-token=abc WANDB_API_KEY=abc", "a --wandb-token=*** WANDB_API_KEY=***"),
        ("a --password abc --lr 3 secrets.py", "a --password *** --lr 3 secrets.py"),
        ("a --key --lr 3", "a --key --lr 3"),
        ("a --data=s3://me:abc@host/x", "a --data=s3://***@host/x"),
    ],
)
def test_a_command_line_is_shown_without_its_secrets(words: str, shown: str) -> None:
    assert proc.command(words.replace(" ", "\0").encode() + b"\0") == shown


def test_the_host_is_described() -> None:
    text = proc.host("/nowhere")
    assert "--- loadavg" in text
    assert "MemAvailable" in text
    assert "\n/tmp " in text
