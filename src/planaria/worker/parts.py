"""The parts of an elastic state: what of an object is kept, and how it gets it back, in place.

| part | what is kept | how it comes back |
| a module, also in DDP, DataParallel or compiled | parameters, buffers, extra state, their versions | copied into its tensors |
| an optimizer | its state_dict | copied into its tensors where they exist, else made anew |
| anything with state_dict and load_state_dict: scheduler, scaler, sampler | its state_dict | load_state_dict |
| a generator of random numbers | its state | set |
| a tensor or array | its content | copied into it when dtype and shape are the same, else a new one |
| plain data | itself | a new value |
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from itertools import chain
from types import NoneType

from planaria.errors import StateRefused
from planaria.worker import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from planaria.worker.upload import Upload

MODULE, OPTIMIZER, STATEFUL, VALUE = "module", "optimizer", "stateful", "value"
TORCH_RNG, NUMPY_RNG, PYTHON_RNG = "torch generator", "numpy generator", "python generator"
GENERATORS = (TORCH_RNG, NUMPY_RNG, PYTHON_RNG)
BY_THEMSELVES = (STATEFUL, *GENERATORS)
"""Kinds that are loaded by their own method, which alone knows what it refuses."""
_SIMPLE = frozenset({int, float, bool, str, NoneType})
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


def unwrapped(value: Any) -> Any:
    """Return the module inside DDP, DataParallel and torch.compile: it is the same whether wrapped or not."""
    while type(value).__module__.startswith("torch.") and (inner := _WRAPPERS.get(type(value).__name__)):
        value = getattr(value, inner)
    return value


def is_replicated(model: Any) -> bool:
    """Tell whether every rank has the same parameters and optimizer state: DDP keeps them equal."""
    while type(model).__module__.startswith("torch.") and (inner := _WRAPPERS.get(type(model).__name__)):
        if type(model).__name__ == "DistributedDataParallel":
            return True
        model = getattr(model, inner)
    return False


def kind_of(value: Any) -> str:
    """Return what kind of part an object is."""
    if type(value) in _SIMPLE:
        return VALUE
    torch, numpy, random = (sys.modules.get(name) for name in ("torch", "numpy", "random"))
    if torch and isinstance(value, torch.nn.Module):
        return MODULE
    if torch and isinstance(value, torch.optim.Optimizer):
        return OPTIMIZER
    if all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict")):
        return STATEFUL
    if torch and isinstance(value, torch.Generator):
        return TORCH_RNG
    if numpy and isinstance(value, numpy.random.Generator):
        return NUMPY_RNG
    return PYTHON_RNG if random and isinstance(value, random.Random) else VALUE


def check_whole(name: str, value: Any) -> None:
    """See that the parameters of a module or an optimizer can be kept one by one.

    Raises:
        StateRefused: They are sharded by FSDP1. (A DTensor, as FSDP2 makes them, is refused when it is met.)
    """
    kind = kind_of(value)
    if kind == MODULE:
        is_sharded = any(type(part).__name__ == "FullyShardedDataParallel" for part in value.modules())
        parameters = value.parameters()
    elif kind == OPTIMIZER:
        is_sharded, parameters = False, (one for group in value.param_groups for one in group["params"])
    else:
        return
    # The module inside the wrapper, and an optimizer, show it only by torch's own mark on what was flattened.
    if is_sharded or any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters):
        raise StateRefused(
            f"{name} is sharded by FullyShardedDataParallel (FSDP1), whose parameters cannot be kept one by one",
            hint="use fully_shard (FSDP2) with planaria.worker.ShardedState, or DistributedDataParallel",
        )


def content_of(value: Any, *, is_shared: bool = False) -> tuple[str, object, object]:
    """Return the kind of a part, what is kept of it, and apart what seldom changes: a module's versions, an optimizer's state.

    `is_shared`: another rank keeps the parameters, and what is left is this rank's own, such as BatchNorm's statistics.
    """
    kind = kind_of(value)
    if kind == MODULE:
        module = unwrapped(value)
        state = module.state_dict()
        shared = {name for name, _ in module.named_parameters(remove_duplicate=False)} if is_shared else ()
        kept = {key: item for key, item in state.items() if key not in shared}
        return kind, kept, {key: dict(known) for key, known in getattr(state, "_metadata", {}).items()}
    if kind == OPTIMIZER:
        content = dict(value.state_dict())
        state = content.pop("state", None)
        return kind, content, {"state": state, "shapes": _shapes(value) if state else None}
    if kind == STATEFUL:
        return kind, value.state_dict(), None
    if kind == TORCH_RNG:
        return kind, value.get_state(), None
    if kind == NUMPY_RNG:
        return kind, value.bit_generator.state, None
    return kind, value.getstate() if kind == PYTHON_RNG else value, None


def _shapes(optimizer: Any) -> list[tuple[int, ...]]:
    """Return the shapes of an optimizer's parameters, by their numbers: its state belongs to parameters of these shapes.

    What is in a state says too little: it may be a number, a row and a column, or one vector for all parameters.
    """
    return [tuple(parameter.shape) for group in optimizer.param_groups for parameter in group["params"]]


BESIDE = {"state", "shapes"}
"""What is kept beside the groups of an optimizer."""


def without_shapes(state: object) -> dict[str, object]:
    """Return what is beside the groups of an optimizer where the shapes of its parameters were not kept."""
    return {"state": state, "shapes": None}


def taken_groups(optimizer: Any) -> list[dict[str, Any]]:
    """Return the groups of an optimizer as they are now, each with the count of its parameters in place of them."""
    return [group | {"params": len(group["params"])} for group in optimizer.param_groups]


def is_simple(groups: list[dict[str, Any]]) -> bool:
    """Tell whether nothing in the groups can change: there are only numbers and words, and tuples of them."""
    kinds = {type(item) for group in groups for item in group.values()}
    if tuple in kinds:
        tuples = [item for group in groups for item in group.values() if type(item) is tuple]
        kinds = kinds - {tuple} | {*map(type, chain.from_iterable(tuples))}
    return kinds <= _SIMPLE


def groups_of(groups: list[dict[str, Any]]) -> dict[str, object]:
    """Return what `content_of` keeps of an optimizer of torch's own beside its state, from its groups as they were taken."""
    found, first = [], 0
    for group in groups:
        numbers = [*range(first, first + group["params"])]
        found.append({key: item for key, item in group.items() if key != "params"} | {"params": numbers})
        first += len(numbers)
    return {"param_groups": found}


def check(name: str, kind: str, saved: Any, known: Any, value: Any) -> None:
    """See that a part can take what a snapshot has, before any part is changed.

    Raises:
        StateRefused: It cannot; the message says what is different.
    """
    if kind_of(value) != kind:
        raise StateRefused(
            f"{name} is a {kind_of(value)} here and was a {kind} when the snapshot was made", hint=SAME_PROGRAM
        )
    if kind == MODULE:
        _check_module(name, saved, unwrapped(value).state_dict())
    if kind == OPTIMIZER:
        _check_optimizer(name, saved, known, value)
    if kind == STATEFUL and _is_scheduler(value):
        _check_class(name, value, _of_class(value.state_dict()), _of_class(saved))


SAME_PROGRAM = "was the snapshot made by another version of the program? choose another folder to begin anew"


def _check_module(name: str, saved: dict[str, Any], here: dict[str, Any]) -> None:
    if saved.keys() != here.keys():
        only = sorted(saved.keys() ^ here.keys())
        where = "the snapshot" if only[0] in saved else "the program"
        raise StateRefused(
            f"{name} has other parameters than the snapshot: {only[0]} is only in {where} ({len(only)} differ)",
            hint=SAME_PROGRAM,
        )
    for key, kept in saved.items():
        if arrays.is_array(kept) and not (arrays.is_array(here[key]) and arrays.same_form(kept, here[key])):
            other = f"{here[key].dtype} {tuple(here[key].shape)}" if arrays.is_array(here[key]) else "no tensor"
            raise StateRefused(
                f"{name}: {key} is {other} here and {kept.dtype} {tuple(kept.shape)} in the snapshot",
                hint=SAME_PROGRAM,
            )


def _check_optimizer(name: str, saved: dict[str, Any], shapes: list[tuple[int, ...]] | None, value: Any) -> None:
    own = value.state_dict()["param_groups"]
    groups = [len(group["params"]) for group in own]
    kept = [len(group["params"]) for group in saved["param_groups"]]
    if groups != kept:
        raise StateRefused(
            f"{name} has parameters in groups of {groups}, and the snapshot has groups of {kept}",
            hint=SAME_PROGRAM,
        )
    for here, then in zip(own, saved["param_groups"], strict=True):
        beside = here.keys() - getattr(value, "defaults", {}).keys() | _OF_NO_CLASS
        _check_class(name, value, here.keys() - beside, then.keys() - beside)
    if shapes is None:  # it has no state, or is from before they were kept
        return
    for number, (here, then) in enumerate(zip(_shapes(value), shapes, strict=True)):
        if here != then:
            raise StateRefused(
                f"{name}: its parameter {number} has the shape {here} here, and had {then} when the snapshot was made",
                hint=f"are its parameters in the same order? {SAME_PROGRAM}",
            )


# What schedulers put into the groups of any optimizer, and what torch has given to most of its own over the years.
_BY_SCHEDULERS = {"initial_lr", "swa_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}
_FLAGS = {"foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
_OF_NO_CLASS = {"params", "param_names"} | _BY_SCHEDULERS | _FLAGS


def _is_scheduler(value: Any) -> bool:
    """Tell whether it is one of torch's own: names in the state of a user's may come and go."""
    module = sys.modules.get("torch.optim.lr_scheduler")
    is_one = module is not None and isinstance(value, getattr(module, "LRScheduler", ()))
    return is_one and type(value).__module__.startswith("torch.optim.")


def _of_class(state: Any) -> set[str]:
    """Return the names in a scheduler's state by which its class is known: the private ones are other ones in another torch."""
    names = state if isinstance(state, dict) else ()
    return {key for key in names if type(key) is str and not key.startswith("_")} - {"verbose"}


def _check_class(name: str, value: Any, here: set[str], then: set[str]) -> None:
    """Refuse what an object of another class has kept: names that this one needs are not in it, and others are.

    Only one of both is another version of torch, which sees to it by itself.
    """
    if (missing := sorted(here - then)) and (surplus := sorted(then - here)):
        raise StateRefused(
            f"{name} was of another class when the snapshot was made: {type(value).__name__} has {', '.join(missing)}, which "
            f"the snapshot lacks, and the snapshot has {', '.join(surplus)}",
            hint=f"a part that is to begin anew needs another name in the state; {SAME_PROGRAM}",
        )


def give_back(kind: str, saved: Any, known: Any, value: Any, upload: Upload) -> Any:
    """Put a module, optimizer or value back; return the object, which is `value` itself wherever it can be."""
    if kind == MODULE:
        _load_module(unwrapped(value), saved, known, upload)
    elif kind == OPTIMIZER:
        _load_optimizer(value, saved, upload)
    else:
        return owned(saved, value, upload.write)
    return value


def set_by_itself(kind: str, saved: Any, value: Any) -> None:
    """Put a part back that is loaded by its own method; it may raise anything."""
    if kind == STATEFUL:
        value.load_state_dict(owned(saved))
    elif kind == TORCH_RNG:
        value.set_state(arrays.copied(saved))
    elif kind == NUMPY_RNG:
        value.bit_generator.state = owned(saved)
    else:
        value.setstate(saved)


def kept_back(value: Any) -> Any:
    """Return what is kept of such a part now, in memory of its own: on the host, where a snapshot would have it."""
    return _on_host(content_of(value)[1])


def _on_host(found: Any) -> Any:
    if arrays.is_array(found):
        return found.to("cpu", copy=True) if hasattr(found, "data_ptr") else found.copy()
    if isinstance(found, dict):
        return type(found)({key: _on_host(item) for key, item in found.items()})
    return type(found)(_on_host(item) for item in found) if type(found) in (list, tuple) else found


def claim(name: str, saved: dict[str, Any], value: Any, upload: Upload) -> None:
    """Claim the tensors of a module before any value that shares them does: they are what is trained, and stay where they are.

    One that two modules share, whose parts were kept by two ranks, gets what the first has: it may have been one then, and
    replicas may differ in a bit.

    Raises:
        StateRefused: Two of them are one here, and were not when the snapshot was made. Only one of both could be had.
    """
    here = _tensors(unwrapped(value))
    for key, item in saved.items():
        target = here.get(key)
        if target is None or not arrays.is_array(item) or not arrays.is_writable(target):
            continue
        other = upload.claims.reserve(target, item)
        if other is None:
            continue
        if _snapshot_of(other, upload) != _snapshot_of(item, upload):
            saved[key] = other
        elif not arrays.same_bytes(other, item):
            raise StateRefused(
                f"{name}: {key} is one tensor with another of a module here, and was another than that, with other "
                "content, when the snapshot was made",
                hint="give each module parameters of its own before restore(), as the program had that made the snapshot",
            )


def _snapshot_of(item: Any, upload: Upload) -> int:
    """Return at which address the snapshot begins that a tensor is in."""
    row = upload.rows.get(item.data_ptr())
    return item.data_ptr() - row.offset if row is not None else 0


def _tensors(module: Any) -> dict[str, Any]:
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def _load_module(module: Any, saved: dict[str, Any], known: Any, upload: Upload) -> None:
    here = _tensors(module)
    # What is copied here is the module's own tensor, and torch's copy of it to itself does nothing; its hooks still run.
    own = OrderedDict((key, owned(item, here.get(key), upload.write_claimed)) for key, item in saved.items())
    if known:
        vars(own)["_metadata"] = OrderedDict(known)  # where torch looks for the versions of layers
    upload.flush()
    module.load_state_dict(own)


def _load_optimizer(optimizer: Any, saved: dict[str, Any], upload: Upload) -> None:
    parameters = [(parameter, group) for group in optimizer.param_groups for parameter in group["params"]]
    here = optimizer.state_dict()
    here["state"] = _with_room(saved.get("state"), here["state"], parameters)
    own = owned(saved, here, upload.write)
    upload.flush()
    optimizer.load_state_dict(own)
    # torch casts state to the dtype of its parameter; float32 state beside bfloat16 parameters is put back as it was.
    for number, kept in saved.get("state", {}).items() if isinstance(saved.get("state"), dict) else ():
        if type(number) is not int or number >= len(parameters) or not isinstance(kept, dict):
            continue  # what concerns all parameters, by a name
        state = optimizer.state[parameters[number][0]]
        for key, item in kept.items():
            if arrays.is_array(item) and arrays.is_array(state.get(key)) and state[key].dtype != item.dtype:
                state[key] = arrays.copied(item).to(state[key].device)


def _with_room(saved: Any, here: Any, parameters: list[tuple[Any, Any]]) -> Any:
    """Return an optimizer's state with room for what a fresh one lacks, on the device where torch would move it to.

    Without it the state would be copied twice on the host first: most of a restore.
    """
    torch: Any = sys.modules["torch"]
    if not isinstance(saved, dict):
        return here
    found = {number: dict(state) if isinstance(state, dict) else state for number, state in here.items()}
    for number, kept in saved.items():
        if type(number) is not int or number >= len(parameters) or not isinstance(kept, dict):
            continue
        parameter, group = parameters[number]
        for key, item in kept.items():
            moves = key != "step" or group.get("capturable") or group.get("fused")
            missing = not arrays.is_array(found.get(number, {}).get(key))
            if moves and missing and isinstance(item, torch.Tensor) and arrays.is_on_device(parameter):
                found.setdefault(number, {})[key] = (
                    torch.empty_like(parameter, dtype=item.dtype, requires_grad=False)
                    if item.shape == parameter.shape
                    else torch.empty(item.shape, dtype=item.dtype, device=parameter.device)
                )
    return found


def _anew(_here: Any, saved: Any) -> Any:
    return arrays.copied(saved)


def owned(saved: Any, here: Any = None, write: Callable[[Any, Any], Any] = _anew) -> Any:
    """Return `saved` with every tensor in memory of its own: what `write` makes of the tensor of `here` at the same place."""
    if arrays.is_array(saved):
        return write(here, saved)
    if isinstance(saved, dict):
        below = here if isinstance(here, dict) else {}
        return type(saved)({key: owned(item, below.get(key), write) for key, item in saved.items()})
    if isinstance(saved, (list, tuple)):
        beside = here if isinstance(here, (list, tuple)) and len(here) == len(saved) else [None] * len(saved)
        return type(saved)(owned(item, other, write) for item, other in zip(saved, beside, strict=True))
    return saved
