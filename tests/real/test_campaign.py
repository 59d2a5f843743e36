"""Campaigns: one fault after the other on real processes, drawn from a seed, and a job that has to survive them all.

An event is a join, a polite leave, a kill, a pause (of the agent alone, or of the whole node) or a replacement; it is drawn so
that a majority of the last round is alive, has said goodbye or is proven dead. After every event the world re-forms with
exactly the nodes that are there, `--max-restarts=0` and restart count 0; at the end it is asked to finish, and does. Never
were two worlds alive at once. A second campaign strikes several nodes at once and knows no such limit: those that are left
go on, or hold until a majority is back.

PLANARIA_TEST_EVENTS says how many events (20; 200 at night), PLANARIA_TEST_KILLS how many kills a job of real process groups
survives (5; 20 at night), PLANARIA_TEST_SEED which campaign. A failure prints the story, and the seed repeats it.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
from typing import TYPE_CHECKING

import etcd_server
import fences
import pytest
from crew import Crew
from crew_jobs import GLOO
from etcd_server import Etcd
from harness import is_alive, wait_gone, wait_until
from kube_place import make_place
from stopping import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from crew import CrewNode
    from harness import Room
    from kube_cluster import Cluster

EVENTS = int(os.environ.get("PLANARIA_TEST_EVENTS", "20"))
KILLS = int(os.environ.get("PLANARIA_TEST_KILLS", "5"))
SEED = int(os.environ.get("PLANARIA_TEST_SEED", "3"))
GLOO_EVENTS = {"embedded": 6, "etcd": 4} if EVENTS <= 20 else {"embedded": EVENTS, "etcd": EVENTS}
HAVOCS = max(4, EVENTS // 5)
PATIENCE_S = 90.0  # for one event: importing torch costs several seconds of two busy cores


class Before:
    """What was so of some nodes before a strike, and whether they have gone on or hold since."""

    def __init__(self, crew: Crew, nodes: list[CrewNode]) -> None:
        self._crew = crew
        self._held = {node: node.err().count("holding: ") for node in nodes}
        self._round = crew.worlds()[-1].round
        self.names = {node.name for node in nodes}

    def is_settled(self) -> bool:
        world = self._crew.worlds()[-1]
        if world.round > self._round and world.nodes == self.names:
            return True
        holds = any(node.err().count("holding: ") > count for node, count in self._held.items())
        return holds and not any(node.workers() for node in self._held)


class Campaign:
    """One job, and the hand that strikes its nodes."""

    def __init__(self, crew: Crew, seed: int, most: int) -> None:
        self._crew = crew
        self._rng = random.Random(seed)
        self._most = most
        self._alive: list[CrewNode] = []
        self._born = 0
        self.told: list[str] = []

    def begin(self, count: int) -> None:
        self._alive = [self._add() for _ in range(count)]
        self._wait_world()

    def run(self, events: int, kinds: tuple[str, ...]) -> None:
        """Strike so often. A kind that cannot be now is replaced by one that can."""
        for number in range(events):
            kind = self._rng.choice(kinds)
            if kind == "join" and len(self._alive) >= self._most:
                kind = "leave"
            least = {"join": 0, "pause": 3}.get(kind, 2)  # of two, one that falls silent takes the majority with it
            if len(self._alive) < least:
                kind = "join"
            strike: Callable[[], str] = getattr(self, f"_{kind}")
            self.told.append(f"{number} {strike()}")

    def end(self) -> None:
        self._crew.end_well(*(node.name for node in self._alive))
        assert {world.life for world in self._crew.worlds()} == {0}

    def _add(self) -> CrewNode:
        self._born += 1
        return self._crew.add(f"n{self._born}")

    def _wait_world(self) -> None:
        try:
            self._crew.wait_world(*(node.name for node in self._alive), timeout_s=PATIENCE_S)
        except AssertionError as exc:
            raise AssertionError(f"events: {self.told}\n{exc}") from None

    def _draw(self) -> CrewNode:
        return self._alive.pop(self._rng.randrange(len(self._alive)))

    # The events. Each ends with a world of all that are there.

    def _join(self) -> str:
        node = self._add()
        self._alive.append(node)
        self._wait_world()
        return f"join {node.name}"

    def _leave(self) -> str:
        node = self._draw()
        node.signal(signal.SIGTERM)
        assert node.wait().status == 143
        self._wait_world()
        return f"leave {node.name}"

    def _kill(self) -> str:
        node = self._draw()
        what = self._rng.choice(("agent", "launcher", "all"))
        workers = node.workers()
        node.strike({"agent": [node.agent()], "launcher": [node.pid], "all": node.processes()}[what])
        self._wait_world()
        wait_gone([node.pid, node.agent(), *workers])
        return f"kill {node.name} ({what})"

    def _replace(self) -> str:
        node = self._draw()
        node.kill()
        fresh = self._add()
        self._alive.append(fresh)
        self._wait_world()
        return f"replace {node.name} by {fresh.name}"

    def _pause(self) -> str:
        node = self._draw()
        whole = self._rng.random() < 0.5
        workers = node.workers()
        stopped = node.processes() if whole else [node.agent()]
        stop(*stopped)
        self._wait_world()
        if not whole:
            assert not any(map(is_alive, workers))
        self._crew.wake(stopped)
        wait_gone(workers)
        self._alive.append(node)
        self._wait_world()
        return f"pause {node.name} ({'whole' if whole else 'agent'})"

    def _havoc(self) -> str:
        """Strike any number of nodes at once, but one; kill less than half. Who is left goes on or holds until they wake."""
        self._rng.shuffle(self._alive)
        count = len(self._alive)
        spared = self._rng.randrange(1, count)
        self._alive, struck = self._alive[:spared], self._alive[spared:]
        killed = struck[: self._rng.randrange((count - 1) // 2 + 1)]
        paused = [node for node in struck if node not in killed]
        stopped = [pid for node in paused for pid in self._drawn_processes(node)]
        workers = [pid for node in paused for pid in node.workers()]
        before = Before(self._crew, self._alive)
        stop(*stopped)
        for node in killed:
            node.kill()
        self._wait_settled(before)
        self._crew.wake(stopped)
        wait_gone(workers)  # whoever slept through its lease has no place beside those who went on
        self._alive += paused + [self._add() for _ in killed]
        self._wait_world()
        return f"havoc: {len(killed)} killed, {len(paused)} paused of {count}"

    def ruin(self) -> None:
        """Kill half of the nodes while the others are stopped: nobody can know, so going on and holding are both right."""
        half = len(self._alive) // 2
        killed, self._alive = self._alive[:half], self._alive[half:]
        stopped = [pid for node in self._alive for pid in self._drawn_processes(node)]
        workers = [pid for node in self._alive for pid in node.workers()]
        before = Before(self._crew, self._alive)
        stop(*stopped)
        for node in killed:
            node.kill()
        self._crew.wake(stopped)
        wait_gone(workers)
        self._wait_settled(before)
        for node in self._alive:
            node.signal(signal.SIGTERM)
        assert [node.wait().status for node in self._alive] == [143] * len(self._alive)
        self._crew.check_one_world()

    def _drawn_processes(self, node: CrewNode) -> list[int]:
        return node.processes() if self._rng.random() < 0.5 else [node.agent()]

    def _wait_settled(self, before: Before) -> None:
        try:
            wait_until(before.is_settled, f"{before.names} go on or hold", PATIENCE_S)
        except AssertionError as exc:
            raise AssertionError(f"events: {self.told}\n{exc}\n{self._crew.story()}") from None


@pytest.fixture(params=["embedded", "etcd"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where nodes meet: at the endpoint of one of them, or at a store that is none of them."""
    if request.param == "embedded":
        yield {"backend": "embedded"}
        return
    if etcd_server.program() is None or importlib.util.find_spec("etcd3gw") is None:
        pytest.skip("needs an etcd and etcd3gw")
    server = Etcd(tmp_path)
    yield {"backend": "etcd", "endpoint": server.endpoints[0]}
    server.close()


def needs_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("process groups come with torch")


ALL = ("join", "leave", "kill", "pause", "replace")


@pytest.mark.timeout(60 + 30 * EVENTS)
def test_a_job_survives_whatever_happens_to_its_nodes(room: Room, where: dict[str, str]) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="1:4", ttl_s=fences.TTL_S, **where)
    campaign = Campaign(crew, SEED, most=4)
    campaign.begin(3)
    campaign.run(EVENTS, ALL)
    campaign.end()


@pytest.mark.timeout(60 + 30 * EVENTS)
def test_a_job_that_meets_through_kubernetes_survives_whatever_happens_to_its_nodes(
    room: Room, kube_api: Cluster, tmp_path: Path
) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="1:4", ttl_s=fences.TTL_S, **make_place(kube_api, tmp_path).flags)
    campaign = Campaign(crew, SEED, most=4)
    campaign.begin(3)
    campaign.run(EVENTS, ALL)
    campaign.end()


@pytest.mark.timeout(60 + 60 * HAVOCS)
def test_a_job_that_loses_its_majority_holds_or_goes_on_and_is_never_two(room: Room, where: dict[str, str]) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="1:4", ttl_s=fences.TTL_S, **where)
    campaign = Campaign(crew, SEED, most=4)
    campaign.begin(4)
    campaign.run(HAVOCS, ("havoc",))
    campaign.ruin()


@pytest.mark.torch
@pytest.mark.timeout(120 + 60 * max(GLOO_EVENTS.values()))
def test_a_gloo_job_survives_whatever_happens_to_its_nodes(room: Room, where: dict[str, str]) -> None:
    needs_torch()
    crew = Crew(room, "--max-restarts=0", nodes="1:3", ttl_s=8, job=GLOO, **where)
    campaign = Campaign(crew, SEED + 1, most=3)
    campaign.begin(2)
    campaign.run(GLOO_EVENTS[where["backend"]], ALL)
    campaign.end()


@pytest.mark.torch
@pytest.mark.timeout(120 + 60 * KILLS)
def test_a_gloo_job_survives_node_kills_without_a_restart_being_charged(room: Room) -> None:
    needs_torch()
    crew = Crew(room, "--max-restarts=0", nodes="1:2", job=GLOO)
    campaign = Campaign(crew, SEED + 2, most=2)
    campaign.begin(2)
    for _ in range(KILLS):
        campaign.run(1, ("kill",))
        campaign.run(1, ("join",))
    campaign.end()
