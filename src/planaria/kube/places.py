"""Which pods to make and which to delete. Pure.

A Worker of an elastic job is as good as any other, so there is a number to keep. A failed pod comes back under its own index;
while an old pod holds its name without anybody knowing whether it still works, since its node is lost, the next free index
takes its place, and the rendezvous lets one of both in. A plain job's index is its rank, so there every index waits for itself.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube import restart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from planaria.kube.memory import Look
    from planaria.kube.seen import PodSeen


class Places(Value):
    """What to do about the pods of one kind: indexes to fill, pods to delete."""

    create: tuple[int, ...] = ()
    delete: tuple[PodSeen, ...] = ()


class Ground(Value):
    """What is known of the places of one kind."""

    looks: tuple[Look, ...]
    held: frozenset[int] = frozenset()  # indexes whose time has not come, or whose name somebody else has
    lost: frozenset[str] = frozenset()  # uids of pods on their way out that nobody will hear of


def elastic_places(ground: Ground, target: int) -> Places:
    """Keep `target` Workers. Survivors of a resize are not touched; who serves least goes first, then the highest index."""
    live = [look.pod for look in ground.looks if look.is_live]
    victims = sorted(live, key=_usefulness)[: max(0, len(live) - target)]
    by_index = {look.pod.index: look for look in ground.looks}
    create: list[int] = []
    coming: set[int] = set()  # places that a failed pod has to leave first
    missing, waiting, taken, index = target - len(live), 0, 0, 0
    while taken < target:
        look = by_index.get(index)
        if look is None:
            taken += 1
            if index in ground.held:
                waiting += 1
            elif len(create) + waiting < missing:
                create.append(index)
        elif look.pod.uid not in ground.lost:
            taken += 1
            if not look.is_live:
                coming.add(index)
                waiting += 1
        index += 1
    return Places(tuple(create), (*victims, *_to_clear(ground, coming)))


def fixed_places(ground: Ground, indexes: Iterable[int]) -> Places:
    """Keep a pod at each of these indexes, and none elsewhere."""
    wanted = set(indexes)
    there = {look.pod.index for look in ground.looks}
    create = tuple(index for index in sorted(wanted - there) if index not in ground.held)
    surplus = tuple(look.pod for look in ground.looks if look.is_live and look.pod.index not in wanted)
    return Places(create, (*surplus, *_to_clear(ground, wanted)))


def _usefulness(pod: PodSeen) -> tuple[bool, bool, bool, bool, int]:
    return (pod.unschedulable is None, bool(pod.node), pod.is_running, pod.is_ready, -pod.index)


def _to_clear(ground: Ground, coming: set[int]) -> tuple[PodSeen, ...]:
    """Return the failed pods that stand in the way now. One that has to wait stays until then: its log can be read."""
    return tuple(
        look.pod
        for look in ground.looks
        if look.judged is not None
        and look.judged.verdict == restart.REPLACED
        and not look.pod.is_going
        and (look.pod.index not in coming or look.pod.index not in ground.held)
    )
