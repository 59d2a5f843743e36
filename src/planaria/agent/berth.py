"""One connection of a dock: words as JSON, bulk in pieces, and an end when the peer is silent for too long."""

from __future__ import annotations

import json

from planaria.base.text import safe_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.base.connection import Connection
    from planaria.base.loop import Loop

    class Ending(Protocol):
        """Something that can be given up."""

        def cancel(self) -> object:
            """Give it up. Harmless when it is over."""


PIECE_BYTES = 1 << 18
PIECES_A_TURN = 4  # a MiB takes about a millisecond with a token; others want their turn
SILENCE_S = 30.0
_LOOK_EVERY_S = SILENCE_S / 6
LONGEST_BYTES = 1 << 19  # of a message; a frame could take twice that
LONGEST_WHY = 500


def encode(*words: object) -> bytes:
    """Return words as a message. Raises ValueError for what is no JSON, or too long."""
    payload = json.dumps(words, separators=(",", ":"), allow_nan=False).encode()
    if len(payload) > LONGEST_BYTES:
        raise ValueError(f"a message of {len(payload)} bytes, over the limit of {LONGEST_BYTES}")
    return payload


def decode(payload: bytes) -> tuple[str, list[object]]:
    """Return the first word of a message and those after it. Raises ValueError."""
    if len(payload) > LONGEST_BYTES:
        raise ValueError(f"{len(payload)} bytes, over the limit of {LONGEST_BYTES}")
    try:
        found = json.loads(payload)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise ValueError("not an array that starts with a word")
    return found[0], found[1:]


class Berth:
    """Where one transfer lies until it is over. `hear(word, rest)` raises ValueError for what must not be said now.

    `on_over(why)` is called at most once, never from inside a call of the owner's and never after `end`.
    """

    def __init__(
        self,
        loop: Loop,
        wire: Connection,
        hear: Callable[[str, list[object]], object],
        on_over: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._wire = wire
        self._hear = hear
        self._on_over = on_over
        self._is_over = False
        self._source: memoryview | None = None
        self._sent = 0
        self._on_sent: Callable[[], object] | None = None
        self._moved, self._moved_at = 0, loop.now()
        self._timer = loop.call_later(_LOOK_EVERY_S, self._look)
        wire.stall_s = SILENCE_S
        wire.on_lost = lambda why, _met: self._lose(why)
        wire.on_message = self._take

    def say(self, *words: object) -> None:
        """Send words."""
        self._wire.send(encode(*words))

    def pour(self, source: memoryview, on_sent: Callable[[], object]) -> None:
        """Send all of it, as fast as the peer takes it; then call `on_sent`, perhaps at once, which may let go of it."""
        self._source, self._sent, self._on_sent = source, 0, on_sent
        self._wire.on_drained = self._pour
        self._pour()

    def fill(self, target: memoryview, on_filled: Callable[[], object]) -> None:
        """Take so much; then call `on_filled`."""
        if target:
            self._wire.fill(target, on_filled)
        else:
            self._loop.call_soon(lambda: self._is_over or on_filled())

    def end(self) -> None:
        """Close the connection after what was said."""
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._source = None
            self._wire.close()

    def _take(self, payload: bytes) -> None:
        if self._is_over:
            return
        try:
            self._hear(*decode(payload))
        except ValueError as problem:
            self._lose(f"it sent no message of ours: {safe_line(str(problem), LONGEST_WHY)}")

    def _pour(self) -> None:
        for _ in range(PIECES_A_TURN):
            if self._source is None:
                return
            piece = self._source[self._sent : self._sent + PIECE_BYTES]
            self._sent += len(piece)
            has_room = not piece or self._wire.send_bulk(piece)
            piece.release()  # whoever hears that all was sent may free the memory
            if self._sent == len(self._source):
                self._source = None
                if self._on_sent is not None:
                    self._on_sent()
                return
            if not has_room:
                return
        self._loop.call_soon(self._pour)

    def _look(self) -> None:
        now, moved = self._loop.now(), self._wire.bytes_in + self._wire.bytes_out
        if moved != self._moved:
            self._moved, self._moved_at = moved, now
        if now - self._moved_at >= SILENCE_S:
            self._lose(f"it was silent for {SILENCE_S:g} s")
        else:
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _lose(self, why: str) -> None:
        if not self._is_over:
            self.end()
            self._on_over(why)
