"""Tell people what happened: one line for a restart or a round, one screen for the end, JSON for programs. Pure.

Everything a worker said is escaped before it reaches a terminal.
"""

from __future__ import annotations

from planaria.base import signals
from planaria.base.text import safe, safe_line
from planaria.base.value import Value, as_dict
from planaria.contract.failure import ENDED, ROUND_OVER, first_cause_first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from planaria.agent.model import Group, Outcome
    from planaria.contract.failure import Failure
    from planaria.rendezvous.messages import Place

    Rank = TypeVar("Rank", int, str)

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
    if not group.lives[-1].failures:
        return f"{group.reason}; starting all workers again (no restart)"
    cause = group.lives[-1].failures[0]
    told = f"{name_of(cause)} failed after {cause.age_s:.1f} s: {safe_line(cause.message)}"
    charged = f"restart {group.restarts} of {group.max_restarts}"
    if group.restarts == group.lives[-1].restart_count:
        charged = f"{group.reason}, so this costs no restart"
    return f"{told}; starting all workers again ({charged})"


def standby_line(promoted: Sequence[int], cold: Mapping[int, str]) -> str:
    """Say which workers of a new life were standing by, and why the others were not."""
    told = [f"promoted {len(promoted)} standby{'s' * (len(promoted) != 1)}"] if promoted else []
    for ranks, why in by_reason(cold):
        who = f"local rank {ranks[0]} starts" if len(ranks) == 1 else f"local ranks {', '.join(map(str, ranks))} start"
        told.append(f"{who} cold: {safe_line(why)}")
    return "; ".join(told)


def by_reason(cold: Mapping[Rank, str]) -> list[tuple[list[Rank], str]]:
    """Return the local ranks that start cold for one reason, and the reason."""
    return [([rank for rank, its in cold.items() if its == why], why) for why in dict.fromkeys(cold.values())]


def life_line(group: Group) -> str:
    """Say which worker of this node ended a life, before the other nodes are told; empty when none did."""
    own = [failure for failure in group.lives[-1].failures if failure.stopped_for is None]
    if not own or group.verdict != "failed":
        return ""
    return f"{name_of(own[0])} failed after {own[0].age_s:.1f} s: {safe_line(own[0].message)}; telling the other nodes"


def round_line(group: Group, place: Place) -> str:
    """Say which round starts, why, what it costs and which part of it is this node's."""
    last = place.first_rank + group.size - 1
    ranks = f"rank {last}" if group.size == 1 else f"ranks {place.first_rank} to {last}"
    nodes = "1 node" if place.size == 1 else f"{place.size} nodes"
    told = f"round {place.round} starts on {nodes}, with {ranks} of {place.world_size} here"
    if not place.reason:
        return told
    spent = group.lives[-1].restart_count if group.lives else place.restart_count
    charged = f"restart {place.restart_count} of {group.max_restarts}" if place.restart_count > spent else "no restart"
    return f"{told}: {safe_line(place.reason)} ({charged})"


def causes(group: Group) -> tuple[Failure, ...]:
    """Return the failures that ended the job, first cause first: the last life's, or all nodes' in a job of many."""
    if group.alone:
        return group.lives[-1].failures if group.lives else ()
    return group.causes


def first_cause(group: Group, outcome: Outcome) -> Failure | None:
    """Return what made the job fail, as programs are told; None for one that did not."""
    found = causes(group) if outcome.kind == "failed" else ()
    return next(iter(first_cause_first(found) if group.alone else found), None)


def final_screen(group: Group, outcome: Outcome, style: Style) -> str:
    """Return what is printed at the end; empty when all went well."""
    failures = group.lives[-1].failures if group.lives else ()
    if outcome.kind in ("signal", "stopped"):
        told = [_stopped_line(outcome)]
        told += [f"  {_badly_stopped(one)}" for one in failures[:OTHERS_SHOWN]]
        told += [f"  and {len(failures) - OTHERS_SHOWN} more workers"] * (len(failures) > OTHERS_SHOWN)
        return "\n".join(told) + "\n"
    failures = causes(group)
    if outcome.kind in _HEADINGS and not failures and outcome.explanation:
        return f"{style.bold}{style.red}{_HEADINGS[outcome.kind]}: {safe_line(outcome.explanation)}{style.plain}\n"
    if outcome.kind != "failed" or not failures:
        return ""
    cause = failures[0]
    lines = [f"{style.bold}{style.red}job failed: {name_of(cause)}: {safe_line(cause.message)}{style.plain}"]
    lines += _budget_lines(group, outcome, cause)
    lines += _evidence_lines(cause, style)
    lines += _other_lines((*failures[1:], *_stuck_here(group)), style)
    return "\n".join(lines) + "\n"


def _stopped_line(outcome: Outcome) -> str:
    if outcome.kind == "signal":
        return f"stopped by {signals.name_of(outcome.signal)}"
    return f"stopped: {safe_line(outcome.explanation)}"


_HEADINGS = {"failed": "job failed", "timeout": "no round", "lost": "majority lost", "refused": "refused"}


def _stuck_here(group: Group) -> tuple[Failure, ...]:
    """Return the workers of this node that had to be killed when the round of a failure elsewhere ended."""
    if group.alone or not group.lives:
        return ()
    return tuple(one for one in group.lives[-1].failures if one.stopped_for is not None and one.killer == "us")


def _budget_lines(group: Group, outcome: Outcome, cause: Failure) -> list[str]:
    used = group.lives[-1].restart_count if group.alone else group.restarts
    spent = f"{used} of {group.max_restarts} restarts used" if group.max_restarts else "no restarts allowed"
    lines = [f"  it had run for {cause.age_s:.1f} s, {spent} (--max-restarts={group.max_restarts})"]
    if outcome.explanation:
        lines.append(f"  {safe_line(outcome.explanation)}")
    return lines


def _evidence_lines(cause: Failure, style: Style) -> list[str]:
    lines: list[str] = []
    is_plain_exit = _is_plain_exit(cause)
    if is_plain_exit and not _is_of_argparse(cause):  # whose own line says nothing
        lines.append(f"  it ended by sys.exit at {safe_line(cause.where)}")
    if cause.traceback and not is_plain_exit:
        lines += _quoted(
            "its stack" if cause.kind in ("signal", "watchdog") else "its traceback", cause.traceback, style
        )
    elif cause.stderr_tail:
        lines += _quoted("its last lines on stderr", cause.stderr_tail, style)
    lines += [f"  {what}: {safe_line(path)}" for what, path in (("error file", cause.error_file),) if path]
    lines += [f"  log: {safe_line(path)}" for path in cause.log_files]
    return lines


def _is_plain_exit(cause: Failure) -> bool:
    """Tell whether a program just called sys.exit. It has said what it had to say, and Python shows no traceback either.

    What it was handling then may be the failure; but not where argparse ends it, which notices wrong arguments by exceptions.
    """
    lines = cause.traceback.splitlines()
    if cause.kind != "exit" or not any(line.startswith("SystemExit") for line in lines):
        return False
    return _is_of_argparse(cause) or lines.count("Traceback (most recent call last):") == 1


def _is_of_argparse(cause: Failure) -> bool:
    return cause.where.rpartition(":")[0].rpartition("/")[2] == "argparse.py"


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
    how = _how_killed(other) if other.killer == "us" else "stopped by us"
    why = "when the round ended" if other.stopped_for == ROUND_OVER else f"after rank {other.stopped_for} failed"
    return f"rank {other.rank}: {how} {why}" + _where_it_hung(other)


def _badly_stopped(one: Failure) -> str:
    """Tell of a worker that did not end as it was asked to."""
    if one.killer == "us":
        return f"rank {one.rank}: {_how_killed(one)}{_where_it_hung(one)}"
    return f"{name_of(one)} failed meanwhile: {safe_line(one.message)}"


def _how_killed(one: Failure) -> str:
    if one.type == ENDED:
        return "its program had ended, and it was killed by us while Python closed it down"
    return "killed by us, it did not stop in time"


def _where_it_hung(other: Failure) -> str:
    """Name the line at which the main thread of a worker was before it was killed: other threads wait for something always."""
    if other.killer != "us" or not other.traceback:
        return ""
    from planaria.agent.suspects import frames  # of use to few ends, and every launch imports this module

    found = frames(other.traceback)
    if not found:
        return ""
    return "; it was at " + safe_line(f'File "{found[0].file}", line {found[0].line} in {found[0].function}')


def as_json(
    group: Group,
    outcome: Outcome,
    run_id: str,
    restarts: Sequence[Mapping[str, object]] = (),
    hangs: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    """Return the content of `--report-file`: every life with its failures, first cause first, and what was between them."""
    cause = first_cause(group, outcome)
    told: dict[str, object] = {
        "schema": SCHEMA,
        "run_id": run_id,
        "outcome": outcome.kind,
        "exit_status": outcome.status,
        "signal": signals.name_of(outcome.signal) if outcome.signal else None,
        "explanation": outcome.explanation,
        "restarts": group.restarts,
        "max_restarts": group.max_restarts,
        "first_cause": None if cause is None else as_dict(cause),
        "lives": [as_dict(life) for life in group.lives],
        "restart_records": list(restarts),
        "hangs": list(hangs),
    }
    if not group.alone:
        told["failures"] = [as_dict(failure) for failure in group.causes]
    return told
