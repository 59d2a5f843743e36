"""Which global and role ranks the workers of each node get, agreed on through the store: torch's keys and values."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from planaria.elastic.agent.server.model import Worker, _RoleInstanceInfo

if TYPE_CHECKING:
    from planaria.elastic.agent.server.model import WorkerSpec

ROLE_INFO_PREFIX = "torchelastic/role_info/"
ASSIGNED_RANKS_PREFIX = "torchelastic/assigned_ranks/"
IDENTICAL = "TORCH_ELASTIC_WORKER_IDENTICAL"


def assign_ranks(store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec) -> list[Worker]:
    """Return the workers of one node. Node 0 reads what every node is like and writes where each one begins.

    With `TORCH_ELASTIC_WORKER_IDENTICAL=1` every node is like this one, and nobody has to be asked.
    """
    size = spec.local_world_size
    if os.environ.get(IDENTICAL, "0") == "1":
        first, world = group_rank * size, group_world_size * size
        return _workers(size, (first, world, first, world))
    store.set(f"{ROLE_INFO_PREFIX}{group_rank}", _RoleInstanceInfo(spec.role, group_rank, size).serialize())
    if group_rank == 0:
        told = store.multi_get([f"{ROLE_INFO_PREFIX}{node}" for node in range(group_world_size)])
        places = places_of([_RoleInstanceInfo.deserialize(one) for one in told])
        keys = [f"{ASSIGNED_RANKS_PREFIX}{node}" for node in range(group_world_size)]
        store.multi_set(keys, [json.dumps(place) for place in places])
    return _workers(size, json.loads(store.get(f"{ASSIGNED_RANKS_PREFIX}{group_rank}")))


def places_of(nodes: list[_RoleInstanceInfo]) -> list[tuple[int, int, int, int]]:
    """Return first rank, world size, first rank in the role and size of the role for each node, in their order."""
    roles: dict[str, int] = defaultdict(int)
    for node in nodes:
        roles[node.role] += node.local_world_size
    world = sum(roles.values())
    first = 0
    first_in: dict[str, int] = defaultdict(int)
    places = []
    for node in nodes:
        places.append((first, world, first_in[node.role], roles[node.role]))
        first += node.local_world_size
        first_in[node.role] += node.local_world_size
    return places


def _workers(size: int, place: tuple[int, int, int, int]) -> list[Worker]:
    first, world, first_in_role, role_size = place
    return [
        Worker(
            local_rank=local_rank,
            global_rank=first + local_rank,
            role_rank=first_in_role + local_rank,
            world_size=world,
            role_world_size=role_size,
        )
        for local_rank in range(size)
    ]
