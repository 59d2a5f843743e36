"""A network of docks in virtual time: messages in order, parts that take a while, connections that are cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import Any

    from commitsim.clock import Clock, Timer
    from commitsim.node import Node

LATENCY_S = 0.01
DIAL_S = 0.05


class End:
    """One end of a line."""

    def __init__(self, net: Net, owner: Node) -> None:
        self.net = net
        self.owner = owner
        self.other: End | None = None
        self.is_over = False
        self.on_message: Callable[[object], object] | None = None
        self.on_lost: Callable[[str], object] | None = None
        self.waiting: list[object] = []
        self.arrives_at = 0.0

    def send(self, value: object) -> None:
        value = json.loads(json.dumps(value))
        if self.is_over:
            return
        if self.other is None:
            self.waiting.append(value)
            return
        other = self.other
        self.arrives_at = max(self.arrives_at, self.net.clock.now + self.net.latency())
        self.net.clock.call_later(self.arrives_at - self.net.clock.now, lambda: other.hear(value))

    def hear(self, value: object) -> None:
        if not self.is_over and self.owner.alive and self.on_message is not None:
            self.on_message(value)

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self.other is not None:
                self.net.clock.call_later(self.net.latency(), self.other.lose)

    def lose(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self.owner.alive and self.on_lost is not None:
                self.on_lost("cut")


class Transfer:
    """Bytes on their way."""

    def __init__(self, net: Net, ends: tuple[Node, Node], on_done: Callable[[str], object]) -> None:
        self.net = net
        self.ends = ends
        self.on_done = on_done
        self.on_cut: Callable[[], object] | None = None
        self.is_over = False
        self.timer: Timer | None = None

    def then(self, delay_s: float, callback: Callable[[], object]) -> None:
        def call() -> None:
            if self.is_over:
                return
            if all(end.alive for end in self.ends):
                callback()
            else:
                self.cut()

        self.timer = self.net.clock.call_later(delay_s, call)

    def finish(self, why: str) -> None:
        if not self.is_over:
            self.is_over = True
            self.net.transfers.discard(self)
            if self.ends[0].alive:
                self.net.clock.call_later(self.net.latency(), lambda: self._tell(why))

    def _tell(self, why: str) -> None:
        if self.ends[0].alive and not self.is_cancelled:
            self.on_done(why)

    is_cancelled = False

    def cut(self) -> None:
        if not self.is_over:
            self._let_go()
            self.finish("the connection was cut")

    def cancel(self) -> None:
        self.is_cancelled = True
        if not self.is_over:
            self.is_over = True
            self.net.transfers.discard(self)
            self._let_go()

    def _let_go(self) -> None:
        if self.on_cut is not None:
            self.on_cut()
            self.on_cut = None


class Net:
    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.clock = clock
        self.rng = rng
        self.nodes: dict[str, Node] = {}
        self.ends: set[End] = set()
        self.transfers: set[Transfer] = set()
        self.walls: set[frozenset[str]] = set()  # pairs of nodes that cannot bring each other anything

    def latency(self) -> float:
        return self.rng.random() * LATENCY_S

    def cut_some(self) -> None:
        """Cut a few connections, whatever they carry."""
        for end in self._some(self.ends):
            end.lose()
            if end.other is not None:
                end.other.lose()
        self.ends = {end for end in self.ends if not end.is_over}
        for transfer in self._some(self.transfers):
            transfer.cut()

    def wall_off(self, one: Node, other: Node) -> None:
        """Let two nodes not reach each other any more, while both reach the anchor: lines are as they were."""
        self.walls.add(frozenset((one.name, other.name)))
        for transfer in [found for found in self.transfers if {one, other} <= {*found.ends}]:
            transfer.cut()

    def cut_off(self, node: Node) -> None:
        """Cut the lines of one node; what was said and has not arrived is lost."""
        for end in [end for end in self.ends if end.owner is node and not end.is_over]:
            end.lose()
            if end.other is not None:
                end.other.lose()

    def _some(self, found: set[Any]) -> list[Any]:
        return [one for one in sorted(found, key=lambda one: one.number) if self.rng.random() < 0.3]

    def died(self, node: Node) -> None:
        for end in [end for end in self.ends if end.owner is node]:
            end.is_over = True
            if end.other is not None:
                self.clock.call_later(self.latency(), end.other.lose)
        for transfer in [one for one in self.transfers if node in one.ends]:
            transfer.cut()


class Dock:
    """The dock of one node."""

    def __init__(self, net: Net, node: Node) -> None:
        self.net = net
        self.node = node

    def attend(
        self,
        address: str,
        round: int,  # noqa: A002
        header: object,
        on_message: Callable[[object], object],
        on_lost: Callable[[str], object],
    ) -> End:
        header = json.loads(json.dumps(header))
        ours = self._end(self.node)
        ours.on_message, ours.on_lost = on_message, on_lost

        def dial() -> None:
            if ours.is_over or not self.node.alive:
                return
            there = self.net.nodes[address]
            if not there.alive:
                self.net.clock.call_later(DIAL_S, dial)
                return
            theirs = self._end(there)
            ours.other, theirs.other = theirs, ours
            there.guests.attended(round, header, theirs)
            for value in ours.waiting:
                ours.send(value)

        self.net.clock.call_later(self.net.latency(), dial)
        return ours

    def _end(self, owner: Node) -> End:
        end = End(self.net, owner)
        end.number = owner.world.count()  # type: ignore[attr-defined]
        self.net.ends.add(end)
        return end

    def _transfer(self, address: str, on_done: Callable[[str], object]) -> tuple[Node, Transfer]:
        there = self.net.nodes[address]
        transfer = Transfer(self.net, (self.node, there), on_done)
        transfer.number = self.node.world.count()  # type: ignore[attr-defined]
        self.net.transfers.add(transfer)
        return there, transfer

    def _reach(self, transfer: Transfer, then: Callable[[], object]) -> None:
        def call() -> None:
            if frozenset(end.name for end in transfer.ends) in self.net.walls:
                transfer.finish("no route to host")
            else:
                then()

        transfer.then(self.net.latency(), call)

    def _takes_s(self) -> float:
        return self.net.rng.choice((0.01, 0.1, 0.5)) * self.net.rng.random()

    def store(
        self,
        address: str,
        round: int,  # noqa: A002
        header: object,
        source: memoryview,
        on_done: Callable[[str], object],
    ) -> Transfer:
        there, transfer = self._transfer(address, on_done)
        header = json.loads(json.dumps(header))

        def offer() -> None:
            room = there.guests.offered(round, header, len(source))
            if isinstance(room, str):
                transfer.finish(room)
                return
            transfer.on_cut = lambda: there.guests.dropped(round, header, "cut")
            transfer.then(self._takes_s(), lambda: bring(room))

        def bring(room: memoryview) -> None:
            room[:] = source
            transfer.on_cut = None
            there.guests.arrived(round, header, transfer.finish)

        self._reach(transfer, offer)
        return transfer

    def fetch(
        self,
        address: str,
        round: int,  # noqa: A002
        header: object,
        into: Callable[[int], memoryview | str],
        on_done: Callable[[str], object],
    ) -> Transfer:
        there, transfer = self._transfer(address, on_done)
        header = json.loads(json.dumps(header))

        def want() -> None:
            part = there.guests.wanted(round, header)
            if isinstance(part, str):
                transfer.finish(part)
                return
            room = into(len(part[0]))
            if isinstance(room, str):
                part[1]()
                transfer.finish(room)
                return
            transfer.on_cut = part[1]
            transfer.then(self._takes_s(), lambda: bring(room, *part))

        def bring(room: memoryview, source: memoryview, let_go: Callable[[], None]) -> None:
            room[:] = source
            transfer.on_cut = None
            let_go()
            transfer.finish("")

        self._reach(transfer, want)
        return transfer
