"""Numbers about an agent, and the text a Prometheus server reads them from.

    registry = Registry()
    restarts = registry.counter("planaria_restarts_total", "Restarts.", ("kind",))
    restarts.add(1, kind="worker-failed")
    registry.expose()

One thread writes, any thread may read: every sample is an immutable value that is replaced whole, and a reader copies the
dictionary of samples in one step. So nobody needs a lock, and a scrape sees each sample as it was before or after a change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal, TypeVar

    Kind = Literal["counter", "gauge", "histogram"]
    M = TypeVar("M", bound="Counter | Gauge | Histogram")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Buckets for durations: from a wake-up of the loop to the longest grace people give."""
_INFINITY = float("inf")


class _Metric(ABC):
    """What all three kinds share: a name, a sentence, and samples by the values of their labels."""

    kind: Kind

    def __init__(self, name: str, help: str, labels: tuple[str, ...]) -> None:  # noqa: A002  the format's own word
        _check_names(name, labels)
        self.name = name
        self.help = help
        self.labels = labels

    def _key(self, labels: dict[str, str]) -> tuple[str, ...]:
        if len(labels) != len(self.labels) or not all(name in labels for name in self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, got {tuple(labels)}")
        return tuple(labels[name] for name in self.labels)

    @abstractmethod
    def samples(self) -> Iterator[str]:
        """Return the lines of this metric's samples."""

    def _line(self, key: tuple[str, ...], value: float, suffix: str = "", bound: str | None = None) -> str:
        pairs = [f'{name}="{_escaped_label(text)}"' for name, text in zip(self.labels, key, strict=True)]
        pairs += [f'le="{bound}"'] if bound is not None else []
        shown = "{" + ",".join(pairs) + "}" if pairs else ""
        return f"{self.name}{suffix}{shown} {_number(value)}"


class Counter(_Metric):
    """A number that only grows. Without labels it shows 0 from the start, so that its first step can be seen."""

    kind: Kind = "counter"

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:  # noqa: A002
        super().__init__(name, help, labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, amount: float = 1.0, /, **labels: str) -> None:
        """Add to the counter.

        Raises:
            ValueError: The amount is negative, or the labels are not those of this metric.
        """
        if not amount >= 0:
            raise ValueError(f"{self.name} only grows, got {amount}")
        key = self._key(labels)
        self._values[key] = self._values.get(key, 0.0) + amount

    def value(self, **labels: str) -> float:
        """Return the number as it is now."""
        return self._values.get(self._key(labels), 0.0)

    def samples(self) -> Iterator[str]:
        """Return the lines of this metric's samples."""
        for key, value in self._values.copy().items():
            yield self._line(key, value)


class Gauge(_Metric):
    """A number that goes up and down. It is not shown before it was set: no number is not zero."""

    kind: Kind = "gauge"

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:  # noqa: A002
        super().__init__(name, help, labels)
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, /, **labels: str) -> None:
        """Set the number.

        Raises:
            ValueError: The labels are not those of this metric.
        """
        self._values[self._key(labels)] = value

    def value(self, **labels: str) -> float | None:
        """Return the number as it is now; None before it was set."""
        return self._values.get(self._key(labels))

    def clear(self) -> None:
        """Show it no more until it is set again."""
        self._values = {}

    def samples(self) -> Iterator[str]:
        """Return the lines of this metric's samples."""
        for key, value in self._values.copy().items():
            yield self._line(key, value)


class Histogram(_Metric):
    """How often a value fell below each of some bounds, with the sum of all values."""

    kind: Kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002
        labels: tuple[str, ...] = (),
        buckets: Sequence[float] = SECONDS,
    ) -> None:
        super().__init__(name, help, labels)
        bounds = tuple(bound for bound in buckets if bound != _INFINITY)
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"{name} expects rising buckets, got {tuple(buckets)}")
        if "le" in labels:
            raise ValueError(f"{name} is a histogram: its label le is taken")
        self.buckets = bounds
        self._values: dict[tuple[str, ...], tuple[float, tuple[int, ...]]] = {}

    def observe(self, value: float, /, **labels: str) -> None:
        """Count a value.

        Raises:
            ValueError: The labels are not those of this metric.
        """
        key = self._key(labels)
        total, counts = self._values.get(key) or (0.0, (0,) * (len(self.buckets) + 1))
        place = next((index for index, bound in enumerate(self.buckets) if value <= bound), len(self.buckets))
        counts = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
        self._values[key] = total + value, counts

    def count(self, **labels: str) -> int:
        """Return how many values were counted."""
        _, counts = self._values.get(self._key(labels), (0.0, ()))
        return sum(counts)

    def samples(self) -> Iterator[str]:
        """Return the lines of this metric's samples: buckets from the lowest, then sum and count."""
        for key, (total, counts) in self._values.copy().items():
            below = 0
            for bound, count in zip((*self.buckets, _INFINITY), counts, strict=True):
                below += count
                yield self._line(key, below, "_bucket", _number(bound))
            yield self._line(key, total, "_sum")
            yield self._line(key, below, "_count")


class Registry:
    """All metrics of a process by name. To ask for one again with the same kind and labels returns the same one."""

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:  # noqa: A002
        """Return the counter of that name; by convention it ends in `_total`."""
        return self._kept(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Gauge:  # noqa: A002
        """Return the gauge of that name."""
        return self._kept(Gauge(name, help, labels))

    def histogram(
        self,
        name: str,
        help: str,  # noqa: A002
        labels: tuple[str, ...] = (),
        buckets: Sequence[float] = SECONDS,
    ) -> Histogram:
        """Return the histogram of that name; its unit is part of the name."""
        return self._kept(Histogram(name, help, labels, buckets))

    def _kept(self, wanted: M) -> M:
        found = self._metrics.setdefault(wanted.name, wanted)
        if type(found) is not type(wanted) or found.labels != wanted.labels:
            raise ValueError(f"{wanted.name} is a {found.kind} with the labels {found.labels} already")
        return found

    def expose(self) -> str:
        """Return everything in Prometheus' text format 0.0.4. Any thread may call this."""
        lines: list[str] = []
        for metric in self._metrics.copy().values():
            samples = list(metric.samples())
            if samples:
                lines += [f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
                lines += samples
        return "\n".join([*lines, ""])


def _check_names(name: str, labels: tuple[str, ...]) -> None:
    plain = name.replace(":", "_")
    if not (plain.isascii() and plain.isidentifier()):
        raise ValueError(f"a metric's name has letters, digits, _ and :, got {name!r}")
    for label in labels:
        if not (label.isascii() and label.isidentifier()) or label.startswith("__"):
            raise ValueError(f"a label's name has letters, digits and _, got {label!r}")


def _escaped(text: str) -> str:
    """Return text that fits in one line of UTF-8; a name from the system may hold bytes that are no text."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped_label(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    """Return any number as Prometheus reads it, also an integer that no float can hold."""
    try:
        value = value if abs(value) < 1 << 53 else float(value)
    except OverflowError:
        return "+Inf" if value > 0 else "-Inf"
    if value != value:  # noqa: PLR0124  the one number that is not itself
        return "NaN"
    if value in (_INFINITY, -_INFINITY):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
