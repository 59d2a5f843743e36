"""Whole lives of jobs in a simulated cluster: the shipped decisions, everything around them in virtual time.

`PLANARIA_SIM_CLUSTERS` says how many there are, 500 by default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest
from kubesim.faults import seeded
from kubesim.life import NAME, Life, elastic_job
from kubesim.server import Json

from planaria.base.value import replace
from planaria.kube import burial, case, memory, places, plan, status
from planaria.kube.model import Action
from planaria.kube.names import JOB_KIND
from planaria.kube.reconcile import Reconciler

CLUSTERS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500"))
SHARES = 10  # so that several processes have something to do
KILL_SHARES = 4


def _life(kill_at: int | None = None) -> Life:
    """Grow to 2, try 3 where there is no room, come back, and grow to 3 when there is."""
    life = Life(7, elastic_job(most=3), {"n1": 2, "n2": 0}, work=200.0)
    life.time.after(40.0, lambda: life.nodes.resize("n2", 2))
    if kill_at is not None:
        life.operator.kill_at = {kill_at}
    return life.go_until_over()


def _deletes(life: Life, name: str) -> None:
    life.server.delete("Pod", name)


def _evicts(life: Life, name: str) -> None:
    life.nodes.evict(name)


@pytest.mark.timeout(120 + CLUSTERS)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_job_survives_everything_and_ends_well(share: int) -> None:
    for seed in range(share, CLUSTERS, SHARES):
        life = seeded(seed).go_until_over()
        assert life.states[-1] == "Succeeded", f"seed {seed}: {life.status['conditions'][-1]}"


def test_the_whole_life_is_what_it_should_be() -> None:
    life = _life()
    assert life.states == ["Created", "Running", "Succeeded"]
    assert life.targets[:4] == [1, 2, 3, 2]
    assert life.targets[-1] == 3
    assert life.run.sizes == {1, 2, 3}
    told = [event for event in life.operator.events if event.startswith("ScalingStop")]
    assert "There exists pending pods, return to the last replicas" in told[0]


@pytest.mark.parametrize(("room", "most", "found"), [(3, 4, [1, 2, 4, 2, 3]), (5, 8, [1, 2, 4, 8, 4, 5])])
def test_a_job_finds_the_size_that_there_is_room_for_and_asks_for_more_less_and_less(
    room: int, most: int, found: list[int]
) -> None:
    life = Life(7, elastic_job(most=most), {"n1": room}, work=1e9).go(1500.0)
    asked = life.targets[len(found) :]
    assert life.targets[: len(found)] == found
    assert asked == [room + 1, room] * (len(asked) // 2), "one more at a time, and back"
    assert len(asked) <= 14  # 20 s, 40 s, 80 s and so on
    assert max(life.run.sizes) == room


@pytest.mark.parametrize("loses", [_deletes, _evicts])
def test_a_worker_of_its_own_that_goes_is_no_room_for_a_job(loses: Callable[[Life, str], None]) -> None:
    life = Life(7, elastic_job(most=4, retrySeconds=3600), {"n1": 3}, work=1e9).go(60.0)
    assert life.targets == [1, 2, 4, 2]
    loses(life, f"{NAME}-worker-0")
    assert not life.go(60.0).status["scaling"]["room"]
    life.nodes.resize("n1", 4)
    assert life.go(20.0).status["scaling"]["room"]


@pytest.mark.parametrize("share", range(KILL_SHARES))
def test_an_operator_killed_at_any_call_changes_nothing_about_the_end(share: int) -> None:
    whole = _life()
    for index in range(share, whole.operator.calls, KILL_SHARES):
        assert _life(index).end_state() == whole.end_state(), f"killed at call {index}"


def test_a_silent_node_s_pod_and_its_replacement_are_both_alive_under_two_names_in_one_world() -> None:
    life = Life(3, elastic_job(2, 2, 2), {"n1": 1, "n2": 1, "n3": 1}, work=400.0)
    life.go(20.0)
    silent = next(container.node for container in life.nodes.running.values() if container.name == f"{NAME}-worker-0")
    life.nodes.fall_silent(silent)
    life.go(90.0)
    assert life.pods() == [f"{NAME}-worker-0", f"{NAME}-worker-1", f"{NAME}-worker-2"]
    assert sorted(container.name for container in life.nodes.running.values()) == life.pods()
    assert life.run.sizes == {2}  # the third waits as an extra
    life.nodes.speak_again(silent)
    life.go(30.0)
    assert life.pods() == [f"{NAME}-worker-1", f"{NAME}-worker-2"]
    assert life.go_until_over().states[-1] == "Succeeded"


def test_the_replacement_of_the_only_worker_waits_until_the_machine_is_said_to_be_off() -> None:
    life = Life(3, elastic_job(1, 1, 1), {"n1": 1, "n2": 1}, work=100.0)
    life.go(20.0)
    (lost,) = [container.node for container in life.nodes.running.values()]
    life.nodes.power_off(lost)
    done = life.go(5.0).run.done
    life.go(200.0)
    assert [container.name for container in life.nodes.running.values()] == [f"{NAME}-worker-1"]
    assert life.run.is_holding
    assert life.run.done == done, "its pod is still there: it may train on, for all that anybody knows"
    life.nodes.vanish(lost)  # its Node is deleted, and with it the pod
    assert life.go_until_over().states[-1] == "Succeeded"


def test_a_machine_that_is_back_confirms_that_its_pods_are_gone() -> None:
    life = Life(3, elastic_job(2, 2, 2), {"n1": 2, "n2": 2}, work=100.0)
    life.go(20.0)
    life.nodes.power_off("n1")
    life.nodes.power_off("n2")
    life.nodes.add("n3", 2)
    life.go(200.0)
    assert life.run.is_holding
    life.nodes.speak_again("n1")
    life.nodes.speak_again("n2")
    assert life.go_until_over().states[-1] == "Succeeded"


def test_a_job_made_again_under_its_name_starts_afresh_when_the_old_one_s_pods_are_gone() -> None:
    life = Life(5, elastic_job(), {"n1": 2}, work=1e9)
    life.go(20.0)
    life.server.objects.pop((JOB_KIND, NAME))  # orphaned: its pods stay for a while
    life.states.clear()
    life.targets.clear()
    life.server.create(JOB_KIND, elastic_job())
    life.go(20.0)
    assert life.states == ["BelowMin"]
    assert "is there and not of this job" in life.status["conditions"][-1]["message"]
    for kind, name in list(life.server.objects):
        if kind not in (JOB_KIND, "Node"):
            life.server.remove(kind, name)
    life.nodes.running.clear()
    life.go(30.0)
    assert life.states[-1] == "Running"


def _acts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is written after what follows from it was done."""
    write, act = Reconciler._write_status, Reconciler._act
    late: list[tuple[Json, Json]] = []

    async def later(_self: Reconciler, obj: Json, status: Json) -> Json:
        late.append((obj, status))
        return obj

    async def first(self: Reconciler, job: Json, actions: Sequence[Action]) -> float | None:
        try:
            return await act(self, job, actions)
        finally:
            if late:
                await write(self, *late.pop())

    monkeypatch.setattr(Reconciler, "_write_status", later)
    monkeypatch.setattr(Reconciler, "_act", first)


def _takes_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    right = places._usefulness
    monkeypatch.setattr(places, "_usefulness", lambda pod: tuple(-part for part in right(pod)))


def _has_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    right = places.elastic_places
    monkeypatch.setattr(plan, "elastic_places", lambda ground, target: right(ground, target + 1))


def _waits_for_the_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case.Case, "is_lost", lambda *_: False)


def _forgets_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    right = status.scaled
    monkeypatch.setattr(status, "scaled", lambda verdict: {**right(verdict), "scaling": None})


def _goes_on_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan.conditions, "TERMINAL", ())
    monkeypatch.setitem(plan.conditions.TRANSITIONS, "Succeeded", ("Running", "BelowMin", "Created", "Suspended"))


def _never_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.Attempt, "ready_s", property(lambda self: self.at_s + 1e9))


def _never_buries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_burials", lambda _case: ())


def _buries_whoever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is being deleted is taken for one that is gone."""
    right = plan._burials

    def wrong(case_: case.Case) -> tuple[object, ...]:
        staying = tuple(pod for pod in case_.world.pods if not pod.is_going)
        return right(replace(case_, world=replace(case_.world, pods=staying)))

    monkeypatch.setattr(plan, "_burials", wrong)
    monkeypatch.setattr(burial, "gone", lambda nodes, _living: tuple(nodes))


BUGS = [
    _acts_first,
    _takes_the_best,
    _has_one_too_many,
    _waits_for_the_lost,
    _forgets_the_evidence,
    _goes_on_after_the_end,
    _never_replaces,
    _never_buries,
    _buries_whoever_is_lost,
]


@pytest.mark.parametrize("plant", BUGS, ids=[bug.__name__.strip("_") for bug in BUGS])
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012  whichever seed finds it
        test_a_silent_node_s_pod_and_its_replacement_are_both_alive_under_two_names_in_one_world()
        for seed in range(40):
            seeded(seed).go_until_over(900.0)
        test_an_operator_killed_at_any_call_changes_nothing_about_the_end(0)
