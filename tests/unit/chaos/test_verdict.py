"""A verdict that can fail: facts that break each promise, one at a time."""

from __future__ import annotations

import json

import pytest

from planaria.base.value import replace
from planaria.chaos.model import Budget, Fault, Memory, NodeEnd, Observed, Said, Strike, Worker
from planaria.chaos.plan import Plan
from planaria.chaos.story import line, story, verdict_json, verdict_text
from planaria.chaos.verdict import LEAST_SAMPLES, OLD_SAMPLES, PROMISES, WAKING_S, fault_before, growth, judge

KILL = Fault(1, "kill-worker", "", 0, 0, 2)
LOSS = Fault(2, "kill-agent", "agent", 1, -1, 1)
OLD = Worker("n1.1", 11, 0, 0, 0, 2, 0, started_at=1.0, last_alive_at=10.0)
OLD_TOO = replace(OLD, node="n2.1", pid=12, rank=1)
NEW = replace(OLD, pid=21, round=1, restart_count=1, started_at=10.5, last_alive_at=30.0)
NEW_TOO = replace(NEW, node="n2.1", pid=22, rank=1)
WELL = Observed(
    planned=2,
    began_at=0.0,
    ended_at=40.0,
    strikes=(
        Strike(KILL, 10.0, round=0, step=7, floor=6, back_s=0.5),
        Strike(LOSS, 20.0, round=1, step=19, floor=18, back_s=1.5),
    ),
    workers=(OLD, OLD_TOO, NEW, NEW_TOO),
    ends=(NodeEnd("n2.1", 137, 20.1, is_ours=True), NodeEnd("n1.1", 0, 39.0, is_ours=False)),
    said=(
        Said(11.0, "n1.1", "\titeration=6", 6),
        Said(21.0, "n1.1", "planaria: n2 is gone"),
        Said(22.0, "n1.1", "", 18),
    ),
    memory={"n1.1": tuple(Memory(float(at), 20_000, 500) for at in range(LEAST_SAMPLES))},
    budgets=(Budget(0, charged=1, allowed=1),),
    expected="weights 1f",
    result="weights 1f",
)
GROWING = tuple(Memory(float(at), 20_000 + 6 * at, 500) for at in range(OLD_SAMPLES))
SHARING = tuple(Memory(float(at), 20_000, 500 + 2000 * at) for at in range(LEAST_SAMPLES))

BREACHES = {
    "campaign": (replace(WELL, planned=9), "over after 2 of 9 faults", 0),
    "end": (replace(WELL, ends=(NodeEnd("n1.1", 1, 25.0, is_ours=False),)), "n1.1 ended with status 1", 2),
    "campaign: nothing was made": (
        replace(WELL, strikes=tuple(replace(one, left_out="no commit", back_s=None) for one in WELL.strikes)),
        "not one fault could be made",
        0,
    ),
    "end: late": (
        replace(WELL, ends=(NodeEnd("n2.1", 137, 25.0, is_ours=True, is_late=True),)),
        "n2.1 did not end by itself and was killed",
        2,
    ),
    "end: stuck": (replace(WELL, stuck="it hangs"), "it hangs", 2),
    "result": (replace(WELL, result="weights 2e"), "the result is 'weights 2e', without faults it is 'weights 1f'", 2),
    "result: none": (replace(WELL, result=None), "there is no result", 2),
    "one-world": (
        replace(WELL, workers=(replace(OLD, last_alive_at=10.75), OLD_TOO, NEW, NEW_TOO)),
        "rank 0 of round 0 on n1.1 (pid 11) was alive 0.250 s after round 1 had begun on n1.1",
        1,
    ),
    "one-world: an era later": (
        replace(WELL, workers=(OLD, replace(NEW, era=1, round=0, started_at=9.0, restart_count=0))),
        "was alive 1.000 s after round 0",
        0,
    ),
    "one-world: a rank twice": (
        replace(WELL, workers=(OLD, replace(OLD, pid=13, node="n3.1"))),
        "pid 11 on n1.1 and pid 13 on n3.1 both had rank 0 in round 0",
        0,
    ),
    "one-world: they disagree": (
        replace(WELL, workers=(OLD, OLD_TOO, NEW, replace(NEW_TOO, world_size=3))),
        "rank 0 and rank 1 of round 1 were told worlds of 2 and 3",
        1,
    ),
    "one-world: it woke and stayed": (
        replace(
            WELL,
            workers=(
                replace(OLD, stopped_at=10.0, woken_at=15.0, last_alive_at=15.1 + WAKING_S),
                OLD_TOO,
                NEW,
                NEW_TOO,
            ),
        ),
        "was alive 9.600 s after round 1",
        1,
    ),
    "no-orphans": (
        replace(WELL, ends=(NodeEnd("n2.1", 137, 20.1, is_ours=True, left=("pid 99: sleep 60",)),)),
        "when n2.1 had ended, there still was pid 99: sleep 60",
        2,
    ),
    "no-leaks": (
        replace(WELL, ends=(NodeEnd("n2.1", 137, 20.1, is_ours=True, litter=("planaria-a1",)),)),
        "n2.1 left planaria-a1",
        2,
    ),
    "no-leaks: shared": (replace(WELL, shared_memory_left=("/dev/shm/x",)), "the job left /dev/shm/x", 2),
    "memory": (replace(WELL, memory={"n3.1": GROWING}), "the agent of n3.1 grew by 600 KiB of own memory", 2),
    "memory: shared": (replace(WELL, memory={"n3.1": SHARING}), "grew by 20000 KiB of shared memory", 2),
    "commits": (
        replace(WELL, said=(Said(11.0, "n1.1", "", 5),)),
        "n1.1 went on from step 5; step 6 was complete before",
        1,
    ),
    "commits: of a lost node": (
        replace(WELL, said=(Said(21.0, "n1.1", "", 17),)),
        "n1.1 went on from step 17; step 18 was on two nodes or on disk before",
        2,
    ),
    "budget": (
        replace(WELL, budgets=(Budget(0, charged=2, allowed=1),)),
        "2 restarts were charged, and only 1 of the faults killed workers alone",
        2,
    ),
    "budget: they disagree": (
        replace(WELL, workers=(OLD, OLD_TOO, NEW, replace(NEW_TOO, restart_count=0))),
        "the workers of round 1 were told restart counts of 0 and 1",
        0,
    ),
}


def test_a_job_that_kept_everything_is_told_so() -> None:
    assert judge(WELL) == ()
    text = verdict_text(WELL, Plan((KILL, LOSS), {"cut-network": "no cable"}), (), "")
    assert text.endswith("\nall promises were kept\n")
    assert "skipped: cut-network: no cable\n" in text
    assert text.count("kept   ") == len(PROMISES)
    assert "2 of 2 faults in 40.0 s, 2 rounds, 4 workers; at work again after 1.50 s (median), 1.50 s (longest)" in text


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_found_and_told_with_its_fault(name: str) -> None:
    seen, sentence, fault = BREACHES[name]
    (broken,) = judge(seen)
    assert broken.promise == name.partition(":")[0]
    assert sentence in broken.sentence
    assert broken.fault == fault
    text = verdict_text(seen, Plan((KILL, LOSS), {}), (broken,), "/logs")
    assert f"\nBROKEN {broken.promise}: {PROMISES[broken.promise]}\n" in text
    assert text.endswith("\nlogs and events: /logs\n\n1 promise was broken\n")


def test_every_promise_can_be_broken() -> None:
    assert {name.partition(":")[0] for name in BREACHES} == set(PROMISES)


@pytest.mark.parametrize("name", BREACHES)
def test_the_verdict_is_also_data(name: str) -> None:
    seen = BREACHES[name][0]
    data = json.loads(json.dumps(verdict_json(seen, Plan((KILL, LOSS), {}), judge(seen), "/logs", {"seed": 7})))
    assert data["kept"] is False
    states = {row["name"]: row["state"] for row in data["promises"]}
    assert states[name.partition(":")[0]] == "broken"
    assert (data["seed"], data["struck"], data["schema"]) == (7, 0 if "nothing" in name else 2, 1)


def test_what_nobody_can_know_is_open_and_not_broken() -> None:
    seen = replace(WELL, expected=None, result=None, memory={"n1.1": GROWING[:5]}, is_interrupted=True, strikes=())
    assert judge(seen) == ()
    text = verdict_text(seen, Plan((KILL, LOSS), {}), (), "")
    for name in ("result", "memory", "commits", "end", "campaign"):
        assert f"open   {name}: " in text
    assert text.endswith("\ninterrupted; nothing broken so far\n")


def test_a_worker_that_was_stopped_with_its_node_has_lived_until_then() -> None:
    slept = replace(OLD, stopped_at=10.0, woken_at=15.0, last_alive_at=15.2)
    assert judge(replace(WELL, workers=(slept, OLD_TOO, NEW, NEW_TOO))) == ()


def test_a_short_life_says_nothing_of_an_agents_memory() -> None:
    assert growth(GROWING[: LEAST_SAMPLES - 1]) is None
    young = tuple(Memory(float(at), 20_000 + 60 * at, 500) for at in range(LEAST_SAMPLES))
    assert growth(young) == (600, 0)
    assert judge(replace(WELL, memory={"n1.1": young})) == ()
    leaky = tuple(Memory(float(at), 20_000 + 210 * at, 500) for at in range(LEAST_SAMPLES))
    assert [one.promise for one in judge(replace(WELL, memory={"n1.1": leaky}))] == ["memory"]
    assert growth(GROWING) == (600, 0)


def test_memory_may_grow_with_what_is_kept() -> None:
    large = tuple(Memory(float(at), 20_000, 100_000 + 1000 * at) for at in range(LEAST_SAMPLES))
    assert judge(replace(WELL, memory={"n1.1": large})) == ()


def test_an_agents_own_memory_may_grow_a_little_with_every_round() -> None:
    later = tuple(replace(NEW, round=2 + number, started_at=161.0 + number) for number in range(8))
    lives = tuple(replace(one, last_alive_at=one.started_at) for one in later)
    assert judge(replace(WELL, workers=lives, memory={"n1.1": GROWING})) == ()


def test_a_fault_that_was_left_out_is_none() -> None:
    left = replace(WELL.strikes[1], left_out="there is no commit on disk", back_s=None)
    seen = replace(WELL, strikes=(WELL.strikes[0], left), said=(Said(21.0, "n1.1", "", 17),))
    assert judge(seen) == ()
    assert fault_before(seen, 30.0) == 1
    assert line(left, 2, 0.0).endswith("n2: left out, there is no commit on disk")
    text = verdict_text(seen, Plan((KILL, LOSS), {}), (), "")
    assert "\nleft out: kill-agent: 1 of 1, there is no commit on disk\n" in text
    data = verdict_json(seen, Plan((KILL, LOSS), {}), (), "", {"seed": 1})
    assert data["left_out"] == {"kill-agent": "1 of 1, there is no commit on disk"}
    assert data["kinds"] == {"kill-worker": 1}, "what was left out was not made"


def test_the_verdict_is_a_record_of_how_many_faults_of_which_kind_there_were_and_what_they_cost() -> None:
    data = verdict_json(WELL, Plan((KILL, LOSS), {}), (), "", {"seed": 1, "versions": {"planaria": "0.1.0"}})
    assert data["versions"] == {"planaria": "0.1.0"}
    assert data["kinds"] == {"kill-agent": 1, "kill-worker": 1}
    back = sorted(strike.back_s or 0.0 for strike in WELL.strikes)
    assert data["back_s"] == {"median": back[1], "p90": back[1], "longest": back[1]}
    assert (data["rounds"], data["workers"]) == (2, len(WELL.workers))


def test_commits_are_open_unless_a_life_has_said_where_it_goes_on_after_a_fault() -> None:
    for said in ((), (Said(9.9, "n1.1", "", 3),), (Said(21.0, "n1.1", "planaria: n2 is gone"),)):
        assert "\nopen   commits: " in verdict_text(replace(WELL, said=said), Plan((KILL, LOSS), {}), (), "")
    assert "\nkept   commits: " in verdict_text(WELL, Plan((KILL, LOSS), {}), (), "")


def test_a_story_begins_with_its_fault_and_ends_with_the_next() -> None:
    seen, _, _ = BREACHES["one-world"]
    told = story(seen, judge(seen)[0])
    assert told[0] == "[1/2]   10.0 s  kill-worker n1 local rank 0 in step 7 of round 0: at work again after 0.50 s"
    assert told[1:] == ["   11.00 s n1.1: \\titeration=6"]


def test_a_long_story_is_cut_and_says_so() -> None:
    many = tuple(Said(20.0 + at / 100, "n1.1", f"line {at}\x1b[2J") for at in range(200))
    seen = replace(BREACHES["end"][0], said=many)
    told = story(seen, judge(seen)[0])
    assert told[1] == "(140 lines less)"
    assert told[-1] == "   21.99 s n1.1: line 199\\x1b[2J"


def test_what_is_broken_before_any_fault_has_a_story_too() -> None:
    seen = replace(WELL, strikes=(), planned=0, ends=(NodeEnd("n1.1", 1, 3.0, is_ours=False),))
    (broken,) = judge(seen)
    assert story(seen, broken)[0] == "before the first fault:"
