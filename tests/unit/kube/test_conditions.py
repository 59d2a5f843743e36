from __future__ import annotations

import itertools

import pytest

from planaria.errors import InvalidTransition
from planaria.kube import conditions
from planaria.kube.conditions import (
    CREATED,
    FAILED,
    INVALID,
    RESTARTING,
    RUNNING,
    STATES,
    SUCCEEDED,
    SUSPENDED,
    TERMINAL,
    TRANSITIONS,
)

Json = dict[str, str]


def _walk(*states: str) -> list[Json]:
    known: list[Json] = []
    for at, state in enumerate(states):
        known = conditions.enter(known, state, f"Job{state}", f"it is {state}", 100.0 * at)
    return known


def test_every_state_is_described_and_every_step_leads_to_one() -> None:
    assert set(TRANSITIONS) == {"", *STATES}
    assert {state for steps in TRANSITIONS.values() for state in steps} == set(STATES)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, STATES)))
def test_a_job_goes_where_the_machine_leads_and_nowhere_else(before: str, after: str) -> None:
    known = _walk(CREATED) if before == CREATED else _walk(CREATED, before)
    if after == before or after in TRANSITIONS[before]:
        assert conditions.state_of(conditions.enter(known, after, "R", "m", 1.0)) == after
    else:
        with pytest.raises(InvalidTransition):
            conditions.enter(known, after, "R", "m", 1.0)


@pytest.mark.parametrize("terminal", TERMINAL)
def test_terminal_is_terminal(terminal: str) -> None:
    assert TRANSITIONS[terminal] == ()


def test_one_condition_is_true_beside_created_and_stands_last() -> None:
    known = _walk(CREATED, RUNNING, RESTARTING, RUNNING)
    assert [(condition["type"], condition["status"]) for condition in known] == [
        ("Created", "True"),
        ("Restarting", "False"),
        ("Running", "True"),
    ]


def test_what_stays_the_same_keeps_its_times() -> None:
    known = _walk(CREATED, RUNNING)
    assert conditions.enter(known, RUNNING, "JobRunning", f"it is {RUNNING}", 9999.0) == known
    told = conditions.enter(known, RUNNING, "JobRunning", "another sentence", 9999.0)
    assert told[-1]["lastTransitionTime"] == known[-1]["lastTransitionTime"]
    assert told[-1]["lastUpdateTime"] == "1970-01-01T02:46:39Z"


def test_the_end_turns_running_off() -> None:
    known = _walk(CREATED, RUNNING, SUCCEEDED)
    assert {condition["type"]: condition["status"] for condition in known} == {
        "Created": "True",
        "Running": "False",
        "Succeeded": "True",
    }


def test_the_end_is_seen_whatever_somebody_wrote_after_it() -> None:
    known = [*_walk(CREATED, FAILED), {"type": RUNNING, "status": "True"}]
    assert conditions.state_of(known) == FAILED


def test_a_job_that_nobody_has_seen_has_no_state() -> None:
    assert conditions.state_of([]) == ""
    assert conditions.state_of([{"type": "Strange", "status": "True"}]) == ""


def test_a_resumed_job_is_created_again() -> None:
    assert conditions.state_of(_walk(CREATED, RUNNING, SUSPENDED, CREATED)) == CREATED


@pytest.mark.parametrize(
    ("known", "state", "told"),
    [
        ([], "Nonsense", "while unseen"),
        ([{"type": SUSPENDED, "status": "True"}], RUNNING, f"while {SUSPENDED}"),
        ([{"type": INVALID, "status": "True"}], RUNNING, f"while {INVALID}"),
    ],
)
def test_a_step_that_the_machine_has_not_says_from_where(known: list[Json], state: str, told: str) -> None:
    """A job that was never created can go from Invalid to no state that a created one has."""
    with pytest.raises(InvalidTransition, match=told):
        conditions.enter(known, state, "R", "m", 1.0)
