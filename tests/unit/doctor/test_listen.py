"""The listening end, with visitors of one process: one at a time, and none for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from planaria.base.loop import Loop
from planaria.base.net import dial
from planaria.doctor import listen, look_peers, talk
from planaria.doctor.listen import Answering
from planaria.doctor.look_peers import Visit
from planaria.doctor.talk import Greeting

if TYPE_CHECKING:
    from planaria.base.net import Connection
    from planaria.doctor.peers import PeerSeen

OWN = Greeting("1.0", "n0", 1000.0)
PATIENCE_S = 60.0


class Stage:
    """A loop, a doctor that listens on it, and what its visitors saw, in the order in which they left."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.told: list[str] = []
        self.seen: list[PeerSeen] = []
        self.answering = Answering(
            self.loop,
            ("127.0.0.1", 0),
            lambda: OWN,
            lambda host, _found: self.told.append(host),
            token=None,
            complain=lambda _line: None,
        )
        self.peer = f"127.0.0.1:{self.answering.port}"

    def visit(self, host: str) -> Visit:
        greeting = Greeting("1.0", host, 1000.0)
        return Visit(self.loop, self.peer, greeting, self.seen.append, token=None, timeout_s=PATIENCE_S)

    def intrude(self, *words: bytes) -> list[bytes]:
        """Connect, say this and no more; return the list to which all answers go, and `lost` at the end."""
        heard: list[bytes] = []

        def opened(connection: Connection) -> None:
            connection.on_message = heard.append
            connection.on_lost = lambda _why, _met: heard.append(b"lost")
            for word in words:
                connection.send(word)

        dial(self.loop, self.peer, token=None, timeout_s=PATIENCE_S, on_open=opened, on_lost=lambda *_: None)
        return heard

    def run(self, heard: list[bytes] | list[PeerSeen], count: int = 1) -> None:
        while len(heard) < count:
            self.loop.run_once()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(listen, "STREAM_S", 0.02)
    monkeypatch.setattr(look_peers, "STREAM_S", 0.02)
    found = Stage()
    yield found
    found.answering.close()
    found.loop.close()


def test_visitors_take_turns_and_all_are_served(stage: Stage) -> None:
    visits = [stage.visit(f"n{number}") for number in range(1, 4)]
    stage.run(stage.seen, 3)
    assert [seen.met for seen in stage.seen] == ["doctor"] * 3
    assert all(seen.down_bytes_s for seen in stage.seen)
    assert sum(visit._has_waited for visit in visits) == 2


def test_the_time_of_waiting_is_no_difference_of_clocks(stage: Stage) -> None:
    """Both clocks stand still here, so all that passes is what the other end was kept waiting, as a negative number."""
    first = stage.intrude(talk.greet(OWN))
    stage.run(first)
    visit = stage.visit("n1")
    while not visit._has_waited:
        stage.loop.run_once()
    visit._greeted_at -= 100.0
    stage.answering._next()  # as if the first had left
    stage.run(stage.seen)
    assert stage.seen[0].clock_ahead_s == pytest.approx(-100.0, abs=PATIENCE_S / 2)


@pytest.mark.parametrize(("name", "words"), [("GREETING_S", ()), ("VISIT_S", (talk.greet(OWN),))])
def test_one_that_stays_is_sent_away_and_the_next_is_served(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, words: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(listen, name, 0.05)
    stays = stage.intrude(*words)
    stage.run(stays, len(words) + 1)
    assert stays[-1] == b"lost"
    monkeypatch.setattr(listen, name, PATIENCE_S)
    stage.visit("n1")
    stage.run(stage.seen)
    assert stage.seen[0].met == "doctor"


def test_one_that_stays_holds_up_the_next_only_until_it_is_sent_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "VISIT_S", 0.2)
    monkeypatch.setattr(listen, "CONSOLE_S", 0.05)
    stays = stage.intrude(talk.greet(OWN))
    stage.run(stays)
    monkeypatch.setattr(listen, "VISIT_S", PATIENCE_S)
    stage.visit("n1")
    stage.run(stage.seen)
    assert (stays[-1], stage.seen[0].met) == (b"lost", "doctor")


def test_one_that_leaves_while_it_waits_holds_up_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "VISIT_S", 0.2)
    stays = stage.intrude(talk.greet(OWN))
    stage.run(stays)
    monkeypatch.setattr(listen, "VISIT_S", PATIENCE_S)
    leaves = stage.visit("n1")
    while not leaves._has_waited:
        stage.loop.run_once()
    assert leaves._connection is not None
    leaves._connection.close()
    stage.visit("n2")
    stage.run(stage.seen)
    assert stage.seen[0].met == "doctor"
