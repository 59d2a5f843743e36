"""What members and the anchor of a round say to each other about commits, as JSON values that are checked field by field.

From a member:  present, ready, sealed, unsealed, copied, written, damaged, unreached, seek; searched, by the anchor's own
To a member:    welcome, plan, complete, void, copy, write, reached, drop, failed; search, to the anchor's own

All of it belongs to one round: each line between a member and its anchor is of one round, and is refused for another. A line
that broke begins again with `present`, and both sides then say again what counts; so every message may be said twice.
An order is (run, round, generation), empty for none.
"""

from __future__ import annotations

from planaria.base.value import Value, as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.commit import Order

INTEGER_LIMIT = 1 << 63
LONGEST_TEXT = 2000  # of a reason or an address
MOST_PARTS = 100_000


class Part(Value):
    """A rank's part of a commit, sealed, in the memory of a node; `shared`: model and optimizer are in it for all."""

    run: int
    round: int
    generation: int
    step: int
    world_size: int
    rank: int
    shared: bool
    size_bytes: int

    @property
    def order(self) -> Order:
        """Return which commit it is of."""
        return self.run, self.round, self.generation


class Present(Value):
    """I am here, with these parts. `complete`, `safe` and `disk` are the newest commits that I know to have come so far.

    `run` is 0 while this agent belongs to none. `last_round` is the newest round that it took part in before this one.
    `buddy` is the address of the next slot, empty when there is nobody.
    """

    slot: int
    first_rank: int
    local_world_size: int
    buddy: str
    run: int
    last_round: int
    parts: tuple[Part, ...]
    complete: tuple[int, ...]
    safe: tuple[int, ...]
    disk: tuple[int, ...]


class Ready(Value):
    """I have all parts of this version of the plan that my workers need."""

    version: int


class Sealed(Value):
    """All of my workers, who began from this version of the plan, have sealed this commit.

    What they have sealed before it and is not known to be complete was said before it, on the same line.
    """

    version: int
    order: tuple[int, ...]
    step: int


class Unsealed(Value):
    """Never will all of my workers, who began from this version, have sealed this commit; `why` where that is a mistake."""

    version: int
    order: tuple[int, ...]
    why: str


class Copied(Value):
    """My buddy has verified the parts that I was to copy; `why`: it has not. `number` is that of `Copy`."""

    number: int
    why: str


class Written(Value):
    """The parts that I was to write are in the directory; `is_whole`: and all others'. `why`: they are not."""

    number: int
    is_whole: bool
    why: str


class Damaged(Value):
    """What the member of this slot holds of a rank's part cannot be read."""

    order: tuple[int, ...]
    rank: int
    slot: int


class Unreached(Value):
    """The member of this slot, from which I am to fetch a rank's part, has been out of my reach for long. I go on trying."""

    order: tuple[int, ...]
    rank: int
    slot: int


class Seek(Value):
    """A worker of mine asks again for a commit, after a directory could not be read."""


class Search(Value):
    """Look in the directory for a whole commit that is newer than this."""

    than: tuple[int, ...]


class Searched(Value):
    """What was found, empty for nothing; `newest` is the newest that has left anything, whole or not. `why`: nobody knows."""

    order: tuple[int, ...]
    step: int
    world_size: int
    newest: tuple[int, ...]
    why: str


class Welcome(Value):
    """All members are here; this is the run that commits are made in."""

    run: int


class Source(Value):
    """Fetch the part of a rank there."""

    rank: int
    slot: int
    address: str
    shared: bool
    size_bytes: int


class Plan(Value):
    """Begin from this commit, from `memory` or `disk`; `none`: there is none; `unknown`: a directory cannot be read.

    `shared` is the rank of the part with what is shared for this member, `fetch` what it lacks. Every other commit in memory
    but `safe` is over. `is_loss`: this member knew of a newer one to be complete, and tells people that it is lost.
    `ring` has the addresses of the slots behind the buddy's.
    """

    version: int
    kind: str
    order: tuple[int, ...]
    step: int
    world_size: int
    shared: int
    safe: tuple[int, ...]
    fetch: tuple[Source, ...]
    ring: tuple[str, ...]
    is_loss: bool
    why: str


class Complete(Value):
    """Every rank of the world has sealed this commit: older ones may be overwritten."""

    order: tuple[int, ...]
    step: int


class Void(Value):
    """This commit will never be complete: nobody needs its parts. `why`: by a mistake of the program, which it hears of."""

    order: tuple[int, ...]
    why: str


class Copy(Value):
    """Have your buddy keep your parts of these ranks."""

    number: int
    order: tuple[int, ...]
    ranks: tuple[int, ...]


class Write(Value):
    """Write your parts of these ranks into the directory."""

    number: int
    order: tuple[int, ...]
    ranks: tuple[int, ...]


class Reached(Value):
    """The commit has reached this tier on all nodes."""

    tier: str
    order: tuple[int, ...]
    step: int
    world_size: int


class Drop(Value):
    """See whether what you hold of this part is whole, and forget it if not: somebody could not read it."""

    order: tuple[int, ...]
    rank: int


class Failed(Value):
    """The commit will not reach this tier; a later one may. `is_news`: nobody was told where it failed."""

    tier: str
    order: tuple[int, ...]
    is_news: bool
    why: str


_FROM_MEMBERS = (Present, Ready, Sealed, Unsealed, Copied, Written, Damaged, Unreached, Seek, Searched)
_TO_MEMBERS = (Welcome, Plan, Complete, Void, Copy, Write, Reached, Drop, Failed, Search)
_KINDS: dict[str, type[Value]] = {kind.__name__.lower(): kind for kind in (*_FROM_MEMBERS, *_TO_MEMBERS)}
_PARTS: dict[str, type[Value]] = {"Part": Part, "Source": Source}

if TYPE_CHECKING:
    Saying = Present | Ready | Sealed | Unsealed | Copied | Written | Damaged | Unreached | Seek | Searched
    Ruling = Welcome | Plan | Complete | Void | Copy | Write | Reached | Drop | Failed | Search
    Message = Saying | Ruling


def encode(message: Message) -> dict[str, object]:
    """Return the JSON value of a message."""
    return {"type": type(message).__name__.lower(), **as_dict(message)}


def decode(found: object) -> Message:
    """Return the message in a JSON value.

    Raises:
        ValueError: It is none, or a field is missing or wrong. The peer is broken.
    """
    kind = _KINDS.get(str(found.get("type"))) if isinstance(found, dict) else None
    if kind is None or not isinstance(found, dict):
        raise ValueError("not a message of a council")
    return _value(kind, {name: value for name, value in found.items() if name != "type"})  # type: ignore[return-value]  # the table


def part_of(found: object) -> Part:
    """Return the part that a JSON value describes.

    Raises:
        ValueError: It describes none.
    """
    return _value(Part, found)  # type: ignore[return-value]  # the kind that was asked for


def order_of(numbers: tuple[int, ...]) -> Order | None:
    """Return the order in a message's field."""
    return (numbers[0], numbers[1], numbers[2]) if numbers else None


def _value(kind: type[Value], found: object) -> Value:
    wanted = vars(kind).get("__annotations__", {})  # its own: one without fields would show those of `Value`
    if not isinstance(found, dict) or found.keys() != wanted.keys():
        raise ValueError(f"not the fields of a {kind.__name__}")
    made = kind(**{name: _field(name, found[name], wanted[name]) for name in wanted})
    if isinstance(made, Part) and not made.rank < made.world_size:
        raise ValueError("a part of no rank")
    return made


def _field(name: str, value: object, annotation: str) -> object:
    if annotation == "int" and type(value) is int and 0 <= value < INTEGER_LIMIT:
        return value
    if annotation == "bool" and type(value) is bool:
        return value
    if annotation == "str" and type(value) is str and len(value) <= LONGEST_TEXT:
        return value
    if annotation.startswith("tuple[") and isinstance(value, list) and len(value) <= MOST_PARTS:
        inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
        if inner in _PARTS:
            return tuple(_value(_PARTS[inner], one) for one in value)
        numbers = tuple(_field(name, one, inner) for one in value)
        if name in ("ranks", "ring") or len(numbers) in (0, 3):
            return numbers
    raise ValueError(f"{name} is not what it should be")
