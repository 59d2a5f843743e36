"""Which tensors of a commit fly, that is, are copied from the GPU while training goes on, and what has to happen before.

| a tensor on the GPU | how it is copied |
| a parameter or a state of an optimizer of this state | beside the program; the optimizer's next step waits on the device |
| any other: buffers, averages, frozen parameters | within the GPU, in the order of the program's stream, then beside it |
| more than `STAGED_BYTES` of the latter, or on a second GPU | at once, and the program waits; said once |
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_left

from planaria.contract.commit import size_text
from planaria.worker import arrays
from planaria.worker.flight import Flight, Pad
from planaria.worker.readiness import Readiness, marks_of
from planaria.worker.vault import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from planaria.contract.snapshot import Layout
    from planaria.worker.capture import Captured
    from planaria.worker.device import Cuda

STAGED_BYTES = 64 << 20  # of GPU memory that a commit takes for itself
OTHERS = "model or optimizer have got other tensors"
CHANGED = "tensors were changed between a step of their optimizer and the next, for the first time"
TAKEN_ALONG_BYTES = 1 << 20  # of host memory that a commit is copied into before it has a slot


def open_cuda(index: int) -> Cuda:
    """Return a GPU. What it takes is imported here: a program without one does not wait for it."""
    from planaria.worker.device import Cuda

    return Cuda(index)


class Runway:
    """The GPU side of an elastic state's commits. Without a tensor on a GPU it does nothing."""

    def __init__(self) -> None:
        self.device: Cuda | None = None
        self.readiness = Readiness()
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._captured_steps: weakref.WeakSet[Any] = weakref.WeakSet()
        self._flight: Flight | None = None
        self._table = b""
        self._cover: set[int] = set()  # numbers of tensors that only a hooked optimizer changes
        self._pad: Pad | None = None
        self._flown: list[int] = []  # numbers of tensors that fly, in their order
        self._staying: list[int] = []  # numbers of the others
        self._staying_bytes = 0
        self._stage: dict[int, Any] = {}  # copies within the device, by number
        self._staged: list[tuple[int, Any]] = []  # the same, by place among those that fly
        self._has_said = False

    def look(self, state: Mapping[str, Any]) -> None:
        """Open the device on which the parameters are, if they are on one: what takes time begins early."""
        torch: Any = sys.modules.get("torch")
        for value in state.values() if torch and self.device is None else ():
            if isinstance(value, torch.nn.Module):
                for parameter in value.parameters():
                    if arrays.is_on_device(parameter):
                        self._open(parameter)
                        return

    def _open(self, tensor: Any) -> Cuda:
        if self.device is None:
            self.device = open_cuda(tensor.device.index or 0)
            vault = sys.modules.get("planaria.worker.agent_vault")
            if vault is not None:  # what a standby maps is registered too: 0.2 s a GB that its life need not spend
                vault.prepare_ahead(self.device.register)
        return self.device

    @property
    def gpu(self) -> Any:
        """Return the GPU, as torch calls it; None without one."""
        return self.device.device if self.device is not None else None

    @property
    def near(self) -> list[int] | None:
        """Return the numbers of tensors that are copied before `commit()` returns; None when that is not decided yet."""
        return [*self._stage, *self._staying] if self.device is not None and self._table else None

    def knows(self, captured: Captured) -> bool:
        """Tell whether everything of a commit flies, but for a little, as in the commit before: so it needs no memory yet."""
        return bool(self._flown and self._staying_bytes <= TAKEN_ALONG_BYTES and self._is_planned(captured))

    def _is_planned(self, captured: Captured) -> bool:
        """Tell whether the plan is good for a commit. Another model or optimizer of the same form is another one to hook."""
        if captured.layout.table is not self._table:
            return False
        return captured.is_again or self._covered(captured) == self._cover

    def depart(self, captured: Captured) -> tuple[Flight | None, list[int]]:
        """Begin the flight of what can fly; return it, None when nothing can, and the numbers of all other tensors.

        The flight is then to be issued and landed by the thread that seals, the rest to be copied at once.
        """
        if not self._is_planned(captured):
            self._plan(captured)
        if self._pad is None:
            return None, self._staying
        sources = captured.arrays.sources
        self._hold()  # what is staged is overwritten; where a step came between, this was done
        if self._stage:
            torch: Any = sys.modules["torch"]
            with torch.no_grad():
                torch._foreach_copy_([*self._stage.values()], [sources[number] for number in self._stage])
        self._flight = flight = Flight(self._pad, self._of_flown(sources), self._marks(captured))
        if self.readiness.is_to_compare:
            pairs = zip(self._flown, flight.marks, strict=False)
            self.readiness.compare({number: mark for number, mark in pairs if number not in self._stage})
        self.readiness.depart(captured)
        return flight, self._staying

    def trusted_in_vain(self, captured: Captured, flight: Flight | None) -> str:
        """Return why what a commit took on trust is not so; nothing when it is. For the thread that seals, before it copies."""
        if not captured.lies_as_before():
            return OTHERS
        if flight is not None and not flight.is_as_made_ready():
            self.readiness.distrust()
            return CHANGED
        return ""

    def _of_flown(self, sources: list[Any]) -> list[Any]:
        flown = [*map(sources.__getitem__, self._flown)]
        for place, staged in self._staged:
            flown[place] = staged
        return flown

    def _marks(self, captured: Captured) -> list[int] | None:
        """Return the counts of changes that were made ready, for those that fly; None when none were."""
        if captured.marks is None:
            return None
        # Behind them is what belongs to neither model nor optimizer.
        traced = bisect_left(self._flown, len(captured.marks))
        others = [captured.arrays.sources[number] for number in self._flown[traced:]]
        marks = [*map(captured.marks.__getitem__, self._flown[:traced]), *marks_of(others)]
        staged = marks_of([one for _, one in self._staged])
        if len(marks) != len(self._flown) or len(staged) != len(self._staged):
            return None
        for (place, _), mark in zip(self._staged, staged, strict=True):
            marks[place] = mark
        return marks

    def _plan(self, captured: Captured) -> None:
        layout, sources = captured.layout, captured.arrays.sources
        on_device = {
            number: source
            for number, source in enumerate(sources)
            if arrays.is_on_device(source) and layout.tensors[number].length
        }
        self._table, self._stage, self._staged, self._pad = layout.table, {}, [], None
        self._choose(layout, ())
        if on_device:
            self._hook(captured.optimizers)
        self._cover = covered = self._covered(captured)
        if not on_device:
            return
        device = self._open(
            next((on_device[number] for number in covered if number in on_device), next(iter(on_device.values())))
        )
        mine = {number: source for number, source in on_device.items() if source.device == device.device}
        others = {number: source for number, source in mine.items() if number not in covered}
        late = sum(layout.tensors[number].length for number in others)
        if late > STAGED_BYTES:
            mine = {number: source for number, source in mine.items() if number in covered}
            others = {}
        self._say(sum(layout.tensors[number].length for number in on_device if number not in mine))
        self._choose(layout, mine)
        torch: Any = sys.modules["torch"]
        self._stage = {
            number: torch.empty(tuple(one.shape), dtype=one.dtype, device=one.device) for number, one in others.items()
        }
        self._staged = [(place, self._stage[one]) for place, one in enumerate(self._flown) if one in self._stage]
        if mine:
            self._pad = Pad(device, [(number, layout.tensors[number]) for number in self._flown])

    def _choose(self, layout: Layout, flown: Collection[int]) -> None:
        self._flown = [*flown]
        self._staying = [number for number in range(len(layout.tensors)) if number not in flown]
        self._staying_bytes = sum(layout.tensors[number].length for number in self._staying)

    def _covered(self, captured: Captured) -> set[int]:
        """Return the numbers of tensors that only an optimizer with a hook of ours changes."""
        found = set()
        optimizer: Any
        for optimizer in captured.optimizers:
            if optimizer not in self._hooked or optimizer in self._captured_steps:
                continue
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            kept = [state for state in optimizer.state.values() if isinstance(state, dict)]
            states = [item for state in kept for item in state.values()]
            torch: Any = sys.modules["torch"]
            found |= {captured.arrays.number_of(one) for one in (*parameters, *states) if isinstance(one, torch.Tensor)}
        return {number for number in found if number is not None}

    def _hook(self, optimizers: list[Any]) -> None:
        for optimizer in optimizers:
            if optimizer not in self._hooked:
                mine = weakref.ref(self)
                before = optimizer.register_step_pre_hook(lambda *given, mine=mine: _before_step(mine(), *given))
                behind = optimizer.register_step_post_hook(lambda *_, mine=mine: _behind_step(mine()))
                for handle in (before, behind):  # an optimizer may outlive the state, and be given to another
                    weakref.finalize(self, handle.remove).atexit = False
                self._hooked.add(optimizer)

    def before_step(self, optimizer: Any) -> None:
        """Have the device wait for the copy: an optimizer is about to change what is copied."""
        self.readiness.begin_step()
        if self.device is not None and self.device.is_captured():
            # A graph's replays call no hooks: from now on this optimizer's tensors cannot be left to fly.
            self._captured_steps.add(optimizer)
            self._table = b""
            return
        self._hold()

    def _hold(self) -> None:
        if self._flight is not None:
            self._flight.hold()
            self._flight = None

    def _say(self, size_bytes: int) -> None:
        if size_bytes and not self._has_said:
            self._has_said = True
            say(
                f"{size_text(size_bytes)} on a GPU belong to no optimizer of this state and are copied while the program "
                "waits (said once)"
            )


def _before_step(runway: Runway | None, optimizer: Any, *_: object) -> None:
    if runway is not None:
        runway.before_step(optimizer)


def _behind_step(runway: Runway | None) -> None:
    if runway is not None:
        runway.readiness.end_step()
