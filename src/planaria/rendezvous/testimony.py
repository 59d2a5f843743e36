"""What a leadership learns from what a joining node knows: the newest round, who of it is dead, since when nobody led. Pure.

Newer rounds than ours are possible while we claim, and while we are about to found a run that a store has forgotten; later we
have made the newest one ourselves.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Join
    from planaria.rendezvous.model import Standing
    from planaria.rendezvous.office import Office
    from planaria.rendezvous.roll import Roll


def take(office: Office, join: Join, now: float) -> None:
    """Take over what a joining node knows."""
    standing, roll = join.standing, office.roll
    if office.is_founding and _is_better(join, roll):
        office.yield_to(standing)
    is_ours = join.bound_term == office.term and join.node in roll.heard
    if join.bound_term > 0 and not is_ours:  # it may have counted for another until then, also while we led
        roll.fence_floor = max(roll.fence_floor, now - join.since_ack_s)
    if not office.established:
        if _is_better(join, roll):
            office.adopt(standing)
        _take_deaths(roll, join, now)
        office.next_round = max(office.next_round, standing.next_round, standing.round + 1)
    roll.enter(join)


def _take_deaths(roll: Roll, join: Join, now: float) -> None:
    """Count the proofs of those without whom no newer round could have begun while they held the lease to gather them."""
    known = join.standing
    is_same = (known.term, known.round) == (roll.last.term, roll.last.round)
    if is_same and (known.slot is not None or join.node in roll.spares):
        concerned = {*roll.members, *roll.base, *roll.spares}
        roll.gone = {node: now for node in join.gone if node in concerned} | roll.gone
        roll.dead = {node: now for node in join.dead if node in concerned and node not in roll.here} | roll.dead


def _is_better(join: Join, roll: Roll) -> bool:
    """Tell whether a node's newest round, and not ours, is the last that can have started.

    With a store, ours is the one there or newer, and a round is there before it starts: no other was more than announced.
    Where the store has none, it was emptied, or no round ever started: then a first one that was announced is nothing.
    """
    theirs, ours = join.standing, roll.last
    if (theirs.term, theirs.round) > (ours.term, ours.round):
        if roll.is_stored or (roll.settings.external and theirs.begun < 0):
            return theirs.ran >= theirs.round
        return theirs.has_begun or not any(_shows_no_start(seat.join, theirs) for seat in roll.here.values())
    return theirs.round >= 0 and _shows_no_start(join, ours)


def _shows_no_start(join: Join, standing: Standing) -> bool:
    """Tell whether a node proves that a round never started, and never will: it is in it, and was not told of it."""
    known = join.standing
    older = (known.term, known.round) < (standing.term, standing.round)
    return older and (
        _is_kept(join, standing) or any(join.node == one.node for one in standing.deputies[: standing.size])
    )


def _is_kept(join: Join, standing: Standing) -> bool:
    """Tell whether a node must be in a round, few of whose members are named, since it was in the one before."""
    was_in = join.standing.epoch == standing.epoch and join.standing.ran == standing.begun >= 0
    return was_in and standing.keeps and join.node not in standing.without
