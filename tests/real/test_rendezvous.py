"""Agents meet over real sockets: several drivers in one process, on one loop."""

from __future__ import annotations

import _socket
import json
import re
from typing import TYPE_CHECKING

import pytest
from certificates import make_certificate
from ports import free_port
from rendezvous_rig import TTL_S, Rig, meeting_at

from planaria.base import addresses
from planaria.base.net import dial
from planaria.base.value import as_dict
from planaria.contract.failure import Failure
from planaria.contract.secret import Secret
from planaria.rendezvous import notice
from planaria.rendezvous.model import LeaveRequested, WorkersDone, WorkersFailed, WorkersStopped
from planaria.store.hub import Hub
from planaria.store.machine import Machine
from planaria.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rendezvous_rig import Hands

    from planaria.base.net import Connection


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def has_ipv6() -> bool:
    try:
        free_port("::1")
    except OSError:
        return False
    return True


def test_three_nodes_with_the_same_command_meet_whoever_comes_first(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="3")
    agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    assert {agent.driver.snapshot().standing.epoch for agent in agents} == {agents[0].driver.settings.node}
    assert [agent.driver.settings.owned for agent in agents] == [0, None, None]
    assert all(agent.driver.settings.address.startswith("127.0.0.1:") for agent in agents)


def test_the_rest_go_on_when_a_member_ends_without_a_word(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="1:3")
    first, second, third = agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    third.driver.close()
    rig.meet(first, second)
    assert first.place.restart_count == 0
    assert first.stops


def test_the_rest_go_on_when_the_leader_ends_without_a_word(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="1:3")
    leader, second, third = agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    assert leader.driver.snapshot().is_leading
    leader.driver.close()
    rig.meet(second, third)
    assert second.driver.snapshot().is_leading != third.driver.snapshot().is_leading
    assert not second.kills
    assert not third.kills


def test_a_replacement_at_the_old_endpoint_joins_the_world_that_is_there(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="1:3")
    leader, second, third = agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    leader.driver.close()
    replacement = rig.add(meeting)
    rig.meet(second, third, replacement)
    assert replacement.place.epoch == leader.places[0].epoch


def test_a_newcomer_joins_a_running_world(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="1:3")
    first, second = rig.add(meeting), rig.add(meeting)
    rig.meet(first, second)
    third = rig.add(meeting)
    rig.meet(first, second, third)
    assert (first.place.slot, second.place.slot) == (0, 1)


def test_nodes_that_arrive_together_cost_one_restart(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="1:4")
    alone = rig.add(meeting, gather_s=3.0)  # they come within milliseconds; this is for a machine that is busy
    rig.meet(alone)
    agents = [alone, *(rig.add(meeting) for _ in range(3))]
    rig.meet(*agents)
    assert [place.round for place in alone.places] == [0, 1]
    assert alone.place.slot == 0


def test_one_that_leaves_says_goodbye_and_the_others_go_on(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="1:3")
    first, second, third = agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    first.driver.post(WorkersStopped(1))
    first.driver.post(LeaveRequested("asked to"))
    first.driver.close()
    rig.meet(second, third)


def test_all_hear_the_same_end(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="3")
    agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    for agent in agents:
        agent.driver.post(WorkersStopped(1))
        agent.driver.post(WorkersDone())
    assert rig.turn(lambda: all(agent.ended for agent in agents))
    assert {agent.ended.kind for agent in agents} == {"done"}


def test_one_failure_ends_the_run_on_all_nodes_with_the_same_report(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="3")
    agents = [rig.add(meeting, max_restarts=0) for _ in range(3)]
    rig.meet(*agents)
    broken = Failure(1, 0, "host", 99, 3, 0.0, 1.0, "exit", message="it broke")
    failure = json.dumps(as_dict(broken))
    agents[1].driver.post(WorkersStopped(1))
    agents[1].driver.post(WorkersFailed((failure,), (rig.loop.now(),), (False,)))
    assert rig.turn(lambda: all(agent.ended for agent in agents))
    assert len({agent.ended.failures for agent in agents}) == 1
    assert [json.loads(text)["message"] for text in agents[0].ended.failures] == ["it broke"]
    assert {agent.ended.status for agent in agents} == {1}


def test_sixty_four_agents_meet_with_a_kilobyte_each(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # What people are told while they wait comes by the clock, so on a slow machine there is more of it.
    monkeypatch.setattr(notice, "TELL_S", TTL_S)
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="64")
    agents = [rig.add(meeting) for _ in range(64)]
    rig.meet(*agents)
    traffic = [agent.driver.snapshot().traffic for agent in agents]
    bytes_each = [one.bytes_in + one.bytes_out for one in traffic[1:]]
    messages_each = [one.messages_in for one in traffic[1:]]
    assert max(messages_each) < 20
    assert sum(bytes_each) / len(bytes_each) < 2500


def test_an_agent_of_another_run_is_turned_away_with_a_sentence(rig: Rig) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    first = rig.add(meeting_at(endpoint, nodes="1:2"))
    rig.meet(first)
    stranger = rig.add(meeting_at(endpoint, nodes="1:2", run_id="another"), join_timeout_s=1.0)
    assert rig.turn(lambda: stranger.ended)
    assert stranger.ended.kind == "timeout"
    assert stranger.place is None
    assert any("another run, 'run'" in text for text, _ in stranger.said)
    assert first.place is not None
    assert first.place.size == 1


def test_a_wrong_token_keeps_an_agent_out_and_both_sides_say_so(rig: Rig) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    first = rig.add(meeting_at(endpoint, nodes="1:2", token=Secret(b"hush")))
    rig.meet(first)
    stranger = rig.add(meeting_at(endpoint, nodes="1:2", token=Secret(b"hushed")), join_timeout_s=6)
    assert rig.turn(lambda: any("token" in text for text, _ in stranger.said)), stranger.said
    assert rig.turn(lambda: any("token" in text for text, _ in first.said)), first.said
    assert not any("hush" in text for text, _ in first.said + stranger.said)
    assert first.place.size == 1


def test_a_missing_token_is_named(rig: Rig) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    first = rig.add(meeting_at(endpoint, nodes="1:2", token=Secret(b"right")))
    rig.meet(first)
    stranger = rig.add(meeting_at(endpoint, nodes="1:2"))
    assert rig.turn(lambda: any("token" in text for text, _ in stranger.said)), stranger.said


def test_agents_with_the_same_token_meet(rig: Rig) -> None:
    meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="3", token=Secret(b"a secret of the job"))
    rig.meet(*[rig.add(meeting) for _ in range(3)])


@pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6")
def test_agents_meet_on_ipv6_alone(rig: Rig) -> None:
    meeting = meeting_at(f"[::1]:{free_port('::1')}", nodes="3")
    agents = [rig.add(meeting) for _ in range(3)]
    rig.meet(*agents)
    assert all(agent.driver.settings.address.startswith("[::1]:") for agent in agents)
    assert agents[1].place.master_addr == "::1"


def test_localhost_is_known_for_our_own_without_a_name_server(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = addresses._resolve

    def without_names(host: str, port: int, flags: int) -> list[addresses.Target]:
        if not flags & _socket.AI_NUMERICHOST:
            raise OSError(0, f"somebody wanted to know who {host} is")
        return resolve(host, port, flags)

    monkeypatch.setattr(addresses, "_resolve", without_names)
    agent = rig.add(meeting_at(f"localhost:{free_port()}", nodes="1:2"))
    rig.meet(agent)
    assert agent.driver.settings.owned == 0


def test_agents_meet_at_localhost(rig: Rig) -> None:
    meeting = meeting_at(f"localhost:{free_port()}", nodes="2")
    rig.meet(rig.add(meeting), rig.add(meeting))


def test_a_run_of_one_may_let_the_system_choose_the_port(rig: Rig) -> None:
    agent = rig.add(meeting_at("localhost:0", nodes="1"))
    rig.meet(agent)
    assert not agent.driver.settings.endpoints[0].endswith(":0")


def test_a_later_endpoint_leads_when_the_first_is_nobody(rig: Rig) -> None:
    port = free_port()  # the first is an address for documentation (RFC 5737), which is nobody's
    meeting = meeting_at(f"192.0.2.1:{port}", f"127.0.0.1:{port}", nodes="2", local_addr="127.0.0.1")
    agents = [rig.add(meeting), rig.add(meeting)]
    rig.meet(*agents)
    assert [agent.driver.settings.owned for agent in agents] == [1, None]
    assert [agent.driver.snapshot().is_leading for agent in agents] == [True, False]


def test_a_port_that_something_else_holds_is_named(rig: Rig) -> None:
    other = _socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen(8)
    try:
        port = other.getsockname()[1]
        agent = rig.add(meeting_at(f"127.0.0.1:{port}", nodes="1"), join_timeout_s=10)
        assert rig.turn(lambda: any(f"port {port} of this host is taken" in text for text, _ in agent.said)), agent.said
        assert agent.driver.settings.owned is None
    finally:
        other.close()


def test_a_port_that_is_given_up_soon_is_waited_for(rig: Rig) -> None:
    other = _socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen(8)
    agent = rig.add(meeting_at(f"127.0.0.1:{other.getsockname()[1]}", nodes="1"))
    rig.loop.call_later(0.4, other.close)
    rig.meet(agent)
    assert agent.driver.settings.owned == 0


def test_whoever_sends_what_is_no_message_is_dropped_with_few_lines(rig: Rig) -> None:
    port = free_port()
    agent = rig.add(meeting_at(f"127.0.0.1:{port}", nodes="1"))
    rig.meet(agent)
    lost: list[str] = []

    def opened(connection: Connection) -> None:
        connection.on_lost = lambda why, _met: lost.append(why)
        connection.on_message = lambda _data: None
        connection.send(b'["Renew",1]')

    for _ in range(5):
        dial(
            rig.loop,
            f"127.0.0.1:{port}",
            token=None,
            timeout_s=5,
            on_open=opened,
            on_lost=lambda why, _met: lost.append(why),
        )
    assert rig.turn(lambda: len(lost) == 5)

    def told() -> list[int]:
        """Return of how many each line tells."""
        lines = [text for text, _ in agent.said if "no message of ours" in text]
        return [1 + int((re.findall(r"\(and (\d+) more\)$", line) or ["0"])[0]) for line in lines]

    assert rig.turn(lambda: sum(told()) == 5), agent.said
    assert told()[0] == 1
    assert len(told()) < 5
    assert agent.place is not None


def test_static_nodes_have_the_slots_they_were_given(rig: Rig) -> None:
    port = free_port()
    meetings = [meeting_at(f"127.0.0.1:{port}", nodes="3", backend="static", node_rank=rank) for rank in (2, 0, 1)]
    agents = [rig.add(meeting) for meeting in meetings]
    rig.meet(*agents)
    assert [agent.place.slot for agent in agents] == [2, 0, 1]
    assert agents[1].driver.settings.address == f"127.0.0.1:{port + 1}"


class Etcd:
    """Answers like an etcd: not at all, unless asked in HTTP."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._door = _socket.socket()
        self._door.setblocking(False)
        self._door.bind(("127.0.0.1", 0))
        self._door.listen(16)
        self.port = self._door.getsockname()[1]
        self._guests: list[_socket.socket] = []
        rig.loop.on_readable(self._door.fileno(), self._accept)

    def _accept(self) -> None:
        fd, _ = self._door._accept()
        guest = _socket.socket(fileno=fd)
        self._guests.append(guest)
        self._rig.loop.on_readable(fd, lambda: self._answer(guest))

    def _answer(self, guest: _socket.socket) -> None:
        asked = guest.recv(4096)
        if asked.startswith(b"GET /version"):
            guest.send(b'HTTP/1.0 200 OK\r\n\r\n{"etcdserver":"3.5.1","etcdcluster":"3.5.0"}')
        self._rig.loop.forget(guest.fileno())
        guest.close()

    def close(self) -> None:
        self._rig.loop.forget(self._door.fileno())
        self._door.close()


@pytest.mark.parametrize("backend", ["embedded", "static"])
def test_an_etcd_at_the_endpoint_of_another_backend_gets_one_sentence(rig: Rig, backend: str) -> None:
    etcd = Etcd(rig)
    try:
        rank = 1 if backend == "static" else None
        meeting = meeting_at(f"127.0.0.1:{etcd.port}", nodes="2", backend=backend, node_rank=rank)
        agent = rig.add(meeting)
        assert rig.turn(lambda: agent.ended), agent.said
        assert agent.ended.status == 2
        assert f"--rdzv-backend={backend} expects" in agent.ended.explanation
        assert "--rdzv-backend=etcd" in agent.ended.explanation
    finally:
        etcd.close()


def test_a_leave_while_names_are_looked_up_is_heard(rig: Rig) -> None:
    agent = rig.add(meeting_at(f"no-such-host.invalid:{free_port()}", nodes="2"))
    agent.driver.post(LeaveRequested("asked to"))
    assert agent.driver.snapshot().is_ended


def test_agents_that_share_a_certificate_meet_and_others_stay_outside(rig: Rig, tmp_path: Path) -> None:
    made = (make_certificate(tmp_path, name) for name in ("ours", "theirs"))
    ours, theirs = ({"tls_cert": one.cert, "tls_key": one.key} for one in made)
    endpoint = f"127.0.0.1:{free_port()}"
    agents = [rig.add(meeting_at(endpoint, nodes="2:3", options=ours)) for _ in range(2)]
    rig.meet(*agents)
    strangers = [rig.add(meeting_at(endpoint, nodes="2:3", options=options)) for options in (theirs, {})]
    assert rig.turn(lambda: all(any(not passing for _, passing in one.said) for one in strangers))
    assert not any(stranger.place for stranger in strangers)
    assert agents[0].place.size == 2


class Stored:
    """Agents that find each other through a store in this process."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._hub = Hub(rig.loop, Machine())
        self._meeting = meeting_at("127.0.0.1:2379", nodes="1:3", backend="etcd")

    def add(self, **changes: object) -> Hands:
        return self._rig.add(self._meeting, store=lambda: MemoryStore(self._rig.loop, self._hub), **changes)


def test_nodes_meet_through_a_store(rig: Rig) -> None:
    stored = Stored(rig)
    agents = [stored.add() for _ in range(3)]
    rig.meet(*agents)
    assert all(agent.driver.settings.owned is None for agent in agents)
    assert all(agent.driver.settings.external for agent in agents)
    assert sum(agent.driver.snapshot().is_leading for agent in agents) == 1


def test_a_store_gives_the_lead_to_another_when_the_leader_ends_without_a_word(rig: Rig) -> None:
    stored = Stored(rig)
    agents = [stored.add() for _ in range(3)]
    rig.meet(*agents)
    leader = next(agent for agent in agents if agent.driver.snapshot().is_leading)
    leader.driver.close()
    rest = [agent for agent in agents if agent is not leader]
    rig.meet(*rest)
    assert sum(agent.driver.snapshot().is_leading for agent in rest) == 1


def test_an_agent_that_was_running_when_the_run_ended_hears_of_it_and_a_later_one_starts_anew(rig: Rig) -> None:
    stored = Stored(rig)
    agents = [stored.add() for _ in range(3)]
    rig.meet(*agents)
    waiting = stored.add()
    for agent in agents:
        agent.driver.post(WorkersStopped(1))
        agent.driver.post(WorkersDone())
    assert rig.turn(lambda: all(agent.ended for agent in [*agents, waiting]))
    assert {agent.ended.kind for agent in [*agents, waiting]} == {"done"}
    for agent in [*agents, waiting]:
        agent.driver.close()
    later = stored.add()
    rig.meet(later)
    assert later.place.epoch != agents[0].places[0].epoch
