"""A leader in virtual time that is asked what it orders at once, before it has decided anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from court import Court

from planaria.base.value import replace
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.messages import Ack, Failed, Place, Placed, Renew, Stopped
from planaria.rendezvous.model import Deputy, Held, Send, Standing

if TYPE_CHECKING:
    from planaria.rendezvous.model import Effect

LEASE_S = 4.0
SILENCE_S = 5.5
LAST = Standing("x", 1, 4, 3, None, 2, tuple(Deputy(node, f"{node}:1") for node in "abc"), 5, ran=4)
"""Round 4 of term 1, of a, b and c, as one knows it who is not in it."""


def member_of(last: Standing, slot: int, **changes: object) -> dict[str, Any]:
    """Return how a member of a round introduces itself after it has lost its leader."""
    known = replace(last, slot=slot, home=slot)
    return {"standing": known, "state": "running", "bound_term": last.term, "since_ack_s": 1.0, **changes}


class Hall(Court):
    """A leader, and nodes that say only what a test makes them say; with `standing`, a deputy that claims that round."""

    def __init__(self, standing: Standing | None = None, **changes: object) -> None:
        super().__init__(100.0, **{"max_restarts": 9, "resize_grace_s": 0.0, **changes})
        if standing is not None:
            held = Held(self.now - 1.0, self.now - 1.0 + self.settings.lease_s)
            self.leader = Leader(self.settings, self.now, term=standing.term + 1, standing=standing, held=held)

    def join(self, node: str, conn: str = "", **changes: object) -> list[object]:
        """Let a node join; return what it is told at once."""
        self.leader.take_orders()
        super().join(node, conn, **{"age_s": 9.0, **changes})
        return self.told(node, self.leader.take_orders())

    def told(self, node: str, orders: list[Effect]) -> list[object]:
        return [one.message for one in orders if isinstance(one, Send) and one.conn == self.conns[node]]

    def renew(self, nodes: str) -> list[float]:
        """Let nodes show that they got the last answer; return what each is granted."""
        found = []
        for node in nodes:
            self.leader.take_orders()
            self.say(node, Renew(self.seqs[node] + 1, self.seqs[node]))
            self.seqs[node] += 1
            found += [one.left_s for one in self.told(node, self.leader.take_orders()) if isinstance(one, Ack)]
        return found

    def look(self, later_s: float = 0.0) -> list[Effect]:
        """Let the leader decide, after a while; return its orders as they are."""
        self.now += later_s
        orders, self.wake_at = self.leader.advance(self.now)
        return orders

    def live(self, nodes: str, span_s: float) -> None:
        for _ in range(round(2 * span_s)):
            self.now += 0.5
            self.renew(nodes)
            self.look()

    def begin(self, nodes: str) -> None:
        """Let these nodes come and start round 0."""
        for node in nodes:
            self.join(node)
        self.look(3.0)
        self.start(nodes)

    def start(self, nodes: str) -> None:
        """Let all know the round that is placed, which starts it."""
        self.say(nodes, Placed(self.leader.office.next_round))
        self.look()
        assert self.leader.office.phase == "running"
        self.renew(nodes)
        self.look()

    def stop(self, nodes: str, *, failed: str) -> None:
        """Let a node fail, and all stop; the next round is not placed yet."""
        self.say(failed, Failed(self.leader.office.roll.last.round, (), (), ()))
        self.look()
        self.say(nodes, Stopped(self.leader.office.next_round, 2000, fenced=False))


def claimant(**changes: object) -> Hall:
    hall = Hall(LAST, **changes)
    hall.join("a", **member_of(LAST, 0))
    return hall


def kinds(told: list[object]) -> list[type]:
    return [type(message) for message in told]


def places(told: list[object]) -> list[tuple[int, int | None]]:
    """Return the round and the slot of each place somebody was told."""
    return [(one.round, one.slot) for one in told if isinstance(one, Place)]


def to_whom(hall: Hall, orders: list[Effect], kind: type) -> str:
    """Return who is told something of this kind."""
    named = {conn: node for node, conn in hall.conns.items()}
    found = [named[one.conn] for one in orders if isinstance(one, Send) and isinstance(one.message, kind)]
    return "".join(sorted(found))
