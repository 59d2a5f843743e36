"""From the parts of a state to a snapshot, and from a snapshot to the parts."""

from __future__ import annotations

from planaria.contract import plain
from planaria.contract import snapshot as snapshots
from planaria.errors import StateRefused
from planaria.worker import parts, randomness
from planaria.worker.arrays import Arrays, Views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from planaria.contract.snapshot import Layout, Snapshot

    Saved = dict[str, tuple[str, Any, Any]]

RNG = "rng"
_VERSION = 1


class Captured:
    """What one commit will copy: sizes are known, nothing is copied yet. Plain values are taken already."""

    def __init__(self, state: Mapping[str, object], *, with_rng: bool = True) -> None:
        self._arrays = Arrays()
        kept = {name: self._part(name, *parts.content_of(value)) for name, value in state.items()}
        if with_rng:
            kept[RNG] = self._part(RNG, RNG, randomness.states(), None)
        self.layout: Layout = snapshots.arrange(self._arrays.tensors, plain.encode((_VERSION, kept)))

    def _part(self, name: str, kind: str, content: object, known: object) -> tuple[str, bytes, bytes]:
        keep = self._arrays.keep
        return kind, plain.encode(content, keep, name), plain.encode(known, name=f"{name}._metadata")

    def copy_into(self, buffer: memoryview) -> None:
        """Copy every tensor to its place. When this returns, nothing that happens to the state changes the snapshot."""
        self._arrays.copy(self.layout, buffer)


def saved_parts(memory: memoryview, snapshot: Snapshot) -> Saved:
    """Return the parts that a snapshot holds: kind, content with views of its tensors, and what modules know beside that.

    Raises:
        ValueError: It was not made by an elastic state.
    """
    view = Views(memory, snapshot).view
    match plain.decode(snapshot.values):
        case (1, dict(kept)):
            found: Saved = {}
            for name, part in kept.items():
                match part:
                    case (str(kind), bytes(content), bytes(known)) if type(name) is str:
                        found[name] = kind, plain.decode(content, view), plain.decode(known)
                    case _:
                        raise ValueError("a part of the snapshot is not one of an elastic state")
            return found
    raise ValueError("the snapshot is not one of an elastic state")


def give_back(saved: Saved, state: dict[str, object]) -> list[str]:
    """Put saved parts into the state, all or none: everything is checked first. Return the names the snapshot lacks.

    Raises:
        StateRefused: Something does not fit; nothing was changed.
    """
    missing = [name for name in state if name not in saved]
    here = [(name, *saved[name]) for name in _in_order(state) if name in saved]
    for name, kind, content, _ in here:
        try:
            parts.check(name, kind, content, state[name])
        except (KeyError, TypeError) as exc:
            raise StateRefused(f"{name} in the snapshot is not what a {kind} keeps: {exc!r}") from exc
    for name, kind, content, known in here:
        state[name] = parts.give_back(kind, content, known, state[name])
    if RNG in saved:  # last: what came before may have drawn numbers
        randomness.set_states(parts.owned(saved[RNG][1]))
    return missing


def _in_order(state: Iterable[str]) -> list[str]:
    """Return the names, the optimizer behind its model and the scheduler behind its optimizer."""
    first = [name for name in ("model", "optimizer", "scheduler") if name in state]
    return [*first, *(name for name in state if name not in first)]
