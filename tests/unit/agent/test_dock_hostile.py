"""What a dock makes of peers that are broken, late, of another run, or mean harm."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from docks import Harbour
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.agent.berth import PIECE_BYTES, SILENCE_S
from planaria.base.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docks import Agent, Raw

STORE = b'["Dock","store","run",3,"h"]'
FETCH = b'["Dock","fetch","run",3,"h"]'
ATTEND = b'["Dock","attend","run",3,"h"]'


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    made = Harbour()
    yield made
    made.close()


def words(raw: Raw) -> list[object]:
    return [json.loads(payload) for payload in raw.heard]


def is_free(agent: Agent) -> bool:
    """Tell whether nothing is left of anybody, and every promise to the host was kept."""
    kinds = agent.keep.kinds
    return (
        not agent.dock._open
        and agent.keep.held == 0
        and kinds.count("offered") == kinds.count("arrived") + kinds.count("dropped")
    )


@pytest.mark.parametrize(
    "header",
    [
        b'["Dock","store","other",3,"h"]',
        b'["Dock","steal","run",3,"h"]',
        b'["Dock","store","run",-1,"h"]',
        b'["Dock","store","run",true,"h"]',
        b'["Dock","store","run",1e3,"h"]',
        b'["Dock","store","run",4611686018427387904,"h"]',
        b'["Dock","store","run",3]',
        b'["Dock","store","run",3,"h",1]',
        b'["Dock",["store"],"run",3,"h"]',
        b'["Dock","store",7,3,"h"]',
        b'["Dock",',
        b'["Dock","store","run",3,"\xff"]',
        b'["Dock",' + b"[" * 100_000,
        b'["Dock","store","run",3,"' + b"x" * (1 << 18) + b'"]',
    ],
)
def test_a_header_that_is_not_ours_is_refused_in_one_line(harbour: Harbour, header: bytes) -> None:
    agent = harbour.agent()
    raw = harbour.raw(agent)
    raw.send(header)
    raw.until(lambda: raw.is_over)
    ((word, why),) = words(raw)  # type: ignore[misc]
    assert word == "Refused"
    assert len(agent.said) == 1
    assert agent.said[0].startswith("dropped the connection with 127.0.0.1:")
    assert str(why) in agent.said[0]
    assert len(agent.said[0]) < 1000
    assert agent.keep.told == []
    assert is_free(agent)


def test_who_has_no_token_or_another_never_comes_to_the_dock(harbour: Harbour) -> None:
    agent = harbour.agent()
    for token in (None, b"theirs"):
        stranger = harbour.agent(token=token)
        done: list[str] = []
        stranger.dock.store(agent.address, 3, "h", memoryview(b"x"), done.append)
        harbour.until(lambda: done)  # noqa: B023  # it is awaited in the same turn
        assert "token" in done[0]
    assert agent.keep.told == []


def test_one_of_another_run_hears_so_and_an_attendance_dials_no_more(harbour: Harbour) -> None:
    agent, other = harbour.agent(), harbour.agent(run_id="other")
    done: list[str] = []
    other.dock.store(agent.address, 3, "h", memoryview(b"x"), done.append)
    other.dock.attend(agent.address, 3, "h", print, done.append)
    harbour.until(lambda: len(done) == 2)
    assert set(done) == {"it is of the run 'other', and this agent is not"}
    assert not other.dock._lines
    assert agent.keep.told == []


WRONG = {
    "bytes before they were asked for": [STORE, b'["Size",10]', b"0123456789"],
    "a size twice": [STORE, b'["Size",10]', b'["Size",10]'],
    "no size": [STORE, b'["Go"]'],
    "a negative size": [STORE, b'["Size",-1]'],
    "a size that is none": [STORE, b'["Size",true]'],
    "two sizes": [STORE, b'["Size",1,2]'],
    "no words": [STORE, b"\xff\xfe"],
    "too many words": [STORE, b'["' + b"x" * (1 << 19) + b'"]'],
    "a size for a fetch": [FETCH, b'["Size",10]'],
    "go with more": [FETCH, b'["Go",1]'],
    "go twice": [FETCH, b'["Go"]', b'["Go"]'],
}


@pytest.mark.parametrize("what", WRONG)
def test_a_peer_that_does_not_keep_to_the_order_is_dropped_and_nothing_is_left(harbour: Harbour, what: str) -> None:
    agent = harbour.agent()
    agent.keep.parts["h"] = bytearray(10)
    raw = harbour.raw(agent)
    raw.send(*WRONG[what])
    raw.until(lambda: raw.is_over)
    harbour.until(lambda: is_free(agent))
    assert "arrived" not in agent.keep.kinds
    assert len(agent.said) <= 1


@pytest.mark.parametrize(
    "frames",
    [
        [b"01234567890"],  # one byte too many
        [b"01234", b"567890"],
        [b"01234", b"", b"56789"],
        [b"x" * PIECE_BYTES],
    ],
)
@pytest.mark.parametrize("token", [None, b"ours"])
def test_more_bytes_than_were_promised_or_none_at_all_end_it(
    harbour: Harbour, token: bytes | None, frames: list[bytes]
) -> None:
    agent = harbour.agent(token=token)
    raw = harbour.raw(agent, token)
    raw.send(STORE, b'["Size",10]')
    raw.until(lambda: b'["Go"]' in raw.heard)
    raw.send(*frames)
    raw.until(lambda: raw.is_over)
    harbour.until(lambda: is_free(agent))
    assert agent.keep.kinds == ["offered", "dropped"]


def test_a_frame_over_the_limit_ends_it(harbour: Harbour) -> None:
    agent = harbour.agent()
    raw = harbour.raw(agent)
    raw.send(STORE)
    raw.push((1 << 21).to_bytes(4, "big") + bytes(100))
    raw.until(lambda: raw.is_over)
    harbour.until(lambda: is_free(agent))
    assert agent.keep.told == []


def test_a_word_after_the_last_byte_ends_it_and_a_late_verdict_is_harmless(harbour: Harbour) -> None:
    agent = harbour.agent()
    agent.keep.is_slow = True
    raw = harbour.raw(agent)
    raw.send(STORE, b'["Size",2]')
    raw.until(lambda: b'["Go"]' in raw.heard)
    raw.send(b"xy", b'["Size",2]')
    raw.until(lambda: raw.is_over)
    agent.keep.tells[0]("")
    assert agent.keep.kinds == ["offered", "arrived"]
    assert words(raw) == [["Go"]]
    assert "dropped the connection" in agent.said[0]


@pytest.mark.parametrize("first", [[STORE], [STORE, b'["Size",1000]'], [FETCH]])
def test_one_that_never_goes_on_is_over_after_half_a_minute(harbour: Harbour, first: list[bytes]) -> None:
    agent = harbour.agent()
    agent.keep.parts["h"] = bytearray(10)
    raw = harbour.raw(agent)
    raw.send(*first)
    harbour.until(lambda: agent.dock._open and (len(first) == 1 or agent.keep.told))
    harbour.turns(20)
    harbour.pass_s(SILENCE_S - 2)
    assert agent.dock._open
    harbour.pass_s(10)
    assert is_free(agent)


def test_one_that_sends_a_byte_now_and_then_is_not_silent(harbour: Harbour) -> None:
    agent = harbour.agent(token=None)
    raw = harbour.raw(agent, None)
    raw.send(STORE, b'["Size",6]')
    raw.until(lambda: b'["Go"]' in raw.heard)
    (taking,) = agent.dock._open.values()
    wire = taking._berth._wire  # type: ignore[attr-defined]
    for byte in raw.channel.seal(b"abcdef"):
        before = wire.bytes_in
        raw.push(bytes([byte]))
        harbour.until(lambda: wire.bytes_in > before)  # noqa: B023  # it is awaited in the same turn
        harbour.pass_s(20)
    raw.until(lambda: b'["Kept"]' in raw.heard)
    assert agent.keep.parts["h"] == b"abcdef"


CONVERSATION = [STORE, b'["Size",10]', b"01234", b"56789"]
"""A store, as it is said."""


@pytest.mark.parametrize("token", [None, b"ours"])
@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("inside", [0, 2, -1])
def test_a_connection_that_is_cut_anywhere_leaves_nothing(
    harbour: Harbour, token: bytes | None, cut: int, inside: int
) -> None:
    agent = harbour.agent(token=token)
    raw = harbour.raw(agent, token)
    for index, payload in enumerate(CONVERSATION):
        frame = raw.channel.seal(payload)
        if index == 2:
            raw.until(lambda: b'["Go"]' in raw.heard)
        if index == cut:
            raw.push(frame[:inside])
            break
        raw.push(frame)
    harbour.turns(10)
    raw.stream.close()
    harbour.until(lambda: is_free(agent) and not len(agent.links))
    assert agent.keep.kinds in ([], ["offered", "dropped"])


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_a_server_that_is_cut_anywhere_is_told_once(harbour: Harbour, cut: int) -> None:
    """The answers of one that gives a part, cut after each so many bytes."""
    one = harbour.agent(token=None)
    listening = Channel(token=None, dials=False, nonce=bytes(32))
    said = b"".join(
        [
            listening.receive(Channel(token=None, dials=True, nonce=bytes(32)).opening())[1],
            listening.seal(b'["Size",100]'),
            listening.seal(bytes(60)),
            listening.seal(bytes(40)),
        ]
    )
    server = socket.create_server(("127.0.0.1", 0))
    harbour.streams.append(server)
    done, room = [], bytearray(100)
    one.dock.fetch(f"127.0.0.1:{server.getsockname()[1]}", 3, "h", lambda _: memoryview(room), done.append)
    harbour.turns(5)
    stream, _ = server.accept()
    first = said.index(b'["Size",100]') + 12
    for piece in (said[:first][:cut], said[first:cut]):  # bulk comes after it was asked for
        stream.sendall(piece)
        harbour.turns(5)
    stream.close()
    harbour.until(lambda: done)
    harbour.turns(10)
    assert len(done) == 1
    assert (done == [""]) == (cut >= len(said))
    assert one.dock._open == {}


def test_a_recorded_store_does_not_fit_a_second_time(harbour: Harbour) -> None:
    agent = harbour.agent()
    first = harbour.raw(agent)
    frames = [first.channel.seal(payload) for payload in CONVERSATION]
    for index, frame in enumerate(frames):
        if index == 2:
            first.until(lambda: b'["Go"]' in first.heard)
        first.push(frame)
    first.until(lambda: b'["Kept"]' in first.heard)
    again = harbour.raw(agent)
    again.push(b"".join(frames))
    again.until(lambda: again.is_over)
    assert again.heard == []
    assert agent.keep.kinds == ["offered", "arrived"]


@pytest.mark.parametrize("change", ["repeat", "swap", "flip"])
def test_pieces_that_are_repeated_moved_or_changed_on_the_way_are_found(harbour: Harbour, change: str) -> None:
    agent = harbour.agent()
    raw = harbour.raw(agent)
    raw.send(STORE, b'["Size",10]')
    raw.until(lambda: b'["Go"]' in raw.heard)
    one, other = raw.channel.seal(b"01234"), raw.channel.seal(b"56789")
    flipped = bytearray(other)
    flipped[6] ^= 1
    raw.push({"repeat": one + one, "swap": other + one, "flip": one + flipped}[change])
    raw.until(lambda: raw.is_over)
    assert agent.keep.kinds == ["offered", "dropped"]
    assert "changed, repeated or moved" in str(agent.keep.told[-1][2])


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 5000), max_size=12),
    has_token=st.booleans(),
)
def test_however_a_part_is_cut_into_frames_and_packets_it_arrives_whole(
    sizes: list[int], cuts: list[int], has_token: bool
) -> None:
    harbour = Harbour()
    try:
        token = b"ours" if has_token else None
        agent = harbour.agent(token=token)
        raw = harbour.raw(agent, token)
        frames = [bytes([index]) * size for index, size in enumerate(sizes)]
        raw.send(STORE, b'["Size",%d]' % sum(sizes))
        raw.until(lambda: b'["Go"]' in raw.heard)
        stream = b"".join(map(raw.channel.seal, frames))
        for cut in [*cuts, len(stream)]:
            raw.push(stream[:cut])
            stream = stream[cut:]
            harbour.turns(2)
        raw.until(lambda: b'["Kept"]' in raw.heard)
        assert agent.keep.parts["h"] == b"".join(frames)
    finally:
        harbour.close()


@settings(max_examples=60)
@given(payloads=st.lists(st.sampled_from([b'["Go"]', b'["Size",3]', b"abc", b'["Say",1]', b"{}", b""]), max_size=5),
       first=st.sampled_from([STORE, FETCH, ATTEND]))  # fmt: skip
def test_whatever_a_peer_says_in_whatever_order_nothing_is_left_when_it_is_gone(
    first: bytes, payloads: list[bytes]
) -> None:
    harbour = Harbour()
    try:
        agent = harbour.agent(token=None)
        agent.keep.parts["h"] = bytearray(b"xyz")
        raw = harbour.raw(agent, None)
        for payload in (first, *payloads):
            raw.push(raw.channel.seal(payload))
            harbour.turns(2)
        raw.stream.close()
        harbour.until(lambda: is_free(agent) and not agent.dock._lines)
        assert len(agent.keep.lost) == len(agent.keep.lines)
    finally:
        harbour.close()
