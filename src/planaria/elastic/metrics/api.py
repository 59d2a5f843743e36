"""Numbers about a job, told to a handler per group as they come up."""

from __future__ import annotations

import abc
import time
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

__all__ = [
    "ConsoleMetricHandler",
    "MetricData",
    "MetricHandler",
    "MetricStream",
    "MetricsConfig",
    "NullMetricHandler",
    "configure",
    "getStream",
    "get_elapsed_time_ms",
    "prof",
    "profile",
    "publish_metric",
    "put_metric",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class MetricData(NamedTuple):
    """One value of one metric; `timestamp` is wall time in seconds."""

    timestamp: float
    group_name: str
    name: str
    value: float


class MetricsConfig:
    """Parameters for handlers, by name."""

    __slots__ = ["params"]

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = {} if params is None else params


class MetricHandler(abc.ABC):
    """Where the values of a group go. Implement `emit` for a place of your own."""

    @abc.abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take one value. Called by whoever reports it, in its thread: be quick."""


class ConsoleMetricHandler(MetricHandler):
    """Print every value to standard output."""

    def emit(self, metric_data: MetricData) -> None:
        """Print one line."""
        print(  # noqa: T201  printing is what it is for
            f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}"
        )


class NullMetricHandler(MetricHandler):
    """Drop every value. What all groups have until `configure` says otherwise."""

    def emit(self, metric_data: MetricData) -> None:
        """Do nothing."""


class MetricStream:
    """A group together with its handler of the moment."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name = group_name
        self.handler = handler

    def add_value(self, metric_name: str, metric_value: float) -> None:
        """Hand one value to the handler, with the time of now."""
        self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))


class _Handlers:
    """Who gets what: the one place of this process, since metrics come from anywhere in it."""

    def __init__(self) -> None:
        self.by_group: dict[str, MetricHandler] = {}
        self.default: MetricHandler = NullMetricHandler()


_handlers = _Handlers()


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Send the values of a group to `handler`; without a group, those of all groups that have none of their own."""
    if group is None:
        _handlers.default = handler
    else:
        _handlers.by_group[group] = handler


def getStream(group: str) -> MetricStream:
    """Return the group with the handler it has now."""
    return MetricStream(group, _handlers.by_group.get(group, _handlers.default))


def put_metric(metric_name: str, metric_value: float, metric_group: str = "torchelastic") -> None:
    """Report one value of one metric. The group `torchelastic` is the agent's own."""
    getStream(metric_group).add_value(metric_name, metric_value)


@overload
def prof(fn: Callable[_P, _R], group: str = "torchelastic") -> Callable[_P, _R]: ...


@overload
def prof(fn: None = None, group: str = "torchelastic") -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


def prof(fn: Any = None, group: str = "torchelastic") -> Any:
    """Report success or failure and duration of every call of a function: `@prof` or `@prof(group="mine")`.

    The metrics are `<name>.success` or `<name>.failure`, 1 each, and `<name>.duration.ms`, where the name is `Class.method`
    or `module.function`.
    """

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        def tell(what: str, value: int) -> None:
            put_metric(f"{_metric_name(function)}.{what}", value, group)

        return _measured(function, tell)

    return decorated(fn) if fn else decorated


def _metric_name(function: Callable[..., object]) -> str:
    name = function.__qualname__
    module = (function.__module__ or "").rpartition(".")[2]
    return f"{module}.{name}" if module and "." not in name else name


def _measured(function: Callable[_P, _R], tell: Callable[[str, int], None]) -> Callable[_P, _R]:
    @wraps(function)
    def measured(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        start = time.monotonic()
        try:
            result = function(*args, **kwargs)
        except Exception:
            tell("failure", 1)
            raise
        else:
            tell("success", 1)
            return result
        finally:
            tell("duration.ms", int((time.monotonic() - start) * 1000))

    return measured


def profile(group: str | None = None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Report as `prof` does, under the function's bare name. Deprecated in torch; kept for code that has it."""
    warnings.warn("Deprecated, use `@prof` instead", FutureWarning, stacklevel=2)

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        def tell(what: str, value: int) -> None:
            put_metric(f"{function.__name__}.{what}", value, group or "torchelastic")

        return _measured(function, tell)

    return decorated


def publish_metric(metric_group: str, metric_name: str, metric_value: float) -> None:
    """Report one value. Deprecated in torch; kept for code that has it."""
    warnings.warn(
        "Deprecated, use `put_metric(metric_group)(metric_name, metric_value)` instead", FutureWarning, stacklevel=2
    )
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Return the whole milliseconds since a time of `time.time()`."""
    return int((time.time() - start_time_in_seconds) * 1000)
