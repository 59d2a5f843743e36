"""Put what was measured into docs/comparison.md: `<venv>/bin/python bench/compare.py`, after bench/run.py. Nothing is run.

The table is made from the raw numbers beside this file, so that nobody copies a figure by hand; a test compares both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import bars
from harness.model import OURS
from harness.stats import plain, ratio

if TYPE_CHECKING:
    from harness.bars import Group
    from harness.stats import Summary

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "comparison.md"
DRAWING = HERE.parent / "docs" / "images" / "comparison.svg"
REPORTS = ("results.json", "results-nodes.json", "results-recovery.json")
BEGIN, END = "<!-- bench/compare.py writes from here -->", "<!-- to here -->"


def main() -> int:
    """Write page and drawing anew."""
    reports = load()
    before, after = around(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + measured(reports) + after, encoding="utf-8")
    DRAWING.write_text(bars.svg(bars.groups(reports)) or "", encoding="utf-8")
    return 0


def load() -> list[dict[str, Any]]:
    """Return the raw numbers of the last runs, oldest first."""
    found = [json.loads((HERE / name).read_text(encoding="utf-8")) for name in REPORTS]
    return sorted(found, key=lambda report: str(report["date"]))


def around(page: str) -> tuple[str, str]:
    """Return what people have written before and after the part that is made here."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin], page[end:]


def measured(reports: list[dict[str, Any]]) -> str:
    """Return the part of the page that is made from numbers: where they were taken, the table, and where a peer is better."""
    groups = bars.groups(reports)
    peers = list(dict.fromkeys(name for one in groups for name in one.summaries if name != OURS))
    lines = [
        "",
        "",
        *(f"- {one['date']}: {_facts(one['machine'])}; {_facts(one['versions'])}" for one in reports),
        "",
        f"| what | planaria | {' | '.join(peers)} | times | goal of ours |",
        "|---|---:|" + "---:|" * len(peers) + "---:|---:|",
        *(_row(group, peers) for group in groups),
        "",
        "### Where a peer is better",
        "",
        *(_better(groups) or ["In no row of this table."]),
        "",
        "",
    ]
    return "\n".join(lines)


def _row(group: Group, peers: list[str]) -> str:
    ours = group.summaries[OURS]
    cells = [_cell(group.summaries.get(peer)) for peer in peers]
    times = " / ".join(ratio(group.summaries[peer].median, ours.median) for peer in peers if peer in group.summaries)
    goal = f"≤ {plain(group.goal)}" if group.goal is not None else ""
    return f"| {group.title}, {group.unit} | {_cell(ours)} | {' | '.join(cells)} | {times} | {goal} |"


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    spread = "" if summary.p10 == summary.p90 else f" ({plain(summary.p10)} - {plain(summary.p90)})"
    return f"{plain(summary.median)}{spread}, n={summary.n}"


def _better(groups: list[Group]) -> list[str]:
    return [
        f"- {group.title}: {name} {plain(one.median)} {group.unit}, planaria {plain(group.summaries[OURS].median)}."
        for group in groups
        for name, one in group.summaries.items()
        if one.median < group.summaries[OURS].median
    ]


def _facts(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


if __name__ == "__main__":
    sys.exit(main())
