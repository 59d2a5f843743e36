"""Between two rounds: who can be in the next one, when it may open, and how long we wait for the rest. No clock, no sockets."""

from __future__ import annotations

from planaria.rendezvous import quorum, words
from planaria.rendezvous.messages import Ended
from planaria.rendezvous.probes import PROBE_S
from planaria.rendezvous.ranks import Candidate, arrange, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.rendezvous.notice import Notice
    from planaria.rendezvous.office import Office

FOUND_S = 0.2  # how long an older world has to object to a first round; its leader asks here every MEET_S


class Gathering:
    """`_waits`: there were too few nodes, so a round below the maximum waits until no more arrive."""

    def __init__(self, office: Office, notice: Notice) -> None:
        self._office = office
        self._notice = notice
        self._orders, self._roll, self._settings = office.orders, office.roll, office.settings
        self._waits = not office.roll.last.size

    def opens_at(self, now: float) -> float:
        """Return when there are nodes enough for the next round, as far as can be told now."""
        settings, roll, office = self._settings, self._roll, self._office
        count = self._count()
        if count < settings.min_nodes:
            self._waits = True
            return quorum.ALWAYS
        if count >= settings.max_nodes and not roll.has_round and not settings.external:
            return max(now, office.began_at + FOUND_S)
        if count >= settings.max_nodes or not self._waits:
            return now
        if roll.has_round and count >= roll.last.size > 0:
            return now
        quiet_at = office.last_arrival + settings.quiet_s
        return quiet_at if roll.has_round else max(quiet_at, office.began_at + settings.boot_quiet_s)

    def may_open(self, now: float) -> bool:
        """Tell whether nobody is left who could object, or whose old workers are still alive."""
        office, roll = self._office, self._roll
        if any(seat.runs >= 0 for seat in office.seats.values()):
            return False
        if self._settings.on_lost_majority == "continue":
            return True
        if not self._are_fenced(now):
            return False
        if office.is_valid(now) and roll.has_enough(now):
            return True
        if roll.has_round:
            self._notice.wait_for_majority()
        else:
            self._orders.wake(now + PROBE_S)  # a first round was announced, and some who heard of it are not back yet
        return False

    def _are_fenced(self, now: float) -> bool:
        """Tell whether nobody that is away could still take the last round for the newest: its lease would say that it is.

        Also one that has stopped its workers: it would count deaths that it proves, and begin with those who are left.
        """
        roll = self._roll
        away = [] if self._settings.external else [*roll.missing(), *roll.spares_away()]
        has_strangers = not self._settings.external and roll.has_strangers()
        floor = roll.floor() if away or has_strangers else 0.0
        due = [roll.fenced_at(node, floor) for node in away]
        due += [floor + self._settings.silence_s] if has_strangers else []
        for when in due:
            self._orders.wake(when)
        return all(when <= now for when in due)

    def choose(self) -> tuple[Candidate, ...]:
        """Return the members of the next round in the order of their slots."""
        self._waits = False
        return arrange(choose(tuple(self._candidates()), self._settings.max_nodes), self._roll.sizes)

    def _candidates(self) -> Iterator[Candidate]:
        for seat in sorted(self._office.seats.values(), key=lambda seat: seat.arrival):
            if seat.can_run:
                join = seat.join
                slot = join.standing.home if join.node in self._roll.members else None
                yield Candidate(join.node, join.local_world_size, join.role, slot, join.slot_wish)

    def wait(self, now: float) -> Ended | None:
        """Tell everybody whom we wait for; return the end if the first round did not open in time."""
        settings, roll, seats = self._settings, self._roll, self._office.seats
        left_s: float | None = None
        if not roll.has_round:
            began_at = min((seat.began_at for seat in seats.values()), default=self._office.began_at)
            ends_at = began_at + settings.join_timeout_s
            left_s = words.rounded_up(ends_at - now)
            self._orders.wake(ends_at)
            self._orders.wake(ends_at - words.shorter(left_s))
            if now >= ends_at:
                away = [roll.name(node) for node in roll.announced_and_away()]
                why = words.too_late(settings, self._count(), away)
                return Ended("timeout", 124, why, (), self._office.restart_count)
        here = [seat.join.host for seat in seats.values() if seat.can_run]
        away = [roll.name(node) for node in roll.missing()]
        self._notice.tell(words.waiting(settings, here, away, left_s))
        return None

    def _count(self) -> int:
        return sum(seat.can_run for seat in self._office.seats.values())
