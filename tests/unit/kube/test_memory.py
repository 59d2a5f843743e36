from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubesim.given import elastic_spec

from planaria.base.value import replace
from planaria.kube import memory
from planaria.kube.case import look_at
from planaria.kube.memory import Attempt, Look, Memory
from planaria.kube.seen import Ended, PodSeen
from planaria.kube.spec import spec_of


def _look(uid: str = "u", **fields: object) -> Look:
    pod = PodSeen("resnet-worker-0", uid, "Worker", 0, **{"phase": "Running", "is_running": True, **fields})  # type: ignore[arg-type]
    return look_at(spec_of("resnet", elastic_spec(worker={"restartPolicy": "ExitCode"})), pod)


FAILED = {"phase": "Failed", "is_running": False, "ended": Ended(137, "Error", lived_s=5.0)}
WHOLE = Memory(
    restarts_gone=3,
    restarts={"a": 1},
    renewed={"a": 4},
    attempts={"resnet-worker-0": Attempt(2, 100.5, "a", "why"), "resnet-worker-1": Attempt(1, 9.0, "b", "w", True)},
    refused={"b": 90.0},
    leaving={"c": 80.0},
    done=frozenset({"resnet-master-0"}),
    first_done_s=70.0,
    idle_s=60.0,
    crowded_s=50.0,
    has_run=True,
    fixed={"elasticPolicy.minReplicas": "1"},
    made=frozenset({"Worker"}),
    free={"nvidia.com/gpu": 0.0},
)


@pytest.mark.parametrize("kept", [Memory(), WHOLE, Memory(free={})])
def test_what_is_kept_is_read_as_it_was(kept: Memory) -> None:
    assert memory.decode(json.loads(json.dumps(memory.encode(kept)))) == kept


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from([*memory.encode(WHOLE), "count", "at", "uid"]), inner)
        ),
    )
)
def test_whatever_somebody_wrote_there_can_be_read(kept: object) -> None:
    assert isinstance(memory.decode(kept), Memory)


def test_a_failure_is_counted_once_however_often_it_is_seen() -> None:
    kept = Memory()
    for now_s in (1.0, 2.0, 3.0):
        kept = memory.remember(kept, [_look(**FAILED)], now_s)
    assert (kept.total_restarts, kept.attempts["resnet-worker-0"].count) == (1, 1)
    kept = memory.remember(kept, [], 4.0)
    assert kept.total_restarts == 1
    kept = memory.remember(kept, [_look("another", **FAILED)], 5.0)
    assert (kept.total_restarts, kept.attempts["resnet-worker-0"].count) == (2, 2)


def test_restarts_in_place_are_not_forgotten_when_their_pod_is_gone() -> None:
    kept = memory.remember(Memory(), [_look(restarts=3)], 1.0)
    kept = memory.remember(kept, [_look("new", restarts=1)], 2.0)
    assert kept.total_restarts == 4


def test_a_pod_that_is_deleted_and_ends_is_no_failure() -> None:
    kept = memory.remember(Memory(), [_look(is_going=True, **FAILED)], 1.0)
    assert (kept.total_restarts, kept.attempts) == (0, {})


def test_a_pod_that_runs_long_is_forgiven() -> None:
    kept = memory.remember(Memory(), [_look(**FAILED)], 1.0)
    kept = memory.remember(kept, [_look("new")], 500.0)
    assert kept.attempts
    assert not memory.remember(kept, [_look("new")], 602.0).attempts


def test_a_name_that_nobody_has_any_more_is_forgotten_and_one_that_waits_is_not() -> None:
    kept = memory.remember(Memory(), [_look(**FAILED)], 1.0)
    assert memory.remember(kept, [], 601.0).attempts
    assert not memory.remember(kept, [], 602.0).attempts
    pending = _look("new", phase="Pending", is_running=False)
    assert memory.remember(kept, [pending], 10_000.0).attempts


def test_what_the_cluster_took_is_remembered_as_such() -> None:
    kept = memory.remember(Memory(), [_look(phase="Failed", is_running=False, reason="Evicted")], 1.0)
    assert kept.attempts["resnet-worker-0"].is_weather
    assert not memory.remember(Memory(), [_look(**FAILED)], 1.0).attempts["resnet-worker-0"].is_weather


def test_waits_are_counted_on_the_operator_s_own_clock_and_survive_its_jumps() -> None:
    pending = _look(phase="Pending", is_running=False, unschedulable="no room")
    kept = memory.remember(Memory(), [pending], 1000.0)
    assert memory.remember(kept, [pending], 1060.0).refused == {"u": 1000.0}
    assert memory.remember(kept, [pending], 10.0).refused == {"u": 10.0}
    assert memory.remember(kept, [_look()], 1060.0).refused == {}


@pytest.mark.parametrize(("count", "delay_s"), [(1, 0.0), (2, 10.0), (3, 20.0), (6, 160.0), (7, 300.0), (10**6, 300.0)])
def test_the_first_replacement_comes_at_once_and_none_waits_longer_than_five_minutes(
    count: int, delay_s: float
) -> None:
    assert Attempt(count, 50.0, "u").ready_s == 50.0 + delay_s


def test_whatever_happens_to_ten_thousand_pods_fits_into_a_status() -> None:
    pods = [
        PodSeen(f"resnet-worker-{index}", f"{index:036}", "Worker", index, "Failed", reason="Evicted", restarts=1)
        for index in range(10_000)
    ]
    spec = spec_of("resnet", elastic_spec())
    kept = memory.remember(Memory(), [look_at(spec, pod) for pod in pods], 1.7e9)
    kept = memory.remember(kept, [look_at(spec, replace(pod, is_going=True)) for pod in pods], 1.7e9)
    assert len(json.dumps(memory.encode(kept))) < 1_000_000
    assert kept.total_restarts == 10_000


def test_a_container_that_is_started_again_after_status_0_counts_nothing_and_its_failures_do() -> None:
    kept = Memory()
    for restarts, status in ((1, 0), (2, 0), (3, 1), (3, 1), (5, 0)):
        kept = memory.remember(kept, [_look(restarts=restarts, last=Ended(status))], 1.0)
    assert (kept.total_restarts, dict(kept.renewed)) == (1, {"u": 4})
    kept = memory.remember(kept, [_look(restarts=5, last=Ended(0), is_running=False, ended=Ended(137))], 1.0)
    assert kept.total_restarts == 2
    kept = memory.remember(kept, [], 2.0)
    assert (kept.total_restarts, dict(kept.renewed)) == (2, {})
