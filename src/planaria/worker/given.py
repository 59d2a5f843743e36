"""What an elastic state may be made of: what makes no sense is said when the state is made, not at the first commit. Pure."""

from __future__ import annotations

from planaria.errors import StateRefused
from planaria.worker import arrays, capture, parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_WITH_STATE = ("optimizer", "scheduler")
_OF_A_VAULT = ("begin_open", "open", "sealed", "skipped", "wait", "load")


def check_names(names: Collection[str], taken: Collection[str]) -> None:
    """See that values can be attributes of a state, which has some of its own.

    Raises:
        StateRefused: One of them cannot.
    """
    for name in names:
        if name in taken or name in (capture.RNG, "stamp"):
            raise StateRefused(f"an ElasticState cannot have a value called {name!r}", hint="choose another name")


def check_parts(given: Mapping[str, object]) -> None:
    """See that parts are objects that have something to keep.

    Raises:
        StateRefused: One is a class, a sharded module, or under the name of an optimizer or a scheduler something else.
    """
    for name, value in given.items():
        if isinstance(value, type):
            raise StateRefused(f"{name} is the class {value.__name__}, not an object of it", hint="make one first")
        parts.check_whole(name, value)
        if name in _WITH_STATE and not _has_something_to_keep(value):
            raise StateRefused(
                f"{name} expects an object with state_dict() and load_state_dict(), or arrays, got a {type(value).__name__}",
                hint="several of them, or other values, have names of their own, such as warmup=...",
            )


def check_sharded(model: object, optimizer: object) -> None:
    """See that what ranks share out is a module, and the optimizer that of one.

    Raises:
        StateRefused: It is not.
    """
    if optimizer is not None and model is None:
        raise StateRefused("a ShardedState with an optimizer expects its model too, model=...")
    if model is not None and parts.kind_of(model) != parts.MODULE:
        raise StateRefused(
            f"model expects a torch module, got a {type(model).__name__}", hint="other values have names of their own"
        )


def _has_something_to_keep(value: object) -> bool:
    """Tell whether it is a part of its own, or data such as a program without torch has: arrays, and a dict or list of them."""
    if isinstance(value, (list, tuple)):
        return all(parts.kind_of(one) == parts.VALUE for one in value)
    return parts.kind_of(value) != parts.VALUE or isinstance(value, dict) or arrays.is_array(value)


def _has_origin(vault: object) -> bool:
    """Tell whether a vault knows where its commits come from. It is not asked: an agent answers when all nodes are there."""
    kind = type(vault)
    return "origin" in getattr(vault, "__dict__", ()) or hasattr(kind, "origin") or hasattr(kind, "__getattr__")


def check_options(vault: object, replicated: object) -> None:
    """See that a state's options are what they have to be.

    Raises:
        StateRefused: They are not.
    """
    missing = [f"{name}()" for name in _OF_A_VAULT if not callable(getattr(vault, name, None))]
    missing += [] if _has_origin(vault) else ["origin"]
    if vault is not None and (isinstance(vault, type) or missing):
        lacks = f", which has no {missing[0]}" if 0 < len(missing) <= len(_OF_A_VAULT) else ""
        raise StateRefused(
            f"vault expects a vault, got {vault!r}{lacks}", hint='a folder is vault=LocalVault(directory="...")'
        )
    if replicated is not None and type(replicated) is not bool:
        raise StateRefused(f"replicated expects True, False or None, got {replicated!r}")
