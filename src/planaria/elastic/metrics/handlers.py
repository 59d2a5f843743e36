"""Places for metrics that torch has no handler for: a file of JSON lines, the program's logging, Prometheus."""

from __future__ import annotations

import json
import logging

from planaria.base.files import write_atomically
from planaria.elastic.metrics.api import MetricData, MetricHandler
from planaria.observe.handlers import JsonLinesHandler
from planaria.observe.metrics import Registry

__all__ = ["JsonLinesMetricHandler", "LoggingMetricHandler", "PrometheusMetricHandler"]

logger = logging.getLogger(__name__)


class JsonLinesMetricHandler(MetricHandler):
    """Append every value as a line to a file; several processes may share it. A disk that is full is told of once.

    Raises:
        UsageError: The file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._lines = JsonLinesHandler(path, logger.warning)

    def emit(self, metric_data: MetricData) -> None:
        """Write one line."""
        self._lines.handle(metric_data._asdict())

    def close(self) -> None:
        """Close the file; no value may follow."""
        self._lines.close()


class LoggingMetricHandler(MetricHandler):
    """Log every value to the logger `planaria.metrics`, at level INFO, as one line of JSON."""

    def emit(self, metric_data: MetricData) -> None:
        """Log one value."""
        logging.getLogger("planaria.metrics").info("%s", json.dumps(metric_data._asdict()))


class PrometheusMetricHandler(MetricHandler):
    """Keep the newest value of every metric for a Prometheus server.

    With a path the text is also kept in that file, replaced whole after every value, for the text file collector of the node
    exporter. That is for metrics as rare as the agent's, not for one of every step.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._registry = Registry()
        self._newest = self._registry.gauge("planaria_metric", "Newest value of a metric.", ("group", "name"))

    def emit(self, metric_data: MetricData) -> None:
        """Keep one value."""
        self._newest.set(metric_data.value, group=metric_data.group_name, name=metric_data.name)
        if self._path is not None:
            self._write(self._path)

    def expose(self) -> str:
        """Return the text that a Prometheus server reads."""
        return self._registry.expose()

    def _write(self, path: str) -> None:
        try:
            write_atomically(path, self.expose().encode(), sync=False)
        except OSError as exc:
            logger.warning("no more metrics in %s: %s", path, exc.strerror)
            self._path = None
