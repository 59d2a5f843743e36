"""One rendezvous machine in virtual time: a process of its own, whose peers and store a test plays."""

from __future__ import annotations

from court import join_of

from planaria.base.value import replace
from planaria.rendezvous.keys import round_record
from planaria.rendezvous.machine import Rendezvous
from planaria.rendezvous.messages import Ask, Ended, Leads, Place, Placed, Renew, Start, Welcome
from planaria.rendezvous.model import (
    SELF,
    Answered,
    AskAround,
    Connect,
    Deputy,
    KeyRead,
    KeyWritten,
    KillWorkers,
    Lost,
    Opened,
    Received,
    Say,
    Send,
    Settings,
    Standing,
    StartWorkers,
    StopWorkers,
    StoreAnswered,
    Ticked,
    WakeAt,
    WorkersStopped,
)

FIRST = Settings(
    "a", "host-a", "a:1", 1, run_id="run", max_nodes=3, max_restarts=1, endpoints=("a:1",), owned=0, ttl_s=5.0
)
"""The agent whose listener is the endpoint."""

SECOND = replace(FIRST, node="b", host="host-b", address="b:1", owned=None)

STORED = replace(FIRST, external=True, endpoints=("etcd:2379",), owned=None)

DEPUTIES = (Deputy("a", "a:1"), Deputy("b", "b:1"), Deputy("c", "c:1"))

ENDED = Ended("done", 0, "", (), 0)

NOTHING_THERE = (KeyRead("leader", None, 0), KeyRead("round", None, 0), KeyRead("outcome", None, 0))
LATE_S = 10.0  # all leases are over by then


class Agent:
    """A machine that is one process with itself; what it orders of others is kept, what they do a test decides."""

    def __init__(self, settings: Settings, now: float = 0.0) -> None:
        self.now = now
        self.machine = Rendezvous(settings, now)
        self.out: list[object] = []
        self.wake_at: float | None = None
        self._waiting: list[object] = []
        self._busy = True
        self._does(self.machine.begin(now))
        self._busy = False
        if self._waiting:
            self._hears(self._waiting.pop(0))

    def _does(self, effects: tuple[object, ...]) -> None:
        for effect in effects:
            self.out.append(effect)
            member = self.machine.member
            match effect:
                case Connect(conn, address) if address == SELF:
                    self._hears(Opened(conn))
                case Send(conn, message) if conn == SELF:
                    self._hears(Received(member.conn, message))
                case Send(conn, message) if conn == member.conn and member.address == SELF:
                    self._hears(Received(SELF, message))
                case StopWorkers() | KillWorkers():
                    self._hears(WorkersStopped(2000))
                case WakeAt(when):
                    self.wake_at = when

    def _hears(self, event: object) -> None:
        """Take an event; what its orders make happen here comes after them, as on a loop."""
        self._waiting.append(event)
        while self._waiting and not self._busy:
            self._busy = True
            self._does(self.machine.handle(self._waiting.pop(0), self.now))  # type: ignore[arg-type]
            self._busy = False

    def hear(self, *events: object, later_s: float = 0.0) -> list[object]:
        """Let something happen after a while; return what the agent orders."""
        self.out = []
        self.now += later_s
        for event in events:
            self._hears(event)
        return self.out

    def told(self, *messages: object, later_s: float = 0.0) -> list[object]:
        """Let its leader say something."""
        conn = self.machine.member.conn
        return self.hear(*(Received(conn, one) for one in messages), later_s=later_s)  # type: ignore[arg-type]

    def pass_time(self, until: float) -> list[object]:
        """Let time pass as the agent wants to be woken."""
        out: list[object] = []
        for _ in range(10_000):
            if self.wake_at is None or self.wake_at > until:
                self.now = until
                return out
            self.now = max(self.now, self.wake_at)
            out += self.hear(Ticked())
        raise AssertionError("it never sleeps")

    def loses_leader(self, later_s: float = 0.0) -> list[object]:
        """Let the connection to its leader end."""
        return self.hear(Lost(self.machine.member.conn), later_s=later_s)


def kinds(out: list[object], *wanted: type) -> list[object]:
    return [one for one in out if isinstance(one, wanted)]


def sent_to(conn: str, out: list[object]) -> list[object]:
    return [one.message for one in out if isinstance(one, Send) and one.conn == conn]


def leads(node: str, address: str = "", **changes: object) -> Leads:
    return replace(Leads("run", node, address, 1, -1, valid=False, seeking=not address), **changes)


def ask_of(node: str, address: str = "", **changes: object) -> Ask:
    return replace(Ask("run", node, address, 1, -1, valid=False), **changes)


def place(slot: int | None = 1, **changes: object) -> Place:
    return replace(Place("a", 1, 0, 3, slot, 1, 3, 1, 3, "a", 2000, 0, "", DEPUTIES), **changes)


def leading_agent(nodes: str = "abc", settings: Settings = FIRST, now: float = 0.0) -> Agent:
    """Return the agent that leads a round of these nodes, itself first."""
    agent = Agent(replace(settings, max_nodes=len(nodes)), now)
    agent.hear(*(Answered(address, refused=True) for address in settings.endpoints[1:]))
    for node in nodes[1:]:
        agent.hear(Received(f"in-{node}", join_of(node, rules=agent.machine.settings.rules)))
    agent.pass_time(now + 1.0)
    for node in nodes[1:]:
        agent.hear(Received(f"in-{node}", Placed(0)))
    agent.pass_time(now + 1.01)
    assert agent.machine.standing.ran == 0
    for node in nodes[1:]:
        agent.hear(Received(f"in-{node}", Renew(1, 0)))
    agent.hear(Ticked())
    return agent


def member_agent(settings: Settings = SECOND, *, known: Place | None = None, term: int = 1) -> Agent:
    """Return an agent whose workers run in a round of three, which `a` leads; with `known`, one that has that place."""
    agent = Agent(settings)
    agent.machine.member.join("a:1", 0.0)
    agent.hear(Opened(agent.machine.member.conn))
    agent.told(Welcome(term, "a"))
    out = agent.told(known or place(), Start(0, 4.0))
    assert known is not None or kinds(out, StartWorkers)
    return agent


def stored_agent() -> Agent:
    """Return an agent that leads by the store's leave, with term 9, and knows of round 7 from the store."""
    agent = Agent(replace(STORED, max_nodes=2))
    last = Standing("x", 3, 7, 1, None, 0, (Deputy("z", "z:1"),), 8)
    agent.hear(KeyRead("leader", None, 0), KeyRead("round", round_record(last), 40), KeyRead("outcome", None, 0))
    agent.hear(Answered("z:1", refused=True))
    agent.hear(KeyWritten("leader", 9), StoreAnswered(agent.now))
    assert agent.machine.leader is not None
    return agent


def goes_to(out: list[object]) -> list[str]:
    """Return the addresses that were connected to."""
    return [one.address for one in out if isinstance(one, Connect)]


def asks(out: list[object]) -> list[str]:
    """Return the addresses that were asked who leads."""
    return [one.address for one in out if isinstance(one, AskAround)]


def lines(out: list[object]) -> list[str]:
    """Return what people were told, but for what is shown in passing."""
    return [one.text for one in out if isinstance(one, Say) and not one.passing]


def founding_agent(settings: Settings = FIRST) -> Agent:
    """Return an agent that leads, and waits for others to make a first round with."""
    agent = Agent(settings)
    agent.hear(*(Answered(address, refused=True) for address in settings.endpoints[1:]))
    assert agent.machine.leader is not None
    assert not agent.machine.leader.office.roll.has_round
    return agent
