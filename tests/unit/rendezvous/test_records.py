"""The run's keys in a store that loses answers, goes away and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from faulty_store import AWAY, LOST, TTL_S, Bench

from planaria.rendezvous.lease import CLOSE_WITHIN_S
from planaria.rendezvous.model import KeyRead, KeyWritten, StoreAnswered, StoreLeaseLost, WriteKey
from planaria.rendezvous.records import GONE, why_no_run
from planaria.store.memory import MemoryStore
from planaria.store.model import Get, Grant, List, Put, Renew, Revoke, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.store.model import Reply, Request


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


def test_a_key_is_read_now_and_at_every_change(bench: Bench) -> None:
    bench.records.read("round")
    bench.settle()
    assert bench.take() == [KeyRead("round", None, 0)]
    bench.other.write(WriteKey("round", "one", 0))
    bench.settle()
    (first,) = bench.take()
    assert (first.value, first.revision > 0) == ("one", True)
    bench.other.write(WriteKey("round", None, first.revision))
    bench.settle()
    assert bench.take() == [KeyRead("round", None, 0)]
    assert bench.other_heard[-1] == KeyWritten("round", GONE)


def test_a_key_that_begins_alike_is_somebody_elses(bench: Bench) -> None:
    bench.records.read("round")
    bench.settle()
    bench.store.ask(Put("planaria/run/rounds", b"x"), lambda _reply: None)
    bench.store.ask(Put("planaria/run/round/x", b"x"), lambda _reply: None)
    bench.settle()
    assert bench.take() == [KeyRead("round", None, 0)]


def test_one_watch_serves_all_keys_of_a_run_and_none_of_another_that_begins_alike(bench: Bench) -> None:
    for key in ("leader", "round", "outcome"):
        bench.records.read(key)
    bench.settle()
    assert bench.take() == [KeyRead(key, None, 0) for key in ("leader", "round", "outcome")]
    assert bench.store.watched == ["planaria/run/"]
    assert [asked for asked in bench.store.asked if isinstance(asked, List)] == [List("planaria/run/")]
    bench.store.ask(Put("planaria/run2/round", b"x"), lambda _reply: None)
    bench.settle()
    assert bench.take() == []
    bench.other.write(WriteKey("leader", "one", 0))
    bench.settle()
    assert [event.key for event in bench.take()] == ["leader"]


def test_reading_again_reports_now_and_every_change_once(bench: Bench) -> None:
    for _ in range(3):
        bench.records.read("round")
        bench.settle()
    bench.take()
    bench.other.write(WriteKey("round", "one", 0))
    bench.settle()
    assert len(bench.take()) == 1


def test_whoever_comes_second_writes_nothing(bench: Bench) -> None:
    bench.other.write(WriteKey("leader", "other", 0))
    bench.settle()
    bench.records.write(WriteKey("leader", "mine", 0))
    bench.settle()
    assert bench.take() == [KeyWritten("leader", 0)]


def test_whoever_comes_second_renews_no_lease_for_nothing(bench: Bench) -> None:
    bench.other.write(WriteKey("leader", "other", 0))
    bench.settle()
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle(TTL_S * 2)
    assert bench.take() == [KeyWritten("leader", 0)]
    kinds = [type(asked) for asked in bench.store.asked]
    assert (kinds.count(Renew), kinds.count(Revoke)) == (0, 1)
    bench.records.write(WriteKey("leader", "mine", None, leased=True))
    bench.settle()
    assert bench.take()[0].revision, "the next attempt gets a lease of its own"


def test_a_leased_key_counts_from_the_moment_its_lease_was_asked_for(bench: Bench) -> None:
    began = bench.clock.now
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    written, answered = bench.take()
    assert isinstance(written, KeyWritten)
    assert written.revision
    assert answered == StoreAnswered(began)


def test_a_lease_is_renewed_three_times_in_its_life(bench: Bench) -> None:
    began = bench.clock.now
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle(TTL_S * 2 + 0.1)
    assert [event for event in bench.take() if isinstance(event, StoreAnswered)] == [
        StoreAnswered(pytest.approx(began + TTL_S * third / 3)) for third in range(7)
    ]


def test_a_lease_that_the_store_forgot_is_reported_and_replaced_on_demand(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    lease = next(asked for asked in bench.store.asked if isinstance(asked, Put)).lease
    bench.take()
    bench.store.ask(Revoke(lease), lambda _reply: None)
    bench.settle(TTL_S / 2)
    assert bench.take() == [StoreLeaseLost()]
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    assert bench.take()[0].revision


def test_a_write_on_a_lease_that_is_gone_fails_and_says_so(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    lease = next(asked for asked in bench.store.asked if isinstance(asked, Put)).lease
    bench.store.ask(Revoke(lease), lambda _reply: None)
    bench.settle()
    bench.take()
    bench.records.write(WriteKey("leader", "again", 0, leased=True))
    bench.settle()
    assert bench.take() == [KeyWritten("leader", 0), StoreLeaseLost()]


def test_renewals_go_on_after_a_store_was_away(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    bench.take()
    bench.store.script[Renew] = [AWAY] * 5
    bench.settle(TTL_S / 3 + 1)
    (answered,) = bench.take()
    assert isinstance(answered, StoreAnswered)
    assert answered.sent_at == pytest.approx(100.0 + TTL_S / 3 + 0.5)


def test_a_write_whose_answer_was_lost_is_found_to_be_ours(bench: Bench) -> None:
    bench.store.script[Put] = [LOST]
    bench.records.write(WriteKey("leader", "mine", 0))
    bench.settle(5)
    (written,) = bench.take()
    assert written.revision
    assert sum(isinstance(asked, Put) for asked in bench.store.asked) == 1


def test_a_write_whose_answer_was_lost_is_found_to_be_anothers(bench: Bench) -> None:
    bench.other.write(WriteKey("leader", "other", 0))
    bench.settle()
    bench.store.script[Put] = [LOST]
    bench.records.write(WriteKey("leader", "mine", 0))
    bench.settle(5)
    assert bench.take() == [KeyWritten("leader", 0)]


def test_a_write_that_happens_after_it_was_given_up_is_found_to_be_ours(bench: Bench) -> None:
    late: list[Callable[[], None]] = []
    usual = MemoryStore.ask

    def slow(asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = 5.0) -> None:
        bench.store.asked.append(asked)
        if isinstance(asked, Put) and not late:
            late.append(lambda: usual(bench.store, asked, lambda _reply: None))
            bench.loop.call_soon(lambda: on_reply(Unavailable("slow", maybe_done=True)))
            return
        if isinstance(asked, Put):
            late[0]()
        usual(bench.store, asked, on_reply, timeout_s=timeout_s)

    bench.store.ask = slow  # type: ignore[method-assign]
    bench.records.write(WriteKey("leader", "mine", 0))
    bench.settle(5)
    (written,) = bench.take()
    assert written.revision


def test_a_store_that_is_away_is_written_to_when_it_is_back(bench: Bench) -> None:
    bench.store.script[Put] = [AWAY, AWAY, AWAY]
    bench.records.write(WriteKey("leader", "mine", 0))
    bench.settle(5)
    assert bench.take()[0].revision


def test_a_removal_whose_answer_was_lost_counts(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0))
    bench.settle()
    (written,) = bench.take()
    from planaria.store.model import Delete

    bench.store.script[Delete] = [LOST]
    bench.records.write(WriteKey("leader", None, written.revision))
    bench.settle(5)
    assert bench.take() == [KeyWritten("leader", GONE)]


def test_a_newer_order_replaces_one_under_way(bench: Bench) -> None:
    bench.store.script[Put] = [AWAY] * 3
    bench.records.write(WriteKey("leader", "old", 0))
    bench.records.write(WriteKey("leader", "new", 0))
    bench.settle(5)
    (written,) = bench.take()
    assert written.revision
    bench.store.ask(Get("planaria/run/leader"), bench.heard.append)
    bench.settle()
    assert bench.heard[0].value == b"new"


@pytest.mark.parametrize("watched_before", [True, False])
def test_an_outcome_tells_its_age(bench: Bench, watched_before: bool) -> None:
    if watched_before:
        bench.records.read("outcome")
        bench.settle()
        bench.take()
    bench.other.write(WriteKey("outcome", "done", None))
    bench.settle()
    bench.settle(40)
    if watched_before:
        (told,) = bench.take()
        assert told.age_s == pytest.approx(0.0)
    bench.records.read("outcome")
    bench.settle()
    (told,) = bench.take()
    assert (told.value, told.age_s) == ("done", pytest.approx(40))


def test_an_outcome_is_forgotten_after_a_day(bench: Bench) -> None:
    bench.other.write(WriteKey("outcome", "done", None))
    bench.settle(86400 + 1)
    bench.records.read("outcome")
    bench.settle()
    assert bench.take() == [KeyRead("outcome", None, 0)]


def test_the_age_of_an_outcome_counts_from_its_last_attempt(bench: Bench) -> None:
    bench.store.script[Put] = [AWAY] * 8
    bench.records.write(WriteKey("outcome", "done", None))
    bench.settle(60)
    bench.other.read("outcome")
    bench.settle()
    asked = [at for at in bench.store.asked if isinstance(at, Grant)]
    assert len(asked) == 9
    assert 40 < bench.other_heard[-1].age_s < 60


def test_closing_gives_the_lease_back(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    bench.other.read("leader")
    bench.settle()
    bench.records.close()
    bench.settle()
    assert bench.other_heard[-1] == KeyRead("leader", None, 0)
    bench.take()
    bench.settle(TTL_S * 2)
    assert bench.take() == []


def test_closing_calls_back_when_the_lease_is_given_back_or_soon_after(bench: Bench) -> None:
    done: list[float] = []
    bench.other.close(lambda: done.append(bench.clock.now))
    assert done == [100.0], "there was nothing to give back"
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    bench.records.close(lambda: done.append(bench.clock.now))
    assert len(done) == 1
    bench.settle()
    assert len(done) == 2


def test_closing_does_not_wait_long_for_a_store_that_is_silent(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    bench.store.ask = lambda *_args, **_more: None  # type: ignore[method-assign]
    done: list[float] = []
    bench.records.close(lambda: done.append(bench.clock.now))
    bench.settle(2 * CLOSE_WITHIN_S)
    assert done == [100.0 + CLOSE_WITHIN_S]


def test_closing_waits_for_what_the_store_was_asked_last(bench: Bench) -> None:
    """A real store loses what it has not answered when its connection is closed: so does this one."""
    usual, closed, done = bench.store.ask, bench.store.close, []
    left: list[bool] = []

    def slow(asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = 5.0) -> None:
        bench.loop.call_later(0.2, lambda: None if left else usual(asked, on_reply, timeout_s=timeout_s))

    bench.store.ask = slow  # type: ignore[method-assign]
    bench.store.close = lambda: (left.append(True), closed())  # type: ignore[method-assign]
    bench.other.read("round")
    bench.records.write(WriteKey("round", "empty", 0))
    bench.records.close(lambda: done.append(bench.clock.now))
    assert done == []
    bench.settle(1)
    assert bench.other_heard[-1].value == "empty"
    assert bench.take() == [], "nobody is told after it was closed"
    assert done == [100.2]


def test_closing_gives_the_lease_back_although_a_question_stays_open(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    usual = bench.store.ask

    def deaf(asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = 5.0) -> None:
        if not isinstance(asked, Put):
            usual(asked, on_reply, timeout_s=timeout_s)

    bench.store.ask = deaf  # type: ignore[method-assign]
    bench.records.write(WriteKey("round", "empty", 0))
    bench.other.read("leader")
    done: list[float] = []
    bench.records.close(lambda: done.append(bench.clock.now))
    bench.settle(2 * CLOSE_WITHIN_S)
    assert done == [100.0 + CLOSE_WITHIN_S]
    assert bench.other_heard[-1] == KeyRead("leader", None, 0)


def test_a_run_id_that_no_store_can_hold_is_named() -> None:
    assert why_no_run("fine") is None
    assert why_no_run("x" * 600) is not None
