"""Walk through a module or an optimizer again, in less than a millisecond, when only the content of its tensors has changed.

`state_dict()` and encoding take 5 ms for 200 tensors, too long for a commit every step. A trace remembers which tensors a part
has, and notices when that is not so any more: then the whole walk is done again. Where a class has ways of its own to make its
`state_dict` there is no trace.
"""

from __future__ import annotations

import sys
import weakref
from itertools import chain
from operator import attrgetter, call, methodcaller
from types import NoneType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    Look = tuple[int, Any, Any]
    """Where a tensor lies, and its form."""

_MODULE_WAYS = ("state_dict", "_save_to_state_dict", "get_extra_state")
_MODULE_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks")
_OPTIMIZER_HOOKS = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")


def of_module(module: Any) -> ModuleTrace | None:
    """Return the trace of a module; None when something in it makes its `state_dict` in a way of its own."""
    base: Any = sys.modules["torch"].nn.Module
    for part in module.modules():
        if any(getattr(type(part), way) is not getattr(base, way) for way in _MODULE_WAYS):
            return None
        if any(getattr(part, hooks, ()) for hooks in _MODULE_HOOKS):
            return None
    return ModuleTrace(module)


class ModuleTrace:
    """The modules inside a module. Its objects are all parameters, buffers and modules, in an order that stays the same."""

    first_own = 0

    def __init__(self, module: Any) -> None:
        self.whole = module
        self._inside = [*map(weakref.ref, module.modules())]  # one that was replaced is not held, nor are its tensors
        kept = self._kept()
        self._counts, self._names = [*map(len, kept)], _names(kept)

    def objects(self) -> list[Any] | None:
        """Return them as they are now, None among them; None when one was added, removed or renamed."""
        kept = self._kept()
        if [*map(len, kept)] != self._counts or _names(kept) != self._names:
            return None
        return _values(kept)

    def _kept(self) -> list[Mapping[str, Any]]:
        inside = [part for part in map(call, self._inside) if part is not None]
        return [kept for part in inside for kept in (part._parameters, part._buffers, part._modules)]  # noqa: SLF001  torch's own names for them


def _names(some: Iterable[Iterable[str]]) -> list[str]:
    return [*chain.from_iterable(some)]


def _values(some: Iterable[Mapping[str, Any]]) -> list[Any]:
    return [*chain.from_iterable(map(_VALUES, some))]


_VALUES = methodcaller("values")


def of_optimizer(optimizer: Any) -> OptimizerTrace | None:
    """Return the trace of an optimizer; None for one with ways of its own, or with state that is not only tensors."""
    torch: Any = sys.modules["torch"]
    is_plain = type(optimizer).state_dict is torch.optim.Optimizer.state_dict
    if not is_plain or any(getattr(optimizer, hooks, ()) for hooks in _OPTIMIZER_HOOKS):
        return None
    if not _is_plain(optimizer.state) or not all(isinstance(one, torch.Tensor) for one in optimizer.state):
        return None  # some keep what concerns all parameters there, by a name
    trace = OptimizerTrace(optimizer)
    own = (trace.objects() or [])[trace.first_own :]
    return trace if all(isinstance(one, torch.Tensor) for one in own) else None


def _is_plain(state: Mapping[Any, Any]) -> bool:
    return {*map(type, state.values())} <= {dict}


class OptimizerTrace:
    """The parameters of an optimizer and the names in their states. Its objects are those parameters, then the states."""

    def __init__(self, optimizer: Any) -> None:
        self.whole = optimizer
        kept = [*optimizer.state.values()]
        self._counts, self._names = [*map(len, kept)], _names(kept)
        self._groups = [len(group["params"]) for group in optimizer.param_groups]
        self.first_own = len(kept) + sum(self._groups)

    def objects(self) -> list[Any] | None:
        """Return them; None when there are more or fewer than before, or others by name."""
        state, groups = self.whole.state, [group["params"] for group in self.whole.param_groups]
        kept = [*state.values()]
        if not _is_plain(state) or [*map(len, groups)] != self._groups:
            return None
        if [*map(len, kept)] != self._counts or _names(kept) != self._names:
            return None
        return [*state, *chain.from_iterable(groups), *_values(kept)]


class Known:
    """The objects that a trace found, by weak references: what a program lets go of is not held here.

    While none of them has gone, a number of one (`id`) is nobody else's. A tensor that is the same object may lie elsewhere, or
    have another form (`.data = ...`, `resize_`): each of these takes as long again to see.
    """

    def __init__(self, objects: Sequence[Any], places: Sequence[int]) -> None:
        """Take note of the objects, and of those at some places, which are tensors that are kept."""
        self._gone: list[object] = []
        self._refs = [weakref.ref(one, self._gone.append) for one in objects if one is not None]
        self._numbers = [*map(id, objects)]
        kept = [objects[place] for place in places]
        self._kept = [*map(weakref.ref, kept)]
        self._addresses = _addresses(kept)
        self._forms = _forms(kept)

    def has_all(self) -> bool:
        """Tell whether none of the objects has gone."""
        return not self._gone

    def tensors(self) -> list[Any] | None:
        """Return the tensors that are kept; None when one of the objects has gone."""
        if self._gone:
            return None
        found = [*map(call, self._kept)]
        if NoneType in map(type, found):  # gone by now: the thread that seals may have been the last to hold it
            return None
        return found

    def has_addresses_of(self, tensors: Sequence[Any]) -> bool:
        """Tell whether the tensors that are kept, as `tensors` returned them, lie where they did."""
        return _addresses(tensors) == self._addresses

    def has_forms_of(self, tensors: Sequence[Any]) -> bool:
        """Tell whether the tensors that are kept, as `tensors` returned them, have their shapes and dtypes still."""
        return _forms(tensors) == self._forms

    def looks(self) -> list[Look]:
        """Return the looks that the tensors had."""
        return [*zip(self._addresses, *self._forms, strict=True)]

    def has(self, objects: Sequence[Any] | None) -> bool:
        """Tell whether these are the objects."""
        return objects is not None and not self._gone and [*map(id, objects)] == self._numbers


def look_of(tensor: Any) -> Look:
    """Return where a tensor lies, and its form."""
    return tensor.data_ptr(), tensor.size(), tensor.dtype


def _addresses(tensors: Sequence[Any]) -> list[int]:
    tensor: Any = sys.modules["torch"].Tensor
    return [*map(tensor.data_ptr, tensors)]


def _forms(tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    tensor: Any = sys.modules["torch"].Tensor
    return [*map(tensor.size, tensors)], [*map(_DTYPE, tensors)]


_DTYPE = attrgetter("dtype")
