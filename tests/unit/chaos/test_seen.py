"""What agents say of themselves, and when a fault is due."""

from __future__ import annotations

from typing import Any

from planaria.chaos.pace import FIRST_STEP_WITHIN_S, Pace, Recovery
from planaria.chaos.seen import World, floor, is_safe, world


def status(rank: int, *, step: int | None = 5, **changes: Any) -> dict[str, Any]:
    found = {
        "ready": True,
        "round": {"number": 3, "world_size": 2},
        "workers": [{"rank": rank, "state": "running"}],
        "progress": {str(rank): None if step is None else {"step": step}},
        "newest_commit": {"node": commit(step or 0), "buddy": commit(4), "disk": None},
    }
    return {**found, **changes}


def commit(step: int, round_: int = 3) -> dict[str, int]:
    return {"run": 1, "round": round_, "generation": step, "step": step}


def test_a_world_is_whole_when_all_nodes_work_in_one_round() -> None:
    assert world([status(0, step=6), status(1)], 2) == World(3, 5, {"node": (6, 3), "buddy": (4, 3)})


def test_a_world_with_a_gap_is_none() -> None:
    whole = status(1)
    for other in (
        None,
        status(0, ready=False),
        status(0, round=None),
        status(0, round={"number": 2, "world_size": 2}),
        status(0, workers=[]),
        status(0, workers=[{"rank": 0, "state": "ended"}]),
        status(1),
    ):
        assert world([other, whole], 2) is None


def test_a_rank_that_has_told_no_step_leaves_it_open() -> None:
    found = world([status(0, step=None), status(1)], 2)
    assert found is not None
    assert found.step is None


def test_the_newest_commit_is_that_of_the_latest_round() -> None:
    old, new = commit(9, round_=2), commit(7)
    found = world([status(0, newest_commit={"buddy": old}), status(1, newest_commit={"buddy": new})], 2)
    assert found is not None
    assert found.commits == {"buddy": (7, 3)}


def test_one_more_loss_is_bearable_when_something_of_this_round_has_two_copies() -> None:
    assert is_safe(World(3, 5, {"node": (5, 3), "buddy": (4, 3)}))
    assert not is_safe(World(3, 5, {"node": (5, 3), "buddy": (4, 2)}))
    assert is_safe(World(3, 5, {}))


def test_what_is_promised_depends_on_what_is_lost() -> None:
    seen = World(3, 9, {"node": (8, 3), "buddy": (6, 3), "disk": (9, 3)})
    assert floor(seen, "nothing") == 8
    assert floor(seen, "workers") == 8
    assert floor(seen, "node") == 6
    assert floor(seen, "all") is None


def test_a_fault_is_due_after_so_many_steps() -> None:
    pace = Pace(0.0)
    pace.expect(2)
    assert not pace.is_due(World(0, 10, {}), 0.0)
    assert not pace.is_due(World(0, 11, {}), 50.0)
    assert pace.is_due(World(0, 12, {}), 50.1)
    pace.expect(1)
    assert not pace.is_due(World(0, None, {}), 99.0)
    assert not pace.is_due(World(0, 12, {}), 99.1)
    assert pace.is_due(World(0, 13, {}), 99.2)


def test_a_pace_is_kept() -> None:
    pace = Pace(5.0)
    pace.expect(1)
    assert not pace.is_due(World(0, 10, {}), 0.0)
    assert not pace.is_due(World(0, 90, {}), 4.9)
    assert pace.is_due(World(0, 91, {}), 5.0)


def test_a_job_that_tells_no_steps_is_struck_by_the_clock() -> None:
    pace = Pace(0.0)
    pace.expect(3)
    assert not pace.is_due(World(0, None, {}), 0.0)
    assert not pace.is_due(World(0, None, {}), FIRST_STEP_WITHIN_S - 0.1)
    assert pace.is_due(World(0, None, {}), FIRST_STEP_WITHIN_S)
    pace.expect(3)
    assert not pace.is_due(World(0, None, {}), 20.0)
    assert pace.is_due(World(0, None, {}), 21.0)


def test_a_round_that_went_on_is_back_with_its_next_step() -> None:
    recovery = Recovery(World(3, 9, {}), is_anew=False, is_fatal=False)
    assert not recovery.is_back(World(3, None, {}))
    assert not recovery.is_back(World(3, 11, {}))  # some of these were made before the fault
    assert not recovery.is_back(World(3, 11, {}))
    assert recovery.is_back(World(3, 12, {}))


def test_a_round_that_cannot_go_on_is_back_with_the_first_step_of_the_next() -> None:
    recovery = Recovery(World(3, 9, {}), is_anew=False, is_fatal=True)
    assert not recovery.is_back(World(3, 99, {}))
    assert not recovery.is_back(World(4, None, {}))
    assert recovery.is_back(World(4, 1, {}))


def test_a_job_that_was_started_again_counts_rounds_anew() -> None:
    recovery = Recovery(World(3, 9, {}), is_anew=True, is_fatal=False)
    assert not recovery.is_back(World(0, None, {}))
    assert recovery.is_back(World(0, 8, {}))


def test_a_job_that_tells_no_steps_is_back_when_it_is_whole() -> None:
    assert Recovery(World(3, None, {}), is_anew=False, is_fatal=False).is_back(World(3, None, {}))
    assert Recovery(World(3, None, {}), is_anew=False, is_fatal=True).is_back(World(4, None, {}))
    assert not Recovery(World(3, None, {}), is_anew=False, is_fatal=True).is_back(World(3, None, {}))
