"""The leader's decisions: who is in the next round, when it starts, how the run ends. No clock, no sockets.

    claiming -> running                           enough members of the last round hold to this leader
    gathering -> placing -> [starting] -> running enough nodes are here; all know the round; the store, if any, does too
    running -> stopping -> gathering              a failure, a loss, a goodbye, an arrival
    any -> ended                                  done, failed for good, or nobody came in time

Everything is decided again from the facts once a turn (`advance`), so no fact is lost by coming at a bad moment.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous import placing, quorum, verdict, words
from planaria.rendezvous.attendance import PROBE_S
from planaria.rendezvous.ending import Ending
from planaria.rendezvous.keys import round_record
from planaria.rendezvous.messages import (
    Departing,
    Done,
    Ended,
    Failed,
    Heard,
    Join,
    Leave,
    Placed,
    Quit,
    Renew,
    Start,
    Stop,
    Stopped,
    Waiting,
)
from planaria.rendezvous.model import Close, Say, Standing, WriteKey
from planaria.rendezvous.ranks import Candidate, arrange, choose
from planaria.rendezvous.roll import DEAD_S
from planaria.rendezvous.seats import Seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.rendezvous.messages import ToLeader
    from planaria.rendezvous.model import Answered, Effect, Held, Settings

FOUND_S = 0.2  # how long an older world has to object to a first round; its leader asks here every MEET_S
STOPPED_STATUS = 143  # as after SIGTERM, which is how one node is stopped
TELL_S, TELL_MANY_S = 0.5, 5.0  # between two lines about what we wait for; thousands of readers cost something


class Leader(Ending):
    """One leadership: what follows from who is here."""

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, held: Held) -> None:
        super().__init__(settings, now, term=term, standing=standing, held=held)
        self._failed: list[tuple[Failed, Join, float]] = []
        self._for_failure = False
        self._lost_one = False
        self._base: frozenset[str] = frozenset()
        self._placed_at = now
        self._began_at = now
        self._waits = standing.round < 0
        self._told = ""
        self._told_at = quorum.NEVER

    # What happens to it.

    def received(self, conn: str, message: ToLeader, now: float) -> None:
        """Take a node's message; whoever has not joined is not heard."""
        seat = self._conns.get(conn)
        if isinstance(message, Join):
            self._join(conn, message, now)
            self._touch()
        elif seat is not None and isinstance(message, Renew):
            self._renew(seat, message, now)
        elif seat is not None:
            self._touch()
            self._told_by(seat, message, now)
        else:
            self._out.append(Close(conn))  # who has not joined has nothing to say

    def _told_by(self, seat: Seat, message: ToLeader, now: float) -> None:
        match message:
            case Stopped(number, port, fenced):
                seat.runs, seat.stopped_for, seat.port = -1, max(seat.stopped_for, number), port
                self._lost_one |= fenced and seat.join.node in self.roll.members
            case Placed(number):
                self._note_placed(seat, number)
            case Failed():
                self._note_failed(seat, message, now)
            case Done(number):
                seat.runs, seat.done = -1, number
                if number == self.roll.last.round and seat.join.node in self.roll.members:
                    self.roll.finished.add(seat.join.node)
            case Departing():
                seat.departing = True
            case Leave():
                self._leave(seat)
            case Quit():
                self._note_quit(message)
            case Heard():
                self.heard_end(seat)

    def lost(self, conn: str, now: float) -> None:
        """Note that a connection ended. That alone proves nothing."""
        seat = self._conns.pop(conn, None)
        if seat is not None:
            self._unseat(seat, now)
            self._touch()

    def answered_probe(self, answer: Answered, now: float) -> None:
        """Take the answer of a node whose connection ended: nobody, or somebody else, listens there: it is dead."""
        for node, address in self.roll.addresses.items():
            if address != answer.address or node in self.seats or node in self.roll.dead:
                continue
            another = answer.leads is not None and answer.leads.node != node
            if (answer.refused or another) and self._may_shrink(now):
                self.roll.dead[node] = now
                self._touch()

    def raise_term(self, term: int) -> None:
        """Lead in a newer term: the store had lost the leader key, and it was written anew."""
        self.term = max(self.term, term)
        if self.phase in ("placing", "starting"):
            self._place_again()
        self._touch()

    def round_written(self, revision: int, now: float) -> None:
        """Go on with a round that the store has taken."""
        self.round_revision = revision
        self._touch()
        self._write_outcome(now)
        if self.phase != "starting":
            return
        if any(one.node not in self.seats for one in self._chosen):
            self._place_again()
        elif any(self.seats[one.node].placed < self.next_round for one in self._chosen):
            self.phase = "placing"  # one came back over a new connection, and has to be told again
        else:
            self._start(now)

    def advance(self, now: float) -> tuple[list[Effect], float]:
        """Decide what follows from what is known; return the orders and when to look again."""
        self.is_dirty = False
        self._valid = None
        self._now, self._wake_at = now, quorum.ALWAYS
        self._drop_silent(now)
        while self._step(now):
            self._valid = None
        return self.take_orders(), self._wake_at

    # Decisions. Each returns whether something changed, so that the next can build on it.

    def _step(self, now: float) -> bool:
        self._probe(now)
        match self.phase:
            case "claiming":
                return self._claim(now)
            case "running":
                return self._watch_over(now)
            case "stopping":
                return self._settle(now)
            case "gathering":
                return self._gather(now)
            case "placing":
                return self._check_placed(now)
            case "ended":
                return self._see_it_out(now)
            case _:  # starting: the store has to agree
                return False

    def _claim(self, now: float) -> bool:
        roll, policy = self.roll, self.settings.on_lost_majority
        hold_at = max(roll.fence_floor, self._began_at) + self.settings.silence_s
        if self.is_valid(now) or (now >= hold_at and policy == "continue"):
            if not self.settings.external or policy == "continue":
                roll.tie_until = quorum.ALWAYS  # an incumbent keeps half, a rival needs more
            self.phase = "running"
            return True
        self._wake(hold_at)
        if now < hold_at:
            return False
        if policy == "exit":
            self._end_lost(now)
            return True
        self._hold()
        return False

    def _end_lost(self, now: float) -> None:
        why = f"only {self.roll.present()} of {self.roll.size()} members of the last round are left"
        self._end(Ended("lost", 75, why, (), self.restart_count), now)

    def _hold(self) -> None:
        if self.roll.has_enough(self._now):
            return  # they are here: a moment until they have all answered
        text = words.holding(self.roll.present(), self.roll.size(), self.roll.last.round)
        if not self._held:
            self._held = True
            self._out.append(Say(text))
        self._tell_waiting(text)

    def _wait_for_majority(self) -> None:
        for at in self.roll.heard.values():
            self._wake(at + self.settings.lease_s)
        self._hold()

    def _watch_over(self, now: float) -> bool:
        if self._all_done() and self.is_valid(now):
            self._end(Ended("done", 0, "", (), self.restart_count), now)
            return True
        reason, grace_s = self._reason_to_change(now)
        if not reason:
            return False
        self._reason = reason
        self._for_failure = bool(self._failed)
        self.phase = "stopping"
        self.roll.settled = set()
        self._tell_stop(reason, grace_s)
        return True

    def _tell_stop(self, reason: str, grace_s: float) -> None:
        for node, seat in self.seats.items():
            if node in self.roll.members or seat.runs >= 0:
                self._send(seat, Stop(self.next_round, reason, grace_s, final=self._quit is not None))

    def _note_quit(self, said: Quit) -> None:
        """Take an owner's order to end the run; one that gives less time counts more, also when all stop already."""
        if not said.hurries(self._quit):
            return
        self._quit = said
        if self.phase == "stopping":
            self._tell_stop(said.reason, said.grace_s)

    def _all_done(self) -> bool:
        roll = self.roll
        return roll.has_round and not roll.has_unknown() and roll.finished.issuperset(roll.members)

    def _reason_to_change(self, now: float) -> tuple[str, float]:
        roll = self.roll
        if self._quit is not None:
            return self._quit.reason, self._quit.grace_s
        if self._failed:
            return verdict.reason(self._failed), 0.0
        for node in roll.members:
            reason = self._reason_in(node)
            if reason:
                return reason, self.settings.resize_grace_s if node in self.seats else 0.0
        fences = roll.fences()
        for when in fences:
            self._wake(when)
        if any(when <= now for when in fences) and roll.may_exclude(now):
            names = ", ".join(roll.name(node) for node in roll.absent() if roll.fenced_at(node) <= now)
            return f"node {names or '?'} fell silent", 0.0
        return self._arrivals_reason(now), self.settings.resize_grace_s

    def _reason_in(self, node: str) -> str:
        roll, name, seat = self.roll, self.roll.name(node), self.seats.get(node)
        if node in roll.finished:
            return ""
        if node in roll.gone:
            return f"node {name} left"
        if node in roll.dead:
            return f"node {name} is gone"
        if seat is not None and seat.departing:
            return f"node {name} is leaving"
        if seat is not None and roll.last.round not in (seat.runs, seat.done) and not seat.owes_report:
            return f"node {name} had lost touch and stopped its workers"
        return ""

    def _arrivals_reason(self, now: float) -> str:
        roll = self.roll
        fresh = [seat for node, seat in self.seats.items() if node not in roll.members and seat.can_run]
        room = self.settings.max_nodes - len(roll.members)
        if not fresh or room <= 0 or not self.is_valid(now):
            return ""
        if roll.finished:
            return ""  # it is finishing: who comes now would only make it start over
        self._wake(self._last_arrival + self.settings.gather_s)
        if now < self._last_arrival + self.settings.gather_s:
            return ""
        return words.joined([seat.join.host for seat in sorted(fresh, key=lambda seat: seat.arrival)[:room]])

    # From one round to the next.

    def _settle(self, now: float) -> bool:
        """Wait until no worker of the last round can be alive; then judge the failures, if any."""
        if not self._all_accounted(now):
            return self._check_majority(now)
        if not self.is_valid(now) and self.settings.on_lost_majority != "continue":
            self._wait_for_majority()
            return False
        if self._quit is not None:
            return self._end_by_owner(self._quit, now)
        self._lost_one = self._lost_one or any(self._is_going(node) for node in self.roll.members)
        if self._for_failure and not self._lost_one and self._may_turn_out_lost(now):
            return False
        if self._for_failure and not self._lost_one:
            ruling, when = verdict.rule(self._failed, self.restart_count, self.settings, now)
            if ruling is None:
                self._wake(when)
                return False
            if isinstance(ruling, Ended):
                self._end(ruling, now)
                return True
            self.restart_count = ruling
        if self._for_failure and self._lost_one:
            self._reason = self._loss() or self._reason
        self._failed = []
        self.phase = "gathering"
        return True

    def _end_by_owner(self, said: Quit, now: float) -> bool:
        """End the run for its owner, now that no worker of it lives."""
        self._end(Ended("stopped", STOPPED_STATUS, said.reason, (), self.restart_count), now)
        return True

    def _quit_before_a_round(self, said: Quit, now: float) -> bool:
        """End the run while nothing runs. One who has just founded it waits for an older world to object."""
        founded = not self.roll.has_round and not self.settings.external
        when = self._began_at + (self.settings.boot_quiet_s if founded else 0.0)
        self._wake(when)
        return now >= when and self._may_open(now) and self._end_by_owner(said, now)

    def _check_majority(self, now: float) -> bool:
        """Hold, or end, if those who are silent are too many to go on without them."""
        fences = self.roll.fences()
        if self.roll.may_exclude(now) or not any(when <= now for when in fences):
            return False
        if self.settings.on_lost_majority == "exit":
            self._end_lost(now)
            return True
        self._hold()
        return False

    def _is_going(self, node: str) -> bool:
        seat = self.seats.get(node)
        is_going = node in self.roll.dead or node in self.roll.gone or (seat is not None and seat.departing)
        return is_going and node not in self.roll.finished

    def _loss(self) -> str:
        """Say which loss excuses the failures of a round."""
        for node in self.roll.members:
            if node not in self.seats and node not in self.roll.gone and node not in self.roll.dead:
                return f"node {self.roll.name(node)} fell silent"
            reason = self._reason_in(node) if node not in self.seats or self.seats[node].departing else ""
            if reason:
                return reason
        return ""

    def _may_turn_out_lost(self, now: float) -> bool:
        """Wait for a member that stopped its workers and went: it comes back, or it was lost and failures are free."""
        for node in self.roll.missing():
            if node in self.roll.finished:
                continue
            self._wake(self.roll.fenced_at(node))
            if now < self.roll.fenced_at(node):
                return True
            self._lost_one = True
        return False

    def _all_accounted(self, now: float) -> bool:
        roll = self.roll
        accounted = all(seat.runs < 0 for node, seat in self.seats.items() if node not in roll.members)
        excludes = roll.may_exclude(now)
        for node in roll.members:
            accounted = self._is_accounted(node, now, excludes=excludes) and accounted
        if roll.has_unknown():
            self._lost_one = True
            self._wake(roll.fence_floor + self.settings.silence_s)
            accounted = accounted and excludes and now >= roll.fence_floor + self.settings.silence_s
        return accounted

    def _is_accounted(self, node: str, now: float, *, excludes: bool) -> bool:
        """Tell whether no worker of the last round can be alive on a node any more."""
        roll, seat = self.roll, self.seats.get(node)
        if node in roll.gone:
            self._lost_one |= node not in roll.finished
            return True
        if node in roll.settled or (seat is None and node in roll.finished):
            return True
        if node in roll.dead:
            self._lost_one = True
            self._wake(roll.dead[node] + DEAD_S)
            return now >= roll.dead[node] + DEAD_S
        if seat is not None:
            was_fenced = seat.join.fenced and seat.join.standing.round == roll.last.round
            self._lost_one = self._lost_one or seat.departing or was_fenced
            if seat.stopped_for >= self.next_round:
                roll.settled.add(node)
            return node in roll.settled
        self._wake(roll.fenced_at(node))
        if excludes and now >= roll.fenced_at(node):
            self._lost_one = True
            return True
        return False

    def _gather(self, now: float) -> bool:
        """Open the next round if there are enough nodes."""
        if self._quit is not None:
            return self._quit_before_a_round(self._quit, now)
        opens_at = self._opens_at(sum(seat.can_run for seat in self.seats.values()), now)
        if now < opens_at or not self._may_open(now):
            self._wake(opens_at)
            return (now < opens_at or not self.roll.has_round) and self._wait_for_nodes(now)
        chosen = choose(tuple(self._candidates()), self.settings.max_nodes)
        self._waits = False
        self._chosen = arrange(chosen, self.roll.sizes)
        self._place(now)
        return True

    def _may_open(self, now: float) -> bool:
        """Tell whether nobody is left who could object, or whose old workers are still alive."""
        if any(seat.runs >= 0 for seat in self.seats.values()):
            return False
        if self.settings.on_lost_majority == "continue":
            return True
        if not self._are_spares_settled(now):
            return False
        if self.is_valid(now) and self.roll.has_enough(now):
            return True
        if self.roll.has_round:
            self._wait_for_majority()
        else:
            self._wake(now + PROBE_S)  # a first round was announced, and some who heard of it are not back yet
        return False

    def _are_spares_settled(self, now: float) -> bool:
        """Tell whether no spectator that is away could still take this round for the newest: its lease says that it is."""
        due = [self.roll.fenced_at(node) for node in self.roll.spares_away()] if not self.settings.external else []
        for when in due:
            self._wake(when)
        return all(when <= now for when in due)

    def _candidates(self) -> Iterator[Candidate]:
        for seat in sorted(self.seats.values(), key=lambda seat: seat.arrival):
            if seat.can_run:
                join = seat.join
                slot = join.standing.home if join.node in self.roll.members else None
                yield Candidate(join.node, join.local_world_size, join.role, slot, join.slot_wish)

    def _opens_at(self, count: int, now: float) -> float:
        settings, roll = self.settings, self.roll
        if count < settings.min_nodes:
            self._waits = True
            return quorum.ALWAYS
        if count >= settings.max_nodes and not roll.has_round and not settings.external:
            return max(now, self._began_at + FOUND_S)
        if count >= settings.max_nodes or not self._waits:
            return now
        if roll.has_round and count >= roll.last.size:
            return now
        quiet_at = self._last_arrival + settings.quiet_s
        return quiet_at if roll.has_round else max(quiet_at, self._began_at + settings.boot_quiet_s)

    def _wait_for_nodes(self, now: float) -> bool:
        settings, count = self.settings, sum(seat.can_run for seat in self.seats.values())
        left_s: float | None = None
        if not self.roll.has_round:
            ends_at = (
                min((seat.began_at for seat in self.seats.values()), default=self._began_at) + settings.join_timeout_s
            )
            left_s = words.rounded_up(ends_at - now)
            self._wake(ends_at)
            self._wake(ends_at - words.shorter(left_s))
            if now >= ends_at:
                away = [self.roll.name(node) for node in self.roll.announced_and_away()]
                why = words.too_late(settings, count, away)
                self._end(Ended("timeout", 124, why, (), self.restart_count), now)
                return True
        here = [seat.join.host for seat in self.seats.values() if seat.can_run]
        away = [self.roll.name(node) for node in self.roll.missing()]
        text = words.waiting(settings, here, away, left_s)
        self._tell_waiting(text)
        return False

    def _tell_waiting(self, text: str) -> None:
        """Tell everybody what we wait for, when it has changed and not more often than people can read."""
        if text == self._told:
            return
        pause_s = TELL_S if len(self.seats) <= placing.MANY_NODES else TELL_MANY_S
        self._wake(self._told_at + pause_s)
        if self._now >= self._told_at + pause_s:
            self._told, self._told_at = text, self._now
            for seat in self.seats.values():
                self._send(seat, Waiting(text))

    # Placing and starting.

    def _place(self, now: float) -> None:
        """Tell everybody who is in the next round; nobody starts before all know."""
        self.phase = "placing"
        self._placed_at = now
        self._base = frozenset(node for node in self.roll.members if node in self.seats)
        self.roll.announce(tuple(one.node for one in self._chosen))
        self._announced = self._new_standing()
        self._places = placing.places(self._announced, self._reason, self._chosen, self.seats, self._base)
        for node, place in self._places.items():
            self._send(self.seats[node], place)

    def _new_standing(self) -> Standing:
        return Standing(
            epoch=self.epoch,
            term=self.term,
            round=self.next_round,
            size=len(self._chosen),
            restart_count=self.restart_count,
            deputies=placing.deputies(self._chosen, self.seats, self.roll.addresses, self._base),
            next_round=self.next_round + 1,
            base=len(self._base),
        )

    def _note_placed(self, seat: Seat, number: int) -> None:
        seat.placed = number
        if number == self.next_round and self.phase == "placing":
            self.roll.note_heard(seat.join.node, self._placed_at)

    def _check_placed(self, now: float) -> bool:
        if self._quit is not None or any(one.node not in self.seats for one in self._chosen):
            self._place_again()
            return True
        number = self.next_round
        if any(seat.placed < number for node, seat in self.seats.items() if node in self._places):
            return False
        if self.settings.external:
            self.phase = "starting"
            self._out.append(WriteKey("round", round_record(self._new_standing()), self.round_revision))
            return False
        self._start(now)
        return True

    def _place_again(self) -> None:
        """Choose anew after a chosen node was lost. The number is burnt: some may have heard of it."""
        if any(one.node in self.roll.members and one.node not in self.seats for one in self._chosen):
            self.restart_count = self.roll.last.restart_count  # the last round lost a member after all: no charge
        self.next_round += 1
        self._places = {}
        self.phase = "gathering"

    def _start(self, now: float) -> None:
        last = self._new_standing()
        self.roll.begin(last, {one.node: one.local_world_size for one in self._chosen})
        self.next_round = last.next_round
        self.phase = "running"
        self._lost_one = self._held = False
        self._failed = []
        self._told = ""
        self._valid = None
        left_s = self._left_s(now)
        for node, slot in self.roll.members.items():
            seat = self.seats[node]
            seat.runs, seat.failed, seat.done = last.round, None, -1
            seat.answered_at = now  # the order grants a lease as an answer does
            standing = replace(last, slot=slot, home=slot, ran=last.round)
            seat.join = replace(seat.join, fenced=False, standing=standing)
            self._send(seat, Start(last.round, left_s))

    def _note_failed(self, seat: Seat, message: Failed, now: float) -> None:
        seat.runs, seat.owes_report = -1, False
        if message.round == self.roll.last.round and seat.failed is None:
            seat.failed = message
            others = [
                report for report in self._failed if report[1].node != seat.join.node
            ]  # it may come back and repeat it
            self._failed = [*others, (message, seat.join, now)]
