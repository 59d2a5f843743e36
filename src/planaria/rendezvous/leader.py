"""The leader's decisions: who is in the next round, when it starts, how the run ends. No clock, no sockets.

    claiming -> running                           enough members of the last round hold to this leader
    gathering -> placing -> [starting] -> running enough nodes are here; all know the round; the store, if any, does too
    running -> stopping -> gathering              a failure, a loss, a goodbye, an arrival
    any -> ended                                  done, failed for good, or nobody came in time

Everything is decided again from the facts once a turn (`advance`), so no fact is lost by coming at a bad moment. The facts
are in an `Office`; what belongs to one step of the way is a part with a file of its own.
"""

from __future__ import annotations

from planaria.rendezvous import quorum, reasons, verdict
from planaria.rendezvous.attendance import Attendance
from planaria.rendezvous.ending import Ending
from planaria.rendezvous.gathering import Gathering
from planaria.rendezvous.losses import Losses
from planaria.rendezvous.making import Making
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
    Redirect,
    Renew,
    Stop,
    Stopped,
)
from planaria.rendezvous.model import SELF, Close, Send
from planaria.rendezvous.notice import Notice
from planaria.rendezvous.office import Office, term_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import ToLeader
    from planaria.rendezvous.model import Answered, Effect, Held, Settings, Standing
    from planaria.rendezvous.seats import Seat
    from planaria.rendezvous.verdict import Reports

STOPPED_STATUS = 143  # as after SIGTERM, which is how one node is stopped
REPORT_S = 0.05  # two messages that are sent one after the other come in two turns at most


class Leader:
    """One leadership: what follows from who is here."""

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, held: Held) -> None:
        self.office = Office(settings, now, term=term, standing=standing, held=held)
        self.ending = Ending(self.office)
        self._attendance = Attendance(self.office, self.ending)
        self._notice = Notice(self.office)
        self._losses = Losses(self.office)
        self._gathering = Gathering(self.office, self._notice)
        self._making = Making(self.office)
        self._orders, self._roll, self._settings = self.office.orders, self.office.roll, settings
        self._failed: Reports = []
        self._for_failure = False
        self._judges_at = quorum.ALWAYS

    # What happens to it.

    def received(self, conn: str, message: ToLeader, now: float) -> None:
        """Take a node's message; whoever has not joined is not heard."""
        seat = self._attendance.conns.get(conn)
        if isinstance(message, Join):
            if not self._attendance.turns_away(conn, message, now):
                self._outrank(message)
                self._attendance.join(conn, message, now)
            self._orders.touch()
        elif seat is not None and isinstance(message, Renew):
            self._attendance.renew(seat, message, now)
        elif seat is not None:
            self._orders.touch()
            self._told_by(seat, message, now)
        else:
            self._orders.add(Close(conn))  # who has not joined has nothing to say

    def _told_by(self, seat: Seat, message: ToLeader, now: float) -> None:
        roll, node = self._roll, seat.join.node
        match message:
            case Stopped(number, port, fenced):
                seat.runs, seat.stopped_for, seat.port = -1, max(seat.stopped_for, number), port
                self._losses.has_one |= fenced and node in roll.members
            case Placed(number):
                self._making.note_placed(seat, number)
            case Failed():
                self._note_failed(seat, message, now)
            case Done(number):
                seat.runs, seat.done = -1, number
                if number == roll.last.round and node in roll.members:
                    roll.finished.add(node)
            case Departing():
                seat.departing = True
            case Leave():
                self._attendance.leave(seat)
            case Quit():
                self._note_quit(message)
            case Heard():
                self.ending.heard_end(seat)

    def _note_failed(self, seat: Seat, message: Failed, now: float) -> None:
        seat.runs, seat.owes_report = -1, False
        if message.round == self._roll.last.round and seat.failed is None:
            seat.failed = message
            # It may come back and repeat it.
            others = [report for report in self._failed if report[1].node != seat.join.node]
            self._failed = [*others, (message, seat.join, now)]

    def _note_quit(self, said: Quit) -> None:
        """Take an owner's order to end the run; one that gives less time counts more, also when all stop already."""
        if not said.hurries(self.office.quit):
            return
        self.office.quit = said
        if self.office.phase == "stopping":
            self._tell_stop(said.reason, said.grace_s)

    def lost(self, conn: str, now: float) -> None:
        """Note that a connection ended. That alone proves nothing."""
        seat = self._attendance.conns.pop(conn, None)
        if seat is not None:
            self._attendance.unseat(seat, now)
            self._orders.touch()

    def answered_probe(self, answer: Answered, now: float) -> None:
        """Take the answer of a node whose connection ended: nobody, or somebody else, listens there: it is dead."""
        for node, address in self._roll.addresses.items():
            if address != answer.address or node in self.office.seats or node in self._roll.dead:
                continue
            another = answer.leads is not None and answer.leads.node != node
            if (answer.refused or another) and self.office.may_shrink(now):
                self._roll.dead[node] = now
                self._orders.touch()

    def hear_of_dead(self, buried: frozenset[str]) -> None:
        """Take the word of whoever runs the machines, or of the nodes themselves: these are gone for good."""
        if buried != self.office.buried:
            self.office.buried = buried
            self._orders.touch()

    def hear_of_left(self, nodes: frozenset[str], now: float) -> None:
        """Take the word of members that left while they had no leader, or one that left in the same moment."""
        if self.office.roll.leave(nodes, now):
            self.office.count_anew()
            self._orders.touch()

    def raise_term(self, term: int) -> None:
        """Lead in a newer term: the store had lost the leader key, and it was written anew."""
        self.office.term = term_above(term, self.office.term)
        if self.office.is_making:
            self.office.withdrawn |= self.office.phase == "starting"
            self._making.give_up()
        self._orders.touch()

    def _outrank(self, join: Join) -> None:
        """Lead in a newer term than any leader that a node knows of: it would take no place of us otherwise.

        Revisions of a store only grow, so this is about one that was set up anew.
        """
        known = max(join.standing.term, join.bound_term)
        if self._settings.external and known > self.office.term:
            self.raise_term(known + self.office.term)

    def round_written(self, revision: int, now: float) -> None:
        """Go on with a round that the store has taken; one that was given up meanwhile is to be written over.

        So is one that was written again, if the run has ended meanwhile: only a mark says so.
        """
        was_withdrawn, self.office.withdrawn = self.office.withdrawn, False
        self._orders.touch()
        if was_withdrawn:
            self.ending.mark_again(revision)
            return
        self.ending.round_revision = revision
        self.ending.write_outcome(now)
        if self.office.phase != "starting":
            return
        if self._making.has_lost_one():
            self._making.give_up()
        elif not self._making.is_known_to_members():
            self.office.phase = "placing"
        else:
            self._start(now)

    def advance(self, now: float) -> tuple[list[Effect], float]:
        """Decide what follows from what is known; return the orders and when to look again."""
        self._orders.begin_turn(now)
        self.office.count_anew()
        self._attendance.drop_silent(now)
        while self._step(now):
            self.office.count_anew()
        return self._orders.take(), self._orders.wake_at

    def take_orders(self) -> list[Effect]:
        """Return what events alone have ordered: answers that need no decision."""
        return self._orders.take()

    # Decisions. Each returns whether something changed, so that the next can build on it.

    def _step(self, now: float) -> bool:
        self._attendance.probe(now)
        self._attendance.bury(now)
        match self.office.phase:
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
                return self.ending.see_out(now)
            case _:  # starting: the store has to agree
                return False

    def _claim(self, now: float) -> bool:
        roll, policy = self._roll, self._settings.on_lost_majority
        hold_at = max(roll.fence_floor, self.office.began_at) + self._settings.silence_s
        if self.office.is_valid(now) or (now >= hold_at and policy == "continue"):
            if not self._settings.external or policy == "continue":
                roll.tie_until = quorum.ALWAYS  # an incumbent keeps half, a rival needs more
            self.office.phase = "running"
            self._failed = [
                one for one in self._failed if one[0].round == roll.last.round
            ]  # we may have begun with another
            return True
        self._orders.wake(hold_at)
        return now >= hold_at and self._hold_or_end(now)

    def _hold_or_end(self, now: float) -> bool:
        """Do without a majority what the owner wants then: wait, or end."""
        if self._settings.on_lost_majority == "exit":
            why = f"only {self._roll.present()} of {self._roll.size()} members of the last round are left"
            return self._end("lost", 75, why, now)
        self._notice.hold()
        return False

    def _watch_over(self, now: float) -> bool:
        if self._is_done() and self.office.is_valid(now):
            return self._end("done", 0, "", now)
        reason, grace_s = reasons.to_change(self.office, self._failed, now)
        if not reason:
            return False
        self.office.reason = reason
        self._for_failure = bool(self._failed)
        self._judges_at = quorum.ALWAYS
        self.office.phase = "stopping"
        self._roll.settled = set()
        self._tell_stop(reason, grace_s)
        return True

    def _tell_stop(self, reason: str, grace_s: float) -> None:
        order = Stop(self.office.next_round, reason, grace_s, final=self.office.quit is not None)
        for node, seat in self.office.seats.items():
            if node in self._roll.members or seat.runs >= 0:
                self._orders.send(seat, order)

    def _is_done(self) -> bool:
        roll = self._roll
        return roll.has_round and not roll.has_unknown() and roll.finished.issuperset(roll.members)

    def _settle(self, now: float) -> bool:
        """Wait until no worker of the last round can be alive; then judge the failures, if any."""
        losses, office = self._losses, self.office
        if not losses.are_accounted(now):
            return self._check_majority(now)
        if not office.is_valid(now) and self._settings.on_lost_majority != "continue":
            self._notice.wait_for_majority()
            return False
        if office.quit is not None:
            return self._end("stopped", STOPPED_STATUS, office.quit.reason, now)
        losses.note_going()
        if self._for_failure and not losses.has_one and (losses.may_turn_up(now) or self._hears_more(now)):
            return False
        if self._for_failure and losses.was_stopped and verdict.blames_a_peer(self._failed):
            losses.has_one = True  # its peers cannot tell a stop, which another leader ordered, from a loss
        if self._for_failure and not losses.has_one:
            ruling, when = verdict.rule(self._failed, office.restart_count, self._settings, now)
            if ruling is None:
                self._orders.wake(when)
                return False
            if isinstance(ruling, Ended):
                self.ending.end(ruling, now)
                return True
            office.restart_count = ruling
            office.reason = verdict.reason(self._failed)  # the first to report need not be the first that failed
        if self._for_failure and losses.has_one:
            office.reason = reasons.of_loss(self._roll) or office.reason
        self._failed = []
        office.phase = "gathering"
        return True

    def _hears_more(self, now: float) -> bool:
        """Wait a moment for the one whom all reports blame: how its workers ended comes right behind that they did."""
        self._judges_at = min(self._judges_at, now + REPORT_S)
        waits = now < self._judges_at and verdict.blames_a_peer(self._failed)
        if waits:
            self._orders.wake(self._judges_at)
        return waits

    def _check_majority(self, now: float) -> bool:
        """Hold, or end, if those who are silent are too many to go on without them."""
        fences = self._roll.fences()
        if self._roll.may_exclude(now) or not any(when <= now for when in fences):
            return False
        return self._hold_or_end(now)

    def _gather(self, now: float) -> bool:
        """Open the next round if there are enough nodes."""
        if self.office.quit is not None:
            return self._quit_before_a_round(self.office.quit, now)
        opens_at = self._gathering.opens_at(now)
        if now < opens_at or not self._gathering.may_open(now):
            self._orders.wake(opens_at)
            ended = self._gathering.wait(now) if now < opens_at or not self._roll.has_round else None
            if ended is not None:
                self.ending.end(ended, now)
            return ended is not None
        self._making.place(self._gathering.choose(), now)
        return True

    def _quit_before_a_round(self, said: Quit, now: float) -> bool:
        """End the run while nothing runs. One who has just founded it waits for an older world to object."""
        founded = not self._roll.has_round and not self._settings.external
        when = self.office.began_at + (self._settings.boot_quiet_s if founded else 0.0)
        self._orders.wake(when)
        return now >= when and self._gathering.may_open(now) and self._end("stopped", STOPPED_STATUS, said.reason, now)

    def _check_placed(self, now: float) -> bool:
        gives_up = self.office.quit is not None or self._making.has_lost_one()
        if not gives_up and not self._making.is_known():
            return False
        # One that was told and fell silent was waited for: it may have made another the leader meanwhile.
        if gives_up or not (self.office.is_valid(now) or self._settings.on_lost_majority == "continue"):
            self._making.give_up()
            return True
        if self._settings.external:
            if not self.office.withdrawn:
                self._making.ask_store(self.ending.round_revision)
            return False
        self._start(now)
        return True

    def _start(self, now: float) -> None:
        self._losses.has_one = self._losses.was_stopped = False
        self._failed = []
        self._notice.clear()
        self._making.start(now)

    def _end(self, kind: str, status: int, why: str, now: float) -> bool:
        """End the run, which is a change."""
        self.ending.end(Ended(kind, status, why, (), self.office.restart_count), now)
        return True

    # Going.

    def hand_over(self) -> list[Effect]:
        """Say goodbye as a leader: name a successor to everybody, and say that our own node is gone."""
        own, seats = self._settings.node, self.office.seats
        line = [deputy.node for deputy in self._roll.last.deputies] + list(seats)
        heir = next((node for node in line if node in seats and node != own), None)
        return self.resign(self._roll.addresses[heir] if heir is not None else "", self.office.term, gone=own)

    def resign(self, address: str, term: int, gone: str = "") -> list[Effect]:
        """Send everybody to another leader, or (no address) to look for one."""
        order = self.office.final_stop()
        last_words = (*((order,) if order else ()), Redirect(address, term, gone))
        out: list[Effect] = []
        for seat in self.office.seats.values():
            if seat.conn != SELF:
                out += [*(Send(seat.conn, message) for message in last_words), Close(seat.conn)]
        return out
