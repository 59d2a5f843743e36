"""What a cluster tells the agents of a run about nodes that are gone for good, and how it knows a node's pod. Pure.

    {"version": 1, "nodes": ["resnet-worker-0-5f1c0a9e.d41d8cd9"]}

lies in the run's store under the key `buried`. A node's name ends in the first digits of its pod's UID and in those of its own
life, so a name that was buried is never used again: a note that is old or late is as true as it was. Two lives in one pod were
there one after the other.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
KEY = "buried"
"""The run's key in its store that holds the note."""
UID_DIGITS = 8  # two pods that share them are taken for one, which seems to live; a host of another name is another pod
_LONGEST = 64 << 10
_HEX = frozenset("0123456789abcdef")


def life(pod_uid: str, random: bytes) -> str:
    """Return what tells an agent from all others: some digits of its own, after those of its pod if it is in one."""
    own, pod = random[:4].hex(), digits_of(pod_uid)
    return f"{pod}.{own}" if pod else own


def digits_of(pod_uid: str) -> str:
    """Return the first digits of a pod's UID; "" for what is no UID."""
    digits = pod_uid[:UID_DIGITS].lower()
    return digits if len(digits) == UID_DIGITS and _HEX.issuperset(digits) else ""


def pod_of(node: str) -> str:
    """Return the first digits of the UID of a node's pod; "" if its name has none."""
    digits, _, own = node.rpartition("-")[2].partition(".")
    return digits_of(digits) if len(digits) == UID_DIGITS and digits_of(own) else ""


def write(nodes: Iterable[str]) -> str:
    """Return the note as text."""
    return json.dumps({"version": VERSION, "nodes": sorted(nodes)})


def read(text: str | None) -> frozenset[str]:
    """Return the nodes that a note names; none if there is no note, or if it makes no sense."""
    if text is None or len(text) > _LONGEST:
        return frozenset()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    nodes = found.get("nodes") if isinstance(found, dict) and found.get("version") == VERSION else None
    return frozenset(one for one in nodes if isinstance(one, str)) if isinstance(nodes, list) else frozenset()
