"""What an elastic state may be made of: what makes no sense is said when the state is made, not at the first commit. Pure."""

from __future__ import annotations

from planaria.errors import StateRefused
from planaria.worker import arrays, capture, parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_WITH_STATE = ("optimizer", "scheduler")


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
        is_plain = parts.kind_of(value) == parts.VALUE and not isinstance(value, dict) and not arrays.is_array(value)
        if name in _WITH_STATE and is_plain:
            raise StateRefused(
                f"{name} expects an object with state_dict() and load_state_dict(), got {value!r}",
                hint="several of them, or other values, have names of their own, such as warmup=...",
            )


def check_options(vault: object, replicated: object) -> None:
    """See that a state's options are what they have to be.

    Raises:
        StateRefused: They are not.
    """
    if vault is not None and not all(callable(getattr(vault, name, None)) for name in ("open", "sealed", "load")):
        raise StateRefused(
            f"vault expects a vault, got {vault!r}", hint='a folder is vault=LocalVault(directory="...")'
        )
    if replicated not in (None, True, False):
        raise StateRefused(f"replicated expects True, False or None, got {replicated!r}")
