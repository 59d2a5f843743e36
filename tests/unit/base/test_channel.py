from __future__ import annotations

import contextlib
import hmac
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.base.channel import PEER, STRANGER, Channel, ChannelBroken
from planaria.base.mac import Mac

DIALS, LISTENS = b"d" * 32, b"l" * 32
TOKENS = [None, b"secret"]
LIMIT = 1000


def pair(token: bytes | None, other: bytes | None = b"same", nonce: bytes = LISTENS) -> tuple[Channel, Channel]:
    """A dialling and a listening end that have not spoken."""
    dialling = Channel(token=token, dials=True, nonce=DIALS, limit_bytes=LIMIT)
    return dialling, Channel(token=token if other == b"same" else other, dials=False, nonce=nonce, limit_bytes=LIMIT)


def shaken(token: bytes | None) -> tuple[Channel, Channel, bytes]:
    """Two ends that know each other, and all that the dialling end said."""
    dialling, listening = pair(token)
    first = dialling.opening()
    _, answer = listening.receive(first)
    _, second = dialling.receive(answer)
    listening.receive(second)
    assert dialling.is_open
    assert listening.is_open
    return dialling, listening, first + second


def held(channel: Channel) -> int:
    return len(channel._held)


@pytest.mark.parametrize("token", TOKENS)
def test_messages_arrive_whole_and_in_order_in_both_directions(token: bytes | None) -> None:
    dialling, listening, _ = shaken(token)
    for sender, receiver in ((dialling, listening), (listening, dialling)):
        sent = [b"", b"one", b"x" * LIMIT]
        assert receiver.receive(b"".join(map(sender.seal, sent))) == (sent, b"")
        assert not receiver.is_midway


def test_without_a_token_the_dialling_end_may_speak_at_once() -> None:
    dialling, listening = pair(None)
    assert dialling.is_open
    assert not listening.is_open
    payloads, answer = listening.receive(dialling.opening() + dialling.seal(b"hello"))
    assert payloads == [b"hello"]
    assert dialling.receive(answer + listening.seal(b"yes")) == ([b"yes"], b"")


def test_with_a_token_nothing_counts_before_both_have_proved_it() -> None:
    dialling, listening = pair(b"secret")
    with pytest.raises(ChannelBroken, match="before hands were shaken"):
        dialling.seal(b"early")
    _, answer = listening.receive(dialling.opening())
    assert not listening.is_open
    _, proof = dialling.receive(answer)
    assert dialling.is_open
    assert listening.receive(proof + dialling.seal(b"with the proof")) == ([b"with the proof"], b"")


def test_the_listening_end_has_nothing_to_say_first() -> None:
    assert pair(None)[1].opening() == b""


@pytest.mark.parametrize("token", TOKENS)
@settings(max_examples=100)
@given(payloads=st.lists(st.binary(max_size=300), max_size=8), seed=st.integers(0, 2**32))
def test_it_does_not_matter_how_the_stream_is_cut(token: bytes | None, payloads: list[bytes], seed: int) -> None:
    rng = random.Random(seed)
    dialling, listening, _ = shaken(token)
    stream = b"".join(map(dialling.seal, payloads))
    found = []
    while stream:
        size = rng.randint(1, 40)
        found += listening.receive(stream[:size])[0]
        stream = stream[size:]
    assert found == payloads
    assert held(listening) == 0


@pytest.mark.parametrize("token", TOKENS)
def test_hands_are_shaken_byte_by_byte_too(token: bytes | None) -> None:
    dialling, listening = pair(token)
    to_listening, to_dialling = dialling.opening(), b""
    while to_listening or to_dialling:
        if to_listening:
            _, reply = listening.receive(to_listening[:1])
            to_listening, to_dialling = to_listening[1:], to_dialling + reply
        if to_dialling:
            _, reply = dialling.receive(to_dialling[:1])
            to_dialling, to_listening = to_dialling[1:], to_listening + reply
    assert dialling.is_open
    assert listening.is_open


def test_a_token_on_the_dialling_end_only_is_named_at_both_ends() -> None:
    dialling, listening = pair(b"secret", None)
    with pytest.raises(ChannelBroken, match="it has a token, and this end has none") as broken:
        listening.receive(dialling.opening())
    with pytest.raises(ChannelBroken, match="it has no token, and this end has one"):
        dialling.receive(broken.value.farewell)


def test_a_token_on_the_listening_end_only_is_named_at_both_ends() -> None:
    dialling, listening = pair(None, b"secret")
    with pytest.raises(ChannelBroken, match="it has no token, and this end has one") as broken:
        listening.receive(dialling.opening() + dialling.seal(b"believe me"))
    with pytest.raises(ChannelBroken, match="it has a token, and this end has none"):
        dialling.receive(broken.value.farewell)


def test_another_token_is_named_at_both_ends_and_told_to_neither() -> None:
    dialling, listening = pair(b"secret", b"Secret")
    _, answer = listening.receive(dialling.opening())
    with pytest.raises(ChannelBroken, match="another token") as broken:
        dialling.receive(answer)
    assert broken.value.met == PEER
    assert broken.value.farewell == bytes(32)
    with pytest.raises(ChannelBroken, match="another token"):
        listening.receive(broken.value.farewell)


def test_another_version_is_named_at_both_ends() -> None:
    dialling, listening = pair(None)
    hello = bytearray(dialling.opening())
    hello[6] = 9
    with pytest.raises(ChannelBroken, match="version 9 of the protocol, and this end version 1") as broken:
        listening.receive(bytes(hello))
    assert broken.value.met == PEER
    assert broken.value.farewell[:7] == dialling.opening()[:7]


@pytest.mark.parametrize("token", TOKENS)
def test_an_echo_is_no_peer(token: bytes | None) -> None:
    dialling, _ = pair(token)
    with pytest.raises(ChannelBroken, match="no listening end"):
        dialling.receive(dialling.opening())


@pytest.mark.parametrize("first", [b"G", b"GET / HTTP/1.1\r\n", b"\0", b"\x16\x03\x01", b"\xd4PLNX"])
def test_another_protocol_is_found_out_by_what_it_says_first(first: bytes) -> None:
    with pytest.raises(ChannelBroken, match="does not speak this protocol") as broken:
        pair(b"secret")[1].receive(first)
    assert broken.value.met == STRANGER


def test_a_recorded_session_does_not_open_another() -> None:
    dialling, _, said = shaken(b"secret")
    frame = dialling.seal(b"pay")
    _, again = pair(b"secret", nonce=b"n" * 32)
    with pytest.raises(ChannelBroken, match="another token"):
        again.receive(said + frame)


def test_our_own_proof_does_not_open_a_session_with_us() -> None:
    """A stranger that knows no token sends back what it was sent."""
    _, listening = pair(b"secret")
    stranger, _ = pair(b"unknown")
    _, answer = listening.receive(stranger.opening())
    with pytest.raises(ChannelBroken, match="another token"):
        listening.receive(answer[40:])


@pytest.mark.parametrize("order", [(0, 0), (1,), (1, 0), (0, 2)], ids=["repeated", "left out", "swapped", "skipped"])
def test_frames_that_are_not_the_next_break_the_connection(order: tuple[int, ...]) -> None:
    dialling, listening, _ = shaken(b"secret")
    frames = [dialling.seal(b"%d" % number) for number in range(3)]
    with pytest.raises(ChannelBroken, match="changed, repeated or moved"):
        listening.receive(b"".join(frames[number] for number in order))
    assert not listening.is_open


def test_a_frame_of_the_other_direction_does_not_fit() -> None:
    dialling, listening, _ = shaken(b"secret")
    with pytest.raises(ChannelBroken, match="changed, repeated or moved"):
        listening.receive(listening.seal(b"mine"))
    assert dialling.is_open


@settings(max_examples=200)
@given(position=st.integers(4, 4 + 20 + 15), change=st.integers(1, 255))
def test_any_changed_byte_breaks_the_connection(position: int, change: int) -> None:
    dialling, listening, _ = shaken(b"secret")
    frame = bytearray(dialling.seal(b"twenty bytes of text"))
    frame[position] ^= change
    with pytest.raises(ChannelBroken, match="changed, repeated or moved"):
        listening.receive(bytes(frame))


@pytest.mark.parametrize("token", TOKENS)
def test_a_length_over_the_limit_breaks_the_connection_before_the_frame_is_held(token: bytes | None) -> None:
    _, listening, _ = shaken(token)
    with pytest.raises(ChannelBroken, match="a frame of 1001 bytes, over the limit of 1000"):
        listening.receive((LIMIT + 1).to_bytes(4, "big"))
    assert held(listening) == 0


def test_a_message_over_the_limit_is_not_sent_and_harms_nothing() -> None:
    dialling, listening, _ = shaken(b"secret")
    with pytest.raises(ChannelBroken, match="a message of 1001 bytes is over the limit of 1000"):
        dialling.seal(b"x" * (LIMIT + 1))
    assert listening.receive(dialling.seal(b"small")) == ([b"small"], b"")


def test_a_broken_channel_stays_broken() -> None:
    dialling, listening, _ = shaken(None)
    with pytest.raises(ChannelBroken):
        listening.receive(b"\xff" * 4)
    with pytest.raises(ChannelBroken, match="after it was to be dropped"):
        listening.receive(dialling.seal(b"fine"))


@pytest.mark.parametrize("token", TOKENS)
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), is_shaken=st.booleans(), begins_well=st.booleans())
def test_noise_is_refused_or_held_within_bounds(
    token: bytes | None, seed: int, is_shaken: bool, begins_well: bool
) -> None:
    rng = random.Random(seed)
    dialling, listening = shaken(token)[:2] if is_shaken else pair(token)
    limit = 4 + LIMIT + 16 if is_shaken or token is None else 256
    chunks = [rng.randbytes(rng.randint(0, 90)) for _ in range(40)]
    if begins_well and not is_shaken:
        chunks.insert(0, dialling.opening())
    with contextlib.suppress(ChannelBroken):
        for chunk in chunks:
            listening.receive(chunk)
            assert held(listening) <= limit
    assert held(listening) <= limit


@pytest.mark.parametrize("nonce", [b"", b"x" * 31, b"x" * 33])
def test_a_nonce_has_32_bytes(nonce: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Channel(token=None, dials=True, nonce=nonce)


def test_an_empty_token_is_no_token() -> None:
    with pytest.raises(ValueError, match="the token is empty"):
        Channel(token=b"", dials=True, nonce=DIALS)


@settings(max_examples=100)
@given(key=st.binary(min_size=1, max_size=150), head=st.binary(max_size=200), body=st.binary(max_size=200))
def test_codes_are_those_of_hmac_sha256(key: bytes, head: bytes, body: bytes) -> None:
    assert Mac(key).code(head, body) == hmac.digest(key, head + body, "sha256")
