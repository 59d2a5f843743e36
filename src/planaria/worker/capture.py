"""From the parts of a state to a snapshot, and what a snapshot says of them; `restoration.py` puts them back."""

from __future__ import annotations

import sys
from functools import partial

from planaria.base.value import Value
from planaria.contract import plain
from planaria.contract import snapshot as snapshots
from planaria.errors import StateRefused
from planaria.worker import parts, randomness, trace
from planaria.worker.arrays import Arrays, Views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from planaria.contract.snapshot import Layout, Snapshot
    from planaria.worker.readiness import Ready
    from planaria.worker.trace import Known
    from planaria.worker.upload import Upload

    Saved = dict[str, tuple[str, Any, Any]]
    Encoded = tuple[str, bytes, bytes]
    Part = Encoded | Callable[[], Encoded]

RNG = "rng"
_VERSION = 4
_WITHOUT_SHAPES = 3  # what is beside an optimizer's groups is its state alone


class _Traced(Value):
    """A module or optimizer as the whole walk found it. `numbers` are those of its tensors in the table."""

    trace: trace.ModuleTrace | trace.OptimizerTrace
    known: Known
    numbers: list[int]
    encoded: Encoded

    def lies_as_before(self) -> bool:
        """Tell whether its tensors are where they were."""
        tensors = self.known.tensors()
        return tensors is not None and self.known.has_addresses_of(tensors)

    def is_as_before(self, tensors: list[Any]) -> bool:
        """Tell whether it has the same tensors, with their forms, and has them where they were."""
        known = self.known
        return known.has_addresses_of(tensors) and known.has(self.trace.objects()) and known.has_forms_of(tensors)


class Captured:
    """What one commit will copy: sizes are known, nothing is copied yet. Plain values are taken already.

    `random` takes the states of random numbers. Of the parts in `shared` another rank keeps the parameters. `before` is the
    commit before: where modules and optimizers have the same tensors in the same places, they are not walked through again.
    With `near` a walk in haste takes that on trust, for a commit at every step has no time to look: `lies_as_before` and
    `is_as_before` do it later, in another thread. Only what stayed the same from one walk to the next is trusted: who gets
    other tensors at every step, or at the first one, is looked at. So are the numbers in `near`, which are copied before that.
    What was made `ready` behind a step need not even be asked for; its counts of changes are in `marks` then.

    Values that nobody else can change are encoded later too: until `finish` the layout has the values of the commit before.
    """

    def __init__(
        self,
        state: Mapping[str, object],
        *,
        random: Callable[[], dict[str, Any]] | None = randomness.taken,
        shared: Collection[str] = (),
        before: Captured | None = None,
        near: Collection[int] | None = None,
        ready: Ready | None = None,
    ) -> None:
        self._traced: dict[str, _Traced] = {}
        self._looks: dict[int, trace.Look] = {}
        self._traced_count = 0
        self._in_order: bool | None = None
        self.is_hasty = False
        self.marks: list[int] | None = None
        self.is_again = False  # modules and optimizers are those of the commit before
        self.arrays = Arrays()
        self.optimizers = [value for value in state.values() if parts.kind_of(value) == parts.OPTIMIZER]
        kept = self._again(before, state, near if before.is_again else None, ready) if before else None
        if kept is None:
            kept = self._walk_traced(state, shared)
        for name, value in state.items():
            if name not in kept:
                kept[name] = self._encoded(name, *parts.content_of(value, is_shared=name in shared))
        if random:
            kept[RNG] = self._encoded_random(random())
        self._kept = kept
        self.lengths = {name: None if callable(part) else len(part[1]) + len(part[2]) for name, part in kept.items()}
        self.layout: Layout = self._arranged(before)

    def _walk_traced(self, state: Mapping[str, object], shared: Collection[str]) -> dict[str, Part]:
        """Walk through what can be traced, before everything else, so that its tensors have the first numbers."""
        kept: dict[str, Part] = {}
        torch: Any = sys.modules.get("torch")
        for name, value in state.items():
            found = _trace(value)
            if found is None:
                continue
            kept[name] = encoded = self._encoded(name, *parts.content_of(value, is_shared=name in shared))
            objects = found.objects() or []
            numbered = [
                (place, number)
                for place, one in enumerate(objects)
                if place >= found.first_own
                and isinstance(one, torch.Tensor)
                and (number := self.arrays.number_of(one)) is not None
            ]
            known = trace.Known(objects, [place for place, _ in numbered])
            self._traced[name] = _Traced(found, known, [number for _, number in numbered], encoded)
        self._traced_count = len(self.arrays.sources)
        return kept

    def _again(
        self, before: Captured, state: Mapping[str, object], near: Collection[int] | None, ready: Ready | None
    ) -> dict[str, Part] | None:
        """Take over what was traced before, with its tensors as they are now; None when something is different.

        In haste only `near` are looked at.
        """
        traced = before._traced
        if not traced or not traced.keys() <= state.keys():
            return None
        if any(known.trace.whole is not parts.unwrapped(state[name]) for name, known in traced.items()):
            return None
        if near is not None and ready and ready.captured is before:
            sources = ready.sources if all(known.known.has_all() for known in traced.values()) else None
            self.marks = ready.marks
        else:
            sources = before.tensors(are_looked_at=near is None)
        if sources is None or (near and not before._has_looks_of(sources, near)):
            self.marks = None
            return None
        self.arrays = Arrays(before.arrays, sources)
        self._traced, self._traced_count, self._in_order = before._traced, before._traced_count, before._in_order
        self._looks = before._looks
        self.is_again, self.is_hasty = True, near is not None
        return {name: self._refreshed(name, known) for name, known in before._traced.items()}

    def tensors(self, *, are_looked_at: bool = False) -> list[Any] | None:
        """Return the traced tensors by their numbers; None when one has gone, or is not as it was where that is looked at."""
        sources: list[Any] = []
        for known in self._traced.values():
            found = known.known.tensors()
            if found is None or (are_looked_at and not known.is_as_before(found)):
                return None
            sources += found
        if self._is_in_order():
            return sources
        numbers = [number for known in self._traced.values() for number in known.numbers]
        by_number = dict(zip(numbers, sources, strict=True))
        if len(by_number) != self._traced_count:  # one without bytes, or of a kind that traces do not see
            return None
        return [by_number[number] for number in range(self._traced_count)]

    def _has_looks_of(self, sources: list[Any], numbers: Iterable[int]) -> bool:
        """Tell whether those of the traced tensors lie where they did, with the forms they had."""
        if not self._looks:
            for known in self._traced.values():
                self._looks |= zip(known.numbers, known.known.looks(), strict=True)
        return all(trace.look_of(sources[one]) == self._looks[one] for one in numbers if one < self._traced_count)

    def lies_as_before(self) -> bool:
        """Tell whether tensors that were taken on trust lie where they did, now. Else they may not be what the table says."""
        return not self.is_hasty or all(known.lies_as_before() for known in self._traced.values())

    def is_as_before(self) -> bool:
        """Tell whether there are no other tensors than those taken on trust, now; another thread may be at work on them."""
        try:
            return not self.is_hasty or all(known.known.has(known.trace.objects()) for known in self._traced.values())
        except RuntimeError:  # a dict that changes while it is walked through
            return False

    def _is_in_order(self) -> bool:
        """Tell whether the traced tensors come in the order of their numbers, as mostly."""
        if self._in_order is None:
            numbers = [number for known in self._traced.values() for number in known.numbers]
            self._in_order = numbers == [*range(self._traced_count)]
        return self._in_order

    def _refreshed(self, name: str, known: _Traced) -> Part:
        kind, _, state = known.encoded
        if kind != parts.OPTIMIZER:
            return known.encoded
        groups = parts.taken_groups(known.trace.whole)  # learning rates and the like change all the time
        if parts.is_simple(groups):
            return partial(_encoded_groups, groups, name, state)
        return kind, plain.encode(parts.groups_of(groups), self.arrays.keep, name), state

    def _encoded_random(self, found: dict[str, Any]) -> Part:
        if randomness.is_usual(found):
            return partial(_encoded_states, found)
        return self._encoded(RNG, RNG, randomness.states(found), None)

    def _encoded(self, name: str, kind: str, content: object, known: object) -> Encoded:
        keep = self.arrays.keep
        beside = name if kind == parts.OPTIMIZER else f"{name}._metadata"
        state = plain.encode(known, keep, beside)
        return kind, plain.encode(content, keep, name), state

    def _arranged(self, before: Captured | None) -> Layout:
        if before is None or not self.arrays.is_like(before.arrays):
            return snapshots.arrange(self.arrays.tensors, self._values())
        if before.lengths == self.lengths:  # then the others have the lengths they had, but for a few bytes at times
            return before.layout
        return snapshots.with_values(before.layout, self._values())

    def _values(self) -> bytes:
        kept, self._kept = self._kept, {}
        return plain.encode((_VERSION, {name: part() if callable(part) else part for name, part in kept.items()}))

    def finish(self) -> None:
        """Encode the values, if they are not: the layout is the commit's own then."""
        if self._kept:
            self.layout = snapshots.with_values(self.layout, self._values())

    def taken(self, buffer: memoryview | None, numbers: Iterable[int]) -> list[tuple[int, memoryview]]:
        """Copy the tensors with the numbers to their places; without a buffer return the copies, each with its place."""
        if buffer is None:
            return self.arrays.taken(self.layout, numbers)
        self.copy_into(buffer, numbers)
        return []

    def copy_into(self, buffer: memoryview, numbers: Iterable[int] | None = None) -> None:
        """Copy every tensor to its place, or those with the numbers. What happens to the state then changes none of them."""
        self.arrays.copy(self.layout, buffer, numbers)


def _encoded_groups(groups: list[dict[str, Any]], name: str, state: bytes) -> Encoded:
    return parts.OPTIMIZER, plain.encode(parts.groups_of(groups), None, name), state


def _encoded_states(found: dict[str, Any]) -> Encoded:
    return RNG, plain.encode(randomness.states(found), None, RNG), plain.encode(None)


def _trace(value: Any) -> trace.ModuleTrace | trace.OptimizerTrace | None:
    kind = parts.kind_of(value)
    if kind == parts.MODULE:
        return trace.of_module(parts.unwrapped(value))
    return trace.of_optimizer(value) if kind == parts.OPTIMIZER else None


def saved_parts(memory: memoryview, snapshot: Snapshot, upload: Upload | None = None) -> Saved:
    """Return the parts that a snapshot holds: kind, content with views of its tensors, and what modules know beside that.

    Raises:
        ValueError: It was not made by an elastic state.
    """
    views = Views(memory, snapshot)
    match plain.decode(snapshot.values):
        case (version, dict(kept)) if version in (_VERSION, _WITHOUT_SHAPES):
            found: Saved = {}
            for name, part in kept.items():
                match part:
                    case (str(kind), bytes(content), bytes(beside)) if type(name) is str:
                        known = plain.decode(beside, views.view)
                        if kind == parts.OPTIMIZER and version == _WITHOUT_SHAPES:
                            known = parts.without_shapes(known)
                        found[name] = _decoded(kind, plain.decode(content, views.view), known)
                    case _:
                        raise ValueError("a part of the snapshot is not one of an elastic state")
            if upload is not None:
                upload.rows |= views.rows
            return found
    raise ValueError("the snapshot is not one of an elastic state")


def parts_of(memory: memoryview, snapshot: Snapshot, upload: Upload) -> Saved:
    """Return the parts that a snapshot holds, for a restore.

    Raises:
        StateRefused: It was not made by an elastic state.
    """
    try:
        return saved_parts(memory, snapshot, upload)
    except ValueError as exc:
        raise StateRefused(f"{snapshot.stamp} cannot be read: {exc}") from exc


def _decoded(kind: str, content: Any, known: Any) -> tuple[str, Any, Any]:
    """Return an optimizer with its state among the rest, as its own `state_dict` has it; the shapes stay beside it."""
    if kind != parts.OPTIMIZER or not isinstance(content, dict):
        return kind, content, known
    if not isinstance(known, dict) or known.keys() != parts.BESIDE:
        raise ValueError("an optimizer of the snapshot is not one of an elastic state")
    state = known["state"]
    return kind, content if state is None else {"state": state, **content}, known["shapes"]


def merged(shared: Saved, own: Saved) -> Saved:
    """Return this rank's parts over those that one rank keeps for all; random numbers are everybody's own.

    Of a module whose parameters another rank keeps, the own part has the rest.
    """
    found = for_others(shared)
    for name, (kind, content, known) in own.items():
        above = found.get(name)
        is_rest = kind == parts.MODULE and above is not None and above[0] == kind
        found[name] = kind, {**above[1], **content} if is_rest and above else content, known
    return found


def for_others(saved: Saved) -> Saved:
    """Return what another rank may take of a rank's parts: all but random numbers, which are everybody's own."""
    return {name: part for name, part in saved.items() if name != RNG and part[0] not in parts.GENERATORS}
