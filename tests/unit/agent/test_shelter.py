"""What the end of a run means for commits that only the agent's memory has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from planaria.agent.main import _shelter
from planaria.agent.model import Outcome

SIGNAL = Outcome("signal", 143, 15)
NOW, STOP_AT, GRACE_S = 1010.0, 1000.0, 30.0


class Keeper:
    def __init__(self, *, succeeds: bool, has_parts: bool = True) -> None:
        self.succeeds, self.has_parts = succeeds, has_parts
        self.asked: list[float] = []

    def flush(self, within_s: float) -> bool:
        self.asked.append(within_s)
        return self.succeeds


def ended(
    outcome: Outcome,
    keeper: Keeper | None,
    *,
    noticed: bool,
    handed_over: bool = False,
    is_stored: bool | None = None,
) -> Outcome:
    job: Any = SimpleNamespace(shutdown_timeout_s=GRACE_S)
    loop: Any = SimpleNamespace(now=lambda: NOW)
    driver: Any = SimpleNamespace(
        keeper=keeper,
        hearsay=None if is_stored is None else SimpleNamespace(is_whole=is_stored),
        group=SimpleNamespace(stop_at=STOP_AT),
        was_noticed=noticed,
        has_handed_over=handed_over,
    )
    return _shelter(job, loop, driver, outcome)


@pytest.mark.parametrize(
    ("noticed", "succeeds", "status"), [(True, True, 75), (True, False, 143), (False, True, 143), (False, False, 143)]
)
def test_only_a_drain_that_was_announced_and_lost_nothing_says_run_me_again(
    noticed: bool, succeeds: bool, status: int
) -> None:
    keeper = Keeper(succeeds=succeeds)
    assert ended(SIGNAL, keeper, noticed=noticed).status == status
    assert keeper.asked == [STOP_AT + GRACE_S - NOW], "what the workers left of the grace"


def test_a_stop_of_the_whole_run_is_no_drain() -> None:
    stopped = Outcome("stopped", 143, explanation="enough")
    assert ended(stopped, Keeper(succeeds=True), noticed=True) == stopped


@pytest.mark.parametrize("kind", ["done", "failed"])
def test_any_other_end_has_the_whole_grace_and_its_own_status(kind: Any) -> None:
    keeper, outcome = Keeper(succeeds=True), Outcome(kind, 7)
    assert ended(outcome, keeper, noticed=True) == outcome
    assert keeper.asked == [GRACE_S]


def test_a_run_whose_launcher_is_gone_ends_at_once() -> None:
    keeper, outcome = Keeper(succeeds=True), Outcome("abandoned", 137)
    assert ended(outcome, keeper, noticed=False) == outcome
    assert keeper.asked == []


def test_a_run_without_commits_ends_as_ever() -> None:
    assert ended(SIGNAL, None, noticed=True) == SIGNAL


def test_what_another_node_has_is_not_lost_either() -> None:
    assert ended(SIGNAL, Keeper(succeeds=False), noticed=True, handed_over=True).status == 75


@pytest.mark.parametrize(
    ("noticed", "is_stored", "status"), [(True, True, 75), (True, False, 143), (False, True, 143), (False, False, 143)]
)
def test_what_ranks_have_stored_by_themselves_counts_as_much(noticed: bool, is_stored: bool, status: int) -> None:
    assert ended(SIGNAL, None, noticed=noticed, is_stored=is_stored).status == status


@pytest.mark.parametrize(("succeeds", "is_stored"), [(True, False), (False, True)])
def test_where_there_are_both_neither_may_be_lost(succeeds: bool, is_stored: bool) -> None:
    assert ended(SIGNAL, Keeper(succeeds=succeeds), noticed=True, is_stored=is_stored).status == 143


@pytest.mark.parametrize(("is_stored", "status"), [(None, 143), (True, 75), (False, 143)])
def test_a_state_that_has_never_made_a_commit_loses_none(is_stored: bool | None, status: int) -> None:
    keeper = Keeper(succeeds=False, has_parts=False)
    assert ended(SIGNAL, keeper, noticed=True, is_stored=is_stored).status == status
