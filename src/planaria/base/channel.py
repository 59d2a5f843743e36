"""One end of a framed, optionally authenticated connection: bytes in, payloads and bytes out. No I/O, no clock.

    without a token                          with a token
    dialling end        listening end        dialling end        listening end
    hello, frames... -> hello, frames...     hello            ->
                                                              <- hello, proof
                                             proof, frames... -> frames...

A hello is magic, version, flags and a nonce. A proof is an HMAC under the token over both hellos, with a label of its
own for each end, so that nothing recorded or reflected ever fits. Frames are a length and a payload; with a token they
end in a code under a key of this connection and direction, over a counter and the payload: a frame that was changed,
repeated, left out or moved does not fit either. Payloads are not secret; that takes TLS underneath.
"""

from __future__ import annotations

from _operator import _compare_digest as is_same  # `hmac.compare_digest` by its own name, without importing `hmac`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from planaria.base.filling import Filling
    from planaria.base.mac import Mac

    Met = Literal["refused", "nobody", "stranger", "peer"]

# Whom an end that came to nothing met, from the least to the most. No `enum`: that is not imported on the way of a run.
REFUSED: Literal["refused"] = "refused"  # the system there: nobody listens
NOBODY: Literal["nobody"] = "nobody"  # no connection, or one on which nobody speaks or listens any more
STRANGER: Literal["stranger"] = "stranger"  # somebody who was not heard to speak this protocol
PEER: Literal["peer"] = "peer"  # one who speaks it, and does not suit

NONCE_BYTES = 32
LENGTH_BYTES = 4
_MAGIC = b"\xd4PLNR\n"  # no text protocol begins like this; whoever speaks one is found out by its first byte
_VERSION = 1
_HAS_TOKEN = 1
_ANSWERS = 2
_HELLO_BYTES = len(_MAGIC) + 2 + NONCE_BYTES
_PROOF_BYTES = 32
_CODE_BYTES = 16
_COUNTER_BYTES = 8

_LABELS = {True: b"planaria 1 dials: ", False: b"planaria 1 listens: "}
_PROOF = b"proof "
_FRAMES_KEY = b"frames "

_HELLO_DUE, _PROOF_DUE, _FRAMES_DUE, _BROKEN = range(4)


class ChannelBroken(ValueError):
    """The peer is to be dropped; the message says why in one line.

    `farewell` holds bytes worth sending before that: they let the peer say in its own words what is wrong. `met` is who
    the peer has shown itself to be.
    """

    def __init__(self, why: str, farewell: bytes = b"", met: Met = PEER) -> None:
        super().__init__(why)
        self.farewell = farewell
        self.met = met


class Channel:
    """Turns a stream into payloads and back. `dials`: this end connected; `nonce`: 32 random bytes used only here.

    Holds at most one unfinished frame of `limit_bytes`, and less than 80 bytes until the peer has shaken hands.
    """

    __slots__ = (
        "_code_bytes",
        "_count_in",
        "_count_out",
        "_dials",
        "_due",
        "_held",
        "_hello",
        "_limit_bytes",
        "_mac_in",
        "_mac_out",
        "_needed",
        "_said",
        "_token",
        "is_open",
    )

    def __init__(self, *, token: bytes | None, dials: bool, nonce: bytes, limit_bytes: int = 1 << 20) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._token = None if token is None else _keyed(token)
        self._dials = dials
        self._limit_bytes = limit_bytes
        flags = (0 if token is None else _HAS_TOKEN) | (0 if dials else _ANSWERS)
        self._hello = b"%s%c%c%s" % (_MAGIC, _VERSION, flags, nonce)
        self._said = b""
        self._due = _HELLO_DUE
        self._needed = _HELLO_BYTES
        self._held = bytearray()
        self._code_bytes = 0 if token is None else _CODE_BYTES
        self._mac_in: Mac | None = None
        self._mac_out: Mac | None = None
        self._count_in = self._count_out = 0
        self.is_open = dials and token is None

    @property
    def is_midway(self) -> bool:
        """Tell whether a hello, a proof or a frame has begun and not ended."""
        return bool(self._held)

    def opening(self) -> bytes:
        """Return what has to be sent first."""
        return self._hello if self._dials else b""

    def seal(self, payload: bytes | memoryview) -> bytes:
        """Return the frame for `payload`; frames have to be sent in the order in which they were made.

        Raises:
            ChannelBroken: The payload is over the limit, or hands were not shaken. The channel stays as it was.
        """
        head, code = self.wrap(payload)
        return b"%s%s%s" % (head, payload, code)

    def wrap(self, payload: bytes | memoryview) -> tuple[bytes, bytes]:
        """Return what goes before and after `payload` to make a frame of it: `seal`, without a copy of what is large."""
        size = len(payload)
        if size > self._limit_bytes:
            raise ChannelBroken(f"a message of {size} bytes is over the limit of {self._limit_bytes}")
        if not self.is_open:
            raise ChannelBroken("nothing can be sent before hands were shaken")
        if self._mac_out is None:
            return size.to_bytes(LENGTH_BYTES, "big"), b""
        code = self._mac_out.code(self._count_out.to_bytes(_COUNTER_BYTES, "big"), payload)
        self._count_out += 1
        return size.to_bytes(LENGTH_BYTES, "big"), code[:_CODE_BYTES]

    def fill(self, target: memoryview) -> Filling:
        """Have the payloads of the next frames put into `target`; until it is full, what arrives is not for `receive`.

        Raises:
            ChannelBroken: Something has arrived already.
        """
        if self._due != _FRAMES_DUE or self._held:
            raise self._broken("it sent what was not asked for yet")
        from planaria.base.filling import Filling  # few connections ever carry so much

        return Filling(target, self._code_bytes, self._check)

    def receive(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Take what arrived; return the payloads that are complete now and the bytes to send back.

        Raises:
            ChannelBroken: This peer is to be dropped. Everything that was held of it is gone.
        """
        if self._held:
            self._held += data
            if self._due == _FRAMES_DUE and len(self._held) < self._needed:
                return [], b""
            data = bytes(self._held)
            self._held = bytearray()
        start, reply = (0, b"") if self._due == _FRAMES_DUE else self._shake_hands(data)
        payloads: list[bytes] = []
        if self._due == _FRAMES_DUE:
            start = self._cut(data, start, payloads)
        if start < len(data):
            self._held += data[start:]
        return payloads, reply

    def _cut(self, data: bytes, start: int, payloads: list[bytes]) -> int:
        """Collect the whole frames from `start` on; return where the rest begins."""
        while len(data) - start >= LENGTH_BYTES:
            first = start + LENGTH_BYTES
            size = int.from_bytes(data[start:first], "big")
            if size > self._limit_bytes:
                raise self._broken(f"it sent a frame of {size} bytes, over the limit of {self._limit_bytes}")
            last = first + size
            end = last + self._code_bytes
            if end > len(data):
                self._needed = end - start
                return start
            payload = data[first:last]
            if self._mac_in is not None:
                self._check(payload, data[last:end])
            payloads.append(payload)
            start = end
        self._needed = LENGTH_BYTES
        return start

    def _check(self, payload: bytes | memoryview, code: bytes | memoryview) -> None:
        if self._mac_in is None:
            return
        if not is_same(self._mac_in.code(self._count_in.to_bytes(_COUNTER_BYTES, "big"), payload)[:_CODE_BYTES], code):
            raise self._broken("it sent a frame that was changed, repeated or moved on the way")
        self._count_in += 1

    def _shake_hands(self, data: bytes) -> tuple[int, bytes]:
        """Take what there is of hello and proof; return how many bytes that was and what to answer."""
        if self._due == _BROKEN:
            raise self._broken("it goes on after it was to be dropped")
        start, reply = 0, b""
        if self._due == _HELLO_DUE:
            if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
                raise self._broken("it does not speak this protocol", met=STRANGER)
            if len(data) < _HELLO_BYTES:
                return 0, b""
            start = _HELLO_BYTES
            reply = self._hear_hello(data[:start])
        if self._due == _PROOF_DUE and len(data) - start >= _PROOF_BYTES:
            reply += self._hear_proof(data[start : start + _PROOF_BYTES])
            start += _PROOF_BYTES
        return start, reply

    def _hear_hello(self, hello: bytes) -> bytes:
        version, flags = hello[len(_MAGIC)], hello[len(_MAGIC) + 1]
        # A listening end that refuses shows its own hello: the other end finds the same fault in it and can name it.
        farewell = b"" if self._dials else self._hello
        if version != _VERSION:
            raise self._broken(
                f"it speaks version {version} of the protocol, and this end version {_VERSION}", farewell
            )
        if bool(flags & _ANSWERS) != self._dials:
            raise self._broken("it is no listening end" if self._dials else "it is no dialling end")
        if self._token is None and flags & _HAS_TOKEN:
            raise self._broken("it has a token, and this end has none", farewell)
        if self._token is not None and not flags & _HAS_TOKEN:
            raise self._broken("it has no token, and this end has one", farewell)
        if self._token is None:
            self._expect_frames()
            return farewell
        self._said = self._hello + hello if self._dials else hello + self._hello
        self._due, self._needed = _PROOF_DUE, _PROOF_BYTES
        return b"" if self._dials else self._hello + self._code(self._token, _PROOF, dials=False)

    def _hear_proof(self, proof: bytes) -> bytes:
        assert self._token is not None
        if not is_same(proof, self._code(self._token, _PROOF, dials=not self._dials)):
            # A wrong proof that tells nothing of our token: the listening end learns why it is left.
            raise self._broken("it has another token than this end", b"\0" * _PROOF_BYTES if self._dials else b"")
        from planaria.base.mac import Mac

        self._mac_in = Mac(self._code(self._token, _FRAMES_KEY, dials=not self._dials))
        self._mac_out = Mac(self._code(self._token, _FRAMES_KEY, dials=self._dials))
        reply = self._code(self._token, _PROOF, dials=True) if self._dials else b""
        self._expect_frames()
        return reply

    def _code(self, token: Mac, purpose: bytes, *, dials: bool) -> bytes:
        return token.code(_LABELS[dials] + purpose, self._said)

    def _expect_frames(self) -> None:
        self._due, self._needed = _FRAMES_DUE, LENGTH_BYTES
        self.is_open = True

    def _broken(self, why: str, farewell: bytes = b"", met: Met = PEER) -> ChannelBroken:
        self._due, self._needed = _BROKEN, 0
        self._held = bytearray()
        self.is_open = False
        return ChannelBroken(why, farewell, met)


def _keyed(token: bytes) -> Mac:
    if not token:
        raise ValueError("the token is empty")
    from planaria.base.mac import Mac  # only runs with a token pay for it

    return Mac(token)
