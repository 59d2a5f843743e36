"""What is told about a job: one event with a name, a time and plain values."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from enum import Enum

__all__ = ["Event", "EventSource", "NodeState", "RdzvEvent"]

EventMetadataValue = str | int | float | bool | None


class EventSource(str, Enum):  # noqa: UP042  its text is `EventSource.AGENT`, as in torch
    """Who tells."""

    AGENT = "AGENT"
    WORKER = "WORKER"


@dataclass
class Event:
    """Something that happened in a job. `timestamp` is wall time in milliseconds; left out, or 0, it is now."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timestamp = self.timestamp or time.time_ns() // 1_000_000

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """Return the event in a line of `serialize`; an event is returned as it is."""
        if isinstance(data, Event):
            return data
        fields = json.loads(data)
        fields["source"] = EventSource[fields["source"]]
        found = Event(**fields)
        found.timestamp = fields.get("timestamp", 0)  # what was written, also torch's 0: not the time of reading
        return found

    def serialize(self) -> str:
        """Return the event as one line of JSON."""
        return json.dumps(asdict(self))


class NodeState(str, Enum):  # noqa: UP042  the same
    """How far a node has come with the rendezvous."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class RdzvEvent:
    """Something that happened to a node in the rendezvous. `error_trace` is a traceback when `node_state` is FAILED."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """Return the event in a line of `serialize`; an event is returned as it is."""
        if isinstance(data, RdzvEvent):
            return data
        fields = json.loads(data)
        fields["node_state"] = NodeState[fields["node_state"]]
        return RdzvEvent(**fields)

    def serialize(self) -> str:
        """Return the event as one line of JSON."""
        return json.dumps(asdict(self))
