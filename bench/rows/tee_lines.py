"""What the reader of 64 talking workers saw, judged. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# 79 bytes and the line end; the prefix must be that of the rank which wrote the line.
_LINE = rb"(?=.{79}\Z)%s (?P<number>\d+) (?P<moment>\d+) \.*"
_PLAIN = re.compile(_LINE % rb"(?P<rank>\d+)")
_PREFIXED = re.compile(rb"\[default(?P<rank>\d+)\]:" + _LINE % rb"(?P=rank)")


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines that came whole: how late each (sorted), and how many were out of order within their worker.

    `torn` counts lines that are not as they were written; `example` is the first of them.
    """

    lags_ms: list[float]
    disordered: int
    torn: int
    example: bytes


def parse(chunks: list[tuple[int, bytes]], *, prefixed: bool) -> Shown:
    """Take the stream apart: `[default3]:3 17 123456789 ....` is line 17 of rank 3, written at that moment."""
    shape = _PREFIXED if prefixed else _PLAIN
    lags: list[float] = []
    next_number: dict[int, int] = {}
    disordered = 0
    torn: list[bytes] = []
    partial_line = b""
    for arrived_ns, data in chunks:
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            found = shape.fullmatch(line)
            if found is None:
                torn.append(line)
                continue
            rank, number, written_ns = map(int, found.group("rank", "number", "moment"))
            disordered += number != next_number.get(rank, 0)
            next_number[rank] = number + 1
            lags.append((arrived_ns - written_ns) / 1e6)
    if partial_line:
        torn.append(partial_line)
    return Shown(sorted(lags), disordered, len(torn), torn[0] if torn else b"")


def written(side: bytes) -> dict[int, tuple[int, int]]:
    """Return by rank how many lines each worker says it wrote, and in how many nanoseconds."""
    lines = (line.split() for line in side.splitlines() if line.startswith(b"done "))
    return {int(rank): (int(count), int(elapsed_ns)) for _, rank, count, elapsed_ns in lines}


def verdict(shown: Shown, done: dict[int, tuple[int, int]], workers: int) -> str:
    """Say whether every line was shown, whole and in order, and if not, what was wrong."""
    missing = sum(count for count, _ in done.values()) - len(shown.lags_ms)
    if len(done) == workers and not (missing or shown.disordered or shown.torn):
        return "yes"
    flaws = f"{missing:,} not shown whole, {shown.disordered:,} gaps in the order, {shown.torn:,} torn or mixed lines"
    example = shown.example[:100].decode("ascii", "backslashreplace").replace("\0", "\\0")
    return f"no: {flaws}" + (f", like `{example}`" if example else "")
