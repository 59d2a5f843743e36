"""Draw medians as bars over one logarithmic axis for each number, as an SVG file, by hand: pure functions, no library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.model import OURS
from harness.plot import COLOURS, FAINT, INK, text
from harness.stats import NEVER, Summary, plain, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_WIDTH, _LEFT, _RIGHT = 860, 190, 110
_BAR, _GAP, _HEAD = 16, 14, 20


@dataclass(frozen=True, slots=True)
class Group:
    """One number with its launchers."""

    title: str
    unit: str
    goal: float | None
    summaries: dict[str, Summary]


def groups(reports: Iterable[dict[str, Any]]) -> list[Group]:
    """Return what is told of the data of reports, floors left out: numbers that a peer has, too, and those with a goal.

    A row that several reports have is told from the last of them.
    """
    found = []
    rows: dict[str, Any] = {}
    for report in reports:
        rows |= report["rows"]
    for row in rows.values():
        for key, title in row["titles"].items():
            summaries = {
                name: summary
                for name, record in row["contestants"].items()
                if not name.startswith("floor")
                and (summary := summarise([NEVER if one is None else one for one in record["values"].get(key, ())]))
            }
            goal = row["goals"].get(key)
            if OURS in summaries and (len(summaries) > 1 or goal is not None):
                found.append(Group(title, row["units"][key], goal, summaries))
    return found


def svg(drawn: list[Group]) -> str | None:
    """Return the whole file; None where there is nothing to compare."""
    if not drawn:
        return None
    names = list(dict.fromkeys(name for group in drawn for name in group.summaries))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    words: list[str] = []
    y = 64.0
    for group in drawn:
        words += _group(group, y, colours)
        y += _HEAD + _BAR * len(group.summaries) + _GAP
    paper = f'viewBox="0 0 {_WIDTH} {y:.0f}" width="{_WIDTH}" height="{y:.0f}"'
    legend = [text(24 + 130 * number, 48, f"■ {name}", fill=colours[name]) for number, name in enumerate(names)]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {paper} font-family="system-ui, sans-serif">',
        "<title>Medians side by side</title>",
        f'<rect width="{_WIDTH}" height="{y:.0f}" fill="#ffffff"/>',
        text(24, 24, "Medians side by side: shorter is better, each axis logarithmic and its own", size=16),
    ]
    return "\n".join([*head, *legend, *words, "</svg>"]) + "\n"


def _group(group: Group, y: float, colours: dict[str, str]) -> list[str]:
    words = [text(24, y + 13, f"{group.title}, {group.unit}")]
    place = _places([one.median for one in group.summaries.values()] + [group.goal or 0.0])
    for number, (name, summary) in enumerate(group.summaries.items()):
        top = y + _HEAD + number * _BAR
        end = place(summary.median)
        words.append(
            f'<rect x="{_LEFT}" y="{top:.1f}" width="{end - _LEFT:.1f}" height="{_BAR - 4}" fill="{colours[name]}"/>'
        )
        words.append(text(_LEFT - 8, top + 11, name, anchor="end", fill=FAINT))
        words.append(text(end + 6, top + 11, plain(summary.median)))
    if group.goal:
        x, top, low = place(group.goal), y + _HEAD - 3, y + _HEAD + _BAR * len(group.summaries)
        words.append(f'<path d="M{x:.1f} {top:.1f}V{low:.1f}" stroke="{INK}" stroke-dasharray="3 3"/>')
    return words


def _places(numbers: list[float]) -> Callable[[float], float]:
    """Return where a number's bar ends: a decade below the least begins at the left, what never happens ends at the right."""
    real = [one for one in numbers if 0 < one < NEVER]
    low = 10.0 ** (math.floor(math.log10(min(real, default=1.0))) - 1)
    high = max(real, default=1.0) * (3 if NEVER in numbers else 1)

    def place(number: float) -> float:
        share = math.log(min(max(number, low), high) / low) / math.log(high / low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    return place
