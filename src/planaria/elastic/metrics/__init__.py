"""Numbers about a job: report them with `put_metric` or `@prof`, and say with `configure` where those of a group go.

    import planaria.elastic.metrics as metrics

    metrics.configure(metrics.ConsoleMetricHandler(), group="my_app")
    metrics.put_metric("loss", 1, "my_app")

Until something is configured, every value is dropped. The group `torchelastic` is the agent's own. `handlers.py` has ways to
keep values that torch does not have.
"""

from __future__ import annotations

from planaria.elastic.metrics.api import (
    ConsoleMetricHandler,
    MetricData,
    MetricHandler,
    MetricsConfig,
    MetricStream,
    NullMetricHandler,
    configure,
    get_elapsed_time_ms,
    getStream,
    prof,
    profile,
    publish_metric,
    put_metric,
)

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
    "initialize_metrics",
    "prof",
    "profile",
    "publish_metric",
    "put_metric",
]


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """Do nothing: where metrics go is said with `configure`. Launchers call it before their first metric."""
