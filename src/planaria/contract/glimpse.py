"""What a leading agent lets a cluster see of its run: the newest events of its journal, in one entry of a ConfigMap. Pure.

    {"version": 1, "host": "resnet-worker-0", "events": [{"name": "planaria.restart", "timestamp": 1794768041200, ...}]}

Events are as `planaria.observe` has them. Of what repeats itself only the newest is there, and texts are cut. The traceback and
the last lines of stderr of a worker that failed are left out: who may read a ConfigMap may not be who may read logs. Of the
message of its exception at most 300 letters are there, by which the page names the first cause.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Event = Mapping[str, object]

VERSION = 1
KEY = "events"
"""The entry beside `contract.progress.KEY`."""
MOST_BYTES = 24 << 10  # written once in ten seconds, and kept by an operator for each of its jobs
LONGEST = 2 * MOST_BYTES  # that is read
_CUT = 300
_MOST_ITEMS = 64
_ONCE = ("planaria.progress", "planaria.straggler")  # the newest tells all
_LEFT_OUT = ("traceback", "stderr_tail", "log_files", "run_id", "role", "promoted", "cold")


def write(host: str, events: Iterable[Event], most_bytes: int = MOST_BYTES) -> str:
    """Return the newest events as text, of which there are as many as fit."""
    told: list[str] = []
    once: set[object] = set()
    size = 0
    for event in reversed(tuple(events)):
        key = _key(event)
        if key in once:
            continue
        once |= set() if key is None else {key}
        text = json.dumps(_cut(event))
        if len(text) + 2 > most_bytes:  # older ones may still fit
            continue
        size += len(text) + 2
        if size > most_bytes:
            break
        told.append(text)
    return f'{{"version": {VERSION}, "host": {json.dumps(host[:_CUT])}, "events": [{", ".join(reversed(told))}]}}'


def read(text: str) -> tuple[str, tuple[Event, ...]]:
    """Return the host of the agent and its events; nothing of what cannot be read."""
    try:
        found = json.loads(text) if len(text) <= LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("events"), list):
        return "", ()
    host = found.get("host")
    return host if isinstance(host, str) else "", tuple(one for one in found["events"] if isinstance(one, dict))


def _key(event: Event) -> object:
    """Return what an event has in common with older ones that need not be told; None: all are."""
    name, data = event.get("name"), event.get("metadata")
    if name in _ONCE:
        return name
    if name == "planaria.commit" and isinstance(data, dict):
        return name, str(data.get("tier"))
    return None


def _cut(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _CUT else value[: _CUT - 1] + "…"
    if isinstance(value, (list, tuple)):
        return [_cut(one) for one in value[:_MOST_ITEMS]]
    if isinstance(value, dict):
        return {str(key): _cut(one) for key, one in list(value.items())[:_MOST_ITEMS] if key not in _LEFT_OUT}
    return value
