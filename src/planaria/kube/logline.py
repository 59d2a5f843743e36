r"""How fast a step was, from a line that a training program printed. Pure; patterns of others run in `matcher`.

The default reads what PyTorch's ImageNet example prints, and everybody who copied it:

    Epoch: [17][  50/1563]\tTime  0.258 ( 0.385)\tData  0.155 ( 0.170)\tLoss ...

The time is that of the last step, not the mean in parentheses, which remembers steps of another size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Literal

from planaria.base.value import Value
from planaria.kube.scaling_model import Batch, Sample

PATH = "spec.elasticPolicy"

# Digits are bounded, and no part can match a text in two ways, so that it is fast on every line.
DEFAULT_PATTERN = (
    r"Epoch: \[ {0,8}(?P<epoch>\d{1,9})\]\[ {0,8}(?P<step>\d{1,12})/ {0,8}\d{1,12}\]"
    r"\s{1,8}Time\s{1,8}(?P<time>\d{1,9}(?:\.\d{1,9})?)(?=\s|$)"
)
LINE_LIMIT = 4096  # letters; a longer line is cut there
PATTERN_LIMIT = 512  # letters; even so few can take a second to compile
GROUP_LIMIT = 32  # letters of a number
GROUPS = ("time", "step", "epoch")
_DEFAULT = re.compile(DEFAULT_PATTERN, re.ASCII)
_TIME = re.compile(r"\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?|\.\d{1,15}", re.ASCII)
_COUNT = re.compile(r"\d{1,12}", re.ASCII)


class Metric(Value):
    """How a job's lines are read: `elasticPolicy.metric`."""

    pattern: str = DEFAULT_PATTERN
    unit: Literal["s", "ms"] = "s"
    batch: Batch = "worker"
    sample: str = ""

    @property
    def is_foreign(self) -> bool:
        """Say whether the pattern is not ours, so that it may take any time on a line."""
        return self.pattern != DEFAULT_PATTERN


class Reading(Value):
    """What one line says."""

    seconds: float
    step: int | None = None
    epoch: int | None = None

    def sample(self, size: int) -> Sample:
        """Return it as a sample of `size` Workers."""
        return Sample(size, seconds=self.seconds, step=self.step, epoch=self.epoch)


def metric_of(spec: Mapping[str, object] | None) -> Metric:
    """Return the metric of a spec whose fields are texts of the right kind; what is missing is the default."""
    given = spec or {}
    return Metric(
        pattern=str(given.get("pattern") or DEFAULT_PATTERN),
        unit="ms" if given.get("unit") == "ms" else "s",
        batch="global" if given.get("batch") == "global" else "worker",
        sample=str(given.get("sample") or ""),
    )


def problems_of(metric: Metric) -> list[str]:
    """Return what is wrong with a metric, a sentence each, as far as it can be known without anybody else's pattern.

    Even to read a pattern can take long: that is done where it is run, see `matcher.check`.
    """
    missed = not metric.is_foreign and metric.sample and read_line(metric.sample, metric) is None
    return [f"{PATH}.metric.sample expects a line that the pattern matches"] if missed else []


def read_line(line: str, metric: Metric) -> Reading | None:
    """Return what a line in the default format says; None: it is another line."""
    match = _DEFAULT.search(line[:LINE_LIMIT])
    return reading(match.groupdict(), metric) if match else None


def reading(groups: Mapping[str, str | None], metric: Metric) -> Reading | None:
    """Return what the named groups of a match say; None where the time is no number above zero."""
    time = (groups.get("time") or "").strip()
    if not _TIME.fullmatch(time):
        return None
    seconds = float(time) / (1000 if metric.unit == "ms" else 1)
    if not isfinite(seconds) or seconds <= 0:
        return None
    return Reading(seconds, _count(groups.get("step")), _count(groups.get("epoch")))


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and _COUNT.fullmatch(text.strip()) else None
