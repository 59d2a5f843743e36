"""What an event of a journal says to people, and what a worker's status means. Pure.

Foreign text is in it as it came: whoever shows it makes it safe for where it is shown.
"""

from __future__ import annotations

from datetime import UTC, datetime

from planaria.base import signals
from planaria.base.text import several
from planaria.insight.fields import integer, number, objects, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.insight.fields import Told

_KILLERS = {"us": ", by its agent", "oom": ", by the kernel: out of memory", "other": ", by somebody else"}
_OUTCOMES = {
    "done": "ended well",
    "failed": "failed",
    "signal": "was ended by a signal",
    "stopped": "was stopped by its owner",
    "abandoned": "was left alone by its launcher, and ended",
    "timeout": "found no round in time, and gave up",
    "lost": "lost the majority of its nodes, and gave up",
    "refused": "was refused by the others",
}

PAST = {
    "gone": "nobody of the run is left, and no end was written: "
    "its agents ended without --run-dir, were killed, or do not answer any more",
    "silent": "nothing was heard of the run for long, and no end was written",
}
"""Why nothing more is expected of a run that has not ended."""


def meaning(status: int, killer: str = "") -> str:
    """Say what a worker's status means: minus a signal, or an exit status."""
    if status < 0:
        return f"{signals.name_of(-status)} ({signals.meaning_of(-status)}){_KILLERS.get(killer, '')}"
    if status > 128 and status - 128 in signals.NUMBERS.values():
        return f"exit status {status}, as a shell says for {signals.name_of(status - 128)}"
    return f"exit status {status}"


def ending(outcome: str) -> str:
    """Say how a run ended."""
    return _OUTCOMES.get(outcome, f"ended: {outcome}")


def clock(timestamp: int) -> str:
    """Return the time of day of a moment in milliseconds since 1970, in UTC."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def date(timestamp: int) -> str:
    """Return the day and the time of a moment in milliseconds since 1970, in UTC."""
    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return "?"


def span(seconds: float) -> str:
    """Return a length of time as people say it: `850 ms`, `12.3 s`, `4 min 10 s`, `3 h 20 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def sentence(event: Told) -> str:
    """Say in one line what happened; empty for what is not worth one."""
    teller = _TELLERS.get(event.name)
    if teller is not None:
        return teller(event.data)
    said = text(event.data, "sentence")
    return said or event.name if event.name not in _QUIET else ""


def _run_started(data: Mapping[str, object]) -> str:
    return f"the agent begins, with {several(integer(data, 'workers') or 0, 'worker')}"


def _round_started(data: Mapping[str, object]) -> str:
    nodes, world = several(integer(data, "nodes") or 0, "node"), integer(data, "world_size") or 0
    reason = text(data, "reason")
    why = f": {reason}" if reason else ""
    return f"round {integer(data, 'round')} starts with {several(world, 'worker')} on {nodes}{why}"


def _worker_exited(data: Mapping[str, object]) -> str:
    if text(data, "result") != "failed":
        return ""
    message = text(data, "message") or meaning(integer(data, "status") or 0)
    age_s = number(data, "age_s")
    after = "" if age_s is None else f" after {span(age_s)}"
    return f"rank {integer(data, 'rank')} failed{after}: {message}"


def _restarted(data: Mapping[str, object]) -> str:
    cost = "" if data.get("charged") else ", at no cost"
    took = span(number(data, "total_s") or 0.0)
    return f"restarted within {took} for round {integer(data, 'round')}{cost}: {text(data, 'reason')}"


def _run_ended(data: Mapping[str, object]) -> str:
    said = text(data, "explanation")
    why = f": {said}" if said else ""
    by = text(data, "signal")
    return f"the run {ending(text(data, 'outcome'))}{f' ({by})' if by else ''}{why}"


def _went_on(data: Mapping[str, object]) -> str:
    how = text(data, "how") or "goes on"
    return f"rank {integer(data, 'rank')} {how}: what looked like a hang was none, or is over"


def leaving(event: Told) -> str:
    """Say that a node has ended while the run went on without it."""
    by = text(event.data, "signal")
    return f"node {event.node} left{f' ({by})' if by else ''}"


def _straggling(data: Mapping[str, object]) -> str:
    slow = [f"rank {integer(one, 'rank')} on {text(one, 'host')}" for one in objects(data, "ranks")]
    return f"slower than the others: {', '.join(slow[:8])}" if slow else "no rank is slower than the others any more"


def _checked(data: Mapping[str, object]) -> str:
    failed = [text(one, "sentence") for one in objects(data, "findings") if one.get("ok") is False]
    return f"a check of this node failed: {failed[0]}" if failed else ""


_QUIET = ("planaria.worker.started", "planaria.progress", "planaria.commit")
_TELLERS = {
    "planaria.run.started": _run_started,
    "planaria.round.started": _round_started,
    "planaria.worker.exited": _worker_exited,
    "planaria.restart": _restarted,
    "planaria.run.ended": _run_ended,
    "planaria.preflight": _checked,
    "planaria.straggler": _straggling,
    "planaria.hang.over": _went_on,
}
