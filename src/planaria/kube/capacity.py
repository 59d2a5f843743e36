"""What a cluster has left, and whether that became more. Pure.

The scheduler alone says whether a pod fits; this only says when it is worth asking again.
"""

from __future__ import annotations

import math
import re

from planaria.base.value import Value
from planaria.kube.seen import owner_of

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


class Left(Value):
    """What the ready and schedulable nodes have left at one moment, and what the pods of each owner take of them."""

    free: Mapping[str, float]
    taken: Mapping[str, Mapping[str, float]] = {}  # by the uid of the owner

    def beside(self, owner: str) -> dict[str, float]:
        """Return what there is for one owner, whatever it has of that already: a pod of its own that ends frees nothing."""
        mine = dict(self.free)
        _add(mine, self.taken.get(owner, {}))
        return mine


def left(nodes: Iterable[Plain], pods: Iterable[Plain]) -> Left:
    """Return what nodes that take pods have left of each resource, all together, as far as `pods` tell."""
    usable = {}
    for node in nodes:
        if _takes_pods(node):
            usable[node["metadata"]["name"]] = (node.get("status") or {}).get("allocatable") or {}
    free: dict[str, float] = {NODES: float(len(usable))}
    for resources in usable.values():
        _add(free, {name: quantity(amount) or 0.0 for name, amount in resources.items()})
    taken: dict[str, dict[str, float]] = {}
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") in usable and not _is_over(pod):
            asked = requests(pod)
            _add(free, {name: -amount for name, amount in asked.items()})
            _add(taken.setdefault(owner_of(pod) or "", {}), asked)
    return Left(free, taken)


def _add(whole: dict[str, float], part: Mapping[str, float]) -> None:
    for name, amount in part.items():
        whole[name] = whole.get(name, 0.0) + amount


def requests(pod: Plain) -> dict[str, float]:
    """Return what the containers of a pod ask for; a limit asks too where nothing else does."""
    asked: dict[str, float] = {"pods": 1.0}
    for container in (pod.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            asked[name] = asked.get(name, 0.0) + (quantity(amount) or 0.0)
    return asked


def grew(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> bool:
    """Tell whether there is more of anything; None is for what is not known."""
    if before is None or after is None:
        return False
    return any(amount > before.get(name, 0.0) + _SMALL for name, amount in after.items())


def kept(
    before: Mapping[str, float] | None, after: Mapping[str, float] | None, *, is_refused: bool
) -> Mapping[str, float] | None:
    """Return what to compare with the next time: what there was while a pod found no room, and what is more: that was told."""
    return after if is_refused or grew(before, after) else before


def _takes_pods(node: Plain) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    return ready and not (node.get("spec") or {}).get("unschedulable", False)


def _is_over(pod: Plain) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
