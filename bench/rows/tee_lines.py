"""What the reader of 64 talking workers saw, judged. Pure."""

from __future__ import annotations

from dataclasses import dataclass

LINE_BYTES = 80


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines that came whole: how late each (sorted), and how many were out of order within their worker.

    `torn` counts lines that are not as they were written.
    """

    lags_ms: list[float]
    disordered: int
    torn: int


def parse(chunks: list[tuple[int, bytes]], *, prefixed: bool) -> Shown:
    """Take the stream apart: `[default3]:3 17 123456789 ....` is line 17 of rank 3, written at that moment."""
    lags: list[float] = []
    next_number: dict[int, int] = {}
    disordered = torn = 0
    partial_line = b""
    for arrived_ns, data in chunks:
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            prefix, _, text = line.rpartition(b"]:")
            words = text.split()
            if (
                len(text) != LINE_BYTES - 1
                or len(words) != 4
                or prefix != (b"[default" + words[0] if prefixed else b"")
            ):
                torn += 1
                continue
            rank, number = int(words[0]), int(words[1])
            disordered += number != next_number.get(rank, 0)
            next_number[rank] = number + 1
            lags.append((arrived_ns - int(words[2])) / 1e6)
    return Shown(sorted(lags), disordered, torn + bool(partial_line))


def written(side: bytes) -> dict[int, tuple[int, int]]:
    """Return by rank how many lines each worker says it wrote, and in how many nanoseconds."""
    lines = (line.split() for line in side.splitlines() if line.startswith(b"done "))
    return {int(rank): (int(count), int(elapsed_ns)) for _, rank, count, elapsed_ns in lines}


def verdict(shown: Shown, done: dict[int, tuple[int, int]], workers: int) -> str:
    """Say whether every line was shown, whole and in order, and if not, what was wrong."""
    missing = sum(count for count, _ in done.values()) - len(shown.lags_ms)
    if len(done) == workers and not (missing or shown.disordered or shown.torn):
        return "yes"
    return f"no: {missing:,} missing, {shown.disordered:,} out of order, {shown.torn:,} not whole"
