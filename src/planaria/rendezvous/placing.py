"""Write the `Place` of each node in a round. Pure."""

from __future__ import annotations

from planaria.rendezvous.messages import Place
from planaria.rendezvous.model import Deputy, Standing
from planaria.rendezvous.ranks import ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from planaria.rendezvous.ranks import Candidate
    from planaria.rendezvous.seats import Seat

DEPUTIES = 8
FEW_DEPUTIES = 3
MANY_NODES = 64  # from here on eight deputies are most of what an agent reads, and a leader is not to be hurried by all


def deputies(
    arranged: Sequence[Candidate], seats: Mapping[str, Seat], addresses: Mapping[str, str], base: Container[str]
) -> tuple[Deputy, ...]:
    """Return the members that succeed a leader, in order, and if those are few the spectators after them."""
    nodes = [one.node for one in arranged]
    if len(nodes) > MANY_NODES:
        nodes = nodes[:FEW_DEPUTIES]
    else:
        by_arrival = sorted(seats.values(), key=lambda seat: seat.arrival)
        nodes += [seat.join.node for seat in by_arrival if seat.join.node not in nodes]
    return tuple(Deputy(node, addresses[node], node in base) for node in nodes[:DEPUTIES])


def without(before: Iterable[str], chosen: Sequence[Candidate]) -> tuple[str, ...]:
    """Return who of the round before is not in the next."""
    kept = {one.node for one in chosen}
    return tuple(node for node in before if node not in kept)


def places(
    round_: Standing, reason: str, arranged: Sequence[Candidate], seats: Mapping[str, Seat], base: Container[str]
) -> dict[str, Place]:
    """Return the place of each node that is here in a round; those that were not chosen are spectators."""
    ranks = ranks_of(arranged)
    master = seats[arranged[0].node]
    addr = master.join.address.rpartition(":")[0].strip("[]")
    addresses = [seats[one.node].join.address for one in arranged]
    found = {node: spectator_place(round_, reason, in_base=node in base) for node in seats if node not in ranks}
    for node, own in ranks.items():
        found[node] = Place(
            epoch=round_.epoch,
            term=round_.term,
            round=round_.round,
            size=round_.size,
            slot=own.slot,
            first_rank=own.first_rank,
            world_size=own.world_size,
            first_role_rank=own.first_role_rank,
            role_world_size=own.role_world_size,
            master_addr=addr,
            master_port=master.port,
            restart_count=round_.restart_count,
            reason=reason,
            deputies=round_.deputies,
            base=round_.base,
            in_base=node in base,
            begun=round_.begun,
            keeps=round_.keeps,
            without=round_.without,
            anchor=addresses[0],
            buddy=addresses[(own.slot + 1) % len(addresses)] if len(addresses) > 1 else "",
        )
    return found


def spectator_place(round_: Standing, reason: str, *, in_base: bool = False) -> Place:
    """Return a round as one sees it that is not in it."""
    return Place(
        epoch=round_.epoch,
        term=round_.term,
        round=round_.round,
        size=round_.size,
        slot=None,
        first_rank=0,
        world_size=0,
        first_role_rank=0,
        role_world_size=0,
        master_addr="",
        master_port=0,
        restart_count=round_.restart_count,
        reason=reason,
        deputies=round_.deputies,
        base=round_.base,
        in_base=in_base,
        begun=round_.begun,
        keeps=round_.keeps,
        without=round_.without,
    )
