"""Tell what happens in a job to whoever wants to know: events, recorded at a destination by name.

    from planaria.elastic import events

    event = events.Event(name="epoch done", source=events.EventSource.WORKER, metadata={"epoch": 3})
    events.record(event, destination="jsonl:events.jsonl")

`handlers.py` has the destinations. Each is a logging handler behind a logger of its own that hands nothing on, so that an
event is told once.
"""

from __future__ import annotations

import inspect
import logging
import os
import socket
import traceback

from planaria.elastic.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from planaria.elastic.events.handlers import get_logging_handler
from planaria.elastic.utils.logging import set_level

__all__ = [
    "Event",
    "EventMetadataValue",
    "EventSource",
    "NodeState",
    "RdzvEvent",
    "construct_and_record_rdzv_event",
    "get_logging_handler",
    "record",
    "record_rdzv_event",
]

_events_loggers: dict[str, logging.Logger] = {}


def _get_or_create_logger(destination: str = "null") -> logging.Logger:
    if destination not in _events_loggers:
        handler = get_logging_handler(destination)
        logger = logging.getLogger(f"torchelastic-events-{destination}")
        set_level(logger, "INFO")
        logger.propagate = False
        logger.addHandler(handler)
        _events_loggers[destination] = logger
    return _events_loggers[destination]


def record(event: Event, destination: str = "null") -> None:
    """Tell an event to a destination.

    Raises:
        ValueError: There is no such destination.
    """
    _get_or_create_logger(destination).info("%s", event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Tell an event of the rendezvous to the destination `dynamic_rendezvous`."""
    _get_or_create_logger("dynamic_rendezvous").info("%s", event.serialize())


def construct_and_record_rdzv_event(  # noqa: PLR0917  torch's signature
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Tell an event of the rendezvous, named after the caller's file and function unless `name` says otherwise.

    Does nothing, and costs nothing, as long as nobody has put a handler in the place of `dynamic_rendezvous`.
    """
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return
    frame = inspect.currentframe()
    caller = frame.f_back.f_code if frame is not None and frame.f_back is not None else None
    file = os.path.basename(caller.co_filename) if caller is not None else "no_file"
    function = caller.co_name if caller is not None else ""
    record_rdzv_event(
        RdzvEvent(
            name=f"{file}:{name or function}",
            run_id=run_id,
            message=message,
            hostname=hostname or socket.getfqdn(),
            pid=pid or os.getpid(),
            node_state=node_state,
            master_endpoint=master_endpoint,
            rank=rank,
            local_id=local_id,
            error_trace=traceback.format_exc() if node_state == NodeState.FAILED else "",
        )
    )
