"""Protocol bugs to plant: each breaks one rule of the shipped machine, and the simulator has to notice."""

from planaria.base.value import replace
from planaria.rendezvous import gathering, losses, quorum
from planaria.rendezvous.attendance import Attendance
from planaria.rendezvous.claim import Claim, Order
from planaria.rendezvous.ending import Ending
from planaria.rendezvous.keys import leader_record
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.losses import Losses
from planaria.rendezvous.machine import Rendezvous
from planaria.rendezvous.making import Making
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Stopped
from planaria.rendezvous.model import Settings, WriteKey
from planaria.rendezvous.office import Office
from planaria.rendezvous.post import Post
from planaria.rendezvous.rivals import Rivals
from planaria.rendezvous.roll import Roll
from planaria.rendezvous.seats import Seat
from planaria.rendezvous.tenure import Tenure


def no_wait_after_a_proof_of_death(patch):
    patch.setattr(losses, "DEAD_S", 0.0)


def a_broken_connection_proves_death(patch):
    honest = Attendance.unseat

    def unseat(self, seat, now):
        honest(self, seat, now)
        self._roll.dead.setdefault(seat.join.node, now)

    patch.setattr(Attendance, "unseat", unseat)


def a_leader_decides_without_a_majority(patch):
    patch.setattr(quorum, "needed", lambda _size, **_: 0)


def half_is_a_majority_for_anybody(patch):
    patch.setattr(quorum, "needed", lambda size, **_: (size + 1) // 2)


def what_is_left_of_validity_is_ignored(patch):
    honest = Member._acked
    patch.setattr(
        Member, "_acked", lambda self, ack, now: honest(self, replace(ack, left_s=self.settings.lease_s), now)
    )


def a_leader_is_always_valid(patch):
    patch.setattr(Office, "valid_until", lambda self, now: now + self.settings.lease_s)


def the_tie_break_never_ends(patch):
    patch.setattr(Roll, "tie_until", property(lambda _self: quorum.ALWAYS, lambda _self, _value: None), raising=False)


def the_silent_are_left_out_without_a_majority(patch):
    patch.setattr(Roll, "may_exclude", lambda _self, _now: True)
    patch.setattr(Office, "is_valid", lambda _self, _now: True)


def start_before_everybody_knows(patch):
    honest = Making.place

    def place(self, *args):
        honest(self, *args)
        for seat in self._seats.values():
            seat.placed = self._office.next_round

    patch.setattr(Making, "place", place)


def silence_is_cut_short(patch):
    patch.setattr(Settings, "silence_s", property(lambda self: self.ttl_s * 0.5))


def the_fenced_may_shrink_the_majority(patch):
    patch.setattr(Office, "may_shrink", lambda _self, _now: True)
    honest = Rendezvous._note_deaths

    def note(self, answer, now):
        before, self.member.post.standing = self.member.post.standing, replace(self.member.post.standing, size=1)
        honest(self, answer, now)
        self.member.post.standing = before

    patch.setattr(Rendezvous, "_note_deaths", note)


def losses_are_charged(patch):
    patch.setattr(Losses, "has_one", property(lambda _self: False, lambda _self, _value: None), raising=False)


def crashes_are_free(patch):
    patch.setattr(Losses, "has_one", property(lambda _self: True, lambda _self, _value: None), raising=False)


def nobody_is_fenced(patch):
    patch.setattr(Post, "is_lapsed", lambda _self, _now: False)


def guardians_are_told_nothing(patch):
    patch.setattr(Post, "_set_fence", lambda _self: None)


def stopped_is_said_too_early(patch):
    honest = Member._stop

    def stop(self, order):
        honest(self, order)
        self._send(Stopped(order.round, 1, fenced=False))

    patch.setattr(Member, "_stop", stop)


def a_newcomer_at_the_endpoint_does_not_look_around(patch):
    patch.setattr(Tenure, "_rivals", lambda _self, _leader: [])
    patch.setattr(Rivals, "_met", lambda *_: None)


def ranks_are_dealt_afresh(patch):
    honest = gathering.arrange
    patch.setattr(
        gathering, "arrange", lambda chosen, sizes: honest([replace(one, slot=None) for one in chosen][::-1], sizes)
    )


def an_alarm_is_left_standing(patch):
    def write(self, expect):
        self._writing = True
        return Order((WriteKey("leader", leader_record(self.settings), expect, leased=True),))

    patch.setattr(Claim, "_write", write)
    patch.setattr(Claim, "wakes_at", lambda self: min(self._retry_at, self._complain_at))


def the_leader_goes_without_telling_the_end(patch):
    patch.setattr(Ending, "_tell_all", lambda self: setattr(self, "is_told", True))
    patch.setattr(Ending, "is_over", lambda self, _now: self._office.ended is not None)


def what_the_owner_wants_is_forgotten(patch):
    honest = Member.ask_end

    def ask_end(self, reason, grace_s):
        honest(self, reason, grace_s)
        self._quit = None

    patch.setattr(Member, "ask_end", ask_end)


def the_owners_end_does_not_wait_for_the_workers(patch):
    honest = Leader._watch_over

    def watch_over(self, now):
        said = self.office.quit
        return self._end("stopped", 143, said.reason, now) if said is not None else honest(self, now)

    patch.setattr(Leader, "_watch_over", watch_over)


def arrivals_forget_what_runs(patch):
    honest = Seat.__init__

    def init(self, *args):
        honest(self, *args)
        self.runs = -1
        self.stopped_for = 1 << 40

    patch.setattr(Seat, "__init__", init)


BUGS = {
    bug.__name__.replace("_", " "): bug
    for bug in (
        no_wait_after_a_proof_of_death,
        a_broken_connection_proves_death,
        a_leader_decides_without_a_majority,
        half_is_a_majority_for_anybody,
        what_is_left_of_validity_is_ignored,
        a_leader_is_always_valid,
        the_tie_break_never_ends,
        the_silent_are_left_out_without_a_majority,
        start_before_everybody_knows,
        silence_is_cut_short,
        the_fenced_may_shrink_the_majority,
        losses_are_charged,
        crashes_are_free,
        nobody_is_fenced,
        guardians_are_told_nothing,
        stopped_is_said_too_early,
        a_newcomer_at_the_endpoint_does_not_look_around,
        ranks_are_dealt_afresh,
        the_leader_goes_without_telling_the_end,
        an_alarm_is_left_standing,
        arrivals_forget_what_runs,
        what_the_owner_wants_is_forgotten,
        the_owners_end_does_not_wait_for_the_workers,
    )
}
