"""Draw the picture of a run for a terminal: `planaria status`, and each screen of `planaria top`. Pure."""

from __future__ import annotations

from planaria.base.text import safe_line, several
from planaria.base.value import Value
from planaria.insight.fields import integer, text
from planaria.insight.sentences import PAST, clock, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.base.colours import Style
    from planaria.insight.model import Node, Rank, RunSeen

MOST_RANKS = 64  # of `planaria status`; all of them are in --json
MOST_MOMENTS = 10
MOST_NODES = 32


_GOOD = ("running", "done")
_HEADS = ("rank", "host", "pid", "state", "step", "steps/s", "samples/s", "age", "")


class Room(Value):
    """How much may be shown: rows of ranks, nodes and moments."""

    ranks: int = MOST_RANKS
    nodes: int = MOST_NODES
    moments: int = MOST_MOMENTS


ROOM = Room()


def status_lines(run: RunSeen, style: Style, room: Room = ROOM) -> list[str]:
    """Return a run on some lines: how it is, its nodes, its ranks, its restarts, its commits, and what happened last."""
    colour = style.green if run.state in _GOOD else style.red
    world = "" if run.world_size is None else f", {several(run.world_size, 'worker')} on {several(_here(run), 'node')}"
    told = [
        f"{style.bold}run {safe_line(run.run_id, 200)}{style.plain}: {colour}{safe_line(run.state, 40)}{style.plain}{world}"
    ]
    told += [f"  {line}" for line in _summary(run)]
    told += [f"  {style.red}hang: {safe_line(text(run.hang, 'sentence'))}{style.plain}"] if run.hang is not None else []
    told += _node_lines(run.nodes, style, room.nodes)
    told += _rank_lines(run.ranks, style, room.ranks)
    told += _timeline_lines(run, style, room.moments)
    return [*told, *(f"  {style.red}not seen: {safe_line(gap)}{style.plain}" for gap in run.gaps[:8])]


def _here(run: RunSeen) -> int:
    return len({rank.node for rank in run.ranks}) or len(run.nodes)


def _summary(run: RunSeen) -> list[str]:
    told = []
    steps = [rank.step for rank in run.ranks if rank.step is not None]
    rates = [rank.rate for rank in run.ranks if rank.rate is not None]
    samples = [rank.samples_rate for rank in run.ranks if rank.samples_rate is not None]
    if steps:
        reached = f"step {min(steps)}" if min(steps) == max(steps) else f"steps {min(steps)} to {max(steps)}"
        pace = f", {min(rates):.3g} steps/s" if rates else ""
        amount = f", {sum(samples):.4g} samples/s together" if samples else ""
        told.append(f"{reached}{pace}{amount}")
    elif not run.is_over:
        told.append("no rank reports its steps (planaria.worker.report_progress)")
    if run.restarts_used is not None:
        limit = "" if run.restarts_allowed is None else f" of {run.restarts_allowed}"
        told.append(f"restarts: {run.restarts_used}{limit} used{_last_reason(run)}")
    kept = [f"{tier} step {integer(stamp, 'step')}" for tier, stamp in run.newest_commit.items() if stamp is not None]
    told += [f"newest commit: {', '.join(kept)}"] if kept else []
    share = run.effective.share
    if share is not None:
        guess = "" if run.effective.is_reported else ", as far as time at work tells"
        told.append(f"trained {100 * share:.1f} % of {span(run.effective.seconds)}{guess}")
    if run.state in PAST:
        told.append(PAST[run.state])
    if run.outcome is not None:
        told.append(f"{safe_line(run.outcome.sentence)}; planaria why tells more")
    return told


def _last_reason(run: RunSeen) -> str:
    if not run.restarts:
        return ""
    last = run.restarts[-1]
    return f"; the last within {span(last.total_s)}: {safe_line(last.reason)}"


def _node_lines(nodes: Sequence[Node], style: Style, most: int) -> list[str]:
    told = []
    for node in nodes[:most]:
        ranks = f" with ranks {_spans(node.ranks)}" if node.ranks else ""
        why = f": {safe_line(node.why_not_ready)}" if node.why_not_ready else ""
        age = "" if not node.age_s or node.has_ended else f" (heard {span(node.age_s)} ago)"
        told.append(f"  node {safe_line(node.node, 100)}: {safe_line(node.state, 40)}{ranks}{why}{age}")
    return told + _and_more(len(nodes) - most, "node", style)


def _and_more(count: int, what: str, style: Style) -> list[str]:
    return [f"  {style.dim}and {several(count, f'more {what}')}{style.plain}"] if count > 0 else []


def _spans(numbers: Sequence[int]) -> str:
    """Return `0-3, 6` for 0, 1, 2, 3 and 6."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _rank_lines(ranks: Sequence[Rank], style: Style, most: int) -> list[str]:
    """Return a table of ranks; where there is no room for all, those behind and the slow ones come first."""
    if not ranks or most <= 0:
        return []
    urgent = sorted(ranks, key=lambda one: (not one.behind, one.straggler is None, one.rank))
    shown = sorted(urgent[:most], key=lambda one: one.rank) if len(ranks) > most else list(ranks)
    rows = [_HEADS, *(_row(one) for one in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    told = []
    for number, row in enumerate(rows):
        line = "  ".join(
            cell.ljust(width) if column in (1, 3, 8) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        marked = style.dim if number == 0 else style.red if row[8] else ""
        told.append(f"  {marked}{line.rstrip()}{style.plain if marked else ''}")
    return told + _and_more(len(ranks) - len(shown), "rank", style)


def _row(one: Rank) -> tuple[str, ...]:
    mark = "behind" if one.behind else "" if one.straggler is None else f"{one.straggler:.2g} times slower"
    return (
        str(one.rank),
        safe_line(one.host, 40),
        _cell(one.pid),
        safe_line(f"{one.state}, {one.phase}" if one.phase else one.state, 40),
        _cell(one.step),
        "-" if one.rate is None else f"{one.rate:.3g}",
        "-" if one.samples_rate is None else f"{one.samples_rate:.4g}",
        "-" if one.age_s is None else span(one.age_s),
        mark,
    )


def _cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def _timeline_lines(run: RunSeen, style: Style, most: int) -> list[str]:
    if not run.timeline or most <= 0:
        return []
    hosts = {moment.host for moment in run.timeline}
    title = "what happened last, by each node's own clock (UTC)" if len(hosts) > 1 else "what happened last (UTC)"
    told = [f"  {style.dim}{title}:{style.plain}"]
    for moment in run.timeline[-most:]:
        where = f" {safe_line(moment.host, 60)}" if len(hosts) > 1 else ""
        told.append(f"  {style.dim}{clock(moment.timestamp)}{where}{style.plain} {safe_line(moment.sentence)}")
    return told


def fitted(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """Return what of some lines fits on a screen; escape sequences take no room on it."""
    return [_cut(line, columns) for line in lines[:rows]]


def _cut(line: str, columns: int) -> str:
    shown, width, at = "", 0, 0
    while at < len(line):
        if line[at] == "\x1b":
            end = line.find("m", at) + 1 or len(line)
            shown, at = shown + line[at:end], end
            continue
        if width < columns:
            shown += line[at]
        width, at = width + 1, at + 1
    return shown


def top_lines(run: RunSeen, style: Style, columns: int, rows: int) -> list[str]:
    """Return one screen: as many ranks as there is room for, and the last that happened below them."""
    fixed = len(status_lines(run, style, Room(0, min(8, MOST_NODES), 0)))
    moments = max(0, min(MOST_MOMENTS, (rows - fixed) // 3))
    ranks = max(0, rows - fixed - moments - 3)
    return fitted(status_lines(run, style, Room(ranks, 8, moments)), columns, rows)
