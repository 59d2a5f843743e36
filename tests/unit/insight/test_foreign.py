"""Whatever stands in a journal or in an answer, a picture is made of it: one bad line must not hide a run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.base.colours import Style
from planaria.insight.fields import integer, integers, number
from planaria.insight.loglines import Line, Place, places
from planaria.insight.model import NodeSeen
from planaria.insight.picture import picture
from planaria.insight.show import status_lines, top_lines
from planaria.insight.why import lines, why

NAMES = [
    "run.started",
    "run.ended",
    "round.started",
    "worker.started",
    "worker.exited",
    "restart",
    "progress",
    "commit",
    "hang",
    "hang.over",
    "straggler",
    "preflight",
    "stalled",
]
FIELDS = [
    "round",
    "rank",
    "local_rank",
    "ranks",
    "result",
    "status",
    "message",
    "kind",
    "killer",
    "ended_at",
    "age_s",
    "total_s",
    "detect_s",
    "reason",
    "charged",
    "nodes",
    "world_size",
    "first_rank",
    "restart_count",
    "max_restarts",
    "workers",
    "pid",
    "log_files",
    "outcome",
    "first_cause",
    "duration_s",
    "trained_s",
    "uptime_s",
    "tier",
    "step",
    "generation",
    "sentence",
    "evidence",
    "gap_s",
    "usual_s",
    "findings",
    "elsewhere",
    "host",
    "node",
    "run_id",
    "at",
    "traceback",
    "explanation",
    "start",
]
NUMBERS = st.integers() | st.sampled_from([0, 1, 2, -300, -9, 10**400, -(10**18), 1 << 53]) | st.floats()
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text(max_size=8)
    | st.sampled_from(["failed", "done", "node", "0", "\x1b[2J"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "0", "1"]), inner, max_size=4)
    ),
    max_leaves=6,
)
EVENTS = st.fixed_dictionaries(
    {
        "name": st.sampled_from([f"planaria.{name}" for name in NAMES]) | VALUES,
        "timestamp": NUMBERS | VALUES,
        "metadata": st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8) | VALUES,
    }
)
PARTS = [
    "job",
    "state",
    "why_not_ready",
    "round",
    "workers",
    "restarts",
    "progress",
    "newest_commit",
    "hang",
    "stragglers",
    "members",
]
STATUSES = st.none() | st.dictionaries(
    st.sampled_from([*PARTS, "started_at", "uptime_s", "trained_s", "steps_reported", "start"]), VALUES, max_size=8
)
NODES = st.builds(
    NodeSeen,
    st.sampled_from(["a", "b"]),
    st.just("/runs/job7/a"),
    STATUSES,
    st.lists(EVENTS, max_size=5).map(tuple),
    STATUSES,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(NODES, max_size=3))
def test_a_picture_is_made_of_whatever_nodes_tell(nodes: list[NodeSeen]) -> None:
    run = picture(nodes)
    json.dumps(run.as_json(), default=str)
    shown = [*status_lines(run, Style()), *top_lines(run, Style(), 80, 24)]
    reasons = why(run)
    assert reasons is not None
    json.dumps(reasons.as_json(), default=str)
    assert not [line for line in [*shown, *lines(reasons)] if "\x1b" in line]
    places(nodes, None, ("stdout",))


def event(name: str, timestamp: int = 1000, **data: object) -> dict[str, object]:
    return {
        "name": f"planaria.{name}",
        "timestamp": timestamp,
        "metadata": {"run_id": "r", "host": "h", "at": 1.0, **data},
    }


@pytest.mark.parametrize(
    "one",
    [
        event("restart", 10**400, round=1, total_s=1.0),
        event("restart", round=1, total_s=1e308),
        event("worker.exited", round=0, rank=0, result="failed", status=-300),
        event("worker.exited", round=0, rank=0, result="failed", status=-(10**9)),
        event("progress", round=0, ranks={"0": {"step": 10**400, "first": 0}}, trained_s=3.0),
    ],
)
def test_a_number_that_nobody_can_reckon_with_counts_as_none(one: dict[str, object]) -> None:
    run = picture([NodeSeen("n", "/x", None, (event("run.started", workers=1), one))])
    assert run.run_id == "r"


def test_a_start_beyond_all_calendars_is_none() -> None:
    status = {"job": {"run_id": "r", "node": "n"}, "uptime_s": 1.0, "started_at": 1e308}
    assert picture([NodeSeen("n", "socket", status)]).effective.since is None


def test_numbers_have_bounds() -> None:
    found = {"far": 1 << 53, "near": (1 << 53) - 1, "nan": float("nan"), "list": [1, 1 << 53, True]}
    assert (integer(found, "far"), integer(found, "near")) == (None, (1 << 53) - 1)
    assert (number(found, "far"), number(found, "nan"), number(found, "near")) == (None, None, (1 << 53) - 1)
    assert integers(found, "list") == (1,)


def test_the_name_of_a_host_cannot_move_the_cursor() -> None:
    place = Place("n", "/x", "\x1b]0;PWN\x07\x1b[2J" + "h" * 200, 0, 3, 0, "stdout", "/x/stdout.log")
    said = str(Line(place, "hello"))
    assert "\x1b" not in said
    assert "\x07" not in said
    assert len(said) < 130


def test_the_state_of_an_agent_cannot_move_the_cursor() -> None:
    reasons = why(picture([NodeSeen("n", "socket", {"job": {"run_id": "r"}, "state": "\x1b[2J"})]))
    assert reasons is not None
    assert not [line for line in lines(reasons) if "\x1b" in line]
