"""Connections by their names: who was met where no leader is, and what is remembered of it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from planaria.base.channel import NOBODY, PEER, STRANGER
from planaria.base.loop import Loop
from planaria.base.net import Listener, dial
from planaria.base.value import replace
from planaria.rendezvous import wire
from planaria.rendezvous.links import Links, Trouble, explained
from planaria.rendezvous.messages import Ask, Done, Ended, Heard, Leads
from planaria.rendezvous.security import Security

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.base.net import Connection
    from planaria.rendezvous.links import Who
    from planaria.rendezvous.messages import Message
    from planaria.rendezvous.model import Answered, Event

PATIENCE_S = 20.0
ASK = Ask("run", "n0", "", 0, -1, valid=False)
LEADS = Leads("run", "n1", "127.0.0.1:1", 1, -1, valid=True, seeking=False)


class Bench:
    """Links on a loop whose clock a test may put forward, and peers of all kinds."""

    def __init__(self, token: bytes | None = b"ours") -> None:
        self.ahead_s = 0.0
        real = Loop().now
        self.loop = Loop(lambda: real() + self.ahead_s)
        self.events: list[Event] = []
        self.failed: list[tuple[str, str, Who]] = []
        self.answers: list[Answered] = []
        self.said: list[str] = []
        self._open: list[Callable[[], object]] = []
        self.links = Links(
            self.loop,
            Security(token=token),
            self.events.append,
            self.said.append,
            lambda *given: self.failed.append(given),
        )

    def until(self, is_done: Callable[[], object]) -> None:
        deadline = self.loop.now() + PATIENCE_S
        while not is_done():
            assert self.loop.now() < deadline, (self.events, self.failed, self.answers)
            self.loop.run_once(0.1)

    def agent(self, *replies: Message, token: bytes | None = b"ours") -> str:
        """Start one who answers the first message with these."""

        def meet(connection: Connection) -> None:
            self._open.append(connection.close)
            connection.on_message = lambda _: [connection.send(wire.encode(reply)) for reply in replies]

        listener = Listener(self.loop, ("127.0.0.1", 0), meet, token=token)
        self._open.append(listener.close)
        return f"127.0.0.1:{listener.port}"

    def server(self, says: bytes | None) -> str:
        """Start something else: it says this and ends the connection, or does nothing at all."""
        stream = socket.create_server(("127.0.0.1", 0))
        stream.setblocking(False)

        def meet() -> None:
            guest, _ = stream.accept()
            self.loop.on_readable(guest.fileno(), lambda: serve(guest))

        def serve(guest: socket.socket) -> None:
            self.loop.forget(guest.fileno())
            with guest:
                guest.recv(1000)
                guest.sendall(says or b"")

        if says is not None:
            self.loop.on_readable(stream.fileno(), meet)
        self._open.append(lambda: (self.loop.forget(stream.fileno()), stream.close()))
        return f"127.0.0.1:{stream.getsockname()[1]}"

    def ask(self, address: str) -> None:
        self.links.ask(address, ASK, self.answers.append)

    def close(self) -> None:
        self.links.close_all()
        for close in self._open:
            close()
        self.loop.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def build(token: bytes | None = b"ours") -> Bench:
        made.append(Bench(token))
        return made[-1]

    yield build
    for bench in made:
        bench.close()


def nobody(_bench: Bench) -> str:
    with socket.create_server(("127.0.0.1", 0)) as stream:
        return f"127.0.0.1:{stream.getsockname()[1]}"


PEERS: dict[str, tuple[Callable[[Bench], str], Who, str]] = {
    "refused": (nobody, NOBODY, "Connection refused"),
    "no address": (lambda _: "127.0.0.1:none", NOBODY, "none"),
    "closes": (lambda bench: bench.server(b""), STRANGER, "it ended the connection"),
    "speaks HTTP": (lambda bench: bench.server(b"HTTP/1.0 400"), STRANGER, "it does not speak this protocol"),
    "another token": (lambda bench: bench.agent(token=b"theirs"), PEER, "it has another token than this end"),
    "no token": (lambda bench: bench.agent(token=None), PEER, "it has no token, and this end has one"),
    "no answer": (lambda bench: bench.agent(Heard()), PEER, "it gave no answer of ours"),
}


@pytest.mark.parametrize("peer", PEERS)
def test_who_was_asked_in_vain_is_told_apart(make: Callable[..., Bench], peer: str) -> None:
    bench = make()
    start, who, why = PEERS[peer]
    address = start(bench)
    bench.ask(address)
    bench.until(lambda: bench.failed)
    ((found, told, met),) = bench.failed
    assert (found, met, bench.answers[0].leads) == (address, who, None)
    assert why in told
    assert told.count(address) == 1
    assert bench.links.troubles == {address: Trouble(who, told)}


@pytest.mark.parametrize("token", [None, b"ours"])
def test_one_that_is_silent_is_nobody_whichever_clock_notices(make: Callable[..., Bench], token: bytes | None) -> None:
    bench = make(token)
    address = bench.server(None)
    bench.ask(address)
    bench.until(lambda: token is None or bench.links._asked)
    bench.until(lambda: token is not None or any(one.connection for one in bench.links._asked))
    bench.ahead_s += 1.1
    bench.until(lambda: bench.failed)
    bench.ahead_s += 10
    bench.loop.run_once(0)
    ((_, why, who),) = bench.failed
    assert (who, len(bench.answers)) == (NOBODY, 1)
    assert "within 1 s" in why


@pytest.mark.parametrize("token", [None, b"other"])
def test_a_connection_that_ends_in_the_handshake_is_told_like_a_question(
    make: Callable[..., Bench], token: bytes | None
) -> None:
    bench = make(token)
    address = bench.agent()
    bench.links.connect("to-1", address)
    bench.until(lambda: bench.failed)
    ((found, why, who),) = bench.failed
    assert (found, who) == (address, PEER)
    assert "token" in why


def test_what_an_agent_said_counts_for_more_than_that_it_is_gone(make: Callable[..., Bench]) -> None:
    bench = make()
    address = bench.agent(token=b"theirs")
    bench.ask(address)
    bench.until(lambda: bench.failed)
    bench._open.pop(0)()
    bench.ask(address)
    bench.until(lambda: len(bench.failed) == 2)
    assert "refused" in bench.failed[1][1]
    assert "another token" in bench.links.troubles[address].why


def test_who_answers_is_no_trouble_any_more(make: Callable[..., Bench]) -> None:
    bench = make()
    address, gone = bench.agent(LEADS), nobody(bench)
    bench.links.troubles = {address: Trouble(PEER, "old"), gone: Trouble(NOBODY, "old")}
    bench.ask(address)
    bench.until(lambda: bench.answers)
    assert set(bench.links.troubles) == {gone}
    bench.links.connect("to-1", address)
    bench.until(lambda: bench.events)
    bench.links.send("to-1", Done(1))
    bench.until(lambda: len(bench.events) == 2)
    assert bench.links.troubles == {}


def test_troubles_are_few_and_the_newest(make: Callable[..., Bench]) -> None:
    bench = make()
    for port in range(100):
        bench.links._note(f"a:{port}", "nobody is there", NOBODY)
    assert list(bench.links.troubles)[-1] == "a:99"
    assert len(bench.links.troubles) <= 16


def test_a_run_that_did_not_begin_ends_with_whom_it_could_not_reach() -> None:
    ended = Ended("timeout", 124, "no leader was found at a:1", (), 0)
    troubles = {f"{name}:1": Trouble(NOBODY, f"cannot reach {name}:1") for name in "abcd"}
    told = explained(ended, troubles).explanation
    assert told == "no leader was found at a:1; cannot reach a:1; cannot reach b:1; cannot reach c:1"
    assert explained(ended, {}) == ended
    failed = replace(ended, kind="failed")
    assert explained(failed, troubles) == failed


def test_links_are_quiet_once_what_was_sent_has_arrived(make: Callable[..., Bench]) -> None:
    bench = make()
    heard: list[bytes] = []
    kept: list[Connection] = []

    def meet(connection: Connection) -> None:
        kept.append(connection)

    listener = Listener(bench.loop, ("127.0.0.1", 0), meet, token=b"ours")
    bench.links.connect("to-1", f"127.0.0.1:{listener.port}")
    bench.until(lambda: bench.events and kept)
    assert bench.links.is_quiet
    bench.links.send("to-1", Done(1))
    bench.links.close_all()
    assert not bench.links.is_quiet
    kept[0].on_message = heard.append
    bench.until(lambda: bench.links.is_quiet)
    bench.until(lambda: heard)
    assert heard == [wire.encode(Done(1))]
    listener.close()


def test_a_peer_that_talks_nonsense_again_and_again_costs_few_lines(make: Callable[..., Bench]) -> None:
    bench = make(None)
    listener = Listener(bench.loop, ("127.0.0.1", 0), bench.links.take, token=None, on_refused=bench.links.complaints)
    address = f"127.0.0.1:{listener.port}"
    others = make(None)
    for number in range(3):
        others.links.connect(f"to-{number}", address)
        others.until(lambda number=number: len(others.events) > 2 * number)
        next(iter(others.links._open.values())).send(b"nonsense")
        while len(others.events) < 2 * number + 2:
            bench.loop.run_once(0.01)
            others.loop.run_once(0.01)
    assert len(bench.said) == 1
    bench.ahead_s += 1.1
    bench.until(lambda: len(bench.said) == 2)
    assert bench.said[1].endswith("(and 1 more)")
    listener.close()


def knock(bench: Bench, *first: bytes) -> list[tuple[str, bool]]:
    """Connect to the links as a peer that says this; return where its loss will be noted."""
    listener = Listener(bench.loop, ("127.0.0.1", 0), bench.links.take, token=b"ours")
    bench._open.append(listener.close)
    lost: list[tuple[str, bool]] = []

    def opened(connection: Connection) -> None:
        bench._open.append(connection.close)
        connection.on_lost = lambda *given: lost.append(given)
        for payload in first:
            connection.send(payload)

    address = f"127.0.0.1:{listener.port}"
    dial(bench.loop, address, token=b"ours", timeout_s=PATIENCE_S, on_open=opened, on_lost=lambda *_: None)
    return lost


def test_a_guest_is_handed_over_with_its_first_message_and_leaves_no_trace(make: Callable[..., Bench]) -> None:
    bench = make()
    guests: list[tuple[Connection, bytes]] = []
    bench.links.on_guest = lambda *given: guests.append(given)
    knock(bench, b'["Dock",1]', b"second", b"third")
    bench.until(lambda: guests)
    (connection, first), heard = guests[0], []
    bench._open.append(connection.close)
    assert (first, len(bench.links), bench.links.traffic.bytes_in) == (b'["Dock",1]', 0, 0)
    connection.on_message = heard.append
    bench.until(lambda: len(heard) == 2)
    bench.ahead_s += 60.0  # nobody at the rendezvous waits for a word of it any more
    bench.loop.run_once(0.0)
    assert heard == [b"second", b"third"]
    assert not connection.is_ended
    assert (len(guests), bench.events, bench.said) == (1, [], [])


@pytest.mark.parametrize("first", [[b'["Dock",1]'], [wire.encode(Heard()), b'["Dock",1]']])
def test_who_comes_for_nobody_or_changes_its_mind_is_dropped_with_a_line(
    make: Callable[..., Bench], first: list[bytes]
) -> None:
    bench = make()
    if len(first) == 2:
        bench.links.on_guest = lambda *_: pytest.fail("it had come for the rendezvous")
    lost = knock(bench, *first)
    bench.until(lambda: lost)
    assert len(bench.said) == 1
    assert "no message is called 'Dock'" in bench.said[0]
