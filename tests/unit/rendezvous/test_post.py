"""One node at its post: when its workers start, stop and die, and how it reports that."""

from __future__ import annotations

import pytest
from lone_member import (
    LEASE_S,
    joined,
    place,
    rejoin,
    running,
    sent,
    taken,
    told,
)

from planaria.base.value import replace
from planaria.rendezvous.messages import (
    Ack,
    Done,
    Failed,
    Join,
    Place,
    Placed,
    Start,
    Stop,
    Stopped,
)
from planaria.rendezvous.model import (
    Deputy,
    Fence,
    KillWorkers,
    Send,
    StartWorkers,
    StopWorkers,
    WorkersFailed,
)


def failed(*at: float) -> WorkersFailed:
    return WorkersFailed(tuple(f"failure at {moment}" for moment in at), at, (False,) * len(at))


# The fence.


def test_workers_are_killed_exactly_when_the_lease_ends_and_once() -> None:
    member = running()
    member.fence_if_due(3.999)
    assert taken(member) == []
    member.fence_if_due(4.0)
    (kill,) = taken(member)
    assert isinstance(kill, KillWorkers)
    member.fence_if_due(4.1)
    assert taken(member) == []


def test_the_end_of_the_lease_wakes_a_node_that_has_lost_its_leader() -> None:
    member = running()
    member.seek()
    assert member.wakes_at() == LEASE_S


def test_the_guardian_hears_of_every_longer_lease_and_of_the_end_of_the_workers() -> None:
    member = running()
    member.tick(1.0)
    assert Fence(5.0) in told(member, 1.1, Ack(2, LEASE_S))
    member.post.stopped(4000)
    assert Fence(None) in taken(member)


def test_a_round_of_one_has_no_fence() -> None:
    member = joined()
    orders = told(member, 0.0, place(slot=0, size=1), Start(0, 0.0))
    assert StartWorkers(place(slot=0, size=1)) in orders
    assert not [one for one in orders if isinstance(one, Fence)]
    member.fence_if_due(1e6)
    assert taken(member) == []


def test_a_fenced_node_reports_it_when_its_workers_are_dead() -> None:
    member = running()
    member.fence_if_due(4.0)
    member.post.stopped(4000)
    assert Send("to-1", Stopped(1, 4000, fenced=True)) in taken(member)
    assert Stopped(1, 4000, fenced=True) in rejoin(member, 5.0)


def test_a_node_that_starts_again_is_no_longer_fenced() -> None:
    member = running()
    member.fence_if_due(4.0)
    member.post.stopped(4000)
    rejoin(member, 5.0)
    told(member, 5.0, place(1), Start(1, LEASE_S))
    assert not member.post.fenced
    told(member, 5.5, Stop(2, "", 0.0))
    member.post.stopped(4001)
    assert Send("to-2", Stopped(2, 4001, fenced=False)) in taken(member)


# Stopping and starting.


def test_stopping_twice_stops_once_and_answers_for_the_newest_round() -> None:
    member = running()
    assert told(member, 1.0, Stop(1, "one", 3.0)) == [StopWorkers(1, "one", 3.0)]
    assert told(member, 1.1, Stop(2, "two", 0.0), Stop(1, "late", 0.0)) == []
    member.post.stopped(4000)
    assert Send("to-1", Stopped(2, 4000, fenced=False)) in taken(member)
    assert member.post.standing.next_round == 2


def test_a_node_without_workers_answers_every_stop_at_once() -> None:
    member = joined()
    member.post.port = 4000
    answer = Send("to-1", Stopped(1, 4000, fenced=False))
    assert told(member, 1.0, Stop(1, "", 0.0), Stop(1, "", 0.0)) == [answer, answer]


@pytest.mark.parametrize(
    ("what", "known", "start"),
    [
        ("nothing is known", None, Start(0, LEASE_S)),
        ("another round is", place(1), Start(0, LEASE_S)),
        ("a later round is", place(0), Start(1, LEASE_S)),
        ("one is a spectator", place(0, None), Start(0, LEASE_S)),
    ],
)
def test_a_start_is_not_obeyed_when(what: str, known: Place | None, start: Start) -> None:
    member = joined()
    if known is not None:
        told(member, 0.0, known)
    assert told(member, 0.0, start) == [], what


def test_workers_that_run_are_not_started_again() -> None:
    assert told(running(), 1.0, Start(0, LEASE_S)) == []


def test_an_older_round_is_not_believed() -> None:
    member = joined()
    told(member, 0.0, place(5, term=2))
    for older in (place(4, term=2), place(9, term=1)):
        assert told(member, 0.0, older) == []
    assert (member.post.standing.term, member.post.standing.round) == (2, 5)


def test_a_round_that_is_told_again_is_answered_again_and_changes_deputies_only() -> None:
    member = running()
    more = (*place().deputies, Deputy("c", "c:1"))
    assert told(member, 1.0, place(deputies=more, slot=None, size=9)) == [Send("to-1", Placed(0))]
    assert member.post.standing.deputies == more
    assert (member.post.standing.slot, member.post.standing.size, member.post.workers) == (1, 2, "running")


def test_a_new_round_forgets_the_dead_and_the_gone_and_remembers_the_last_that_ran() -> None:
    member = running()
    member.dead, member.gone = {"x"}, {"y"}
    told(member, 1.0, place(7, None))
    assert (member.dead, member.gone) == (set(), set())
    known = member.post.standing
    assert (known.home, known.ran, known.round, known.slot, known.next_round) == (1, 0, 7, None, 8)


# Reports.


def test_a_failure_is_told_again_after_a_rejoin_with_its_age_as_it_is_then() -> None:
    member = running()
    member.post.stopped(4000)
    member.post.failed(failed(0.5, 0.75), 1.0)
    assert Failed(0, ("failure at 0.5", "failure at 0.75"), (0.5, 0.25), (False, False)) in sent(member)
    member.seek()
    assert Failed(0, ("failure at 0.5", "failure at 0.75"), (2.5, 2.25), (False, False)) in rejoin(member, 3.0)


def test_why_no_other_life_helps_is_told_with_a_failure() -> None:
    member = running()
    member.post.stopped(4000)
    member.post.failed(replace(failed(0.5), why="no further"), 1.0)
    assert Failed(0, ("failure at 0.5",), (0.5,), (False,), why="no further") in sent(member)


def test_a_failure_without_a_leader_is_told_to_the_next() -> None:
    member = running()
    member.seek()
    member.post.stopped(4000)
    taken(member)
    member.post.failed(failed(1.0), 1.0)
    assert sent(member) == []
    said = rejoin(member, 3.0)
    assert next(one for one in said if isinstance(one, Join)).state == "failed"
    assert Failed(0, ("failure at 1.0",), (2.0,), (False,)) in said


def test_that_all_is_done_is_told_again_after_a_rejoin() -> None:
    member = running()
    member.post.stopped(4000)
    member.post.done(1.0)
    assert sent(member) == [Done(0)]
    said = rejoin(member, 3.0)
    assert next(one for one in said if isinstance(one, Join)).state == "done"
    assert said.count(Done(0)) == 1


@pytest.mark.parametrize("report", ["failed", "done"])
def test_a_report_ends_with_its_round(report: str) -> None:
    member = running()
    member.post.stopped(4000)
    member.post.failed(failed(1.0), 1.0) if report == "failed" else member.post.done(1.0)
    told(member, 2.0, place(1))
    said = rejoin(member, 3.0)
    assert next(one for one in said if isinstance(one, Join)).state == "idle"
    assert not [one for one in said if isinstance(one, Failed | Done)]
