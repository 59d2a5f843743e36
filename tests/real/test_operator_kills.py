"""An operator that is killed at any of its calls, and one that takes over from another. Real processes, real SIGKILL.

`PLANARIA_TEST_OPERATOR_KILLS` says at how many calls, spread over a life: 8 by default, all of them in a nightly run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from operator_rig import Rig
from pytorchjobs import quick
from waiting import wait_until

from planaria.kube.resources import CONFIG_MAP, JOB, LEASE, POD, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kube_cluster import Cluster
    from kube_player import Stage

PROGRAM = Path(__file__).parents[1] / "support" / "mortal_operators.py"
KINDS = (POD, SERVICE, CONFIG_MAP, SECRET, LEASE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT)
KILLS = int(os.environ.get("PLANARIA_TEST_OPERATOR_KILLS", "8"))
AT_ONCE = 4  # lives at the same time
TWO = ["quick-worker-0", "quick-worker-1"]
FEW = 2  # a life may make fewer calls than the one that was counted: the last of them are not made again then
PATIENCE_S = 400.0  # a life takes 2 s, and on a machine that has other things to do as long as it takes


class Operators:
    """The process that forks them."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self.folder = folder
        self.ended: dict[str, int] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), kubeconfig, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def order(self, **order: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def has_ended(self, name: str) -> bool:
        assert self._process.stdout is not None
        assert self._process.poll() is None, "the process that forks operators is gone"
        for line in self._process.stdout.readlines() or ():
            told = json.loads(line)
            self.ended[told["ended"]] = told["status"]
        return name in self.ended

    def calls(self, name: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_text().splitlines()
        return []


class Life:
    """One job from its creation to its end, under an operator that is killed at a call, and another one after it.

    It grows from one Worker to two and three, returns to two, which is where it stays, since the third is not worth it; then a
    Worker fails and is replaced, and the training comes to its end.
    """

    def __init__(self, rig: Rig, operators: Operators, stage: Stage, kill_at: int | None) -> None:
        self.rig, self.operators, self.stage, self.kill_at = rig, operators, stage, kill_at
        self.name = f"{stage.namespace}-1"
        self._acts = [self._fail, self._finish]
        rig.call(rig.api.create(job_of(stage)))
        operators.order(start=self.name, identity="same", namespace=stage.namespace, kill_at=kill_at)

    def step(self) -> bool:
        """Bring it further; True at its end. Once its operator is dead, `kill_at` is None."""
        if self.kill_at is not None and self.operators.has_ended(self.name):
            assert self.operators.ended[self.name] == -9, self.operators.calls(self.name)
            self.kill_at, self.name = None, f"{self.stage.namespace}-2"
            self.operators.order(start=self.name, identity="same", namespace=self.stage.namespace)
        status = self.rig.job(self.stage).get("status") or {}
        if self._acts and elastic(status).get("elasticCondition") == "ReachMaxMetric" and self._acts[0]():
            del self._acts[0]
        ended = any(one["type"] == "Succeeded" and one["status"] == "True" for one in status.get("conditions", ()))
        return ended and not self._names(POD) and not self._names(SERVICE)

    def _fail(self) -> bool:
        """Let a Worker fail, once the return is over."""
        if self._names(POD) != TWO or self.rig.player.workers(self.stage) != TWO:
            return False
        self.rig.call(self.rig.player.fail(self.stage, TWO[1], 137))
        return True

    def _finish(self) -> bool:
        """Let the training end, once that Worker was replaced."""
        is_replaced = len(self.stage.uids[TWO[1]]) == 2 and self.rig.player.workers(self.stage) == TWO
        if is_replaced:
            self.rig.call(self.rig.player.finish(self.stage))
        return is_replaced

    def end_state(self) -> dict[str, Any]:
        """Return what is left, without times and what a kill may change: how long it took."""
        status = self.rig.job(self.stage)["status"]
        uid = self.rig.job(self.stage)["metadata"]["uid"][:8]  # it is in the Secret's name
        kinds = {kind.name: [name.replace(uid, "UID") for name in self._names(kind)] for kind in KINDS}
        block = {key: value for key, value in elastic(status).items() if key != "startTime"}
        conditions = [(one["type"], one["status"], one["reason"]) for one in status["conditions"]]
        figures = [figure[:2] for figure in status["scaling"]["figures"]]
        restarts = status.get("restarts", 0)
        return {"kinds": kinds, "block": block, "conditions": conditions, "figures": figures, "restarts": restarts}

    def _names(self, kind: Any) -> list[str]:
        return sorted(
            obj["metadata"]["name"] for obj in self.rig.call(self.rig.api.list(kind, self.stage.namespace)).items
        )


def job_of(stage: Stage) -> dict[str, Any]:
    job = quick(stage.namespace, cleanPodPolicy="All")
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"  # the operator replaces what fails
    return job


def two_are_enough(workers: int) -> float:
    return {1: 100.0, 2: 200.0}.get(workers, 205.0)


def elastic(status: dict[str, Any]) -> dict[str, Any]:
    return status.get("elasticScaling", {}).get("Worker", {})  # type: ignore[no-any-return]  # JSON


@contextlib.contextmanager
def lives(rig: Rig, operators: Operators, kills: Sequence[int | None]) -> Iterator[list[Life]]:
    """Run lives at the same time, each in a namespace of its own, and give them when they have ended."""
    with contextlib.ExitStack() as stack:
        stages = [stack.enter_context(rig.stage("quick", speed=two_are_enough)) for _ in kills]
        running = [Life(rig, operators, stage, kill_at) for stage, kill_at in zip(stages, kills, strict=True)]
        left = set(running)

        def all_ended() -> bool:
            left.difference_update([life for life in left if life.step()])
            return not left

        try:
            wait_until(all_ended, f"all of {len(kills)} lives end", PATIENCE_S, 0.1)
        except AssertionError as problem:
            for life in left:
                said = (operators.folder / f"{life.name}.log").read_text()[-2000:]
                problem.add_note(f"{life.kill_at}: {rig.job(life.stage).get('status')}\n{said}")
            raise
        for life in running:
            operators.order(kill=life.name)
        yield running


@pytest.fixture(scope="module")
def operators(kube_api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    with Operators(kube_api.kubeconfig, tmp_path_factory.mktemp("operators")) as found:
        yield found


def spread(total: int) -> list[int]:
    """Return the indexes of calls to be killed at, from the first to the last."""
    few = min(KILLS, total)
    return sorted({1 + round(step * (total - 1) / max(1, few - 1)) for step in range(few)})


def test_an_operator_killed_at_any_call_leaves_nothing_twice_and_loses_nothing(rig: Rig, operators: Operators) -> None:
    with lives(rig, operators, [None]) as (whole,):
        wanted, total = whole.end_state(), len(operators.calls(whole.name))
    assert wanted["figures"] == [[1, 100.0], [2, 200.0], [3, 205.0]]
    assert (wanted["block"]["currentReplicas"], wanted["block"]["lastReplicas"], wanted["restarts"]) == (2, 3, 1)
    indexes = spread(total)
    spared: list[int] = []
    for begin in range(0, len(indexes), AT_ONCE):
        with lives(rig, operators, indexes[begin : begin + AT_ONCE]) as ended:
            for life in ended:
                assert life.end_state() == wanted
                made = {name: len(uids) for name, uids in life.stage.uids.items()}
                assert made == {"quick-worker-0": 1, "quick-worker-1": 2, "quick-worker-2": 1}
                spared += [] if life.kill_at is None else [life.kill_at]
    told = f"killed at {len(indexes) - len(spared)} of {total} calls; lives that ended before the call: {spared}"
    print(told)  # shown by `pytest -rP`
    assert len(spared) <= FEW, told


def test_when_the_operator_that_acts_is_killed_another_takes_over(rig: Rig, operators: Operators) -> None:
    with rig.stage("quick", speed=lambda n: 100.0 * n) as stage:
        for name in ("first", "second"):
            operators.order(start=name, namespace=stage.namespace, lasts_s=15.0)

        def holder() -> str:
            lease = rig.call(rig.api.get(LEASE, stage.namespace, "operator"))
            return str((lease or {}).get("spec", {}).get("holderIdentity", ""))

        first = wait_until(holder, "one of them acts", between_s=0.1)
        (other,) = {"first", "second"} - {first}
        rig.call(rig.api.create(quick(stage.namespace)))
        rig.wait_for(stage, "it has begun", lambda status: status.get("targetReplicas"))
        assert not any("pods" in call for call in operators.calls(other)), "a standby looks at the Lease alone"
        operators.order(kill=first)
        wait_until(lambda: holder() == other, "the other has the Lease", between_s=0.1)
        rig.wait_for(stage, "it goes on", lambda status: elastic(status).get("elasticCondition") == "ReachMaxReplicas")
        assert all(len(uids) == 1 for uids in stage.uids.values())
        rig.call(rig.api.delete(JOB, stage.namespace, "quick"))
        operators.order(kill=other)
