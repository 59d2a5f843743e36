"""The words of the benchmark: what is measured, by whom, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

OURS = "planaria"


class MeasurementError(Exception):
    """A measurement did not come to an end as it should; the round is counted as failed and the next one goes on."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a measurement. Less is better; one that is not `compared` only describes the circumstances."""

    key: str
    title: str
    unit: str
    goal: float | None = None
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round of one contestant gave: numbers by metric key, and facts that are counted, not averaged."""

    values: Mapping[str, list[float]]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how often to measure. `scratch` is removed at the end; `python` is the children's interpreter."""

    rounds: int
    quick: bool
    python: str
    scratch: str
    scripts: str
    idle_window_s: float
    tee_s: float
    kills_per_launch: int
    tiny: bool = False
    """Whether rows of a GPU are tried on a CPU, with a model of no size."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A contestant: how its command line begins, and how it is written in a report without paths of this machine."""

    name: str
    command: tuple[str, ...]
    shown: str


@dataclass(frozen=True, slots=True)
class Bench:
    """One measurement, made in alternating rounds by every launcher (or those in `only`) and every floor.

    `method` says in one line how. Where a peer takes half a minute or more, peers have `few_rounds` only, without warm-up.
    """

    name: str
    title: str
    method: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Launcher, Settings], Sample]
    floors: Mapping[str, Callable[[Settings], Sample]] = field(default_factory=dict)
    only: frozenset[str] = frozenset()
    few_rounds: int | None = None
    skip_reason: Callable[[Settings], str | None] = lambda _settings: None


@dataclass(slots=True)
class Record:
    """Everything one contestant gave in one measurement."""

    values: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        for key, numbers in sample.values.items():
            self.values.setdefault(key, []).extend(numbers)
        for key, fact in sample.facts.items():
            self.facts.setdefault(key, []).append(fact)


@dataclass(slots=True)
class Result:
    """One measurement of the report: records by contestant, launchers first, floors after them."""

    bench: Bench
    records: dict[str, Record] = field(default_factory=dict)
    skipped: str | None = None
