from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from planaria.worker import agreement
from planaria.worker.agreement import COMMIT, NOTHING, STOP, Agreement
from planaria.worker.exchange import Group


class Flag:
    def __init__(self, value: int) -> None:
        self.value = value

    def item(self) -> int:
        return self.value


class Others:
    """A process group whose other ranks wish what the test says; stands in for torch."""

    def __init__(self) -> None:
        self.wish = NOTHING
        self.messages = 0
        self.waits = 0

    def all_reduce(self, flag: Flag, operation: str, *, async_op: bool) -> Others:
        assert (operation, async_op) == ("max", True)
        flag.value = max(flag.value, self.wish)
        self.messages += 1
        return self

    def wait(self) -> None:
        self.waits += 1


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    found = Others()
    distributed = SimpleNamespace(all_reduce=found.all_reduce, ReduceOp=SimpleNamespace(MAX="max"))

    def tensor(values: list[int], **_: Any) -> Flag:
        return Flag(values[0])

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(tensor=tensor, int32=0, distributed=distributed))
    monkeypatch.setattr(agreement.exchange, "group", lambda: Group(0, 2, "cpu"))
    return found


def test_an_answer_is_that_of_the_call_before_so_that_nobody_waits(others: Others) -> None:
    asked = Agreement()
    assert asked.ask(NOTHING) == NOTHING
    assert others.waits == 0, "the first message travels while the next step is made"
    others.wish = STOP
    assert asked.ask(NOTHING) == NOTHING
    assert asked.ask(NOTHING) == STOP


def test_the_highest_wish_of_all_counts(others: Others) -> None:
    asked = Agreement()
    others.wish = COMMIT
    asked.ask(NOTHING)
    assert asked.ask(NOTHING) == COMMIT
    asked.ask(STOP)
    assert asked.ask(NOTHING) == STOP


def test_a_commit_that_all_agreed_on_is_not_asked_for_again_before_it_is_made(others: Others) -> None:
    asked = Agreement()
    found = [asked.ask(COMMIT) for _ in range(5)]  # a rank wants it until it was made, after the answer
    assert found == [NOTHING, COMMIT, NOTHING, COMMIT, NOTHING]
    assert others.messages == 3


def test_messages_are_as_rare_as_asked_for_and_no_wish_is_lost(others: Others) -> None:
    asked = Agreement(every=3)
    found = [asked.ask(NOTHING if call < 2 else STOP) for call in range(5)]
    assert found == [NOTHING] * 4 + [STOP]
    assert others.messages == 2


def test_after_a_stop_no_message_is_under_way(others: Others) -> None:
    asked = Agreement()
    asked.ask(STOP)
    assert asked.ask(STOP) == STOP
    assert others.messages == others.waits == 1
    assert asked.settle() == NOTHING


def test_alone_a_rank_has_its_own_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    asked = Agreement()
    assert [asked.ask(wish) for wish in (NOTHING, COMMIT, STOP)] == [NOTHING, COMMIT, STOP]
    assert not asked.is_impossible
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert asked.is_impossible
    assert not Agreement(agree=lambda wish: wish).is_impossible
