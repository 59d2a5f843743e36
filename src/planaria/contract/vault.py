"""What agent and worker say to each other about snapshots: lines of JSON on the control socket, memory as descriptors.

From a worker:  vault-join, vault-open, vault-load, vault-await   each with an id, and each is answered once
                vault-sealed, vault-skipped                       which are not answered
To a worker:    vault-place, vault-slot, vault-found, vault-reached, vault-refused

A worker that never asks costs its agent nothing. Memory comes with the line that names it (SCM_RIGHTS).
"""

from __future__ import annotations

from planaria.base.value import Value, as_dict

INTEGER_LIMIT = 1 << 63


class Join(Value):
    """Tell me where my commits come from."""

    id: int


class Place(Value):
    """The answer to `Join`: what `commit.Origin` says."""

    id: int
    run: int
    round: int
    rank: int
    world_size: int
    keeps_shared: bool


class Open(Value):
    """Lend me memory for a commit; there is no answer until there is some."""

    id: int
    size_bytes: int


class Slot(Value):
    """The answer to `Open`. `number` is never used for other memory; its descriptor comes the first time, `is_new`.

    `numbers` are all that this worker may be lent again: others it can let go.
    """

    id: int
    number: int
    is_new: bool
    numbers: tuple[int, ...]


class Sealed(Value):
    """The memory lent last is a sealed snapshot with this stamp."""

    number: int
    run: int
    round: int
    generation: int
    step: int
    world_size: int
    rank: int


class Skipped(Value):
    """I shall not seal this commit: it was refused, or failed on its way."""

    run: int
    round: int
    generation: int


class Load(Value):
    """Where is the newest complete commit? `is_damaged`: what you said before could not be read."""

    id: int
    is_damaged: bool


class Found(Value):
    """The answer to `Load`. With memory, `descriptors` tells which come along: "own", "shared", in this order.

    `numbers` are those of their slots: who has one mapped reads it there. Else a commit of `directory`, named by run, round
    and generation in `order`; both empty: there is none.
    """

    id: int
    descriptors: tuple[str, ...]
    numbers: tuple[int, ...]
    directory: str
    order: tuple[int, ...]


class Await(Value):
    """Tell me when a commit has reached a tier, or after so many seconds, or once it is clear that it will not.

    It is refused where that is a mistake of the program.
    """

    id: int
    run: int
    round: int
    generation: int
    tier: str
    timeout_s: float


class Reached(Value):
    """The answer to `Await`: the highest tier that the commit has reached, empty: none."""

    id: int
    tier: str


class Refused(Value):
    """The answer to anything that cannot be had."""

    id: int
    message: str
    hint: str


_KINDS: dict[str, type[Value]] = {
    f"vault-{kind.__name__.lower()}": kind
    for kind in (Join, Place, Open, Slot, Sealed, Skipped, Load, Found, Await, Reached, Refused)
}

TYPE_CHECKING = False
if TYPE_CHECKING:
    Message = Join | Place | Open | Slot | Sealed | Skipped | Load | Found | Await | Reached | Refused


def encode(message: Message) -> bytes:
    """Return the line for a message."""
    import json

    return json.dumps({"type": f"vault-{type(message).__name__.lower()}", **as_dict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """Return the message in a line, or None when it is not one of these.

    Raises:
        ValueError: It is one, and a field is missing or has the wrong type. The peer is broken.
    """
    import json

    try:
        found = json.loads(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    named = found.pop("type", "") if isinstance(found, dict) else ""
    kind = _KINDS.get(named) if isinstance(named, str) else None  # a list cannot even be looked up
    if kind is None:
        return None
    wanted = kind.__annotations__
    if found.keys() != wanted.keys() or not all(_fits(found[name], wanted[name]) for name in wanted):
        raise ValueError(f"not the fields of a {kind.__name__}")
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return kind(**fields)  # type: ignore[return-value]  # the table has nothing else


def _fits(value: object, annotation: str) -> bool:
    match annotation:
        case "int":
            return type(value) is int and 0 <= value < INTEGER_LIMIT
        case "float":
            return type(value) is float and 0 <= value < float("inf")
        case "bool":
            return type(value) is bool
        case "str":
            return type(value) is str
    inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
    return isinstance(value, list) and all(_fits(part, inner) for part in value)
