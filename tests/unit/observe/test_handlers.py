from __future__ import annotations

import errno
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import exposition
import pytest

from planaria.errors import UsageError
from planaria.observe import handlers
from planaria.observe.handlers import JsonLinesHandler, Spec, Surroundings, open_handlers, read_specs
from planaria.observe.metrics import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVENT = {"name": "planaria.worker.exited", "source": "AGENT", "timestamp": 5, "metadata": {"message": "a\nb\udc80ü"}}


class Around:
    """What handlers say, warn and put off."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self.soon: list[Callable[[], object]] = []
        self.registry = Registry()

    def open(self, text: str) -> tuple[handlers.Handler, ...]:
        around = Surroundings(self.said.append, self.warned.append, self.registry, self.soon.append)
        return open_handlers(read_specs(text), around)

    def run_soon(self) -> None:
        while self.soon:
            self.soon.pop(0)()


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.mark.parametrize(
    ("text", "ours", "foreign", "path"),
    [
        ("null", True, False, None),
        ("dynamic_rendezvous", True, False, None),
        ("console", True, False, None),
        ("logging", True, False, None),
        ("prometheus", True, False, None),
        ("prometheus:/a/b.prom", True, False, "/a/b.prom"),
        ("jsonl:c:d.jsonl", True, False, "c:d.jsonl"),
        ("jsonl", False, False, None),
        ("jsonl:", False, False, None),
        ("prometheus:", False, False, None),
        ("console:x", False, False, None),
        ("", False, False, None),
        (":x", False, False, None),
        ("mine", False, True, None),
        ("mine:", False, True, None),
        ("mine:x:y", False, True, None),
    ],
)
def test_a_name_is_ours_or_a_plugins_or_nothing_at_all(text: str, ours: bool, foreign: bool, path: str | None) -> None:
    (spec,) = read_specs(text)
    assert (spec.is_ours, spec.is_foreign, spec.path) == (ours, foreign, path)
    assert str(spec) == text


def test_several_handlers_have_commas_between_them() -> None:
    assert read_specs("console, jsonl:a") == (Spec("console"), Spec("jsonl", "a"))


def test_null_and_torchs_own_silent_name_make_no_handler(around: Around) -> None:
    assert around.open("null,dynamic_rendezvous") == ()


def test_the_console_gets_one_line_an_event(around: Around) -> None:
    (handler,) = around.open("console")
    handler.handle(EVENT)
    handler.close()
    (line,) = around.said
    assert json.loads(line.removeprefix("event ")) == EVENT
    assert line.isprintable()


def test_json_lines_are_appended_to_what_is_there(around: Around, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"name": "old"}\n')
    (handler,) = around.open(f"jsonl:{path}")
    handler.handle(EVENT)
    handler.handle({"name": "b"})
    handler.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"name": "old"}, EVENT, {"name": "b"}]
    assert around.warned == []


def test_two_writers_of_one_file_do_not_overwrite_each_other(around: Around, tmp_path: Path) -> None:
    one, other = around.open(f"jsonl:{tmp_path}/e,jsonl:{tmp_path}/e")
    for number in range(5):
        one.handle({"name": f"one {number}"})
        other.handle({"name": f"other {number}"})
    one.close()
    other.close()
    names = [json.loads(line)["name"] for line in (tmp_path / "e").read_text().splitlines()]
    assert names == [f"{who} {number}" for number in range(5) for who in ("one", "other")]


def test_a_full_disk_is_said_once_and_nothing_else_happens(around: Around) -> None:
    (handler,) = around.open("jsonl:/dev/full")
    handler.handle(EVENT)
    handler.handle(EVENT)
    handler.close()
    assert around.warned == [f"cannot write an event to /dev/full, going on without it: {os.strerror(errno.ENOSPC)}"]


def test_a_line_after_a_torn_one_begins_on_a_line_of_its_own(
    around: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e"
    handler = JsonLinesHandler(str(path), around.warned.append)
    honest = os.write
    monkeypatch.setattr(os, "write", lambda fd, line: honest(fd, line[:7]))
    handler.handle(EVENT)
    monkeypatch.setattr(os, "write", honest)
    handler.handle({"name": "b"})
    handler.handle({"name": "c"})
    handler.close()
    torn, *whole = path.read_text().splitlines()
    assert len(torn) == 7
    assert [json.loads(line) for line in whole] == [{"name": "b"}, {"name": "c"}]
    assert len(around.warned) == 1


def test_a_pipe_that_nobody_reads_stops_nobody(around: Around, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"cannot open .*pipe' for events"):
        around.open(f"jsonl:{path}")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    (handler,) = around.open(f"jsonl:{path}")
    for _ in range(2000):
        handler.handle(EVENT)
    handler.close()
    os.close(reader)
    assert len(around.warned) == 1


def test_a_file_that_cannot_be_opened_is_a_usage_error(around: Around, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot open .* for events: No such file or directory"):
        around.open(f"jsonl:{tmp_path}/nowhere/e")


def test_prometheus_counts_events_by_name(around: Around) -> None:
    (handler,) = around.open("prometheus")
    handler.handle(EVENT)
    handler.handle(EVENT)
    handler.close()
    samples = exposition.read(around.registry.expose())["planaria_events_total"].samples
    assert samples == {("planaria_events_total", (("name", "planaria.worker.exited"),)): 2}
    assert around.soon == []


def test_the_file_of_prometheus_is_written_once_for_many_events_of_a_moment(around: Around, tmp_path: Path) -> None:
    path = tmp_path / "planaria.prom"
    (handler,) = around.open(f"prometheus:{path}")
    for _ in range(3):
        handler.handle(EVENT)
    assert not path.exists()
    assert len(around.soon) == 1
    around.run_soon()
    assert path.read_text() == around.registry.expose()
    handler.handle(EVENT)
    handler.close()
    assert path.read_text() == around.registry.expose()
    assert os.listdir(tmp_path) == ["planaria.prom"]


def test_a_file_of_prometheus_that_cannot_be_written_is_said_once(around: Around, tmp_path: Path) -> None:
    (handler,) = around.open(f"prometheus:{tmp_path}/nowhere/x.prom")
    handler.handle(EVENT)
    around.run_soon()
    handler.close()
    assert len(around.warned) == 1
    assert "cannot write metrics to" in around.warned[0]


class Kept:
    """A handler as another package would make it."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.events: list[Any] = []
        self.closed = 0

    def handle(self, event: Any) -> None:
        if event["name"] == "boom":
            raise LookupError("no such place")
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1
        raise OSError("cannot")


class Records(logging.Handler):
    def __init__(self, argument: str) -> None:
        super().__init__(logging.WARNING if argument == "loud" else logging.NOTSET)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


MADE: list[Any] = []


def make(argument: str) -> Any:
    MADE.append(Kept(argument))
    return MADE[-1]


def make_records(argument: str) -> Any:
    MADE.append(Records(argument))
    return MADE[-1]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points as three installed packages would have them."""
    here: dict[str, Any] = {"mine": make, "records": make_records, "odd": lambda _argument: 5, "broken": None}
    beside = {"mine": None, "torchs": lambda *arguments: make(" ".join(arguments) or "nothing")}
    groups = {"planaria.event_handlers": here, "torchrun.event_handlers": beside}

    class Entry:
        def __init__(self, group: str, name: str) -> None:
            self.group = group
            self.load = lambda: groups[group][name]

    class Entries(list[Any]):
        names: frozenset[str]

    def entry_points(*, group: str, name: str | None = None) -> Entries:
        found = Entries([Entry(group, one) for one in groups[group] if one == name])
        found.names = frozenset(groups[group])
        return found

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    MADE.clear()


@pytest.mark.usefixtures("installed")
def test_another_packages_handler_gets_its_argument_and_the_events(around: Around) -> None:
    (handler,) = around.open("mine:some:where")
    handler.handle(EVENT)
    (made,) = MADE
    assert made.argument == "some:where"
    assert made.events == [EVENT]


@pytest.mark.usefixtures("installed")
def test_another_packages_handler_that_fails_is_said_once_and_left_alone(around: Around) -> None:
    (handler,) = around.open("mine")
    handler.handle({"name": "boom"})
    handler.handle(EVENT)
    handler.close()
    assert around.warned == ["the event handler 'mine' failed, going on without it: LookupError('no such place')"]
    assert MADE[0].events == []
    assert MADE[0].closed == 0


@pytest.mark.usefixtures("installed")
def test_another_packages_handler_that_does_not_close_is_said(around: Around) -> None:
    (handler,) = around.open("mine")
    handler.close()
    assert around.warned == ["the event handler 'mine' did not close: OSError('cannot')"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("odd", "the event handler 'odd' has no handle and close: int"),
        ("broken", "the event handler 'broken' cannot be made: "),
        ("gone", "no installed package has an event handler 'gone'"),
    ],
)
def test_another_packages_handler_that_cannot_be_had_is_a_usage_error(around: Around, name: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        around.open(name)
    assert str(caught.value).startswith(told)


@pytest.mark.usefixtures("installed")
def test_a_logging_handler_of_another_package_gets_records_as_torchs_do(around: Around) -> None:
    (handler,) = around.open("records")
    handler.handle(EVENT)
    handler.close()
    (record,) = MADE[0].records
    assert json.loads(record.getMessage()) == EVENT
    assert record.levelno == logging.INFO


@pytest.mark.usefixtures("installed")
def test_a_logging_handler_of_another_package_keeps_its_level(around: Around) -> None:
    (handler,) = around.open("records:loud")
    handler.handle(EVENT)
    handler.handle({"name": "x", "metadata": {"result": "failed"}})
    handler.close()
    (record,) = MADE[0].records
    assert record.levelno == logging.WARNING


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("text", "argument"), [("torchs", "nothing"), ("torchs:x", "x")])
def test_a_handler_beside_torchruns_groups_is_made_without_arguments_unless_there_is_one(
    around: Around, text: str, argument: str
) -> None:
    (handler,) = around.open(text)
    handler.handle(EVENT)
    assert MADE[0].argument == argument
    assert MADE[0].events == [EVENT]


@pytest.mark.usefixtures("installed")
def test_the_names_of_both_groups_are_known() -> None:
    assert handlers.installed_names() == {"mine", "records", "odd", "broken", "torchs"}
