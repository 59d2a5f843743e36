"""What a leading agent tells a cluster of its run, in one entry of a ConfigMap. Pure.

    {"version": 1, "agent": "planaria 0.1.0", "round": 3, "nodes": 2, "world": 4, "step": 120, "samples": 7680, "seconds": 41.5}

`seconds` count from the beginning of the round to the report of this step, on this agent's own clock: two records of one round
tell how fast it is, and no clock is compared with another. `step` is null before the first report, `samples` where nobody
counts.
"""

from __future__ import annotations

import json

from planaria.base.value import Value

VERSION = 1
KEY = "progress"
"""The entry of the ConfigMap that `contract.env.KUBE_PROGRESS` names."""
_LONGEST = 4096


class Record(Value):
    """One message of an agent: totals of a round."""

    agent: str
    round: int
    nodes: int
    world: int
    step: int | None
    samples: float | None
    seconds: float


def write(record: Record) -> str:
    """Return the record as text."""
    return json.dumps(
        {
            "version": VERSION,
            "agent": record.agent,
            "round": record.round,
            "nodes": record.nodes,
            "world": record.world,
            "step": record.step,
            "samples": record.samples,
            "seconds": round(record.seconds, 3),
        }
    )


def read(text: str) -> Record | str:
    """Read what was pushed; a sentence says what is wrong with it."""
    try:
        found = json.loads(text[:_LONGEST])
        if found["version"] != VERSION:
            return f"the agents push progress of version {found['version']!r}, expected {VERSION}"
        step, samples = found.get("step"), found.get("samples")
        return Record(
            str(found.get("agent", "")),
            int(found["round"]),
            int(found["nodes"]),
            int(found.get("world", 0)),
            None if step is None else int(step),
            None if samples is None else float(samples),
            float(found["seconds"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "what the agents pushed as progress cannot be read"
