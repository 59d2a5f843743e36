"""Write the report: pure functions from results to Markdown and JSON. It says plainly what is not good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.model import OURS
from harness.stats import NEVER, counted, plain, ratio, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.model import Metric, Record, Result
    from harness.stats import Summary

QUIET = 0.5  # the load average of a minute, above which something else was at work
_HEAD = "| | | median | p10 - p90 | n | ÷ planaria | goal | |\n|---|---|---:|---:|---:|---:|---:|---|"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When, where and how the numbers were taken."""

    date: str
    command: str
    quick: bool
    rounds: int
    idle_window_s: float
    tee_s: float
    machine: dict[str, str]
    versions: dict[str, str]
    launchers: dict[str, str]
    load_before: str
    load_after: str = ""


def markdown(results: list[Result], how: Circumstances, plots: list[str]) -> str:
    """Return the whole report; `plots` are files beside it."""
    lines = ["# Benchmark results", ""]
    if how.quick:
        lines += ["**A quick run (few rounds, short windows), to try the benchmark: not numbers to quote.**", ""]
    lines += [*_circumstances(how), "", _HEAD]
    for result in results:
        lines += _rows(result)
    lines += [
        "",
        "Less is better everywhere. *÷ planaria*: this row's median divided by planaria's, so above 1 planaria is",
        "better. Goals are those of the design; a floor is what the same work costs without any launcher.",
        "*never*: not within the time limit. Lags are of the lines that arrived whole; what did not is further below.",
        *(line for plot in plots for line in ("", f"![The medians above, drawn]({plot})")),
        "",
        "## What is not good",
        "",
        *(list(_complaints(results)) or ["Nothing: no goal was missed, no peer was better, no round failed."]),
        "",
        *_section("## What else was seen", [*_facts(results)]),
        "## How each row is measured",
        "",
        *(f"- **{result.bench.name}**: {result.bench.method}" for result in results),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: list[str]) -> list[str]:
    return [title, "", *lines, ""] if lines else []


def as_data(results: list[Result], how: Circumstances) -> dict[str, Any]:
    """Return the raw numbers; what never happened is null."""
    rows = {
        result.bench.name: {
            "skipped": result.skipped,
            "titles": {metric.key: metric.title for metric in result.bench.metrics if metric.compared},
            "units": {metric.key: metric.unit for metric in result.bench.metrics},
            "goals": {metric.key: metric.goal for metric in result.bench.metrics if metric.goal is not None},
            "contestants": {name: _record(record) for name, record in result.records.items()},
        }
        for result in results
    }
    names = ("date", "command", "quick", "rounds", "idle_window_s", "tee_s", "machine", "versions", "load_before")
    return {name: getattr(how, name) for name in (*names, "load_after")} | {"rows": rows}


def _record(record: Record) -> dict[str, Any]:
    values = {key: [None if one == NEVER else one for one in numbers] for key, numbers in record.values.items()}
    return {"values": values, "facts": record.facts, "failures": record.failures}


def _circumstances(how: Circumstances) -> list[str]:
    return [
        f"- {how.date}; {_together(how.machine)}; {_together(how.versions)}",
        f"- load average before {how.load_before}, after {how.load_after}",
        *unrest(how.load_before),
        f"- {how.rounds} rounds after one warm-up round, contestants alternating",
        f"- idle window {how.idle_window_s:g} s, tee {how.tee_s:g} s",
        *(f"- {name} is `{command}`" for name, command in how.launchers.items()),
        "",
        f"    {how.command}",
    ]


def unrest(load_before: str) -> list[str]:
    """Say that the machine had other work when this began."""
    if float(load_before.split(maxsplit=1)[0]) <= QUIET:
        return []
    return [f"- **not a quiet machine**: its load was above {QUIET:g} before the start, so something else was at work"]


def _together(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _rows(result: Result) -> Iterator[str]:
    if result.skipped:
        yield f"| {result.bench.title} | skipped: {result.skipped} | | | | | | |"
        return
    for metric in result.bench.metrics:
        ours = _summary(result, OURS, metric)
        title = f"**{metric.title}**, {metric.unit}"
        for name, record in result.records.items():
            summary = summarise(record.values.get(metric.key, ()))
            if summary is None and not record.failures:
                continue
            yield _row(title, name, summary, ours, metric)
            title = ""


def _row(title: str, name: str, summary: Summary | None, ours: Summary | None, metric: Metric) -> str:
    if summary is None:
        return f"| {title} | {name} | failed | | 0 | | | |"
    times = ratio(summary.median, ours.median) if ours is not None and name != OURS and metric.compared else ""
    goal = verdict = ""
    if name == OURS and metric.goal is not None:
        goal = f"≤ {plain(metric.goal)}"
        verdict = "met" if summary.median <= metric.goal else "**not met**"
    spread = f"{plain(summary.p10)} - {plain(summary.p90)}"
    return f"| {title} | {name} | {plain(summary.median)} | {spread} | {summary.n} | {times} | {goal} | {verdict} |"


def _complaints(results: list[Result]) -> Iterator[str]:
    for result in results:
        for metric in result.bench.metrics:
            ours = _summary(result, OURS, metric)
            if ours is None:
                continue
            yield from _missed(metric, ours)
            for name in result.records:
                other = _summary(result, name, metric)
                if metric.compared and other and not name.startswith("floor") and other.median < ours.median:
                    numbers = f"{plain(other.median)} {metric.unit} against {plain(ours.median)}"
                    yield f"- **{name} is better**: {metric.title}: {numbers}."
        for name, record in result.records.items():
            if record.failures:
                first = _one_line(record.failures[0])
                yield f"- {result.bench.name}, {name}: {len(record.failures)} rounds failed: {first}"


def _missed(metric: Metric, ours: Summary) -> Iterator[str]:
    if metric.goal is None:
        return
    numbers = (
        f"{metric.title}: median {plain(ours.median)}, p90 {plain(ours.p90)}, goal {plain(metric.goal)} {metric.unit}."
    )
    if ours.median > metric.goal:
        yield f"- **Goal missed**: {numbers}"
    elif ours.p90 > metric.goal:
        yield f"- Goal met by the median but not by one in ten: {numbers}"


def _facts(results: list[Result]) -> Iterator[str]:
    for result in results:
        for name, record in result.records.items():
            for fact, seen in record.facts.items():
                yield f"- {result.bench.name}, {name}: {fact}: {counted(seen)}"


def _summary(result: Result, name: str, metric: Metric) -> Summary | None:
    return summarise(result.records[name].values.get(metric.key, ())) if name in result.records else None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
