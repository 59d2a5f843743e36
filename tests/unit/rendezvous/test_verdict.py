"""What a leader makes of failures: whose was first, what it costs, whether it is the end."""

from __future__ import annotations

import json

import pytest

from planaria.base.value import as_dict, replace
from planaria.contract.failure import ROUND_OVER, Failure, from_json
from planaria.rendezvous import verdict
from planaria.rendezvous.messages import Ended, Failed, Join
from planaria.rendezvous.model import Settings, Standing

TTL_S = 5.0
MISTAKE = {"kind": "exception", "type": "ModuleNotFoundError", "bases": ("ImportError",), "where": "train.py:1"}
LOST_PEER = {"kind": "exception", "type": "ConnectionResetError", "bases": ("ConnectionError",)}


def run(**changes: object) -> Settings:
    return replace(Settings("a", "host-a", "10.0.0.1:1", 1, ttl_s=TTL_S), **changes)


def failure(rank: int, host: str = "host-a", **changes: object) -> Failure:
    return replace(Failure(rank, 0, host, 100 + rank, 1, 77.0, 3.0, "exit"), **changes)


def report(
    *failures: Failure, ages_s: tuple[float, ...] = (), at: float = 100.0, workers: int = 1, **changes: object
) -> tuple[Failed, Join, float]:
    """Return a report as the leader keeps it: the message, who sent it, when it came."""
    texts = tuple(json.dumps(as_dict(one)) for one in failures)
    ages_s = ages_s or (0.5,) * len(failures)
    told = Failed(0, texts, ages_s, (False,) * len(failures))
    host = failures[0].host if failures else "host-a"
    join = Join("none", host, host, f"{host}:1", workers, "default", None, Standing(), "failed", 1, False, 0.0, 9.0)
    return replace(told, **changes), join, at


def ranks(failures: tuple[Failure, ...]) -> list[int]:
    return [one.rank for one in failures]


@pytest.mark.parametrize(
    ("what", "reports", "order"),
    [
        ("the oldest is first", [report(failure(0), ages_s=(0.1,)), report(failure(1), ages_s=(0.4,))], [1, 0]),
        (
            "ages count from the arrival of their report",
            [report(failure(0), ages_s=(1.0,), at=103.0), report(failure(1), ages_s=(0.1,), at=100.0)],
            [1, 0],
        ),
        (
            "clocks of nodes do not count",
            [report(failure(0, at=1.0)), report(failure(1, at=9e9), ages_s=(0.6,))],
            [1, 0],
        ),
        (
            "an age from the future is none",
            [report(failure(0), ages_s=(-9.0,)), report(failure(1), ages_s=(0.1,))],
            [1, 0],
        ),
        ("of two at once, the lower rank", [report(failure(1)), report(failure(0))], [0, 1]),
        (
            "a failure that names a lost peer comes after its cause",
            [report(failure(0, **LOST_PEER), ages_s=(0.9,)), report(failure(1), ages_s=(0.1,))],
            [1, 0],
        ),
        (
            "those that were stopped come last",
            [
                report(failure(0, stopped_for=ROUND_OVER), failure(2, stopped_for=1), ages_s=(9.0, 8.0)),
                report(failure(1)),
            ],
            [1, 0, 2],
        ),
        ("what makes no sense is left out", [report(failure(0), failures=("{", "[]")), report(failure(1))], [1]),
        ("a failure without an age is left out", [report(failure(0), failure(1), ages_s=(0.5,))], [0]),
    ],
)
def test_the_first_cause_is_found_by_ages(what: str, reports: verdict.Reports, order: list[int]) -> None:
    assert ranks(verdict.merged(reports)) == order, what


def test_failures_are_told_in_the_leaders_time() -> None:
    (merged,) = verdict.merged([report(failure(3, at=12345.0), ages_s=(2.5,), at=100.0)])
    assert merged == failure(3, at=97.5)


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ([report(failure(5, "host-b"))], "rank 5 failed on host-b"),
        ([report(failure(0), ages_s=(0.1,)), report(failure(5, "host-b"))], "rank 5 failed on host-b"),
        ([report(failures=("nonsense",), ages_s=(1.0,))], "a worker on host-a failed"),
        ([report(failure(1)), report(failure(0), free=True)], "the master port was taken by another program"),
        ([report(failure(1)), report(free=True)], "host-a asked for a new round"),
    ],
)
def test_a_reason_is_a_few_words(reports: verdict.Reports, text: str) -> None:
    assert verdict.reason(reports) == text


@pytest.mark.parametrize(
    ("used", "allowed", "ruling"),
    [(0, 0, "end"), (0, 1, 1), (1, 1, "end"), (1, 2, 2), (2, 2, "end"), (0, 9, 1), (8, 9, 9), (9, 9, "end")],
)
def test_a_failure_costs_one_restart_until_there_are_none(used: int, allowed: int, ruling: int | str) -> None:
    found, when = verdict.rule([report(failure(0)), report(failure(1))], used, run(max_restarts=allowed), 100.0)
    assert when == 100.0
    if ruling == "end":
        assert isinstance(found, Ended)
        assert (found.kind, found.status, found.restart_count) == ("failed", 1, used)
    else:
        assert found == ruling


def test_the_end_carries_the_first_causes_as_many_as_one_message_takes() -> None:
    many = [failure(rank, traceback="x" * 10_000) for rank in range(50)]
    found, _ = verdict.rule([report(*many, ages_s=tuple(float(one.rank) for one in many), at=500.0)], 0, run(), 500.0)
    assert isinstance(found, Ended)
    told = [one.rank for one in map(from_json, found.failures) if one is not None]
    assert told == list(range(49, 49 - len(told), -1))
    length = sum(map(len, found.failures))
    assert verdict.LONGEST_REPORT - 11_000 < length <= verdict.LONGEST_REPORT


@pytest.mark.parametrize(("more", "travels"), [(0, True), (1, False)])
def test_failures_that_just_fit_into_a_message_travel(more: int, travels: bool) -> None:
    def told(length: int) -> tuple[str, ...]:
        found, _ = verdict.rule([report(failure(0, traceback="x" * length))], 0, run(), 100.0)
        assert isinstance(found, Ended)
        return found.failures

    (short,) = told(0)
    assert bool(told(verdict.LONGEST_REPORT - len(short) + more)) == travels


@pytest.mark.parametrize("used", [0, 3])
def test_a_start_that_could_not_happen_is_free_whatever_else_failed(used: int) -> None:
    reports = [report(failure(0, **MISTAKE)), report(failure(1)), report(failure(2), free=True)]
    assert verdict.rule(reports, used, run(max_restarts=used), 100.0) == (used, 100.0)


@pytest.mark.parametrize(("now", "decided"), [(100.0, False), (109.9, False), (110.0, True), (200.0, True)])
def test_a_last_failure_that_names_a_lost_peer_waits_for_the_peers_own_end(now: float, decided: bool) -> None:
    reports = [report(failure(0), names_peer=(True,), at=101.0), report(failure(1), names_peer=(True,), at=100.0)]
    found, when = verdict.rule(reports, 0, run(), now)
    assert isinstance(found, Ended) == decided
    assert when == (now if decided else 100.0 + 2 * TTL_S)


@pytest.mark.parametrize(
    ("used", "whys", "ruling"),
    [
        (0, ("", ""), 1),
        (0, ("", "no further"), "no further"),
        (0, ("no further", "nor this one"), "no further"),
        (5, ("", "no further"), ""),
    ],
)
def test_a_node_that_gets_no_further_ends_the_run_as_failed(
    used: int, whys: tuple[str, ...], ruling: int | str
) -> None:
    reports = [report(failure(rank), why=why) for rank, why in enumerate(whys)]
    found, when = verdict.rule(reports, used, run(max_restarts=5), 100.0)
    assert when == 100.0
    if isinstance(ruling, int):
        assert found == ruling
        return
    assert isinstance(found, Ended)
    assert (found.kind, found.status, found.explanation, found.restart_count) == ("failed", 1, ruling, used)
    assert len(found.failures) == 2


def test_a_start_that_could_not_happen_is_free_also_for_a_node_that_gets_no_further() -> None:
    reports = [report(failure(0), why="no further"), report(failure(1), free=True)]
    assert verdict.rule(reports, 0, run(max_restarts=5), 100.0) == (0, 100.0)


@pytest.mark.parametrize(
    ("what", "reports", "allowed"),
    [
        ("one report has a cause of its own", [report(failure(0), names_peer=(True,)), report(failure(1))], 0),
        ("the first cause of a report counts", [report(failure(0), failure(1), names_peer=(False, True))], 0),
        ("a report without any", [report(failure(0), names_peer=())], 0),
        ("there are restarts left", [report(failure(0), names_peer=(True,))], 1),
    ],
)
def test_nothing_is_waited_for_when(what: str, reports: verdict.Reports, allowed: int) -> None:
    found, when = verdict.rule(reports, 0, run(max_restarts=allowed), 100.0)
    assert found is not None, what
    assert when == 100.0


@pytest.mark.parametrize(
    ("what", "reports", "changes", "ends"),
    [
        ("every rank the same", [report(failure(0, **MISTAKE)), report(failure(1, **MISTAKE))], {}, True),
        ("several ranks of a node", [report(failure(0, **MISTAKE), failure(1, **MISTAKE), workers=2)], {}, True),
        ("a rank is missing", [report(failure(0, **MISTAKE), workers=2)], {}, False),
        ("a later round", [report(failure(0, **MISTAKE), round=1)], {}, False),
        ("--always-restart", [report(failure(0, **MISTAKE))], {"always_restart": True}, False),
        ("another error", [report(failure(0, kind="exception", type="ValueError", bases=("ValueError",)))], {}, False),
        (
            "two errors",
            [report(failure(0, **MISTAKE)), report(failure(1, **{**MISTAKE, "where": "b.py:2"}))],
            {},
            False,
        ),
        ("it had progressed", [report(failure(0, **MISTAKE, progressed=True))], {}, False),
        ("it was old", [report(failure(0, **MISTAKE, age_s=60.0))], {}, False),
        ("wrong usage", [report(failure(0, status=2))], {}, True),
        (
            "those that were stopped do not count",
            [report(failure(0, **MISTAKE)), report(failure(1, stopped_for=0))],
            {},
            False,
        ),
    ],
)
def test_a_mistake_of_every_rank_at_start_up_is_the_end(
    what: str, reports: verdict.Reports, changes: dict[str, object], ends: bool
) -> None:
    found, _ = verdict.rule(reports, 0, run(max_restarts=5, **changes), 100.0)
    assert isinstance(found, Ended) == ends, what
    if isinstance(found, Ended):
        assert "--always-restart" in found.explanation
        assert (found.kind, found.status, found.restart_count) == ("failed", 1, 0)
