"""What two doctors say to each other: greetings are JSON, all else is a letter and bytes. Pure.

    dialling end                          listening end
    greeting                           -> greeting, after w again and again while it is another's turn
    p + number                         -> the same                             round trips, one after the other
    l + 128 KiB                        -> a                                    do large packets arrive there
    m                                  -> l + 128 KiB                          and here
    u + 256 KiB, again and again; U    -> U + bytes taken                      for a second
    d                                  -> d + 256 KiB, again and again; D      for a second
    r + findings as JSON               ->                                      what to print at the other end

Whatever else is said ends the talk; what comes from the other end is made safe before it is shown.
"""

from __future__ import annotations

import json

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.doctor.model import CHECKS, FAIL, OK, WARN, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL = 1
PING, LARGE, ARRIVED, MORE, REPORT, WAIT = b"p", b"l", b"a", b"m", b"r", b"w"
UP, UP_END, DOWN, DOWN_END = b"u", b"U", b"d", b"D"
LARGE_BYTES = 128 << 10
PIECE_BYTES = 256 << 10
_MOST_FINDINGS = 64


class Greeting(Value):
    """Who one is."""

    version: str
    host: str
    wall_s: float


def greet(greeting: Greeting) -> bytes:
    """Return the first message."""
    content = {"doctor": PROTOCOL, "version": greeting.version, "host": greeting.host, "wall_s": greeting.wall_s}
    return json.dumps(content).encode()


def read_greeting(message: bytes) -> Greeting | None:
    """Return who greets; None for what is no greeting."""
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("doctor") != PROTOCOL:
        return None
    version, host, wall_s = found.get("version"), found.get("host"), found.get("wall_s")
    if not isinstance(version, str) or not isinstance(host, str) or not isinstance(wall_s, (int, float)):
        return None
    return Greeting(safe_line(version, 60), safe_line(host, 120), float(wall_s))


def report(findings: Sequence[Finding]) -> bytes:
    """Return what the other end is to print."""
    rows = [[one.check, one.verdict, one.sentence, one.remedy] for one in findings[:_MOST_FINDINGS]]
    return REPORT + json.dumps(rows).encode()


def read_report(message: bytes) -> list[Finding]:
    """Return the findings of the other end, made safe; rows that are none are left out."""
    try:
        rows = json.loads(message[1:])
    except (ValueError, RecursionError):
        return []
    found = []
    for row in rows[:_MOST_FINDINGS] if isinstance(rows, list) else []:
        if isinstance(row, list) and len(row) == 4 and all(isinstance(word, str) for word in row):
            check, verdict, sentence, remedy = row
            if check.startswith("peers.") and check[6:] in CHECKS["peers"] and verdict in (OK, WARN, FAIL):
                found.append(Finding(check, verdict, safe_line(sentence, 500), safe_line(remedy, 500)))
    return found
