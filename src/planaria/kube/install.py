"""Put an operator into a cluster, or take it out again. The same command twice changes nothing the second time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planaria.errors import KubeError
from planaria.kube.installation import names
from planaria.kube.resources import DEFINITION, DEPLOYMENT, KINDS

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.model import Json

# Both waits look again and again: to watch one object takes another right of whoever installs, and these last for moments.
_LOOK_S = 1.0
_SERVED_LOOK_S = 0.25
_SERVED_WITHIN_S = 15.0


async def apply(api: Api, made: Sequence[Json], say: Callable[[str, str], object]) -> None:
    """Apply all objects in order; `say` hears the name of each and what became of it.

    Raises:
        KubeError: One was refused; those before it stay, and the same command goes on from there.
    """
    for obj, name in zip(made, names(made), strict=True):
        kind, meta = KINDS[obj["kind"]], obj["metadata"]
        before = await api.get(kind, meta.get("namespace", ""), meta["name"])
        after = await api.apply(obj)
        say(name, "created" if before is None else "unchanged" if _is_same(before, after) else "configured")
        if kind == DEFINITION:
            await _established(api, meta["name"])


def _is_same(before: Json, after: Json) -> bool:
    """Tell whether an apply changed anything but its own books, whose times some servers count as a change."""

    def told(obj: Json) -> Json:
        kept = {key: value for key, value in obj["metadata"].items() if key not in ("managedFields", "resourceVersion")}
        return {**obj, "metadata": kept}

    return told(before) == told(after)


async def remove(api: Api, made: Sequence[Json], say: Callable[[str, str], object]) -> None:
    """Delete all objects but namespace and definition, last first: with the definition, every job would go."""
    for obj, name in reversed(list(zip(made, names(made), strict=True))):
        if obj["kind"] in ("Namespace", "CustomResourceDefinition"):
            say(name, "kept")
            continue
        meta = obj["metadata"]
        found = await api.delete(KINDS[obj["kind"]], meta.get("namespace", ""), meta["name"])
        say(name, "deleted" if found is not None else "not there")


async def wait(api: Api, namespace: str, name: str, within_s: float, say: Callable[[str], object]) -> None:
    """Wait until all replicas of the Deployment are up to date and ready.

    Raises:
        KubeError: They are not within the time; the message says how far it got.
    """
    deadline = time.monotonic() + within_s
    told = ""
    while True:
        found = await api.get(DEPLOYMENT, namespace, name) or {}
        is_done, state = rollout(found)
        if state != told:
            say(state)
        told = state
        if is_done:
            return
        if time.monotonic() >= deadline:
            raise KubeError(
                f"deployment/{name} is not ready after {within_s:g} s: {state}",
                hint=f"kubectl -n {namespace} describe pods -l app.kubernetes.io/name={name}",
                status=504,
            )
        await asyncio.sleep(_LOOK_S)


def rollout(found: Json) -> tuple[bool, str]:
    """Tell whether a Deployment is rolled out, and how far it is."""
    wanted = (found.get("spec") or {}).get("replicas", 0)
    status = found.get("status") or {}
    if status.get("observedGeneration", 0) < (found.get("metadata") or {}).get("generation", 1):
        return False, "waiting for the cluster to see the Deployment"
    updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    is_done = updated == wanted == ready == status.get("replicas", 0)
    return is_done, f"{ready} of {wanted} replicas ready, {updated} up to date"


async def _established(api: Api, name: str) -> None:
    """Wait until the server serves a definition that was just applied."""
    deadline = time.monotonic() + _SERVED_WITHIN_S
    while True:
        found = await api.get(DEFINITION, "", name) or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            return
        if time.monotonic() >= deadline:
            raise KubeError(
                f"the definition {name} was taken but is not served", hint="kubectl describe crd " + name, status=504
            )
        await asyncio.sleep(_SERVED_LOOK_S)
