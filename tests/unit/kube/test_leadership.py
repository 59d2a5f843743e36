from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import until

from planaria.errors import KubeError, LeadershipLost
from planaria.kube.leadership import Leadership
from planaria.kube.resources import Kind
from planaria.kube.tenure import Terms

LONG = Terms(lasts_s=600.0, renew_s=0.05, give_up_s=400.0)


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Server:
    """One Lease, with the versions of an API server. `faults` are taken by the next writes, one each."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0
        self.faults: list[str] = []  # "before", "busy": nothing is done; "after": done, and nobody hears of it

    async def get(self, _kind: Kind, _namespace: str, _name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.lease)

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise KubeError("there is one", status=409)
        return await self._write(obj)

    async def replace(self, obj: dict[str, Any]) -> dict[str, Any]:
        assert self.lease is not None
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise KubeError("somebody wrote first", status=409)
        return await self._write(obj)

    async def _write(self, obj: dict[str, Any]) -> dict[str, Any]:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise KubeError("away")
        if fault == "busy":
            raise KubeError("busy", status=429, retry_after_s=3600.0)
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        if fault == "after":
            raise KubeError("the answer was lost")
        return copy.deepcopy(self.lease)

    @property
    def holder(self) -> str:
        return str((self.lease or {}).get("spec", {}).get("holderIdentity", ""))


def candidate(server: Server, me: str, terms: Terms = LONG, clock: Clock | None = None) -> Leadership:
    return Leadership(server, ("n", "x"), me, terms, lambda: 0.5, clock or Clock())  # type: ignore[arg-type]  # the three calls it makes


def run(story: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planaria.kube.leadership._LOOK_S", 0.02)
    asyncio.run(story())  # type: ignore[arg-type]  # a coroutine


def test_a_server_that_is_busy_is_asked_again_before_the_lease_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = Server()
        holder = candidate(server, "a")
        await holder.acquire(print)
        server.faults = ["busy", "busy"]
        keeping = asyncio.ensure_future(holder.keep())
        await until(lambda: server.writes == 3)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    run(story, monkeypatch)


def test_the_first_has_it_the_second_waits_and_takes_it_when_the_first_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server, said, clock = Server(), [], Clock()
        first, second = candidate(server, "a", clock=clock), candidate(server, "b", clock=clock)
        await first.acquire(said.append)
        keeping = asyncio.ensure_future(first.keep())
        waiting = asyncio.ensure_future(second.acquire(said.append))
        await until(lambda: server.writes >= 30)
        assert (first.is_held, second.is_held, second.is_seen, server.holder) == (True, False, True, "a")
        assert said == ["a holds the Lease n/x: standing by"]
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

        def has_taken_it() -> bool:
            clock.now += LONG.lasts_s / 10
            return waiting.done()

        await until(has_taken_it)
        assert (first.is_held, second.is_held, server.holder) == (False, True, "b")

    run(story, monkeypatch)


def test_a_holder_that_leaves_lets_the_next_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = Server()
        first, second = candidate(server, "a"), candidate(server, "b")
        await first.acquire(lambda _: None)
        await first.release()
        assert not first.is_held
        await second.acquire(lambda _: None)
        assert second.is_held

    run(story, monkeypatch)


def test_answers_that_are_lost_and_a_server_that_is_away_for_a_moment_cost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        server = Server()
        one = candidate(server, "a")
        await one.acquire(lambda _: None)
        server.faults = ["after", "before"]
        keeping = asyncio.ensure_future(one.keep())
        await until(lambda: server.writes >= 5)
        assert (one.is_held, server.holder, keeping.done()) == (True, "a", False)
        keeping.cancel()

    run(story, monkeypatch)


def test_a_holder_that_cannot_renew_gives_up_before_the_lease_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server, clock = Server(), Clock()
        one = candidate(server, "a", clock=clock)
        await one.acquire(lambda _: None)
        server.faults = ["before"] * 1000
        keeping = asyncio.ensure_future(one.keep())
        await until(lambda: len(server.faults) < 1000)
        clock.now = LONG.give_up_s - 1.0
        left = len(server.faults)
        await until(lambda: len(server.faults) < left)
        assert (one.is_held, keeping.done()) == (True, False)
        clock.now = LONG.give_up_s
        with pytest.raises(LeadershipLost, match=r"the Lease n/x was not renewed within 400 s"):
            await keeping
        assert not one.is_held

    run(story, monkeypatch)


def test_a_holder_whose_lease_another_has_taken_gives_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = Server()
        one = candidate(server, "a")
        await one.acquire(lambda _: None)
        assert server.lease is not None
        server.lease["spec"]["holderIdentity"] = "b"
        server.lease["metadata"]["resourceVersion"] = "99"
        with pytest.raises(LeadershipLost):
            await one.keep()
        assert server.holder == "b"

    run(story, monkeypatch)


def test_who_stands_by_says_once_that_the_server_is_away_and_once_that_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        server, said, asked = Server(), list[str](), 0
        await candidate(server, "a").acquire(said.append)
        get = server.get

        async def away(kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
            nonlocal asked
            asked += 1
            if 2 < asked < 6:
                raise KubeError("away")
            return await get(kind, namespace, name)

        monkeypatch.setattr(server, "get", away)
        waiting = asyncio.ensure_future(candidate(server, "b").acquire(said.append))
        await until(lambda: asked >= 8)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        standing_by, is_away = "a holds the Lease n/x: standing by", "the Lease n/x cannot be had now: away"
        assert said == [standing_by, is_away, standing_by]

    run(story, monkeypatch)


def test_what_no_waiting_mends_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = Server()

        async def refuse(*_: object) -> None:
            raise KubeError("no permission", status=403)

        monkeypatch.setattr(server, "get", refuse)
        with pytest.raises(KubeError, match="no permission"):
            await candidate(server, "a").acquire(lambda _: None)

    run(story, monkeypatch)
