"""Make a round: announce it to everybody who is here, and start it once all know and the store, if any, agrees. No clock."""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous import placing
from planaria.rendezvous.keys import round_record
from planaria.rendezvous.messages import Start
from planaria.rendezvous.model import Standing, WriteKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.office import Office
    from planaria.rendezvous.ranks import Candidate
    from planaria.rendezvous.seats import Seat


class Making:
    """The round that is announced. `_base` are the members of the last one that has begun who were here then."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._orders, self._roll, self._seats = office.orders, office.roll, office.seats
        self._base: frozenset[str] = frozenset()
        self._left = 0
        self._placed_at = office.began_at

    def place(self, chosen: tuple[Candidate, ...], now: float) -> None:
        """Tell everybody who is in the next round; nobody starts before all know."""
        office = self._office
        office.chosen = chosen
        office.phase = "placing"
        self._placed_at = now
        before, self._left = self._roll.before()
        self._base = frozenset(node for node in before if node in self._seats)
        self._roll.announce(tuple(one.node for one in chosen))
        office.announced = self._standing()
        office.places = placing.places(office.announced, office.reason, chosen, self._seats, self._base)
        for node, place in office.places.items():
            self._orders.send(self._seats[node], place)

    def _standing(self) -> Standing:
        office, roll = self._office, self._roll
        lost = placing.without(roll.members, office.chosen)
        keeps = roll.has_round and roll.is_started and not roll.has_unknown() and len(lost) <= placing.DEPUTIES
        return Standing(
            epoch=office.epoch,
            term=office.term,
            round=office.next_round,
            size=len(office.chosen),
            restart_count=office.restart_count,
            deputies=placing.deputies(office.chosen, self._seats, self._roll.addresses, self._base),
            next_round=office.next_round + 1,
            base=self._left,
            begun=roll.last.round if roll.is_started else roll.last.begun,
            keeps=keeps,
            without=lost if keeps else (),
        )

    def note_placed(self, seat: Seat, number: int) -> None:
        """Note that a node knows its place."""
        seat.placed = number
        if number == self._office.next_round and self._office.phase == "placing":
            self._roll.note_heard(seat.join.node, self._placed_at)

    def has_lost_one(self) -> bool:
        """Tell whether one of those who were chosen is not here any more."""
        return any(one.node not in self._seats for one in self._office.chosen)

    def is_known(self) -> bool:
        """Tell whether everybody who was told has answered."""
        number, places = self._office.next_round, self._office.places
        return all(seat.placed >= number for node, seat in self._seats.items() if node in places)

    def is_known_to_members(self) -> bool:
        """Tell whether all who were chosen know; one may have come back over a new connection since it was told."""
        return all(self._seats[one.node].placed >= self._office.next_round for one in self._office.chosen)

    def ask_store(self, revision: int) -> None:
        """Let the store say whether this is the next round."""
        self._office.phase = "starting"
        self._orders.add(WriteKey("round", round_record(self._standing()), revision))

    def give_up(self) -> None:
        """Choose anew after a chosen node was lost. The number is burnt: some may have heard of it."""
        office, roll = self._office, self._roll
        if any(one.node in roll.members and one.node not in self._seats for one in office.chosen):
            office.restart_count = roll.last.restart_count  # the last round lost a member after all: no charge
        office.next_round += 1
        office.places = {}
        office.phase = "gathering"

    def start(self, now: float) -> None:
        """Let the members go."""
        office = self._office
        last = replace(self._standing(), begun=office.next_round, keeps=False, without=())
        self._roll.begin(last, {one.node: one.local_world_size for one in office.chosen})
        office.next_round = last.next_round
        office.phase = "running"
        office.count_anew()
        left_s = office.left_s(now)
        for node, slot in self._roll.members.items():
            seat = self._seats[node]
            seat.runs, seat.failed, seat.done = last.round, None, -1
            seat.answered_at = now  # the order grants a lease as an answer does
            standing = replace(last, slot=slot, home=slot, ran=last.round)
            seat.join = replace(seat.join, fenced=False, standing=standing, state="running")
            self._orders.send(seat, Start(last.round, left_s))
