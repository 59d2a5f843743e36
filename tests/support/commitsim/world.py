"""A job of several nodes, from one seed: rounds follow each other, nodes come, go and die, connections break, memory rots."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from commitsim.checks import PLENTY_BYTES, Checks
from commitsim.clock import Clock
from commitsim.net import Net
from commitsim.node import Directory, Node
from planaria.agent.rounds import Neighbours
from planaria.contract.env import Round

if TYPE_CHECKING:
    from planaria.contract.commit import Order

FAULTS = ("crash", "kill", "replace", "join", "drain", "shrink", "cut", "cut", "flip", "fill", "clear", "wall")
LONG_S = 120.0
BEHIND_WALLS_S = 50.0


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = Clock()
        self.net = Net(self.clock, rng)
        self.directory = Directory()
        self.has_disk = rng.random() < 0.5
        self.has_buddies = rng.random() < 0.85
        self.free_bytes = rng.choice((PLENTY_BYTES, PLENTY_BYTES, 200_000, 90_000))
        self.checks = Checks(self)
        self._names = itertools.count()
        self._numbers = itertools.count()
        self.local = rng.choice((1, 1, 2))
        self.round = 0
        self.opening = 0
        self.is_ending = False
        self.ends: dict[int, int] = {}  # by round: how many calls of commit() it is to have made
        self.backs: dict[int, tuple[int, ...]] = {}  # by round: after how many calls all ranks go back
        self.members: list[Node] = []
        self.rosters: dict[int, list[Node]] = {}  # by round
        self.entering = [self.new_node() for _ in range(rng.randint(1, 4))]
        self.open_round()

    def count(self) -> int:
        return next(self._numbers)

    def new_node(self) -> Node:
        node = Node(self, f"n{next(self._names)}", self.local)
        self.net.nodes[node.name] = node
        return node

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.members if node.alive]

    def end_round(self) -> None:
        """Stop the workers everywhere and open the next round a little later."""
        for node in self.alive:
            node.stop_workers()
        self.opening += 1
        mine = self.opening
        self.clock.call_later(
            0.05 + 0.4 * self.rng.random(), lambda: self.open_round() if mine == self.opening else None
        )

    def open_round(self) -> None:
        for node in self.alive:
            if node.is_leaving:  # others did not wait for what it hands over
                self.checks.lost(node)
                self.remove(node)
        staying = self.alive
        if not staying and not self.entering:
            self.entering.append(self.new_node())
        if self.members and staying and self.members[0] not in staying and self.entering:
            staying.insert(0, self.entering.pop(0))  # the replacement inherits the place
        self.members = [*staying, *self.entering]
        self.entering = []
        self.round += self.rng.choice((1, 1, 1, 2))
        self.rosters[self.round] = self.members
        if not self.is_ending and self.rng.random() < 0.5:
            self.backs[self.round] = tuple(sorted(self.rng.sample(range(8), self.rng.randint(1, 2))))
        size = len(self.members)
        for slot, node in enumerate(self.members):
            life = Round(
                self.round,
                "run",
                "role",
                slot,
                size,
                slot * self.local,
                size * self.local,
                0,
                0,
                self.local,
                "",
                0,
                0,
                0,
            )
            buddy = self.members[(slot + 1) % size].name if size > 1 else ""
            near = Neighbours(self.members[0].name, buddy)
            number = self.round
            node.call_later(0.2 * self.rng.random(), self._beginning(node, number, life, near))

    def _beginning(self, node: Node, number: int, life: Round, near: Neighbours):  # type: ignore[no-untyped-def]
        return lambda: node.begin(life, near) if self.round == number and not node.is_leaving else None

    # What happens.

    def crash(self) -> None:
        self.end_round()

    def kill(self) -> None:
        if len(self.alive) > 1:
            victim = self.rng.choice(self.alive)
            self.checks.lost(victim)
            self.remove(victim)
            self.end_round()

    def remove(self, node: Node) -> None:
        node.alive = False
        self.net.died(node)

    def replace(self) -> None:
        self.entering.append(self.new_node())
        self.kill()
        self.end_round()

    def join(self) -> None:
        if len(self.alive) < 5:
            self.entering.append(self.new_node())
            self.end_round()

    def drain(self) -> None:
        """A node stops, hands over what it has, and goes."""
        staying = [node for node in self.alive if not node.is_leaving]
        if len(staying) > 1:
            self._leave(self.rng.choice(staying))

    def shrink(self) -> None:
        """Several nodes leave at once, one stays."""
        staying = [node for node in self.alive if not node.is_leaving]
        for victim in self.rng.sample(staying, max(len(staying) - 1, 0)):
            if self.rng.random() < 0.8:
                self.clock.call_later(0.3 * self.rng.random(), lambda victim=victim: self._leave(victim))  # type: ignore[misc]

    def _leave(self, victim: Node) -> None:
        if not victim.alive or victim.is_leaving or all(node.is_leaving or node is victim for node in self.alive):
            return
        for node in self.alive:
            node.stop_workers()
        delegate = victim.delegate
        victim.is_leaving = victim.guests.is_leaving = True

        def done(is_there: bool) -> None:
            if victim.alive:
                self.checks.lost(victim, is_there=is_there)
                self.remove(victim)
                self.end_round()

        if delegate is None:
            done(False)
            return
        self.clock.call_later(10.0, lambda: done(False))
        delegate.hand_over(done)

    def cut(self) -> None:
        self.net.cut_some()

    def wall(self) -> None:
        """A node comes that reaches the anchor and not one of the others; that ends when the other faults do, or much later."""
        new = self.new_node()
        self.entering.append(new)
        if self.alive:
            self.net.wall_off(new, self.rng.choice(self.alive))
        if self.rng.random() < 0.7:
            self.kill()
        self.end_round()

    def flip(self) -> None:
        """Some memory rots."""
        node = self.rng.choice(self.alive)
        parts = node.stock.slots.parts()
        if parts:
            slot = self.rng.choice(parts)
            self.checks.damaged(slot)
            node.stock.view(slot)[4100] ^= 0xFF

    def fill(self) -> None:
        self.directory.fails = True

    def clear(self) -> None:
        self.directory.fails = False

    def run(self) -> None:
        """Let it all happen, then let the faults end and see that the job goes on."""
        for _ in range(self.rng.randint(3, 8)):
            self.clock.run_until(self.clock.now + self.rng.choice((0.05, 0.3, 1.0, 3.0)) * self.rng.random())
            getattr(self, self.rng.choice(FAULTS))()
        self.settle()

    def end(self) -> None:
        """Let programs do nothing wrong any more, and stop soon."""
        self.is_ending = True
        self.ends[self.round] = 4 + max((worker.calls for node in self.alive for worker in node.workers), default=0)

    def is_done(self, complete: Order | None) -> bool:
        """Tell whether a commit is late enough to be the last one."""
        if not self.is_ending or complete is None or complete[1] != self.round:
            return False
        return self.checks.calls[complete] >= self.ends.get(self.round, 4)

    def settle(self) -> None:
        self.clear()
        if self.rng.random() < 0.5:
            self.crash()
        if self.net.walls:  # for longer than anybody tries before it says so
            self.clock.run_until(self.clock.now + self.rng.choice((0.0, BEHIND_WALLS_S)))
            self.net.walls.clear()
        self.clock.run_until(self.clock.now + 1.0)
        self.end()
        self.clock.run_until(self.clock.now + LONG_S, self.checks.is_settled)
        self.checks.check_settled()
