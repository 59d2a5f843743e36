"""Where events go: a file of JSON lines, a logger, a Prometheus registry, the console, or another package's handler.

An event is a mapping that JSON can hold, in the shape torch gives it: `name`, `source`, `timestamp` in milliseconds since
1970, and `metadata`. `open_handlers` makes handlers from text such as `jsonl:events.jsonl,prometheus`. A handler never ends
its caller: what it cannot do it says once, and goes on.
"""

from __future__ import annotations

import os

from planaria.base.files import write_atomically
from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from planaria.observe.metrics import Registry

    Event = Mapping[str, object]

    class Handler(Protocol):
        """What a handler is asked for. Another package's may be a `logging.Handler` instead."""

        def handle(self, event: Event, /) -> object:
            """Take one event, at once."""

        def close(self) -> object:
            """Let go of what it holds; no event follows."""


GROUP = "planaria.event_handlers"
"""The entry points of other packages: each is called with the text after the colon and returns a handler."""
TORCHRUN_GROUP = "torchrun.event_handlers"
"""The same beside torchrun's own groups: each is called with that text only if there is one."""
EXPECTED = f"null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin ({GROUP})"
"""What a flag that takes handlers expects."""
_SILENT = ("null", "dynamic_rendezvous")
_BARE = (*_SILENT, "console", "logging", "prometheus")
_WITH_PATH = ("jsonl", "prometheus")


class Spec(Value):
    """One handler as it was asked for: a name, and what stands after its colon, if there is one."""

    name: str
    argument: str | None = None

    @property
    def is_ours(self) -> bool:
        """Tell whether this is one of ours, written as it should be."""
        return self.name in _BARE if self.argument is None else self.path is not None

    @property
    def is_foreign(self) -> bool:
        """Tell whether another package has to bring it."""
        return bool(self.name) and self.name not in _BARE and self.name not in _WITH_PATH

    @property
    def path(self) -> str | None:
        """The file that one of ours writes."""
        return self.argument or None if self.name in _WITH_PATH else None

    def __str__(self) -> str:
        return self.name if self.argument is None else f"{self.name}:{self.argument}"


class Surroundings(Value):
    """What handlers may use: a place for lines, one for warnings, the numbers of this process, and a way to wait a moment."""

    say: Callable[[str], object]
    warn: Callable[[str], object]
    registry: Registry
    soon: Callable[[Callable[[], object]], object]
    """Calls back once what happens now was dealt with; nothing waits for it."""
    log_level: str = "INFO"


def read_specs(text: str) -> tuple[Spec, ...]:
    """Read `NAME[:ARGUMENT],...`; what cannot be had is neither `is_ours` nor `is_foreign`."""
    found = []
    for part in text.split(","):
        name, colon, argument = part.strip().partition(":")
        found.append(Spec(name, argument if colon else None))
    return tuple(found)


def open_handlers(specs: tuple[Spec, ...], around: Surroundings) -> tuple[Handler, ...]:
    """Make the handlers.

    Raises:
        UsageError: A file cannot be opened, or another package's handler cannot be had.
    """
    return tuple(_open(spec, around) for spec in specs if spec.name not in _SILENT)


def _open(spec: Spec, around: Surroundings) -> Handler:
    match spec.name:
        case "console":
            return ConsoleHandler(around.say)
        case "logging":
            from planaria.observe.loggers import LoggingHandler, own_logger

            return LoggingHandler(own_logger(around.say, around.log_level))
        case "jsonl":
            return JsonLinesHandler(spec.path or "", around.warn)
        case "prometheus":
            return PrometheusHandler(around, spec.path)
        case _:
            return ForeignHandler(spec.name, _load(spec), around.warn)


def line_of(event: Event) -> str:
    """Return an event as one line of JSON, without the line feed."""
    import json

    return json.dumps(event, default=str)


class ConsoleHandler:
    """Says every event where the agent says everything else."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say

    def handle(self, event: Event) -> None:
        """Say one event, as JSON."""
        self._say(f"event {line_of(event)}")

    def close(self) -> None:
        """Let go of nothing."""


class JsonLinesHandler:
    """Appends every event to a file, with one write each: lines of several processes of a host never mix.

    On a full disk events are lost, which is said once; when there is room again, the next line begins on a line of its own.

    Raises:
        UsageError: The file cannot be opened.
    """

    def __init__(self, path: str, warn: Callable[[str], object]) -> None:
        self._path = path
        self._warn = warn
        self._has_warned = False
        self._is_torn = False
        self.size_bytes = 0
        """How much was written here so far."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        try:
            self._descriptor = os.open(path, flags, 0o644)
        except OSError as problem:
            raise UsageError(f"cannot open {path!r} for events: {problem.strerror}") from problem

    def handle(self, event: Event) -> None:
        """Append one event."""
        line = f"{line_of(event)}\n".encode("utf-8", "backslashreplace")
        line = b"\n" + line if self._is_torn else line
        try:
            written = os.write(self._descriptor, line)
        except OSError as problem:
            self._lost(problem.strerror or "it failed")
            return
        self.size_bytes += written
        self._is_torn = written != len(line)
        if self._is_torn:
            self._lost("it took only a part")

    def _lost(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"cannot write an event to {self._path}, going on without it: {why}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class PrometheusHandler:
    """Counts events in a registry. With a path it keeps a text file there that always holds all of the registry.

    The file is for the text file collector of Prometheus' node exporter, which reads whatever ends in `.prom`.
    """

    def __init__(self, around: Surroundings, path: str | None) -> None:
        self._around = around
        self._path = path
        self._is_due = False
        self._has_warned = False
        self._count = around.registry.counter("planaria_events_total", "Events by name.", ("name",))

    def handle(self, event: Event) -> None:
        """Count one event. The file is written once for all that happen in the same moment."""
        self._count.add(name=str(event.get("name", "")))
        if self._path is not None and not self._is_due:
            self._is_due = True
            self._around.soon(self._write)

    def _write(self) -> None:
        """Replace the file. It is not synced: after a power cut its numbers mean nothing anyway."""
        self._is_due = False
        try:
            write_atomically(self._path or "", self._around.registry.expose().encode(), sync=False)
        except OSError as problem:
            if not self._has_warned:
                self._has_warned = True
                self._around.warn(f"cannot write metrics to {self._path}, going on without it: {problem.strerror}")

    def close(self) -> None:
        """Write the last numbers."""
        if self._path is not None:
            self._write()


class ForeignHandler:
    """Another package's handler, which may fail: then that is said once, and it is not asked again."""

    def __init__(self, name: str, handler: Handler, warn: Callable[[str], object]) -> None:
        self._name = name
        self._warn = warn
        self._handler: Handler | None = handler

    def handle(self, event: Event) -> None:
        """Hand one event on."""
        if self._handler is None:
            return
        try:
            self._handler.handle(event)
        except Exception as problem:  # noqa: BLE001  somebody else's code; the job does not end of it
            self._handler = None
            self._warn(f"the event handler {self._name!r} failed, going on without it: {problem!r}")

    def close(self) -> None:
        """Close it, if it still works."""
        if self._handler is not None:
            try:
                self._handler.close()
            except Exception as problem:  # noqa: BLE001  the same
                self._warn(f"the event handler {self._name!r} did not close: {problem!r}")


def installed_names() -> frozenset[str]:
    """Return the names of handlers that other packages bring. Looking for them takes 30 ms."""
    from importlib.metadata import entry_points

    return frozenset(name for group in (GROUP, TORCHRUN_GROUP) for name in entry_points(group=group).names)


def _load(spec: Spec) -> Handler:
    from importlib.metadata import entry_points

    from planaria.observe.loggers import as_handler

    entries = [*entry_points(group=GROUP, name=spec.name), *entry_points(group=TORCHRUN_GROUP, name=spec.name)]
    if not entries:
        raise UsageError(f"no installed package has an event handler {spec.name!r} ({GROUP})")
    arguments = [spec.argument or ""] if entries[0].group == GROUP or spec.argument else []
    try:
        made = entries[0].load()(*arguments)
    except Exception as problem:  # somebody else's code: whatever it raises, the job cannot start with it
        raise UsageError(f"the event handler {spec.name!r} cannot be made: {problem!r}") from problem
    if not callable(getattr(made, "handle", None)) or not callable(getattr(made, "close", None)):
        raise UsageError(f"the event handler {spec.name!r} has no handle and close: {type(made).__name__}")
    return as_handler(made)
