import json

import pytest
from groupsim import failure, place

from planaria.agent.model import Group, Life, Outcome
from planaria.agent.report import (
    COLOURS,
    OTHERS_SHOWN,
    Style,
    as_json,
    final_screen,
    life_line,
    restart_line,
    round_line,
    standby_line,
)
from planaria.base.value import replace
from planaria.contract.failure import ENDED, ROUND_OVER, stopped


def ended(*failures, restarts=0, max_restarts=0, restart_count=None):
    life = Life(0, restarts if restart_count is None else restart_count, "", 2.5, failures)
    group = Group(size=2, max_restarts=max_restarts, grace_s=30.0, restarts=restarts, reason="rank 1 failed")
    return type(group)(**{name: getattr(group, name) for name in type(group)._fields} | {"lives": (life,)})


BOOM = failure(1, 1, 2.5, message="ValueError: boom", traceback="Traceback ...\nValueError: boom\n")
FAILED = Outcome("failed", 1)


def test_the_first_line_names_rank_host_and_cause():
    text = final_screen(ended(BOOM), FAILED, Style())
    assert text.splitlines()[0] == "job failed: rank 1 (local rank 1, pid 101 on n0): ValueError: boom"
    assert "  | Traceback ..." in text
    assert "no restarts allowed (--max-restarts=0)" in text


@pytest.mark.parametrize(
    ("promoted", "cold", "told"),
    [
        ((0,), {}, "promoted 1 standby"),
        ((0, 1), {}, "promoted 2 standbys"),
        ((0,), {1: "it has died"}, "promoted 1 standby; local rank 1 starts cold: it has died"),
        ((), {0: "no", 1: "why", 2: "no"}, "local ranks 0, 2 start cold: no; local rank 1 starts cold: why"),
        ((), {0: "a\x1b[2J.py has changed"}, "local rank 0 starts cold: a\\x1b[2J.py has changed"),
    ],
)
def test_a_line_says_who_was_promoted_and_why_others_were_not(promoted, cold, told):
    assert standby_line(promoted, cold) == told


def test_escape_sequences_of_a_worker_do_not_reach_the_screen():
    evil = failure(1, 1, 2.5, message="\x1b[2J\nplanaria: fine", traceback="\x1b]0;title\x07\n", host="h\x1b[1m")
    text = final_screen(ended(evil), FAILED, Style())
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\nplanaria: fine" in text.splitlines()[0]


def test_colours_are_only_ours():
    assert "\x1b[31m" in final_screen(ended(BOOM), FAILED, COLOURS)


EXIT = 'Traceback (most recent call last):\n  File "x.py", line 9, in <module>\n    sys.exit(3)\nSystemExit: 3\n'
HANDLED = "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling of the above exception, ...\n\n"


def test_a_program_that_just_exits_is_shown_by_its_line_and_its_own_words():
    left = failure(1, 3, 2.5, "exit", (), traceback=EXIT, where="x.py:9", stderr_tail="no data")
    lines = final_screen(ended(left), FAILED, Style()).splitlines()
    assert lines[2:] == ["  it ended by sys.exit at x.py:9", "  its last lines on stderr:", "  | no data"]


@pytest.mark.parametrize("status", [2, 3])
def test_an_exit_while_an_exception_is_handled_shows_both(status):
    left = failure(1, status, 2.5, "exit", (), traceback=HANDLED + EXIT, where="x.py:9")
    text = final_screen(ended(left), FAILED, Style())
    assert "  | KeyError: 1" in text
    assert "  | SystemExit: 3" in text


def test_of_wrong_arguments_nothing_is_shown_of_how_they_were_noticed():
    left = failure(1, 2, 2.5, "exit", (), traceback=HANDLED + EXIT, where="/usr/lib/argparse.py:9")
    assert len(final_screen(ended(left), FAILED, Style()).splitlines()) == 2


def test_the_traceback_of_an_error_file_is_shown_however_the_process_ended():
    told = failure(1, 3, 2.5, "exit", (), traceback="Traceback (most recent call last):\nKeyError: 1\n")
    assert "  | KeyError: 1" in final_screen(ended(told), FAILED, Style())


STACK = """Thread 0x00007f01 (most recent call first):
  File "/opt/planaria/worker/deferral.py", line 115 in _look
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Thread 0x00007f02 (most recent call first):
  File "x.py", line 7 in f
  File "x.py", line 70 in <module>
  File "/opt/planaria/worker/bootstrap.py", line 31 in _run_script
  File "/opt/planaria/worker/bootstrap.py", line 281 in <module>
"""


def test_those_we_stopped_are_told_apart_from_those_that_failed_too():
    others = (
        failure(0, 1, 2.6, message="OSError: also"),
        stopped(failure(2, -15, 2.7, "signal", ()), 1),
        stopped(failure(3, -9, 9.0, "signal", (), killer="us", traceback=STACK), 1),
    )
    text = final_screen(ended(BOOM, *others), FAILED, Style())
    assert "then rank 0 (local rank 0, pid 100 on n0): OSError: also" in text
    assert "rank 2: stopped by us after rank 1 failed" in text
    assert (
        'rank 3: killed by us, it did not stop in time after rank 1 failed; it was at File "x.py", line 7 in f' in text
    )


def test_one_that_is_killed_behind_the_end_of_its_program_did_stop_in_time():
    late = failure(0, -9, 9.0, "signal", (), killer="us", type=ENDED)
    told = final_screen(ended(late), Outcome("signal", 143, 15), Style())
    assert told.splitlines()[1:] == [
        "  rank 0: its program had ended, and it was killed by us while Python closed it down"
    ]


def test_a_stop_that_was_asked_for_names_those_that_did_not_obey_and_counts_the_rest():
    deaf = [failure(rank, -9, 9.0, "signal", (), killer="us") for rank in range(OTHERS_SHOWN + 3)]
    text = final_screen(ended(*deaf), Outcome("signal", 143, 15), Style())
    assert text.splitlines()[0] == "stopped by SIGTERM"
    assert text.splitlines()[-1] == "  and 3 more workers"


def test_a_good_end_needs_no_words():
    assert final_screen(ended(), Outcome("done", 0), Style()) == ""


def test_a_long_traceback_keeps_its_beginning_and_its_end():
    long = failure(1, 1, 2.5, message="E", traceback="\n".join(f"line {number}" for number in range(500)))
    text = final_screen(ended(long), FAILED, Style())
    assert "| line 0\n" in text
    assert "| line 499\n" in text
    assert "470 lines left out" in text


def test_a_restart_says_what_it_costs():
    charged = restart_line(ended(BOOM, restarts=1, max_restarts=3, restart_count=0))
    assert charged.endswith("ValueError: boom; starting all workers again (restart 1 of 3)")
    assert "costs no restart" in restart_line(ended(BOOM, restarts=1, max_restarts=3, restart_count=1))


def test_the_report_is_json_and_has_the_first_cause_only_after_a_failure():
    whole = json.loads(json.dumps(as_json(ended(BOOM), FAILED, "run")))
    assert (whole["first_cause"]["rank"], whole["exit_status"], whole["lives"][0]["failures"][0]["status"]) == (1, 1, 1)
    assert as_json(ended(BOOM), Outcome("signal", 143, 15), "run")["first_cause"] is None


def among_others(*causes, lives=(), restarts=1):
    return replace(
        ended(), alone=False, causes=causes, lives=lives, restarts=restarts, max_restarts=3, verdict="failed"
    )


ELSEWHERE = failure(0, 3, 900.0, "exit", (), message="exit status 3", host="node-b")


def test_every_node_shows_the_first_cause_of_the_job_and_what_hung_here():
    hung = stopped(failure(1, -9, 9.0, "signal", (), killer="us", traceback=STACK), ROUND_OVER)
    asked = stopped(failure(2, -15, 9.0, "signal", ()), ROUND_OVER)
    group = among_others(ELSEWHERE, BOOM, lives=(Life(4, 1, "", 2.5, (hung, asked)),))
    lines = final_screen(group, FAILED, Style()).splitlines()
    assert lines[0] == "job failed: rank 0 (local rank 0, pid 100 on node-b): exit status 3"
    assert "1 of 3 restarts used" in lines[1]
    assert lines[2:] == [
        "  then rank 1 (local rank 1, pid 101 on n0): ValueError: boom",
        '  rank 1: killed by us, it did not stop in time when the round ended; it was at File "x.py", line 7 in f',
    ]


def test_a_node_that_never_had_workers_shows_the_cause_too():
    assert "exit status 3" in final_screen(among_others(ELSEWHERE), FAILED, Style())


@pytest.mark.parametrize(
    ("kind", "heading"), [("timeout", "no round"), ("lost", "majority lost"), ("failed", "job failed")]
)
def test_an_end_without_failures_is_explained(kind, heading):
    text = final_screen(among_others(), Outcome(kind, 1, explanation="nobody\x1b came"), Style())
    assert text == f"{heading}: nobody\\x1b came\n"


def test_the_report_of_one_node_has_the_failures_of_all_in_the_order_of_the_leader():
    whole = json.loads(json.dumps(as_json(among_others(ELSEWHERE, BOOM), FAILED, "run")))
    assert (whole["first_cause"]["host"], [one["rank"] for one in whole["failures"]]) == ("node-b", [0, 1])
    assert "failures" not in as_json(ended(BOOM), FAILED, "run")


def test_a_round_says_why_it_starts_what_it_costs_and_what_is_here():
    group = replace(among_others(), size=2)
    assert round_line(group, place(0)) == "round 0 starts on 2 nodes, with ranks 0 to 1 of 4 here"
    lived = replace(group, lives=(Life(0, 0, "", 1.0, ()),))
    told = round_line(lived, place(1, slot=1, restart_count=1, reason="rank 3 failed on b\x07"))
    assert told == "round 1 starts on 2 nodes, with ranks 2 to 3 of 4 here: rank 3 failed on b\\x07 (restart 1 of 3)"
    assert round_line(lived, place(1, reason="node b joined")).endswith(": node b joined (no restart)")
    alone = round_line(replace(lived, size=1), place(2, nodes=1, size=1, reason="node b died"))
    assert alone == "round 2 starts on 1 node, with rank 0 of 1 here: node b died (no restart)"


def test_the_end_of_a_life_is_told_when_it_ended_here():
    failed = among_others(lives=(Life(0, 0, "", 1.0, (BOOM, stopped(failure(0), 1))),))
    assert life_line(failed).endswith("failed after 2.5 s: ValueError: boom; telling the other nodes")
    assert life_line(replace(failed, verdict="stopped")) == ""
    assert life_line(replace(failed, lives=(Life(0, 0, "", 1.0, ()),), verdict="done")) == ""
