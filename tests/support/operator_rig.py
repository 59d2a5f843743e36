"""Operators for tests: in a thread, with a clock that may run faster, or as processes that are killed at a call.

with Rig(cluster.kubeconfig) as rig, rig.stage("resnet", room=3, speed=lambda n: 100.0 * n) as stage:
    rig.start_operator(stage)
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from kube_player import Player, Stage
from waiting import wait_until

from planaria.errors import KubeError
from planaria.kube.api import connect
from planaria.kube.crd import definition
from planaria.kube.install import apply
from planaria.kube.operator import Means, Operator, Settings
from planaria.kube.resources import JOB, NAMESPACE
from planaria.kube.tenure import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from planaria.kube.api import Api

PATIENCE_S = 60.0
FAST = 60.0  # a minute of the operator's wall clock in a second: grace, cool-down and retries pass quickly


class Rig:
    """A loop in a thread (tests are synchronous), an API client, and a player of pods."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.said: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self.api = await connect(self.kubeconfig)
        self.player = Player(self.api)
        await apply(self.api, [definition()], lambda _name, _result: None)
        self._tasks.append(asyncio.ensure_future(self.player.run()))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.api.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def insist(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Do something until the API server takes it: one that was just started ends connections that were kept."""

        def is_done() -> bool:
            with contextlib.suppress(KubeError):
                self.call(work())
                return True
            return False

        wait_until(is_done, "the API server takes it", PATIENCE_S, 0.1)

    @contextlib.contextmanager
    def stage(self, job: str, room: int = 8, speed: Callable[[int], float] | None = None) -> Iterator[Stage]:
        """Make a namespace with a node, for one job of that name."""
        stage = Stage(f"t-{secrets.token_hex(4)}", job, room, speed)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}}
        self.call(self.api.create(body))
        self.call(self.player.open(stage))
        try:
            yield stage
        finally:
            self.call(self._remove(stage))

    async def _remove(self, stage: Stage) -> None:
        for job in (await self.api.list(JOB, stage.namespace)).items:
            await self.api.delete(JOB, stage.namespace, job["metadata"]["name"])
        await self.player.close(stage)
        await self.api.delete(NAMESPACE, "", stage.namespace)

    # Operators in this thread.

    @contextlib.contextmanager
    def operator(
        self,
        stage: Stage,
        identity: str = "one",
        fast: float = FAST,
        lasts_s: float = 15.0,
        kubeconfig: str = "",
    ) -> Iterator[asyncio.Task[None]]:
        """Run an operator for one stage, whose wall clock is faster than ours; it leaves in good order."""
        task, api = self.call(self._begin(stage, identity, fast, lasts_s, kubeconfig))
        try:
            yield task
        finally:
            self.call(self._end(task, api))

    async def _begin(
        self, stage: Stage, identity: str, fast: float, lasts_s: float, kubeconfig: str
    ) -> tuple[asyncio.Task[None], Api]:
        api = await connect(kubeconfig or self.kubeconfig)
        settings = Settings(
            identity,
            (stage.namespace, "operator"),
            (stage.namespace,),
            "127.0.0.1",
            0,
            metrics_every_s=1.0,
            terms=Terms.of(lasts_s),
            dashboard_port=0,
        )
        began, wall = time.monotonic(), time.time()
        means = Means(
            self.said.append,
            lambda: wall + (time.monotonic() - began) * fast,
            lambda: secrets.token_hex(8),
            lambda: 0.5,
        )
        return asyncio.ensure_future(Operator(api, settings, means).run()), api

    async def _end(self, task: asyncio.Task[None], api: Api) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()

    # What is there.

    def page(self, path: str) -> bytes:
        """Return what the web page of the operator that began last has at a path."""
        told = wait_until(lambda: [one for one in self.said if "web page at" in one], "there is a web page", PATIENCE_S)
        with urllib.request.urlopen(told[-1].split()[-1].rstrip("/") + path, timeout=PATIENCE_S) as answer:
            return answer.read()  # type: ignore[no-any-return]  # bytes

    def job(self, stage: Stage) -> dict[str, Any]:
        """Return the job of a stage as the API server has it."""
        found = self.call(self.api.get(JOB, stage.namespace, stage.job))
        assert found is not None
        return found  # type: ignore[no-any-return]  # JSON

    def elastic(self, stage: Stage) -> dict[str, Any]:
        """Return the status block of the scaling; empty while there is none."""
        return (self.job(stage).get("status") or {}).get("elasticScaling", {}).get("Worker", {})  # type: ignore[no-any-return]  # JSON

    def wait_for(
        self, stage: Stage, what: str, test: Callable[[dict[str, Any]], object], timeout_s: float = PATIENCE_S
    ) -> Any:
        """Wait until something is true of the job's status."""

        def is_true() -> object:
            return test(self.job(stage).get("status") or {})

        try:
            return wait_until(is_true, what, timeout_s, 0.1)
        except AssertionError as problem:
            problem.add_note(f"status: {self.job(stage).get('status')}\nsaid: {self.said[-20:]}")
            raise
