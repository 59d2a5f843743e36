"""Tell people what happened: one line for a restart, one screen for the end, JSON for programs. Pure.

Everything a worker said is escaped before it reaches a terminal.
"""

from __future__ import annotations

from planaria.base import signals
from planaria.base.text import safe, safe_line
from planaria.base.value import Value, as_dict
from planaria.contract.failure import first_cause_first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Group, Outcome
    from planaria.contract.failure import Failure

SCHEMA = 1
TRACE_LINES = 30
OTHERS_SHOWN = 8


class Style(Value):
    """Escape sequences, all empty when the screen is not a terminal."""

    bold: str = ""
    red: str = ""
    dim: str = ""
    plain: str = ""


COLOURS = Style("\x1b[1m", "\x1b[31m", "\x1b[2m", "\x1b[0m")


def name_of(failure: Failure) -> str:
    """Name a worker the way all lines do."""
    return f"rank {failure.rank} (local rank {failure.local_rank}, pid {failure.pid} on {safe_line(failure.host)})"


def restart_line(group: Group) -> str:
    """Say why all workers are started again and what it costs."""
    cause = group.lives[-1].failures[0]
    told = f"{name_of(cause)} failed after {cause.age_s:.1f} s: {safe_line(cause.message)}"
    charged = f"restart {group.restarts} of {group.max_restarts}"
    if group.restarts == group.lives[-1].restart_count:
        charged = f"{group.reason}, so this costs no restart"
    return f"{told}; starting all workers again ({charged})"


def final_screen(group: Group, outcome: Outcome, style: Style) -> str:
    """Return what is printed at the end; empty when all went well."""
    failures = group.lives[-1].failures if group.lives else ()
    if outcome.kind == "signal":
        told = [f"stopped by {signals.name_of(outcome.signal)}"]
        told += [f"  {_badly_stopped(one)}" for one in failures[:OTHERS_SHOWN]]
        told += [f"  and {len(failures) - OTHERS_SHOWN} more workers"] * (len(failures) > OTHERS_SHOWN)
        return "\n".join(told) + "\n"
    if outcome.kind != "failed" or not failures:
        return ""
    cause = failures[0]
    lines = [f"{style.bold}{style.red}job failed: {name_of(cause)}: {safe_line(cause.message)}{style.plain}"]
    lines += _budget_lines(group, outcome)
    lines += _evidence_lines(cause, style)
    lines += _other_lines(failures[1:], style)
    return "\n".join(lines) + "\n"


def _budget_lines(group: Group, outcome: Outcome) -> list[str]:
    life = group.lives[-1]
    spent = (
        f"{life.restart_count} of {group.max_restarts} restarts used" if group.max_restarts else "no restarts allowed"
    )
    lines = [f"  it had run for {life.failures[0].age_s:.1f} s, {spent} (--max-restarts={group.max_restarts})"]
    if outcome.explanation:
        lines.append(f"  {outcome.explanation}")
    return lines


def _evidence_lines(cause: Failure, style: Style) -> list[str]:
    lines: list[str] = []
    if cause.traceback:
        lines += _quoted("its stack" if cause.kind == "signal" else "its traceback", cause.traceback, style)
    elif cause.stderr_tail:
        lines += _quoted("its last lines on stderr", cause.stderr_tail, style)
    lines += [f"  {what}: {safe_line(path)}" for what, path in (("error file", cause.error_file),) if path]
    lines += [f"  log: {safe_line(path)}" for path in cause.log_files]
    return lines


def _quoted(title: str, text: str, style: Style) -> list[str]:
    lines = safe(text).rstrip().splitlines()
    if len(lines) > TRACE_LINES:
        head, tail = TRACE_LINES // 3, TRACE_LINES - TRACE_LINES // 3
        lines = [*lines[:head], f"... {len(lines) - head - tail} lines left out ...", *lines[-tail:]]
    return [f"  {title}:", *(f"  {style.dim}|{style.plain} {line[:400]}" for line in lines)]


def _other_lines(others: tuple[Failure, ...], style: Style) -> list[str]:
    lines = [f"  {style.dim}{_other_line(other)}{style.plain}" for other in others[:OTHERS_SHOWN]]
    if len(others) > OTHERS_SHOWN:
        lines.append(f"  {style.dim}and {len(others) - OTHERS_SHOWN} more workers{style.plain}")
    return lines


def _other_line(other: Failure) -> str:
    if other.stopped_for is None:
        return f"then {name_of(other)}: {safe_line(other.message)}"
    how = "killed by us, it did not stop in time" if other.killer == "us" else "stopped by us"
    return f"rank {other.rank}: {how} after rank {other.stopped_for} failed" + _where_it_hung(other)


def _badly_stopped(one: Failure) -> str:
    """Tell of a worker that did not end as it was asked to."""
    if one.killer == "us":
        return f"rank {one.rank}: killed by us, it did not stop in time{_where_it_hung(one)}"
    return f"{name_of(one)} failed meanwhile: {safe_line(one.message)}"


def _where_it_hung(other: Failure) -> str:
    """Name the innermost line of the stack a worker left before it was killed."""
    frames = [line.strip() for line in other.traceback.splitlines() if line.startswith("  File ")]
    return f"; it was at {safe_line(frames[0])}" if other.killer == "us" and frames else ""


def as_json(group: Group, outcome: Outcome, run_id: str) -> dict[str, object]:
    """Return the content of `--report-file`: every life with its failures, first cause first."""
    last = first_cause_first(group.lives[-1].failures) if group.lives else ()
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "outcome": outcome.kind,
        "exit_status": outcome.status,
        "signal": signals.name_of(outcome.signal) if outcome.signal else None,
        "explanation": outcome.explanation,
        "restarts": group.restarts,
        "max_restarts": group.max_restarts,
        "first_cause": as_dict(last[0]) if last and outcome.kind == "failed" else None,
        "lives": [as_dict(life) for life in group.lives],
    }
