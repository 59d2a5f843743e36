"""Parts that go from one agent's memory to another's, and lines between members and their anchor."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from certificates import make_certificate
from docks import Harbour

from planaria.agent.berth import PIECE_BYTES, PIECES_A_TURN, SILENCE_S
from planaria.agent.cargo import Taking
from planaria.errors import InternalError
from planaria.rendezvous.security import security_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from docks import Agent

TOKENS = [None, b"ours"]
SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 12345]


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    made = Harbour()
    yield made
    made.close()


def some(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


def store(harbour: Harbour, one: Agent, other: Agent, data: bytes, header: object = "h") -> list[str]:
    done: list[str] = []
    one.dock.store(other.address, 3, header, memoryview(data), done.append)
    harbour.until(lambda: done)
    return done


def fetch(harbour: Harbour, one: Agent, other: Agent, room: bytearray, header: object = "h") -> list[str]:
    done: list[str] = []
    one.dock.fetch(other.address, 3, header, lambda size_bytes: memoryview(room)[:size_bytes], done.append)
    harbour.until(lambda: done)
    return done


def two(harbour: Harbour, *, token: bytes | None = b"ours") -> tuple[Agent, Agent]:
    one = harbour.agent(token=token)
    return one, harbour.agent(token=token)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("token", TOKENS)
def test_a_part_is_kept_as_it_was_and_comes_back_the_same(
    harbour: Harbour, token: bytes | None, size_bytes: int
) -> None:
    one, other = two(harbour, token=token)
    data, room = some(size_bytes), bytearray(size_bytes)
    assert store(harbour, one, other, data) == [""]
    assert other.keep.parts["h"] == data
    assert other.keep.told == [("offered", 3, size_bytes), ("arrived", 3, "h")]
    assert fetch(harbour, one, other, room) == [""]
    assert room == data
    harbour.until(lambda: other.keep.held == 0)
    harbour.until(lambda: not other.dock._open)
    assert (other.said, one.said, one.dock._open) == ([], [], {})


def test_parts_travel_under_tls(harbour: Harbour, tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "run")
    security = security_of(None, {"tls_cert": made.cert, "tls_key": made.key})
    one, other = harbour.agent(security=security), harbour.agent(security=security)
    data, room = some(SIZES[-1]), bytearray(SIZES[-1])
    assert store(harbour, one, other, data) == [""]
    assert fetch(harbour, one, other, room) == [""]
    assert room == data == other.keep.parts["h"]


def test_many_parts_go_both_ways_at_once(harbour: Harbour) -> None:
    one, other = two(harbour)
    done: list[str] = []
    rooms = [bytearray(len(some(SIZES[-1] + index))) for index in range(4)]
    for index, room in enumerate(rooms):
        part = some(SIZES[-1] + index)
        one.keep.parts[f"back-{index}"] = bytearray(part)
        one.dock.store(other.address, 3, f"there-{index}", memoryview(part), done.append)
        other.dock.fetch(one.address, 3, f"back-{index}", lambda _, room=room: memoryview(room), done.append)  # type: ignore[misc]
    harbour.until(lambda: len(done) == 8)
    assert set(done) == {""}
    assert [other.keep.parts[f"there-{index}"] for index in range(4)] == rooms
    assert rooms == [some(SIZES[-1] + index) for index in range(4)]


def test_who_is_asked_may_refuse_and_who_asks_hears_why(harbour: Harbour) -> None:
    one, other = two(harbour)
    assert fetch(harbour, one, other, bytearray(1)) == ["there is no such part"]
    other.keep.refuses = "no room"
    assert store(harbour, one, other, b"x") == ["no room"]
    other.keep.refuses, other.keep.is_slow = "", True
    done: list[str] = []
    one.dock.store(other.address, 3, "h", memoryview(b"xy"), done.append)
    harbour.until(lambda: other.keep.tells)
    other.keep.tells[0]("the digest differs")
    harbour.until(lambda: done)
    other.keep.tells[0]("")
    assert done == ["the digest differs"]
    assert other.keep.kinds == ["wanted", "offered", "offered", "arrived"]
    assert other.said == []


def test_who_fetches_may_find_that_it_has_no_room(harbour: Harbour) -> None:
    one, other = two(harbour)
    other.keep.parts["h"] = bytearray(10)
    done: list[str] = []
    one.dock.fetch(other.address, 3, "h", lambda size_bytes: f"{size_bytes} are too many", done.append)
    harbour.until(lambda: done and other.keep.held == 0)
    assert done == ["10 are too many"]


def test_room_of_another_size_is_a_fault_of_ours(harbour: Harbour) -> None:
    one, other = two(harbour)
    other.keep.parts["h"] = bytearray(10)
    one.dock.fetch(other.address, 3, "h", lambda _: memoryview(bytearray(9)), lambda _: None)
    with pytest.raises(InternalError, match="10 bytes were to be put into 9"):
        harbour.until(lambda: False)


def test_nobody_listens_there(harbour: Harbour) -> None:
    one, other = two(harbour)
    other.listener.close()
    (why,) = store(harbour, one, other, b"x")
    assert f"cannot reach {other.address}" in why


def test_a_verification_that_takes_minutes_is_waited_for(harbour: Harbour) -> None:
    one, other = two(harbour)
    other.keep.is_slow = True
    done: list[str] = []
    one.dock.store(other.address, 3, "h", memoryview(b"xy"), done.append)
    harbour.until(lambda: other.keep.tells)
    harbour.pass_s(200)
    assert done == []
    other.keep.tells[0]("")
    harbour.until(lambda: done)
    assert done == [""]


@pytest.mark.parametrize("turns", range(12))
def test_a_cancelled_store_says_nothing_and_its_offer_is_dropped_or_arrives(harbour: Harbour, turns: int) -> None:
    one, other = two(harbour)
    done: list[str] = []
    source = bytearray(some(SIZES[-1]))
    transfer = one.dock.store(other.address, 3, "h", memoryview(source), done.append)
    harbour.turns(turns)
    said = list(done)
    transfer.cancel()
    source.clear()  # nobody holds it any more: a view of it would raise BufferError
    harbour.until(lambda: not one.dock._open and not other.dock._open)
    transfer.cancel()
    assert done == said
    assert other.keep.kinds in ([], ["offered", "dropped"], ["offered", "arrived"])


@pytest.mark.parametrize("turns", range(12))
def test_a_cancelled_fetch_says_nothing_and_its_part_is_let_go_of(harbour: Harbour, turns: int) -> None:
    one, other = two(harbour)
    other.keep.parts["h"] = bytearray(some(SIZES[-1]))
    room, done = bytearray(SIZES[-1]), []
    transfer = one.dock.fetch(other.address, 3, "h", lambda _: memoryview(room), done.append)
    harbour.turns(turns)
    said = list(done)
    transfer.cancel()
    room.clear()  # nobody holds it any more: a view of it would raise BufferError
    harbour.until(lambda: not one.dock._open and not other.dock._open)
    assert done == said
    assert other.keep.held == 0


def test_an_agent_that_ends_drops_what_was_offered_and_lets_go_of_what_was_wanted(harbour: Harbour) -> None:
    one, other = two(harbour)
    other.keep.parts["w"] = bytearray(64 << 20)
    room, done = bytearray(64 << 20), []
    one.dock.store(other.address, 3, "h", memoryview(bytes(64 << 20)), done.append)
    one.dock.fetch(other.address, 3, "w", lambda _: memoryview(room), done.append)
    harbour.until(lambda: other.keep.held and "offered" in other.keep.kinds)
    other.dock.close()
    assert (other.keep.held, other.keep.told[-1]) == (0, ("dropped", (3, "h"), "this agent ends it"))
    harbour.until(lambda: len(done) == 2)
    assert all("connection" in why for why in done)


def test_what_cannot_be_a_header_is_refused_before_anything_is_sent(harbour: Harbour) -> None:
    one, other = two(harbour)
    for header in (float("nan"), "x" * (1 << 18), "x" * (1 << 20)):
        with pytest.raises(ValueError, match=r"JSON|over the limit"):
            one.dock.store(other.address, 3, header, memoryview(b""), print)
    with pytest.raises(TypeError, match="JSON"):
        one.dock.fetch(other.address, 3, b"bytes", lambda _: "", print)
    assert not one.dock._open


def test_a_transfer_that_stands_still_is_over_after_half_a_minute_for_both(harbour: Harbour) -> None:
    one, other = two(harbour)
    done: list[str] = []
    one.dock.store(other.address, 3, "h", memoryview(bytes(64 << 20)), done.append)
    harbour.until(lambda: "offered" in other.keep.kinds)
    (taking,) = other.dock._open.values()
    harbour.loop.forget_readable(taking._berth._wire._descriptor)  # type: ignore[attr-defined]  # it reads no more
    harbour.turns(50)
    harbour.pass_s(SILENCE_S - 2)
    assert done == []
    harbour.pass_s(10)
    assert len(done) == 1
    assert "30 s" in done[0]
    assert other.keep.told[-1][0] == "dropped"
    assert "silent for 30 s" in str(other.keep.told[-1][2])


def test_no_turn_of_the_loop_moves_so_much_that_others_wait(harbour: Harbour) -> None:
    one, other = two(harbour)
    size_bytes = 32 * PIECE_BYTES
    done: list[str] = []
    one.dock.store(other.address, 3, "h", memoryview(bytes(size_bytes)), done.append)
    harbour.until(lambda: "offered" in other.keep.kinds)
    (taking,) = (one for one in other.dock._open.values() if isinstance(one, Taking))
    wire, most, turns = taking._berth._wire, 0, 0
    while not done:
        before = wire.bytes_in + wire.bytes_out
        harbour.loop.run_once(0.05)
        most, turns = max(most, wire.bytes_in + wire.bytes_out - before), turns + 1
    assert done == [""]
    assert most <= (PIECES_A_TURN + 1) * PIECE_BYTES
    assert turns >= 6


def test_a_lease_can_be_renewed_while_much_passes(harbour: Harbour) -> None:
    one, other = two(harbour)
    member: list[object] = []
    line = one.dock.attend(other.address, 3, "h", member.append, print)
    harbour.until(lambda: other.keep.lines)
    done: list[str] = []
    one.dock.store(other.address, 3, "h", memoryview(bytes(256 * PIECE_BYTES)), done.append)
    harbour.until(lambda: "offered" in other.keep.kinds)
    said = 0
    while not done:
        line.send(said)
        harbour.until(lambda: done or len(other.keep.heard) > said)  # noqa: B023  # it is awaited in the same turn
        said += 1
    assert done == [""]
    assert said > 10


@pytest.mark.parametrize("size_bytes", [10, 3 * PIECE_BYTES])
def test_who_hears_that_it_is_over_may_free_the_memory_at_once(harbour: Harbour, size_bytes: int) -> None:
    """To resize what somebody still has a view of is a BufferError, as to close such a mapping is."""
    one, other = two(harbour)
    source, room = bytearray(size_bytes), bytearray(size_bytes)
    freed: list[str] = []

    def free(memory: bytearray, what: str) -> None:
        memory.clear()
        freed.append(what)

    other.keep.arrived = lambda _round, _header, tell: (free(other.keep.parts["h"], "arrived"), tell(""))  # type: ignore[method-assign]
    transfer = one.dock.store(other.address, 3, "h", memoryview(source), lambda _: free(source, "stored"))
    harbour.until(lambda: "stored" in freed)
    other.keep.parts["w"] = bytearray(size_bytes)
    other.keep.let_go = lambda: free(other.keep.parts["w"], "given")  # type: ignore[method-assign]
    another = one.dock.fetch(other.address, 3, "w", lambda _: memoryview(room), lambda _: free(room, "fetched"))
    harbour.until(lambda: len(freed) == 4)
    assert sorted(freed) == ["arrived", "fetched", "given", "stored"]
    assert transfer is not another  # both are still held by who asked
