from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from planaria.elastic.metrics import MetricData
from planaria.elastic.metrics.handlers import JsonLinesMetricHandler, LoggingMetricHandler, PrometheusMetricHandler
from planaria.errors import UsageError

LOSS = MetricData(17.5, "mine", "loss", 3)


def test_values_are_appended_to_a_file_as_lines(tmp_path: Path) -> None:
    handler = JsonLinesMetricHandler(str(tmp_path / "metrics.jsonl"))
    handler.emit(LOSS)
    handler.emit(LOSS._replace(value=2))
    handler.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [LOSS._asdict(), LOSS._replace(value=2)._asdict()]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder/x"):
        JsonLinesMetricHandler(str(tmp_path / "no folder" / "x"))


def test_values_go_to_the_program_s_own_logging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "planaria.metrics")
    LoggingMetricHandler().emit(LOSS)
    assert json.loads(caplog.messages[0]) == LOSS._asdict()


def test_prometheus_reads_the_newest_value() -> None:
    handler = PrometheusMetricHandler()
    handler.emit(LOSS)
    handler.emit(LOSS._replace(value=2))
    handler.emit(LOSS._replace(name="steps", value=7))
    lines = [line for line in handler.expose().splitlines() if not line.startswith("#")]
    assert lines == ['planaria_metric{group="mine",name="loss"} 2', 'planaria_metric{group="mine",name="steps"} 7']


def test_a_file_for_prometheus_holds_what_is_exposed(tmp_path: Path) -> None:
    handler = PrometheusMetricHandler(str(tmp_path / "mine.prom"))
    handler.emit(LOSS)
    assert (tmp_path / "mine.prom").read_text() == handler.expose()
    assert os.listdir(tmp_path) == ["mine.prom"]


def test_a_link_for_prometheus_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.prom").symlink_to(tmp_path / "mine.prom")
    handler = PrometheusMetricHandler(str(tmp_path / "link.prom"))
    handler.emit(LOSS)
    assert (tmp_path / "link.prom").is_symlink()
    assert (tmp_path / "mine.prom").read_text() == handler.expose()


def test_a_file_for_prometheus_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler = PrometheusMetricHandler(str(tmp_path / "no folder" / "x"))
    handler.emit(LOSS)
    handler.emit(LOSS)
    assert caplog.messages == [f"no more metrics in {tmp_path}/no folder/x: {os.strerror(2)}"]
    assert "loss" in handler.expose()
