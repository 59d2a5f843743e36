"""How fast training was between two records of an agent, and what is new in a log. Pure.

Records have totals, and the age of their agent's clock. Only differences within one round mean anything, and they are exact:
nobody guesses how many workers made them, or how long it took the news to come.
"""

from __future__ import annotations

from planaria.kube.scaling_model import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.progress import Record


def between(before: Record | None, after: Record) -> Sample | None:
    """Return how fast training was between two messages; None if they do not belong together or nothing was done."""
    if before is None or (before.round, before.nodes) != (after.round, after.nodes) or after.nodes < 1:
        return None
    seconds = after.seconds - before.seconds
    if seconds <= 0:
        return None
    if after.samples is not None and before.samples is not None and after.samples > before.samples:
        return Sample(after.nodes, rate=(after.samples - before.samples) / seconds, step=after.step)
    if after.samples is None and after.step is not None and before.step is not None and after.step > before.step:
        return Sample(after.nodes, seconds=seconds / (after.step - before.step), step=after.step)
    return None


def whole_lines(text: str, limit_bytes: int) -> str:
    """Return a text without its last line where it was cut off at a number of bytes: half a number is a number, too."""
    if len(text.encode()) < limit_bytes:
        return text
    return text[: text.rfind("\n") + 1]


def fresh_lines(text: str, cursor: str) -> tuple[list[str], str]:
    """Return the lines of a log with timestamps that are newer than `cursor`, without them, and the newest timestamp.

    Timestamps are of one node's clock, and of fixed width; only they are compared with each other. If that clock was set
    back, everything is old: the cursor follows, and the next lines are new again.
    """
    stamped = [line.partition(" ") for line in text.splitlines() if line]
    stamped = [parts for parts in stamped if parts[0][:2].isdigit()]
    if not stamped:
        return [], cursor
    newest = stamped[-1][0]
    return [line for stamp, _, line in stamped if stamp > cursor], newest
