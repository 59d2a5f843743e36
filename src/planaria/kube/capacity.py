"""What a cluster has left, and whether that became more. Pure.

The scheduler alone says whether a pod fits; this only says when it is worth asking again.
"""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from planaria.kube.model import Plain

_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(" + "|".join(sorted(_SUFFIXES, reverse=True)) + ")?"
)
NODES = "nodes"  # how many take pods: listed beside the resources
_SMALL = 1e-6  # sums of fractions are not exact


def quantity(given: Any) -> float | None:
    """Return a quantity of the API (`1`, `500m`, `1.5Gi`, `1e3`) as a number; None for what is none.

    Templates are their owner's: the API server refuses a pod with `4GB`, and says why.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    found = _QUANTITY.fullmatch(str(given))
    if found is None:
        return None
    number = float(found[1]) * _SUFFIXES.get(found[2], 1.0)
    return number if math.isfinite(number) else None


def free(nodes: Iterable[Plain], pods: Iterable[Plain]) -> dict[str, float]:
    """Return what the ready and schedulable nodes have left of each resource, all together, as far as `pods` tell."""
    usable = {}
    for node in nodes:
        if _takes_pods(node):
            usable[node["metadata"]["name"]] = (node.get("status") or {}).get("allocatable") or {}
    left: dict[str, float] = {NODES: float(len(usable))}
    for resources in usable.values():
        for name, amount in resources.items():
            left[name] = left.get(name, 0.0) + (quantity(amount) or 0.0)
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") in usable and not _is_over(pod):
            for name, amount in requests(pod).items():
                left[name] = left.get(name, 0.0) - amount
    return left


def requests(pod: Plain) -> dict[str, float]:
    """Return what the containers of a pod ask for; a limit asks too where nothing else does."""
    asked: dict[str, float] = {"pods": 1.0}
    for container in (pod.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            asked[name] = asked.get(name, 0.0) + (quantity(amount) or 0.0)
    return asked


def grew(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Tell whether there is more of anything."""
    return any(amount > before.get(name, 0.0) + _SMALL for name, amount in after.items())


def _takes_pods(node: Plain) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    return ready and not (node.get("spec") or {}).get("unschedulable", False)


def _is_over(pod: Plain) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
