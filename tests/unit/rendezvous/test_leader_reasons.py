"""Why the next round is made, as its workers are told: the first cause, whoever was the first to report one."""

from __future__ import annotations

import json

from court import Court, failure_of, reasons

from planaria.base.value import as_dict
from planaria.contract.failure import Failure
from planaria.rendezvous.leader import REPORT_S
from planaria.rendezvous.messages import Failed, Leave, Stopped

STOPPED = Stopped(1, 2000, fenced=False)
"""What a member of round 0 says when its workers are dead."""


def loss_of_a_peer(node: str) -> Failed:
    """Return what a node reports whose worker has lost sight of another."""
    message = "Connection closed by peer [10.0.0.3:29500]"
    one = Failure(1, 0, f"host-{node}", 1, 1, 0.0, 3.0, "exit", message=message)
    return Failed(0, (json.dumps(as_dict(one)),), (0.1,), (True,))


def blamed() -> Court:
    """Return a leader that stops a round because one has lost sight of another."""
    court = Court()
    court.begin("abc")
    court.say("b", loss_of_a_peer("b"))
    court.look()
    return court


def test_the_next_round_says_what_failed_first_whoever_was_the_first_to_tell() -> None:
    court = blamed()
    court.say("c", failure_of("c"))
    court.say("abc", STOPPED)
    assert reasons(court.look()) == {"rank 0 failed on host-c"}


def test_the_report_of_one_who_is_blamed_may_come_behind_the_last_word_that_all_have_stopped() -> None:
    court = blamed()
    court.say("abc", STOPPED)
    assert reasons(court.look(REPORT_S)) == set()
    assert court.wake_at == court.now + REPORT_S
    court.say("c", failure_of("c"))
    assert reasons(court.look()) == {"rank 0 failed on host-c"}


def test_a_report_that_does_not_come_is_not_waited_for_any_longer() -> None:
    court = blamed()
    court.say("abc", STOPPED)
    assert reasons(court.look()) == set()
    assert reasons(court.look(REPORT_S)) == {"rank 1 failed on host-b"}


def test_the_next_round_says_which_loss_excused_the_failures_of_the_last() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", STOPPED)
    court.lose("c")
    court.refuse("c")
    court.look()
    assert reasons(court.look(0.4)) == {"node host-c is gone"}


def test_the_next_round_says_what_failed_when_a_member_lost_touch_and_is_here_again() -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", STOPPED)
    court.say("c", Stopped(1, 2000, fenced=True))
    assert reasons(court.look()) == {"rank 0 failed on host-b"}


def test_the_next_round_says_what_it_began_with_when_there_was_no_failure() -> None:
    court = Court(max_nodes=4)
    court.begin("abc")
    court.join("d")
    court.look(0.3)
    court.say("c", Leave("SIGTERM"))
    court.say("ab", STOPPED)
    assert reasons(court.look()) == {"node host-d joined"}
