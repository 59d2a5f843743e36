from __future__ import annotations

import sys
import threading
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from planaria.worker import agreement
from planaria.worker.agreement import COMMIT, NOTHING, STOP, Agreement
from planaria.worker.exchange import Group


class Flags:
    def __init__(self, values: list[int]) -> None:
        self.values = values

    def tolist(self) -> list[int]:
        return self.values


class Others:
    """A process group whose other ranks wish what the test says; stands in for torch."""

    def __init__(self) -> None:
        self.wish = NOTHING
        self.is_long = False
        self.messages = 0
        self.waits = 0

    def all_reduce(self, flags: Flags, operation: str, *, async_op: bool) -> Others:
        assert (operation, async_op) == ("max", True)
        flags.values = [*map(max, flags.values, (self.wish, self.is_long))]
        self.messages += 1
        return self

    def wait(self) -> None:
        self.waits += 1


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    found = Others()
    distributed = SimpleNamespace(all_reduce=found.all_reduce, ReduceOp=SimpleNamespace(MAX="max"))

    def tensor(values: list[int], **_: Any) -> Flags:
        return Flags([*map(int, values)])

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(tensor=tensor, int32=0, distributed=distributed))
    monkeypatch.setattr(agreement.exchange, "group", lambda: Group(0, 2, "cpu"))
    return found


class Steps:
    """Asks after steps that take as long as the test says, the first two of a run behind it."""

    def __init__(self, every: int = 1, step_s: float = 0.01) -> None:
        self._agreement = Agreement(every)
        self._now = 0.0
        self.step_s = step_s
        self.ask(NOTHING)
        self.ask(NOTHING)

    def ask(self, wish: int) -> int:
        self._now += self.step_s
        return self._agreement.ask(wish, self._now)

    def settle(self) -> int:
        return self._agreement.settle()


def test_an_answer_is_that_of_the_call_before_so_that_nobody_waits(others: Others) -> None:
    asked = Steps()
    waits = others.waits
    assert asked.ask(NOTHING) == NOTHING
    assert others.waits == waits, "the message travels while the next step is made"
    others.wish = STOP
    assert asked.ask(NOTHING) == NOTHING
    assert asked.ask(NOTHING) == STOP


def test_the_highest_wish_of_all_counts(others: Others) -> None:
    asked = Steps()
    others.wish = COMMIT
    asked.ask(NOTHING)
    assert asked.ask(NOTHING) == COMMIT
    asked.ask(STOP)
    assert asked.ask(NOTHING) == STOP


def test_a_commit_that_all_agreed_on_is_not_asked_for_again_before_it_is_made(others: Others) -> None:
    asked = Steps()
    before = others.messages
    found = [asked.ask(COMMIT) for _ in range(5)]  # a rank wants it until it was made, after the answer
    assert found == [NOTHING, COMMIT, NOTHING, COMMIT, NOTHING]
    assert others.messages == before + 3


def test_messages_are_as_rare_as_asked_for_and_no_wish_is_lost(others: Others) -> None:
    asked = Steps(every=3)
    before = others.messages
    found = [asked.ask(NOTHING if call < 1 else STOP) for call in range(3)]  # the fourth call of all is asked after
    assert found == [NOTHING] * 2 + [STOP]
    assert others.messages == before + 1


def test_after_a_stop_no_message_is_under_way(others: Others) -> None:
    asked = Steps()
    before = others.messages
    asked.ask(STOP)
    assert asked.ask(STOP) == STOP
    assert others.messages == others.waits == before + 1
    assert asked.settle() == NOTHING


def test_nobody_knows_how_long_the_first_step_will_be_so_its_own_answer_is_waited_for(others: Others) -> None:
    others.wish = STOP
    assert Agreement().ask(NOTHING, 7.0) == STOP


@pytest.mark.parametrize("wish", [STOP, COMMIT])
@pytest.mark.parametrize("every", [1, 100])
def test_after_a_long_step_its_own_answer_is_waited_for_however_rare_questions_are(
    others: Others, wish: int, every: int
) -> None:
    asked = Steps(every, step_s=4.0)
    assert [asked.ask(NOTHING) for _ in range(5)] == [NOTHING] * 5
    others.wish = wish
    assert asked.ask(NOTHING) == wish
    assert others.messages == others.waits, "none is under way"


def test_a_stop_is_heard_also_where_a_commit_was_being_agreed_on_as_steps_became_long(others: Others) -> None:
    asked = Steps()
    asked.step_s = 4.0
    asked.ask(COMMIT)
    others.wish = STOP
    assert asked.ask(COMMIT) == STOP


def test_when_steps_are_short_again_nobody_waits(others: Others) -> None:
    asked = Steps(step_s=4.0)
    asked.step_s = 0.01
    asked.ask(NOTHING)
    waits = others.waits
    asked.ask(NOTHING)
    assert others.waits == waits


class Pair:
    """A process group of two ranks, which are threads called 0 and 1."""

    def __init__(self) -> None:
        self._sent: tuple[list[list[int]], list[list[int]]] = [], []
        self._changed = threading.Condition()

    def all_reduce(self, flags: Flags, _operation: str, *, async_op: bool) -> SimpleNamespace:
        assert async_op
        rank = int(threading.current_thread().name)
        with self._changed:
            number = len(self._sent[rank])
            self._sent[rank].append(flags.values)
            self._changed.notify_all()
        return SimpleNamespace(wait=lambda: self._meet(flags, 1 - rank, number))

    def _meet(self, flags: Flags, other: int, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._sent[other]) > number, 30), "the other asks less often"
            flags.values = [*map(max, flags.values, self._sent[other][number])]


@pytest.mark.parametrize("every", [1, 2, 3])
def test_ranks_change_at_the_same_call_though_each_has_its_own_clock(
    others: Others, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One finds its steps long and short by turns, the other never long: after every call both have heard the same."""
    monkeypatch.setattr(sys.modules["torch"].distributed, "all_reduce", Pair().all_reduce)
    random = Random(every)
    steps_s = [[random.choice((0.01, 0.6)) for _ in range(60)], [0.4] * 60]
    wishes = [[random.choice((NOTHING, NOTHING, COMMIT)) for _ in range(60)] for _ in range(2)]
    heard: list[list[int]] = [[], []]

    def run(rank: int) -> None:
        asked, now = Agreement(every), 0.0
        for step_s, wish in zip(steps_s[rank], wishes[rank], strict=True):
            now += step_s
            heard[rank].append(asked.ask(wish, now))

    threads = [threading.Thread(target=run, args=(rank,), name=str(rank)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert heard[0] == heard[1]
    assert len(heard[0]) == 60
    assert COMMIT in heard[0]


def test_alone_a_rank_has_its_own_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    asked = Agreement()
    assert [asked.ask(wish, 0.0) for wish in (NOTHING, COMMIT, STOP)] == [NOTHING, COMMIT, STOP]
    assert not asked.is_impossible
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert asked.is_impossible
    assert not Agreement(agree=lambda wish: wish).is_impossible
