"""The ConfigMap of a job's store, with a round of agents in pods."""

from __future__ import annotations

from typing import Any

from planaria.contract.burial import KEY, life, write
from planaria.rendezvous.keys import round_record
from planaria.rendezvous.model import Deputy, Standing
from planaria.rendezvous.records import key_of
from planaria.store.kubernetes_keys import read_keys, write_keys
from planaria.store.model import Put

RUN = "job-uid"
ONE, TWO, NEXT = ("00000001-aa", "00000002-aa", "00000003-aa")


def node(uid: str, name: str = "resnet-worker-0", own: int = 0) -> str:
    return f"{name}-{life(uid, own.to_bytes(4))}"


def stored(*nodes: str, size: int | None = None, note: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the ConfigMap of a run whose newest round has these deputies."""
    found: dict[str, Any] = {
        "metadata": {"name": "resnet-run", "uid": "12345678-0000-0000-0000-000000000000"},
        "data": {"x": "y"},
    }
    keys = read_keys(found)
    deputies = tuple(Deputy(one, "10.0.0.1:1") for one in nodes)
    last = Standing("e", 3, 5, len(nodes) if size is None else size, None, 0, deputies, 6)
    keys.perform(Put(key_of(RUN, "round"), round_record(last).encode(), None))
    if note is not None:
        keys.perform(Put(key_of(RUN, KEY), write(note).encode(), None))
    return write_keys(found, keys)
