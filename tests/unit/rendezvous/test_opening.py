"""From a command line to a driver: names that are not known yet, usage errors, certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ports import free_port
from rendezvous_rig import Rig, meeting_at

from planaria.contract.secret import Secret
from planaria.errors import UsageError
from planaria.rendezvous import foreign, lookup, opening
from planaria.rendezvous.model import LeaveRequested, Settings
from planaria.rendezvous.opening import open_driver
from planaria.rendezvous.security import security_of
from planaria.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.base.addresses import Target
    from planaria.base.loop import Loop

DRAFT = Settings("", "", "", 1)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


class Names:
    """A name server that learns: each answer is used once, the last for ever."""

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name.replace("_", "-"): found for name, found in answers.items()}
        self.asked: list[str] = []

    def look_up(self, loop: Loop, host: str, port: int, then: Callable[[list[Target] | str], object]) -> None:
        self.asked.append(host)
        found = self.answers[host]
        answer = found.pop(0) if len(found) > 1 else found[0]
        told = f"cannot look up {host}: not known" if answer == "?" else [(2, (one, port)) for one in answer.split()]
        loop.call_soon(lambda: then(told))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Names]:
    def build(**answers: list[str]) -> Names:
        made = Names(**answers)
        monkeypatch.setattr(lookup, "look_up", made.look_up)
        monkeypatch.setattr(lookup, "FIRST_RETRY_S", 0.01)
        return made

    return build


class Here:
    """A host that has the addresses of this one, and a name."""

    def source_towards(self, address: str) -> str | None:
        return "127.0.0.1" if address.startswith("127.") else None

    def interfaces(self) -> tuple[str, ...]:
        return ()


def test_a_name_that_is_not_known_yet_is_looked_up_again(rig: Rig, names: Callable[..., Names]) -> None:
    served = names(gpu_0=["?", "?", "127.0.1.1"])
    meeting = meeting_at(f"gpu-0:{free_port()}", nodes="1", local_addr="127.0.0.1")
    agent = rig.add(meeting, network=Here(), hostname="gpu-0")
    rig.meet(agent)
    assert served.asked == ["gpu-0"] * 3
    assert ("cannot look up gpu-0: not known; trying again", True) in agent.said
    assert agent.driver.settings.owned == 0


def test_addresses_are_never_looked_up(rig: Rig, names: Callable[..., Names]) -> None:
    served = names()
    rig.meet(rig.add(meeting_at(f"127.0.0.1:{free_port()}", nodes="1")))
    assert served.asked == []


def test_a_node_that_must_leave_does_not_wait_for_a_name(rig: Rig, names: Callable[..., Names]) -> None:
    names(gpu_0=["?"])
    agent = rig.add(meeting_at(f"gpu-0:{free_port()}", nodes="1"), network=Here())
    agent.driver.post(LeaveRequested("asked to"))
    assert agent.driver.snapshot().is_ended


def test_closing_while_a_name_is_looked_up_leaves_nothing_behind(rig: Rig, names: Callable[..., Names]) -> None:
    served = names(gpu_0=["?"])
    agent = rig.add(meeting_at(f"gpu-0:{free_port()}", nodes="1"), network=Here())
    agent.driver.close()
    rig.turn(lambda: False, within_s=0.1)  # ten times the pause before the next question, which must not come
    assert len(served.asked) == 1
    assert agent.driver.settings is None


def test_the_machine_is_told_every_address_of_a_name(rig: Rig, names: Callable[..., Names]) -> None:
    port = free_port()
    names(workers=["10.0.0.9 10.0.0.5"])
    agent = rig.add(meeting_at(f"workers:{port}", nodes="2", local_addr="10.0.0.7"), network=Here())
    assert rig.turn(lambda: agent.driver.settings)
    assert agent.driver.settings.endpoints == (f"10.0.0.5:{port}", f"10.0.0.9:{port}", f"workers:{port}")
    assert agent.driver.settings.address.startswith("10.0.0.7:")


@pytest.mark.parametrize("endpoint", ["nowhere", "::1:29400", "host:99999", ":29400"])
def test_an_endpoint_that_is_none_is_a_usage_error_that_names_the_flag(rig: Rig, endpoint: str) -> None:
    with pytest.raises(UsageError, match="--rdzv-endpoint"):
        rig.add(meeting_at(endpoint))


def test_a_backend_of_others_may_have_endpoints_of_another_form(rig: Rig) -> None:
    agent = rig.add(meeting_at("zone=a", backend="theirs", local_addr="127.0.0.1"), store=lambda: MemoryStore(rig.loop))
    rig.meet(agent)


def test_a_run_id_that_no_store_can_hold_is_a_usage_error(rig: Rig) -> None:
    meeting = meeting_at("127.0.0.1:2379", backend="etcd", run_id="x" * 600)
    with pytest.raises(UsageError, match="--rdzv-id"):
        rig.add(meeting, store=lambda: MemoryStore(rig.loop))


def test_a_static_leader_whose_port_is_taken_fails_with_the_flag(rig: Rig) -> None:
    first = rig.add(meeting_at(f"127.0.0.1:{free_port()}", nodes="1"))
    port = int(first.driver.settings.address.rpartition(":")[2])
    second = rig.add(meeting_at(f"127.0.0.1:{port - 1}", nodes="1", backend="static", node_rank=0))
    assert second.ended.status == 2
    assert "--master-port" in second.ended.explanation


def test_a_loopback_address_that_others_are_told_is_said_once(rig: Rig) -> None:
    agent = rig.add(meeting_at(f"192.0.2.1:{free_port()}", nodes="2", local_addr="127.0.0.1"), network=Here())
    lines = [text for text, passing in agent.said if "--local-addr" in text and not passing]
    assert len(lines) == 1


def test_a_local_addr_may_have_its_brackets(rig: Rig) -> None:
    agent = rig.add(meeting_at(f"127.0.0.1:{free_port()}", nodes="2", local_addr="[fd00::7]"), network=Here())
    assert agent.driver.settings.address.startswith("[fd00::7]:")


def test_a_node_without_a_leader_says_whom_it_cannot_reach_and_until_when(rig: Rig) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    agent = rig.add(meeting_at(endpoint, nodes="2", backend="static", node_rank=1), join_timeout_s=77.0)
    assert rig.turn(lambda: agent.said)
    text, passing = agent.said[0]
    assert passing
    assert "refused" in text
    assert text.endswith("trying again, for at most 77 s")


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The endpoints that were asked whether they are an etcd."""
    made: list[str] = []
    original = foreign._Visit.begin

    def begin(visit: foreign._Visit, address: str, port: int) -> None:
        made.append(f"{address}:{port}")
        original(visit, address, port)

    monkeypatch.setattr(foreign._Visit, "begin", begin)
    return made


@pytest.mark.parametrize("backend", ["embedded", "static"])
def test_a_wrong_token_is_in_the_last_sentence_and_nobody_is_taken_for_an_etcd(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, visits: list[str], backend: str
) -> None:
    monkeypatch.setattr(opening, "FREE_WITHIN_S", 0.1)
    port = free_port()
    where = f"127.0.0.1:{port}"
    ranks: tuple[int | None, int | None] = (0, 1) if backend == "static" else (None, None)
    right = meeting_at(where, nodes="2", backend=backend, node_rank=ranks[0], token=Secret(b"right"))
    first = rig.add(right)
    assert rig.turn(lambda: first.said)
    visits.clear()
    wrong = meeting_at(where, nodes="2", backend=backend, node_rank=ranks[1], token=Secret(b"wrong"))
    second = rig.add(wrong, join_timeout_s=5)
    assert rig.turn(lambda: second.ended)
    assert second.ended is not None
    assert "another token" in second.ended.explanation
    lines = [text for text, _ in second.said if "token" in text]
    assert lines[0].startswith("no leader yet, ")
    assert lines[0].endswith("trying again, for at most 5 s")
    assert [passing for text, passing in second.said if text == lines[0]] == [False]
    dropped = [text for text, _ in first.said if "dropped" in text]
    assert dropped
    assert all("another token" in text for text in dropped)
    assert visits == []
    if backend == "embedded":
        assert any(f"port {port} of this host is taken" in line and "another token" in line for line in lines)


def test_a_host_that_cannot_be_reached_is_tried_again_and_not_taken_for_an_etcd(rig: Rig, visits: list[str]) -> None:
    agent = rig.add(meeting_at(f"127.0.0.1:{free_port()}", nodes="2"), join_timeout_s=600.0)
    opened = agent.driver._opening
    opened.on_failed("a:1", "cannot reach a:1 (No route to host)", "nobody")  # type: ignore[attr-defined]
    assert agent.said[-1] == (
        "no leader yet, cannot reach a:1 (No route to host); trying again, for at most 600 s",
        True,
    )
    assert visits == []


def test_a_certificate_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="tls_cert"):
        security_of(None, {"tls_cert": "/no/such/file", "tls_key": "/no/such/file"})


def test_security_does_not_show_the_token() -> None:
    assert "hush" not in repr(security_of(Secret(b"hush"), {}))


def test_nothing_is_opened_before_begin(rig: Rig) -> None:
    port = free_port()
    hands = rig.add(meeting_at(f"127.0.0.1:{port}", nodes="1"))
    hands.driver.close()
    quiet = open_driver(
        rig.loop, meeting_at(f"127.0.0.1:{port}", nodes="1"), hands, DRAFT, hostname="host", random=b"0000"
    )
    again = rig.add(meeting_at(f"127.0.0.1:{port}", nodes="1"))
    rig.meet(again)
    quiet.close()
