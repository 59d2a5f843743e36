from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planaria.kube import restart
from planaria.kube.memory import Look
from planaria.kube.places import Ground, elastic_places, fixed_places
from planaria.kube.restart import Judged
from planaria.kube.seen import PodSeen

# A pod at an index: r runs, s starts, w waits for the scheduler, p was refused by it, g is on its way out, l is so on a
# lost node, f has failed.
KINDS = "rswpglf"


def _ground(row: str, held: frozenset[int] = frozenset()) -> Ground:
    looks, lost = [], set()
    for index, kind in enumerate(row):
        if kind not in KINDS:
            continue
        pod = PodSeen(
            f"w-{index}",
            f"u{index}",
            "Worker",
            index,
            "Failed" if kind == "f" else "Running",
            is_going=kind in "gl",
            node="" if kind in "wp" else "n",
            is_running=kind == "r",
            is_ready=kind == "r",
            unschedulable="no room" if kind == "p" else None,
        )
        looks.append(Look(pod, Judged(restart.REPLACED, True, "why") if kind == "f" else None))
        if kind == "l":
            lost.add(pod.uid)
    return Ground(tuple(looks), held, frozenset(lost))


def _decided(row: str, target: int, held: frozenset[int] = frozenset()) -> tuple[list[int], list[int]]:
    places = elastic_places(_ground(row, held), target)
    return list(places.create), [pod.index for pod in places.delete]


def test_a_new_job_fills_its_places_from_0() -> None:
    assert _decided("", 3) == ([0, 1, 2], [])


def test_a_hole_is_filled_and_a_failed_pod_leaves_first() -> None:
    assert _decided("r.r", 3) == ([1], [])
    assert _decided("rfr", 3) == ([], [1])
    assert _decided("rgr", 3) == ([], [])


def test_the_next_free_index_stands_in_for_a_lost_one_and_stays_when_it_is_gone() -> None:
    assert _decided("rlr", 3) == ([3], [])
    assert _decided("rlrr", 3) == ([], [])
    assert _decided("r.rr", 3) == ([], [])


def test_the_least_useful_go_first() -> None:
    assert _decided("rrr", 2) == ([], [2])
    assert _decided("prr", 2) == ([], [0])
    assert _decided("rrrp", 2) == ([], [3, 2])
    assert _decided("wsr", 2) == ([], [0])
    assert _decided("swp", 2) == ([], [2])


def test_who_has_failed_is_not_waited_for_when_nobody_needs_it() -> None:
    assert _decided("rrf", 2, held=frozenset({2})) == ([], [2])


def test_a_place_whose_time_has_not_come_waits_and_nobody_jumps_in() -> None:
    assert _decided("r", 2, held=frozenset({1})) == ([], [])
    assert _decided("rf", 2, held=frozenset({1})) == ([], [])


def test_a_plain_job_s_places_wait_for_themselves() -> None:
    places = fixed_places(_ground("rlf."), range(4))
    assert (places.create, [pod.index for pod in places.delete]) == ((3,), [2])
    assert fixed_places(_ground("", frozenset({1})), range(2)).create == (0,)


@given(st.text(KINDS + ".", max_size=8), st.integers(1, 6), st.sets(st.integers(0, 7)))
def test_whatever_is_there_nobody_is_doubled_or_deleted_for_nothing(row: str, target: int, held: set[int]) -> None:
    ground = _ground(row, frozenset(held))
    places = elastic_places(ground, target)
    live = {look.pod.index for look in ground.looks if look.is_live}
    gone = {pod.index for pod in places.delete}
    assert not set(places.create) & {look.pod.index for look in ground.looks}
    assert not set(places.create) & held
    assert len(live - gone) + len(places.create) <= target
    assert len(live & gone) == max(0, len(live) - target)
    assert not (places.create and live & gone)


@given(st.text(KINDS + ".", max_size=8), st.integers(1, 6))
def test_left_alone_every_row_comes_to_its_number(row: str, target: int) -> None:
    for _ in range(20):
        places = elastic_places(_ground(row), target)
        gone = {pod.index for pod in places.delete}
        after = ["." if kind == "g" or at in gone else kind for at, kind in enumerate(row)]  # who is told to go, goes
        after += ["."] * (max(places.create, default=-1) + 1 - len(after))
        for index in places.create:
            after[index] = "r"
        row = "".join(after)
    assert sum(row.count(kind) for kind in "rswp") == target
    assert "f" not in row
