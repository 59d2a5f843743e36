from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from kept import Kept

from planaria.observe.loggers import LOGGER, LoggingHandler, as_handler, as_logging_handler, level_of, own_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENT = {"name": "a", "source": "AGENT", "timestamp": 5, "metadata": {"status": 0}}


@pytest.fixture(autouse=True)
def _fresh_logger() -> Iterator[None]:
    """Loggers are the process's: leave this one as it was."""
    logger = logging.getLogger(LOGGER)
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate, logger.level = before


@pytest.mark.parametrize(
    ("metadata", "level"),
    [
        ({}, logging.INFO),
        ({"result": "ok"}, logging.INFO),
        ({"result": "stopped"}, logging.INFO),
        ({"result": "failed"}, logging.WARNING),
        ({"total_s": 1.5}, logging.WARNING),
        ({"outcome": "done"}, logging.INFO),
        ({"outcome": "signal"}, logging.INFO),
        ({"outcome": "stopped"}, logging.INFO),
        ({"outcome": "failed"}, logging.ERROR),
        ({"outcome": "timeout"}, logging.ERROR),
        (None, logging.INFO),
    ],
)
def test_what_went_wrong_is_logged_louder(metadata: Any, level: int) -> None:
    assert level_of({"name": "x", "metadata": metadata}) == level


def test_loggers_that_somebody_has_set_up_get_the_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    said: list[str] = []
    handler = LoggingHandler(own_logger(said.append, "INFO"))
    handler.handle(EVENT)
    handler.close()
    assert [(record.name, json.loads(record.getMessage())) for record in caplog.records] == [("planaria.events", EVENT)]
    assert said == []


def test_where_nobody_has_set_up_logging_events_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(LOGGER), "parent", None)
    said: list[str] = []
    LoggingHandler(own_logger(said.append, "INFO")).handle(EVENT)
    (line,) = said
    assert f"INFO planaria.events {json.dumps(EVENT)}" in line


@pytest.mark.parametrize(("level", "count"), [("WARNING", 0), ("nonsense", 1)])
def test_the_level_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, level: str, count: int) -> None:
    monkeypatch.setattr(logging.getLogger(LOGGER), "parent", None)
    said: list[str] = []
    LoggingHandler(own_logger(said.append, level)).handle(EVENT)
    assert len(said) == count


def test_a_handler_of_events_can_stand_behind_a_logger() -> None:
    kept = Kept()
    handler = as_logging_handler(kept)
    logger = logging.Logger("torchelastic-events-x")
    logger.addHandler(handler)
    logger.info(json.dumps(EVENT))
    logger.info("no JSON, 100%")
    logger.info("5")
    handler.close()
    assert kept.events == [
        EVENT,
        {"name": "torchelastic-events-x", "message": "no JSON, 100%"},
        {"name": "torchelastic-events-x", "message": "5"},
    ]
    assert kept.is_closed


def test_what_is_a_handler_of_events_already_stays_as_it_is() -> None:
    kept = Kept()
    assert as_handler(kept) is kept
