"""Who gets which slot and which ranks. Pure.

Survivors keep their slots where the new size allows it, a newcomer takes the slot of the node it replaces (of one with as
many workers, if there is a choice), and only what is left over moves.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Candidate(Value):
    """A node that can be in the next round, in the order of its claim."""

    node: str
    local_world_size: int
    role: str
    slot: int | None = None
    """Its slot in the round before."""
    wish: int | None = None
    """The slot that its owner fixed."""


class Ranks(Value):
    """What one node's workers are called in a round."""

    slot: int
    first_rank: int
    world_size: int
    first_role_rank: int
    role_world_size: int


def choose(candidates: Sequence[Candidate], most: int) -> tuple[Candidate, ...]:
    """Return at most `most` candidates: members of the last round by slot, then the others in order of arrival."""
    before = sorted((one for one in candidates if one.slot is not None), key=lambda one: one.slot or 0)
    fresh = [one for one in candidates if one.slot is None]
    return (*before, *fresh)[:most]


def arrange(chosen: Sequence[Candidate], sizes_before: Mapping[int, int]) -> tuple[Candidate, ...]:
    """Return the chosen in slot order. `sizes_before` says how many workers each slot had."""
    placed: dict[int, Candidate] = {}
    homeless: list[Candidate] = []
    for one in chosen:
        place = one.wish if one.wish is not None else one.slot
        if place is not None and place < len(chosen) and place not in placed:
            placed[place] = one
        else:
            homeless.append(one)
    empty = [place for place in range(len(chosen)) if place not in placed]
    for place in filter(sizes_before.__contains__, empty):
        alike = next((one for one in homeless if one.local_world_size == sizes_before[place]), None)
        if alike is not None:
            placed[place] = alike
            homeless.remove(alike)
    for place in empty:
        if place not in placed:
            placed[place] = homeless.pop(0)
    return tuple(placed[place] for place in range(len(chosen)))


def ranks_of(arranged: Sequence[Candidate]) -> dict[str, Ranks]:
    """Return the ranks of each node of a round, by node."""
    role_sizes: dict[str, int] = {}
    first: list[tuple[int, int]] = []
    world_size = 0
    for one in arranged:
        first.append((world_size, role_sizes.get(one.role, 0)))
        world_size += one.local_world_size
        role_sizes[one.role] = role_sizes.get(one.role, 0) + one.local_world_size
    return {
        one.node: Ranks(slot, first[slot][0], world_size, first[slot][1], role_sizes[one.role])
        for slot, one in enumerate(arranged)
    }
