from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from planaria.elastic import events
from planaria.elastic.events import Event, EventSource, NodeState, RdzvEvent, handlers


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has tables of its own, and closes what it opened."""
    table, loggers = dict(handlers._log_handlers), dict[str, logging.Logger]()
    monkeypatch.setattr(handlers, "_log_handlers", table)
    monkeypatch.setattr(events, "_events_loggers", loggers)
    monkeypatch.delenv("PLANARIA_EVENTS_FILE", raising=False)
    shared = set(table.values())
    yield
    for logger in loggers.values():
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
    for handler in set(table.values()) - shared:
        handler.close()


def event(**changes: object) -> Event:
    return Event(name="restart", source=EventSource.AGENT, metadata={"round": 3, **changes})  # type: ignore[dict-item]


def package(monkeypatch: pytest.MonkeyPatch, made: object) -> None:
    """Pretend that an installed package offers the event handler `mine`."""
    entry = metadata.EntryPoint("mine", "a_package:handler", handlers.ENTRY_POINT_GROUP)
    monkeypatch.setitem(sys.modules, "a_package", SimpleNamespace(handler=made))
    monkeypatch.setattr(metadata, "entry_points", lambda **_query: metadata.EntryPoints([entry]))


def test_an_event_has_the_time_of_now_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= event().timestamp <= time.time_ns() // 1_000_000


def test_a_time_that_was_given_is_kept() -> None:
    assert Event("x", EventSource.WORKER, 17).timestamp == 17


def test_an_event_is_the_same_after_writing_and_reading() -> None:
    told = event()
    assert Event.deserialize(told.serialize()) == told
    assert Event.deserialize(told) is told
    assert str(told) == told.serialize()
    assert json.loads(str(told)) == {
        "name": "restart",
        "source": "AGENT",
        "timestamp": told.timestamp,
        "metadata": {"round": 3},
    }


def test_an_event_of_torch_s_without_a_time_is_read_without_one() -> None:
    line = '{"name": "x", "source": "WORKER", "timestamp": 0, "metadata": {}}'
    assert Event.deserialize(line).timestamp == 0


def test_an_event_of_the_rendezvous_is_the_same_after_writing_and_reading() -> None:
    told = RdzvEvent("x", "run", "joined", "node-a", 7, NodeState.RUNNING, rank=3)
    assert RdzvEvent.deserialize(str(told)) == told
    assert RdzvEvent.deserialize(told) is told


def test_an_event_goes_nowhere_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    events.record(event())
    assert capfd.readouterr() == ("", "")


def test_lines_are_appended_to_the_file_in_the_destination(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("old\n")
    events.record(event(), f"jsonl:{path}")
    events.record(event(word="\udcff"), f"jsonl:{path}")
    old, *lines = path.read_text().splitlines()
    assert old == "old"
    assert [Event.deserialize(line).name for line in lines] == ["restart", "restart"]


def test_the_file_may_be_named_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANARIA_EVENTS_FILE", str(tmp_path / "events.jsonl"))
    events.record(event(), "jsonl")
    assert Event.deserialize((tmp_path / "events.jsonl").read_text()).metadata == {"round": 3}


def test_a_file_of_lines_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="jsonl expects a file, as in jsonl:PATH or PLANARIA_EVENTS_FILE=PATH"):
        events.record(event(), "jsonl")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"jsonl cannot open .*/no folder/x' for events: No such file"):
        events.get_logging_handler(f"jsonl:{tmp_path}/no folder/x")


def test_a_full_disk_is_told_once_and_events_go_on(caplog: pytest.LogCaptureFixture) -> None:
    events.record(event(), "jsonl:/dev/full")
    events.record(event(), "jsonl:/dev/full")
    assert caplog.messages == [f"cannot write an event to /dev/full, going on without it: {os.strerror(28)}"]


def test_events_go_to_the_program_s_own_logging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "planaria.events")
    told = event()
    events.record(told, "logging")
    assert caplog.record_tuples == [("planaria.events", logging.INFO, str(told))]


def test_an_event_with_percent_signs_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "planaria.events")
    events.record(event(done="50%d"), "logging")
    assert "50%d" in caplog.messages[0]


def test_the_console_is_stderr() -> None:
    handler = events.get_logging_handler("console")
    assert isinstance(handler, logging.StreamHandler)
    assert handler is events.get_logging_handler("console")


def test_an_event_is_told_once_and_not_to_the_root_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    events.record(event(), f"jsonl:{tmp_path}/x")
    assert caplog.messages == []


def test_an_unknown_destination_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"^there is no event handler 'nope'; known are console, dynamic_") as told:
        events.record(event(), "nope")
    assert "jsonl, jsonl:PATH, logging, null" in str(told.value)


def test_a_handler_comes_from_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Mine(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    package(monkeypatch, Mine)
    events.record(event(), "mine")
    events.record(event(), "mine")
    assert [Event.deserialize(line).name for line in seen] == ["restart", "restart"]
    assert events.get_logging_handler("mine") is events.get_logging_handler("mine")


def test_a_package_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> logging.Handler:
        raise RuntimeError("no network")

    package(monkeypatch, broken)
    with pytest.raises(ValueError, match="the event handler mine of a_package:handler cannot be made: no network"):
        events.get_logging_handler("mine")


def test_a_package_that_makes_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, lambda: 7)
    with pytest.raises(ValueError, match=r"mine of a_package:handler is no logging\.Handler but 7"):
        events.get_logging_handler("mine")


def test_the_names_of_packages_are_among_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, logging.NullHandler)
    with pytest.raises(ValueError, match=r"logging, mine, null"):
        events.get_logging_handler("nope")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[RdzvEvent] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(RdzvEvent.deserialize(record.getMessage()))


def test_an_event_of_the_rendezvous_is_named_after_its_caller() -> None:
    kept = handlers._log_handlers["dynamic_rendezvous"] = Kept()
    events.construct_and_record_rdzv_event("run", "joined", NodeState.RUNNING, rank=2)
    events.construct_and_record_rdzv_event("run", "left", NodeState.SUCCEEDED, "leave", "node-a", 7, "a:1", 4)
    first, second = kept.seen
    assert first.name == "test_events.py:test_an_event_of_the_rendezvous_is_named_after_its_caller"
    assert (first.pid, first.rank, first.error_trace) == (os.getpid(), 2, "")
    assert first.hostname
    assert second == RdzvEvent(
        "test_events.py:leave", "run", "left", "node-a", 7, NodeState.SUCCEEDED, "a:1", local_id=4
    )


def test_a_failure_in_the_rendezvous_has_its_traceback() -> None:
    kept = handlers._log_handlers["dynamic_rendezvous"] = Kept()
    try:
        int("unreachable")
    except ValueError:
        events.construct_and_record_rdzv_event("run", "failed", NodeState.FAILED)
    assert "ValueError: invalid literal" in kept.seen[0].error_trace


def test_without_a_handler_nothing_is_made_of_an_event_of_the_rendezvous() -> None:
    events.construct_and_record_rdzv_event("run", "joined", NodeState.INIT)
    assert events._events_loggers == {}
