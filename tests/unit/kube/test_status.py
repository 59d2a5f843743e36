from __future__ import annotations

import itertools

import pytest
from kubesim.given import Desk, elastic_spec

from planaria.kube import conditions, status
from planaria.kube.conditions import CREATED, INVALID, STATES, SUSPENDED, TERMINAL, TRANSITIONS
from planaria.kube.seen import JobSeen
from planaria.kube.status import Told

PAIRS = [
    (before, after)
    for before, after in itertools.product(["", *STATES], STATES)
    if before not in TERMINAL and (after != CREATED or after in TRANSITIONS[before])
]


def _conditions(*states: str) -> list[dict[str, str]]:
    last = len(states) - 1
    return [
        {"type": state, "status": "True" if at == last or state == CREATED else "False", "reason": "R", "message": "m"}
        for at, state in enumerate(states)
    ]


@pytest.mark.parametrize("has_created", [True, False])
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_state_is_reached_whether_the_job_was_created_first_or_not(
    before: str, after: str, has_created: bool
) -> None:
    shown = ([CREATED] if has_created and before != CREATED else []) + ([before] if before else [])
    known = _conditions(*shown)
    for condition in known:
        condition |= {"lastTransitionTime": "", "lastUpdateTime": ""}
    job = JobSeen("resnet", "n", "u", 1, False, {}, {"conditions": known})
    entered = status.enter(job, Told(after, "Reason", "message"), 1000.0)
    assert conditions.state_of(entered) == after
    assert entered[-1]["type"] == after
    assert after in (INVALID, SUSPENDED) or conditions.has_been(entered, CREATED)


def test_a_job_that_was_wrong_first_may_wait_for_the_objects_of_one_before_it() -> None:
    desk = Desk(elastic_spec(least=3, most=1))
    desk.look()
    assert desk.state == "Invalid"
    desk.spec = elastic_spec()
    desk.world["foreign"] = frozenset({("Pod", "resnet-worker-0")})
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", "NameTaken")
    assert [condition["type"] for condition in desk.status["conditions"]] == ["Created", "Invalid", "BelowMin"]


@pytest.mark.parametrize(("failed", "told"), [(10, 10), (11, 11), (600, 11)])
def test_many_pods_that_fail_at_once_are_a_few_events(failed: int, told: int) -> None:
    attempts = {f"resnet-worker-{index}": {"uid": str(index), "why": f"{index} ended"} for index in range(failed)}
    found = status.events({}, {"conditions": [], "operator": {"attempts": attempts}})
    assert len(found) == told
    assert found[0].message == "0 ended; it is replaced"
    if failed > 10:
        assert found[-1].message == f"{failed - 10} more pods failed or were taken"
