"""Run measurements in rounds, contestant after contestant within each, so that what drifts hits all of them alike."""

from __future__ import annotations

import time
from functools import partial
from subprocess import SubprocessError
from typing import TYPE_CHECKING

from harness.children import say
from harness.model import OURS, MeasurementError, Record, Result
from harness.processes import end_all_descendants
from harness.stats import plain, summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.model import Bench, Launcher, Sample, Settings


def run_bench(bench: Bench, launchers: list[Launcher], settings: Settings) -> Result:
    """Measure one bench: a warm-up round that is not counted, then `settings.rounds` rounds, order turned each time."""
    result = Result(bench)
    contestants = _contestants(bench, launchers, settings)
    result.records = {name: Record() for name in contestants}
    result.skipped = bench.skip_reason(settings) or (None if contestants else "no launcher of this run has it")
    say(f"{bench.name}: {bench.title}" + (f": skipped, {result.skipped}" if result.skipped else ""))
    if result.skipped:
        return result
    few = {one.name for one in launchers if one.name != OURS} if bench.few_rounds else set()
    enough = 1 if settings.quick else bench.few_rounds or settings.rounds
    for number in range(settings.rounds + 1):
        order = list(contestants) if number % 2 else list(reversed(contestants))
        for name in order:
            if name in few and not 1 <= number <= enough:
                continue
            _one(result, name, contestants[name], is_warm_up=number == 0)
        say(f"  {'warm-up' if number == 0 else f'round {number} of {settings.rounds}'}: {_medians(result)}")
    return result


def _contestants(bench: Bench, launchers: list[Launcher], settings: Settings) -> dict[str, Callable[[], Sample]]:
    found: dict[str, Callable[[], Sample]] = {
        launcher.name: partial(bench.measure, launcher, settings)
        for launcher in launchers
        if not bench.only or launcher.name in bench.only
    }
    if not found:
        return {}
    return found | {f"floor: {name}": partial(measure, settings) for name, measure in bench.floors.items()}


def _one(result: Result, name: str, measure: Callable[[], Sample], *, is_warm_up: bool) -> None:
    record = result.records[name]
    began = time.monotonic()
    try:
        sample = measure()
    except (MeasurementError, OSError, SubprocessError) as problem:
        say(f"  {name} failed after {time.monotonic() - began:.1f} s: {problem}")
        if not is_warm_up:
            record.failures.append(str(problem))
    else:
        if not is_warm_up:
            record.add(sample)
    finally:
        end_all_descendants()


def _medians(result: Result) -> str:
    """Return the first metric's median so far, for those who watch."""
    metric = result.bench.metrics[0]
    texts = []
    for name, record in result.records.items():
        summary = summarise(record.values.get(metric.key, ()))
        if summary is not None:
            texts.append(f"{name} {plain(summary.median)}")
    return f"{', '.join(texts)} {metric.unit}" if texts else "done"
