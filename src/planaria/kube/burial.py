"""Which nodes of a run are gone for good, and the note that says so to their agents. Pure.

A pod that the API server no longer has, or all of whose containers have ended for good, does not train: by the rules of
Kubernetes its kubelet has confirmed that, or somebody who may has said that its machine is off. Such a pod's agent is named in
the run's store, from which the other agents have it (see `contract/burial.py` and docs/protocol.md).
"""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.contract import burial
from planaria.rendezvous.keys import read_round
from planaria.rendezvous.records import key_of
from planaria.store.kubernetes_keys import read_keys, read_values, write_keys
from planaria.store.model import Put, Written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from planaria.kube.model import Json, Plain

_MOST_NAMES = 5
_LONGEST_NAME = 80


class RoundSeen(Value):
    """The newest round of a run, as its store knows it: nodes that it names and that have pods, and those that are buried."""

    nodes: tuple[str, ...] = ()
    buried: frozenset[str] = frozenset()


def round_seen(found: Plain, run_id: str) -> RoundSeen:
    """Read the ConfigMap of the `kubernetes` store; no round where nothing of ours is in it."""
    newest_key, note_key = key_of(run_id, "round"), key_of(run_id, burial.KEY)
    try:
        texts = {key: text.decode(errors="replace") for key, text in read_values(found, (newest_key, note_key)).items()}
    except ValueError:
        return RoundSeen()
    newest = read_round(texts.get(newest_key))
    members = newest.deputies[: newest.size]
    buried = burial.read(texts.get(note_key))
    return RoundSeen(tuple(one.node for one in members if burial.pod_of(one.node)), buried)


def gone(nodes: Iterable[str], living: Collection[str]) -> tuple[str, ...]:
    """Return those of the nodes whose pod is none of the living, which are given by uid."""
    digits = {burial.digits_of(uid) for uid in living}
    return tuple(node for node in nodes if burial.pod_of(node) and burial.pod_of(node) not in digits)


def noted(found: Plain, run_id: str, nodes: Collection[str]) -> Json:
    """Return the ConfigMap with a note that names these nodes beside those of the newest round that it names already.

    Raises:
        ValueError: What is there is not ours, or has no room for it.
    """
    known = round_seen(found, run_id)
    keys = read_keys(found)
    text = burial.write({*nodes, *known.buried.intersection(known.nodes)})
    reply = keys.perform(Put(key_of(run_id, burial.KEY), text.encode(), None))
    if not isinstance(reply, Written):
        raise ValueError(f"the note was not taken: {reply}")
    keys.trim()
    return write_keys(found, keys)


def told(nodes: Collection[str]) -> str:
    """Return what people call these nodes, the first few of them."""
    names = [safe_line(node.rpartition("-")[0], _LONGEST_NAME) for node in nodes]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
