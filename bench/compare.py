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
from harness.stats import Summary, plain, ratio, summarise

if TYPE_CHECKING:
    from harness.bars import Group

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "comparison.md"
DRAWING = HERE.parent / "docs" / "images" / "comparison.svg"
REPORTS = ("results.json", "results-nodes.json", "results-recovery.json")
BEGIN, END = "<!-- bench/compare.py writes from here -->", "<!-- to here -->"
GPU_BEGIN, GPU_END = "<!-- bench/compare.py writes the GPU's from here -->", "<!-- the GPU's to here -->"
_JOIN, _PLAIN, _DISK = (
    "planaria, standbys, join()",
    "planaria, standbys, without join()",
    "torchrun, checkpoint on disk",
)
_SAVE, _ASYNC_SAVE = "torch.save: stall, ms", "torch.distributed.checkpoint.async_save: stall, ms"


def main() -> int:
    """Write page and drawing anew."""
    reports = load()
    before, after = around(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + measured(reports) + after, encoding="utf-8")
    before, after = around(PAGE.read_text(encoding="utf-8"), GPU_BEGIN, GPU_END)
    PAGE.write_text(before + on_gpu(*load_gpu()) + after, encoding="utf-8")
    DRAWING.write_text(bars.svg(bars.groups(reports)) or "", encoding="utf-8")
    return 0


def load() -> list[dict[str, Any]]:
    """Return the raw numbers of the last runs, oldest first."""
    found = [json.loads((HERE / name).read_text(encoding="utf-8")) for name in REPORTS]
    return sorted(found, key=lambda report: str(report["date"]))


def load_gpu() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the raw numbers of a GPU: kills, and commits."""
    recovery, commits = (
        json.loads((HERE / f"results-gpu-{name}.json").read_text(encoding="utf-8")) for name in ("recovery", "commits")
    )
    return recovery, commits


def around(page: str, first: str = BEGIN, last: str = END) -> tuple[str, str]:
    """Return what people have written before and after a part that is made here."""
    begin, end = page.index(first) + len(first), page.index(last)
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


def on_gpu(recovery: dict[str, Any], commits: dict[str, Any]) -> str:
    """Return the table of a GPU. What torch offers was measured in the same process, what torchrun needs in the same run."""
    ways, small, large = recovery["found"]["ways"], commits["found"]["1.6 GB"], commits["found"]["12 GB"]
    lost = [sum(one.get("kept steps lost", 0) for one in ways.get(way, ())) for way in (_JOIN, _PLAIN)]
    more, plain_step, full_step = (
        small[f"step {name}"] for name in ("time more, %", "without commits, ms", "with a commit each, ms")
    )
    rows = [
        (
            "kill -9 of the worker → next step, script with `join()`, s",
            _kills(ways.get(_JOIN, [])),
            f"torchrun {_kills(ways.get(_DISK, []))}",
        ),
        ("the same script without `join()`, s", _kills(ways.get(_PLAIN, [])), ""),
        ("commits lost by these kills", f"{sum(lost):.0f}", "back to the last checkpoint"),
        ("stall of a commit, copy beside the program, ms", _figure(small["commit() call, ms"]), _torchs(small)),
        ("stall of a commit that is waited for, ms", _figure(small["synchronous commit, ms"]), ""),
        ("step with a commit in each, ms", _figure(full_step), f"without {_figure(plain_step)}: + {more:.2f} %"),
        ("stall of a commit of 12 GB, ms", _figure(large["commit() call, ms"]), _torchs(large)),
    ]
    return "\n".join(
        [
            "",
            "",
            f"- kills: {recovery['about']}",
            f"- commits: {commits['about']}",
            "",
            "| what | Planaria | beside it, in the same run |",
            "|---|---:|---:|",
            *(f"| {what} | {ours} | {beside} |" for what, ours, beside in rows),
            "",
            "",
        ]
    )


def _kills(kills: list[dict[str, float]]) -> str:
    """Return the time to the next step; a kill that none followed has no time, and is told."""
    times = [one["stepped"] for one in kills if "stepped" in one]
    failed = len(kills) - len(times)
    return _cell(summarise(times)) + (f"; no step after {failed} of {len(kills)} kills" if failed else "")


def _figure(told: dict[str, float]) -> str:
    return _cell(Summary(told["median"], told["p10"], told["p90"], int(told["n"])))


def _torchs(size: dict[str, Any]) -> str:
    return f"`torch.save` {_figure(size[_SAVE])}; `async_save` {_figure(size[_ASYNC_SAVE])}"


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
