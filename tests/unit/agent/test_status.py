from __future__ import annotations

import json

import pytest

from planaria.agent import status
from planaria.agent.model import Group, Job
from planaria.agent.status import View, as_gauges, as_json, why_not_ready
from planaria.agent.stragglers import Pace
from planaria.base.value import replace
from planaria.contract.commit import Stamp
from planaria.contract.control import Progress
from planaria.contract.env import Round
from planaria.process.model import Command
from planaria.process.standbys import Seen, StandbysSeen
from planaria.process.workers import WorkerSeen
from planaria.rendezvous.driver import Snapshot
from planaria.rendezvous.model import Deputy, Standing

JOB = Job(Command("script", "a.py", ()), 2, "job7", "default", 3, 30.0, (15,), {"SECRET": "hidden"})
LIFE = Round(4, "job7", "default", 1, 2, 2, 4, 2, 4, 2, "10.0.0.1", 4711, 1, 3, "rank 0 failed")
REPORT = Progress(12, (("loss", 0.5), ("scale", float("inf"))))
RUNNING = Group(size=2, max_restarts=3, grace_s=30.0, phase="running", round=4, restarts=1, reason="rank 0 failed")
PHASES = (
    "checking",
    "waiting",
    "starting",
    "settling",
    "resizing",
    "stopping",
    "restarting",
    "draining",
    "finishing",
    "leaving",
    "done",
)


def view(**changes: object) -> View:
    workers = (WorkerSeen(0, 2, 100, True, 90.0), WorkerSeen(1, 3, 101, False, 90.5))
    found = View(JOB, RUNNING, 100.0, "n1", 50, 49, LIFE, workers, {0: (REPORT, 99.0)})
    return replace(found, **changes)


def test_a_group_that_runs_is_ready_and_no_other_is() -> None:
    assert why_not_ready(view()) == ""
    for phase in PHASES:
        why = why_not_ready(view(group=replace(RUNNING, phase=phase)))
        assert why
        assert "\n" not in why


def test_one_who_waits_says_what_for() -> None:
    seen = Snapshot(waiting_for="1 of 2 nodes are here\x1b[31m; waiting for 1 more")
    why = why_not_ready(view(group=replace(RUNNING, phase="waiting"), meeting=seen))
    assert why.startswith("1 of 2 nodes are here")
    assert why.isprintable()
    assert why_not_ready(view(group=replace(RUNNING, phase="draining"), meeting=seen)) == "this node is draining"


def test_the_status_tells_of_job_round_members_workers_and_progress() -> None:
    found = json.loads(json.dumps(as_json(view())))
    assert found["schema"] == status.SCHEMA
    assert found["job"]["run_id"] == "job7"
    assert (found["state"], found["ready"], found["why_not_ready"]) == ("running", True, None)
    assert found["round"] == {
        "number": 4,
        "restart_count": 1,
        "reason": "rank 0 failed",
        "world_size": 4,
        "first_rank": 2,
        "master_addr": "10.0.0.1",
        "master_port": 4711,
    }
    assert found["members"]["count"] == 1
    assert found["workers"] == [
        {"rank": 2, "local_rank": 0, "pid": 100, "state": "running", "age_s": 10.0},
        {"rank": 3, "local_rank": 1, "pid": 101, "state": "ended", "age_s": 9.5},
    ]
    assert found["restarts"] == {"used": 1, "allowed": 3}
    assert found["last_reason"] == "rank 0 failed"
    assert found["progress"] == {
        "2": {
            "step": 12,
            "age_s": 1.0,
            "phase": None,
            "rate": None,
            "samples_rate": None,
            "step_s": None,
            "step_mean_s": None,
            "busy_s": None,
            "values": {"loss": 0.5, "scale": None},
        },
        "3": None,
    }
    assert found["newest_commit"] == {"node": None, "buddy": None, "disk": None}
    assert "hidden" not in json.dumps(found)


def test_the_newest_commit_of_each_tier_is_told() -> None:
    stamps = {"node": Stamp(2, 4, 70, 700, 8, 3), "disk": Stamp(2, 4, 60, 600, 8, 0)}
    shown = {"step": 700, "round": 4, "generation": 70, "run": 2, "world_size": 8}
    found = as_json(view(commits=stamps))["newest_commit"]
    assert found == {"node": shown, "buddy": None, "disk": {**shown, "step": 600, "generation": 60}}


def test_one_of_many_tells_whom_it_knows_of_its_round() -> None:
    deputies = (Deputy("a-1", "h:1"), Deputy("b-2", "h:2"), Deputy("spare-3", "h:3"))
    standing = Standing("e", 1, 4, 2, 1, 1, deputies)
    found = as_json(view(meeting=Snapshot(node="b-2", standing=standing, is_leading=False, waiting_for="more")))
    assert found["members"] == {
        "count": 2,
        "node_rank": 1,
        "known": ["a-1", "b-2"],
        "is_leader": False,
        "waiting_for": "more",
    }


def test_before_the_first_round_there_is_none_to_tell_of() -> None:
    found = as_json(view(life=None, workers=(), progress={}))
    assert found["round"] is None
    assert found["workers"] == []
    assert found["progress"] == {}


FEW = StandbysSeen((Seen(0, 200, True), Seen(1, 201, False)), "each takes too much")


def test_who_stands_by_is_told_and_why_they_are_few() -> None:
    assert as_json(view())["standbys"] is None
    asked = view(job=replace(JOB, standbys=None), standbys=FEW)
    assert as_json(asked)["standbys"] == {
        "wanted": 2,
        "ready": 1,
        "starting": 1,
        "why_fewer": "each takes too much",
        "processes": [
            {"local_rank": 0, "pid": 200, "state": "ready"},
            {"local_rank": 1, "pid": 201, "state": "starting"},
        ],
    }


@pytest.mark.parametrize(("asked", "wanted", "why"), [(None, 2, "few"), (1, 1, None), (2, 2, "few"), (9, 2, "few")])
def test_as_many_stand_by_as_were_asked_for_and_no_more_than_there_are_workers(
    asked: int | None, wanted: int, why: str | None
) -> None:
    one = view(job=replace(JOB, standbys=asked), standbys=StandbysSeen((Seen(0, 200, True),), "few"))
    found = as_json(one)["standbys"]
    assert isinstance(found, dict)
    assert (found["wanted"], found["ready"], found["starting"], found["why_fewer"]) == (wanted, 1, 0, why)


def test_the_gauges_count_who_stands_by_where_somebody_is_to() -> None:
    assert "standbys" not in as_gauges(view(), "")
    lines = as_gauges(view(job=replace(JOB, standbys=None), standbys=FEW), "").splitlines()
    assert [line for line in lines if line.startswith("planaria_standbys_")] == [
        "planaria_standbys_wanted 2",
        "planaria_standbys_ready 1",
        "planaria_standbys_starting 1",
    ]


@pytest.mark.parametrize(("phase", "ready"), [("running", 1), ("draining", 0)])
def test_the_gauges_are_lines_that_prometheus_reads_behind_what_was_counted(phase: str, ready: int) -> None:
    lines = as_gauges(view(group=replace(RUNNING, phase=phase)), "planaria_round 4\n").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["planaria_round 4", f"planaria_ready {ready}"]
    assert sum(line.startswith("# TYPE ") for line in lines) == 1


def test_a_node_that_is_set_aside_says_why_and_how_often() -> None:
    group = replace(RUNNING, phase="checking", set_aside="disk.space: full\x1b[2J", setbacks=2)
    assert why_not_ready(view(group=group)) == "set aside, to be checked again: disk.space: full\\x1b[2J"
    assert as_json(view(group=group))["set_aside"] == {"times": 2, "why": "disk.space: full\\x1b[2J"}
    assert as_json(view())["set_aside"] is None


def test_phases_hangs_and_stragglers_are_told_where_they_are_known() -> None:
    told = as_json(view())
    assert (told["hang"], told["stragglers"], told["evidence"]) == (None, [], [])
    assert told["progress"]["2"]["phase"] is None  # type: ignore[index]
    slow = [{"rank": 3, "host": "n1", "slower_by": 1.5}]
    paces = {0: Pace(1 / 3, 0.5, None)}
    told = as_json(view(phases={0: "evaluation"}, hang={"ranks": [3]}, stragglers=slow, paces=paces))
    assert (told["hang"], told["stragglers"]) == ({"ranks": [3]}, slow)
    assert told["progress"]["2"]["phase"] == "evaluation"  # type: ignore[index]
    found = [told["progress"]["2"][name] for name in ("step_s", "step_mean_s", "busy_s")]  # type: ignore[index]
    assert found == [0.333333, 0.5, None]
