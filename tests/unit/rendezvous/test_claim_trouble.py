"""What a store says when it does not do as it is asked: who is told, when it is waited for, and when it is the end."""

from __future__ import annotations

from planaria.rendezvous.machine import Rendezvous
from planaria.rendezvous.messages import Ended
from planaria.rendezvous.model import (
    SELF,
    Connect,
    EndRun,
    KeyRead,
    KeyWritten,
    Opened,
    Received,
    Say,
    Send,
    Settings,
    StoreAnswered,
    StoreTrouble,
    Ticked,
    WakeAt,
    WriteKey,
)
from planaria.rendezvous.stored import TROUBLE_S

OWN = Settings("a", "host-a", "a:1", 1, run_id="run", external=True, ttl_s=5.0, join_timeout_s=10.0)
NOTHING_THERE = (KeyRead("leader", None, 0), KeyRead("round", None, 0), KeyRead("outcome", None, 0))


class Agent:
    """A machine that is one process with itself, and a store that the test plays."""

    def __init__(self) -> None:
        self.now = 0.0
        self.machine = Rendezvous(OWN, 0.0)
        self.wake_at: float | None = None
        self.out: list[object] = []
        self._does(self.machine.begin(0.0))

    def _does(self, effects: tuple[object, ...]) -> None:
        self.out += effects
        for effect in effects:
            match effect:
                case Connect(conn, address) if address == SELF:
                    self._hears(Opened(conn))
                case Send(conn, message) if conn == SELF:
                    self._hears(Received(self.machine.member.conn, message))
                case Send(conn, message) if conn == self.machine.member.conn:
                    self._hears(Received(SELF, message))
                case WakeAt(when):
                    self.wake_at = when

    def _hears(self, event: object) -> None:
        self._does(self.machine.handle(event, self.now))  # type: ignore[arg-type]

    def hear(self, *events: object, at: float | None = None) -> list[object]:
        """Let something happen; return what is ordered."""
        self.out = []
        self.now = self.now if at is None else at
        for event in events:
            self._hears(event)
        return self.out

    def wait_for_round(self) -> list[object]:
        """Let time pass until a round is to be written."""
        out: list[object] = []
        while not any(isinstance(one, WriteKey) and one.key == "round" for one in out):
            assert self.wake_at is not None
            out += self.hear(Ticked(), at=self.wake_at)
        return out


def lines(out: list[object]) -> list[str]:
    return [one.text for one in out if isinstance(one, Say)]


def ends(out: list[object]) -> list[Ended]:
    return [one.ended for one in out if isinstance(one, EndRun)]


def in_a_round() -> Agent:
    agent = Agent()
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    agent.wait_for_round()
    agent.hear(KeyWritten("round", 10))
    return agent


def test_a_trouble_is_said_once_however_often_it_is_met() -> None:
    agent = Agent()
    (line,) = lines(agent.hear(StoreTrouble("etcd at e:1: Connection refused"), at=4.0))
    assert "etcd at e:1: Connection refused" in line
    for at in (4.5, 5.0, 8.0):
        assert lines(agent.hear(StoreTrouble("etcd at e:1: Connection refused"), at=at)) == []
    assert len(lines(agent.hear(StoreTrouble("etcd at e:1: no answer in time"), at=9.0))) == 1


def test_the_same_trouble_after_a_time_of_peace_is_said_again() -> None:
    agent = in_a_round()
    began = agent.now
    for step in range(10):  # it lasts
        said = lines(agent.hear(StoreTrouble("no room"), at=began + step * TROUBLE_S * 0.9))
        assert len(said) == (step == 0)
    assert len(lines(agent.hear(StoreTrouble("no room"), at=agent.now + TROUBLE_S))) == 1


def test_who_gives_up_says_what_the_store_said_last() -> None:
    agent = Agent()
    agent.hear(StoreTrouble("Connection refused"), at=4.0)
    agent.hear(StoreTrouble("no answer in time"), at=8.0)
    (ended,) = ends(agent.hear(Ticked(), at=10.0))
    assert (ended.kind, ended.status) == ("timeout", 124)
    assert ended.explanation.endswith("within 10 s; the store last said: no answer in time")


def test_a_trouble_that_is_over_is_no_reason_for_the_end() -> None:
    agent = Agent()
    agent.hear(StoreTrouble("Connection refused"), at=4.0)
    agent.hear(KeyRead("round", None, 0), at=5.0)
    (ended,) = ends(agent.hear(Ticked(), at=10.0))
    assert "Connection refused" not in ended.explanation


def test_a_refusal_that_only_people_can_mend_ends_an_agent_that_is_in_no_round() -> None:
    agent = Agent()
    (ended,) = ends(agent.hear(StoreTrouble("etcd does not let 'ann' in", final=True)))
    assert (ended.kind, ended.status) == ("refused", 2)
    assert "etcd does not let 'ann' in" in ended.explanation
    assert agent.hear(StoreTrouble("etcd does not let 'ann' in", final=True), at=1.0) == []


def test_a_leader_without_a_round_that_is_refused_leads_no_more() -> None:
    agent = Agent()
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    assert agent.machine.is_leading
    assert [ended.status for ended in ends(agent.hear(StoreTrouble("permission denied", final=True)))] == [2]
    assert not agent.machine.is_leading


def test_a_refusal_in_a_round_is_said_and_costs_nothing() -> None:
    agent = in_a_round()
    assert agent.machine.standing.round == 0
    out = agent.hear(StoreTrouble("permission denied", final=True))
    assert ends(out) == []
    assert len(lines(out)) == 1
    assert agent.machine.is_leading


def test_a_round_that_waits_for_the_store_says_so_even_if_the_trouble_is_known() -> None:
    agent = Agent()
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    assert len(lines(agent.hear(StoreTrouble("away")))) == 1
    agent.wait_for_round()
    (line,) = lines(agent.hear(StoreTrouble("away")))
    assert line.startswith("the next round waits for the store: away")
    assert lines(agent.hear(StoreTrouble("away"))) == []
