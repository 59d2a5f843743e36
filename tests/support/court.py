"""A leader in virtual time, and nodes that say only what a test makes them say."""

from __future__ import annotations

import json

from planaria.base.value import as_dict, replace
from planaria.contract.failure import Failure
from planaria.rendezvous import quorum
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.messages import Ack, Failed, Join, Leave, Place, Placed, Renew, Start, Stopped
from planaria.rendezvous.model import SELF, Answered, Deputy, Held, Say, Send, Settings, Standing

OWN = Settings("a", "host-a", "a:1", 1, run_id="run", min_nodes=1, max_nodes=3, max_restarts=1, ttl_s=5.0)


def join_of(node: str, **changes: object) -> Join:
    """Return how a fresh node introduces itself."""
    fresh = Join("run", node, f"host-{node}", f"{node}:1", 1, "default", None, Standing(), "idle", 0, False, 1e9, 1.0)
    return replace(fresh, **{"rules": OWN.rules} | changes)


def failure_of(node: str, number: int = 0, **changes: object) -> Failed:
    one = Failure(0, 0, f"host-{node}", 1, 1, 0.0, 3.0, "exit")
    return replace(Failed(number, (json.dumps(as_dict(one)),), (0.1,), (False,)), **changes)


class Court:
    """A leader, and nodes that say only what a test makes them say."""

    def __init__(self, now: float = 0.0, standing: Standing | None = None, **changes: object) -> None:
        self.now = now
        self.settings = replace(OWN, **changes)
        self.leader = Leader(self.settings, now, term=1, standing=standing or Standing(), held=Held())
        self.conns: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.seqs: dict[str, int] = {}
        self.wake_at = quorum.ALWAYS
        self.others: list[object] = []

    def join(self, node: str, conn: str = "", **changes: object) -> None:
        self.conns[node] = conn or (SELF if node == self.settings.node else f"in-{node}")
        self.names[self.conns[node]] = node
        self.seqs[node] = 0
        told = {"rules": self.settings.rules} | changes
        self.leader.received(self.conns[node], join_of(node, **told), self.now)

    def say(self, nodes: str, *messages: object) -> None:
        """Let each of some nodes, one letter each, say something."""
        for node in nodes:
            for message in messages:
                self.leader.received(self.conns[node], message, self.now)  # type: ignore[arg-type]

    def renew(self, nodes: str) -> None:
        """Let nodes show that they got the last answer."""
        for node in nodes:
            self.say(node, Renew(self.seqs[node] + 1, self.seqs[node]))
            self.seqs[node] += 1

    def look(self, later_s: float = 0.0) -> list[tuple[str, object]]:
        """Let the leader decide, after a while; return who was told what."""
        self.now += later_s
        out, self.wake_at = self.leader.advance(self.now)
        self.others = [one for one in out if not isinstance(one, Send)]
        return [(self.names[one.conn], one.message) for one in out if isinstance(one, Send)]

    def live(self, nodes: str, span_s: float, step_s: float = 0.5) -> list[tuple[str, object]]:
        """Let time pass in which some nodes renew; return what everybody was told but for answers."""
        told = []
        for _ in range(round(span_s / step_s)):
            self.now += step_s
            self.renew(nodes)
            told += self.look()
        return [(node, message) for node, message in told if not isinstance(message, Ack)]

    def lose(self, node: str) -> None:
        self.leader.lost(self.conns[node], self.now)

    def refuse(self, node: str) -> None:
        """Let the address of a node refuse us."""
        self.leader.answered_probe(Answered(f"{node}:1", refused=True), self.now)

    def begin(self, nodes: str) -> None:
        """Let these nodes, and no other, come and start round 0."""
        for node in nodes:
            self.join(node)
        self.look(3.0)
        self.say(nodes, Placed(self.leader.office.next_round))
        told = self.look()
        assert "".join(to_whom(told, Start)) == nodes, told
        self.renew(nodes)
        self.look()

    def restart(self, nodes: str) -> list[tuple[str, object]]:
        """Let nodes do as they are told until a round starts; return what they were told on the way."""
        number = self.leader.office.next_round
        self.say(nodes, Stopped(number, 2000, fenced=False))
        told = self.look()
        self.say(nodes, Placed(number))
        return told + self.look()


def to_whom(told: list[tuple[str, object]], kind: type) -> list[str]:
    """Return who was told something of this kind, in order."""
    return sorted(node for node, message in told if isinstance(message, kind))


def only(told: list[tuple[str, object]], kind: type) -> object:
    """Return what is the same in all messages of a kind."""
    (found,) = {message for _, message in told if isinstance(message, kind)}
    return found


def _deputies(named: str) -> tuple[Deputy, ...]:
    return tuple(Deputy(node, f"{node}:1") for node in named)


def claimed(*nodes: str, state: str = "running", **changes: object) -> Court:
    """Return the court of a deputy: `a` and `nodes` were members of round 4 of term 1."""
    everybody = "abc"
    last = Standing("x", 1, 4, 3, 0, 2, _deputies(everybody), 5, home=0, ran=4)
    court = Court(100.0, last, **changes)
    court.leader = Leader(court.settings, 100.0, term=2, standing=last, held=Held(99.0, 103.0))
    for node in nodes:
        slot = everybody.index(node)
        known = replace(last, slot=slot, home=slot)
        court.join(node, standing=known, state=state, bound_term=1, since_ack_s=1.0)
    return court


def reasons(told: list[tuple[str, object]]) -> set[str]:
    """Return why the next round was made, as its members are told."""
    return {message.reason for _, message in told if isinstance(message, Place)}


def said(court: Court) -> list[str]:
    """Return what the leader has just told people."""
    return [one.text for one in court.others if isinstance(one, Say)]


def rejoin(court: Court, node: str, slot: int, **changes: object) -> None:
    """Let a member of the newest round come back over another connection, its workers running."""
    known = replace(court.leader.office.roll.last, slot=slot, home=slot)
    court.join(node, f"in-{node}-again", **{"standing": known, "state": "running", "bound_term": 1} | changes)


def _court_after(last: Standing, here: str) -> Court:
    """Return the court of a deputy that claims a round whose members here, one letter each, run and have shown it twice."""
    court = claimed()
    held = Held(court.now - 1.0, court.now - 1.0 + court.settings.lease_s)
    court.leader = Leader(court.settings, court.now, term=2, standing=last, held=held)
    for slot, node in enumerate(here):
        known = replace(last, slot=slot, home=slot)
        court.join(node, standing=known, state="running", bound_term=1, since_ack_s=1.0)
    for _ in range(2):
        court.renew(here)
        court.look()
    return court


def candidate_of(named: str, here: str) -> Court:
    """Return the court of a deputy that claims a round of all that are named, of whom some are here."""
    return _court_after(Standing("x", 1, 0, len(named), 0, 0, _deputies(named), 1, home=0, ran=0), here)


def deputy_of(named: str, number: int, here: str) -> Court:
    """Return the court of a deputy that has taken over a round of three, of whom some have a name and some are here."""
    last = Standing("x", 1, number, 3, 0, 2, _deputies(named), number + 1, home=0, ran=number)
    court = _court_after(last, here)
    assert court.leader.office.phase == "running"
    return court


def asking_store(nodes: str) -> Court:
    """Return the court of nodes that know their places, while the store is asked to take their first round."""
    court = Court(external=True, max_nodes=2)
    court.leader.office.roll.tie_until = quorum.ALWAYS
    for node in nodes:
        court.join(node)
    court.look()
    court.say(nodes, Placed(0))
    court.look()
    return court


def short_of_one() -> Court:
    """Return the court of a run of five that one has left, so that it waits for another."""
    court = Court(min_nodes=5, max_nodes=5)
    court.begin("abcde")
    court.say("e", Leave("SIGTERM"))
    court.look()
    told = court.restart("abcd")
    assert to_whom(told, Place) == []
    return court
