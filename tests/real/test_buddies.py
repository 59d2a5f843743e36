"""Hosts that are lost with all that ran on them: what a second one has verified is restored by those who are left. As root.

Hosts are network namespaces; a lost one's processes are killed, every one, and with them goes the memory of its commits.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import fences
import pytest
from harness import kill, wait_gone, wait_until
from networks import Network
from training import SUPPORT, Training

from planaria.chaos import hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from crew import CrewNode
    from harness import Room
    from training import Life

PORT = 29400


@functools.cache
def why_not() -> str:
    return hosts.why_not()


@pytest.fixture(autouse=True)
def _able() -> None:
    if why_not():
        pytest.skip(why_not())


pytestmark = [pytest.mark.root, pytest.mark.timeout(180)]


class Hosted(Training):
    """A job with one node on each host. A host that was lost may get another node."""

    def __init__(
        self, room: Room, network: Network, *options: str, nodes: str, flags: Sequence[str] = (), ttl_s: float = 30
    ) -> None:
        endpoint = f"{network.hosts[0].address}:{PORT}"
        where = {"program": "committing", "endpoint": endpoint, "ttl_s": ttl_s, "flags": ("--max-restarts=3", *flags)}
        super().__init__(room, *options, nodes=nodes, **where)
        self._room = room
        self._network = network
        self.at: dict[str, int] = {}  # the host of each node, from 0

    def place(self, host: int) -> CrewNode:
        """Start a node on a host."""
        self.at[self.next_name] = host
        return self.add(host=self._network.hosts[host], env={"PYTHONPATH": str(SUPPORT)})

    def lose(self, life: Life, *lost: int, silently: bool = False) -> None:
        """Lose hosts at once, with all that runs there. `silently`: not one packet comes from there any more."""
        nodes = [node for node in self.alive if self.at[node.name] in lost]
        self.alive = [node for node in self.alive if node not in nodes]
        self._room.is_littered = True
        pids = [pid for node in nodes for pid in self._network.hosts[self.at[node.name]].pids()]
        assert len(pids) >= 3 * len(nodes)
        seen = self.look()
        for host in lost if silently else ():
            self._network.hosts[host].kill_everything()
        while found := [pid for host in lost for pid in self._network.hosts[host].pids()]:
            for pid in found:
                kill(pid)
        wait_gone(pids)
        for node in nodes:
            node.wait()
        self.agent_lost(life, f"hosts {lost}", seen)

    def end(self) -> None:
        """Let the job end well where it still is."""
        self.ask_to_end()
        for node in self.alive:
            end = node.wait()
            assert end.status == 0, f"{node.name} ended with {end.status}\n{self.story()}"
        wait_until(lambda: not self._room.leftovers(), "no process left")


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(4) as found:
        yield found


def start(room: Room, network: Network, *options: str, **settings: Any) -> tuple[Hosted, Life]:
    """Start a job on three hosts, and let it make commits that are safe."""
    job = Hosted(room, network, "--waits=buddy,node", *options, **settings)
    for host in range(3):
        job.place(host)
    life = job.wait_life(3)
    job.wait_kept("buddy", life)
    return job, life


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("workers", [1, 2])
def test_survivors_and_a_replacement_restore_what_the_buddy_had(
    room: Room, network: Network, lost: int, workers: int
) -> None:
    job, life = start(room, network, nodes="3", flags=(f"--nproc-per-node={workers}",))
    job.lose(life, lost)
    job.place(3 if lost else 0)  # the endpoint's host comes back; another's place is taken by a fourth
    after = job.wait_life(3)
    assert after.step > 0
    job.wait_kept("buddy", after)
    job.end()


def test_survivors_alone_restore_what_the_buddy_had(room: Room, network: Network) -> None:
    job, life = start(room, network, nodes="1:3")
    for lost, left in ((1, 2), (2, 1)):
        job.lose(life, lost)
        life = job.wait_life(left)
        assert life.step > 0
        if left > 1:
            job.wait_kept("buddy", life)
    job.end()


def test_a_host_that_falls_silent_is_replaced_and_nothing_is_lost(room: Room, network: Network) -> None:
    job, life = start(room, network, nodes="2:3", ttl_s=fences.TTL_S)
    job.lose(life, 1, silently=True)
    job.wait_life(2)
    job.place(3)
    life = job.wait_life(3)
    assert life.step > 0
    job.wait_kept("buddy", life)
    job.end()


def test_hosts_may_be_lost_one_after_the_other_once_the_next_commit_is_safe(room: Room, network: Network) -> None:
    job, life = start(room, network, nodes="3")
    places = [0, 1, 2]
    for lost in (1, 2, 0, 1, 2):
        gone = places[lost]
        job.lose(life, gone)
        job.place(gone)
        life = job.wait_life(3)
        assert life.step > 0
        job.wait_kept("buddy", life)
    job.end()


def test_two_neighbours_at_once_cost_what_is_not_on_disk(room: Room, network: Network, tmp_path: Path) -> None:
    flags = (f"--snapshot-dir={tmp_path / 'commits'}",)
    job, life = start(room, network, "--waits=buddy,node,disk", nodes="3", flags=flags)
    job.wait_kept("disk", life)
    job.lose(life, 1, 2)
    job.agents_lost(life)
    job.place(1)
    job.place(2)
    assert job.wait_life(3).step > 0
    job.end()
