"""The sentences of `planaria why`: golden stories (`PLANARIA_REWRITE=1` rewrites them; read the diff), all decisions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from journals import START_MS, Node, failed_run

from planaria.base.colours import Style
from planaria.insight.model import NodeSeen, RunSeen
from planaria.insight.picture import picture
from planaria.insight.show import status_lines
from planaria.insight.why import lines, why

FOLDER = Path(__file__).parents[2] / "transcripts" / "insight"


def of(*nodes: Node) -> RunSeen:
    return picture([NodeSeen(node.name, f"/runs/{node.name}", events=tuple(node.events), age_s=5.0) for node in nodes])


def told(run: RunSeen, round_number: int | None = None) -> list[str]:
    reasons = why(run, round_number)
    assert reasons is not None
    json.dumps(reasons.as_json())
    return lines(reasons)


def lost_node() -> list[Node]:
    """A node falls silent; the two others go on without it, and end well."""
    nodes = [Node("node-a", 0), Node("node-b", 2), Node("node-c", 4)]
    for node in nodes:
        node.begins(max_restarts=3).starts(1.0, 1).steps(20.0, 1, 40, trained_s=18.0)
    for node in nodes[:2]:
        node.starts(26.0, 2, nodes=2, reason="node-c-0a1b2c3d fell silent")
        node.restarts(
            26.3,
            2,
            "node-c-0a1b2c3d fell silent",
            kind="lost",
            stop_s=0.2,
            rendezvous_s=0.05,
            start_s=0.02,
            ready_s=0.1,
        )
        node.steps(27.0, 2, 41, first=41, trained_s=18.0).steps(60.0, 2, 100, first=41, trained_s=50.0)
        node.exits(61.0, 2, 0, status=0, message="", result="ok").exits(61.0, 2, 1, status=0, message="", result="ok")
        node.ends(61.5, "done", 0, trained_s=50.0)
    return nodes


STORIES = {"a-failed-run-of-three-nodes": failed_run, "a-run-that-lost-a-node": lost_node}


@pytest.mark.parametrize("name", STORIES)
def test_a_run_is_explained_as_it_always_was(name: str) -> None:
    run = of(*STORIES[name]())
    parts = [f"$ planaria status\n{chr(10).join(status_lines(run, Style()))}\n"]
    parts += [f"$ planaria why\n{chr(10).join(told(run))}\n"]
    parts += [f"$ planaria why --round={one.round}\n{chr(10).join(told(run, one.round))}\n" for one in run.restarts]
    text = "\n".join(parts)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("PLANARIA_REWRITE"):
        path.write_text(text)
    assert path.read_text() == text, "PLANARIA_REWRITE=1 writes it anew; read the difference"


def live(**status: object) -> RunSeen:
    common: dict[str, object] = {"job": {"run_id": "job7", "host": "node-a"}, "state": "running", "workers": []}
    return picture([NodeSeen("node-a-1", "socket", common | status, tuple(Node("node-a", 0).begins().events))])


def test_a_run_that_waits_says_for_whom() -> None:
    said = told(live(state="waiting", why_not_ready="1 of 2 nodes are here (a); waiting for 1 more, at most 600 s"))
    assert said[0] == "run job7: waiting"
    assert said[1] == "  1 of 2 nodes are here (a); waiting for 1 more, at most 600 s"


def test_a_hang_is_told_with_its_evidence() -> None:
    hang = {
        "ranks": [3],
        "sentence": "rank 3 on node-b hangs in step 7",
        "gap_s": 90.0,
        "usual_s": 0.5,
        "policy": "report",
        "evidence": "/runs/e/1",
    }
    said = told(live(hang=hang))
    assert said[:4] == [
        "run job7: hang",
        "  rank 3 on node-b hangs in step 7",
        "  nothing for 1 min 30 s, where 500 ms are usual",
        "  the policy is to report (--hang-policy)",
    ]
    assert said[4] == "  evidence: /runs/e/1"
    assert told(live(hang={**hang, "timestamp": START_MS}))[0].startswith("run job7: hang at ")


def test_a_worker_that_hung_did_so_in_a_phase_and_one_that_raised_at_a_line() -> None:
    node = Node("node-a", 0).begins().starts(1.0, 0, nodes=1)
    node.exits(5.0, 0, 1, kind="watchdog", message="hangs in phase step after step 7", where="step", status=-15)
    assert "    in phase step" in told(of(node.ends(6.0)))
    node = Node("node-a", 0).begins().starts(1.0, 0, nodes=1)
    node.exits(5.0, 0, 1, kind="exception", message="ValueError: no", where="train.py:7")
    assert "    at train.py:7" in told(of(node.ends(6.0)))


def test_a_run_without_any_trouble_says_so() -> None:
    assert told(live(round={"number": 0, "world_size": 1}))[1].startswith("  nothing had to be decided so far")


def test_a_failure_that_is_being_dealt_with_is_the_cause() -> None:
    node = Node("node-a", 0).begins().starts(1.0, 0, nodes=1).exits(5.0, 0, 1, message="exit status 3", status=3)
    status = {
        "job": {"run_id": "job7", "host": "node-a"},
        "state": "stopping",
        "round": {"number": 0},
        "why_not_ready": "the workers are being stopped",
    }
    said = told(picture([NodeSeen(node.name, "socket", status, tuple(node.events))]))
    assert said[0] == "run job7: stopping"
    assert said[2].startswith("  first cause: rank 1 on node-a, pid 5001, failed after 5.0 s: exit status 3")


def test_a_round_that_no_restart_led_to_has_no_reasons() -> None:
    assert why(of(*failed_run()), 7) is None


def test_what_a_worker_said_cannot_move_the_cursor() -> None:
    node = Node("node-a\x1b[1m", 0).begins().starts(1.0, 0, nodes=1)
    node.exits(
        5.0, 0, 0, message="\x1b[2Jgone\nplanaria: all is well", traceback="\x1b]0;x\x07boom\r\n", where="\x1b[A"
    )
    node.ends(6.0, explanation="\x1b[31mred", signal="\x1b[0m")
    run = of(node)
    text = "\n".join([*told(run), *status_lines(run, Style())])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "planaria: all is well" not in text.splitlines()


def test_what_a_worker_said_is_for_a_program_as_it_came() -> None:
    node = Node("node-a", 0).begins().starts(1.0, 0, nodes=1).exits(5.0, 0, 0, message="\x1b[31mred\nand more")
    told = of(node).as_json()["timeline"]
    assert isinstance(told, (list, tuple))
    assert told[-1]["sentence"] == "rank 0 failed after 5.0 s: \x1b[31mred\nand more"


def test_a_cause_that_a_signal_of_the_kernel_was_is_decoded() -> None:
    run = of(*failed_run())
    said = "\n".join(told(run, 2))
    assert "SIGKILL (Killed), by the kernel: out of memory" in said
    assert run.restarts[0].began == START_MS + 40_530


def test_a_restart_says_who_started_cold_and_why() -> None:
    node = Node("node-a", 0).begins(max_restarts=3).starts(1.0, 0, nodes=1)
    node.exits(5.0, 0, 1, message="exit status 3", status=3).starts(6.0, 1, nodes=1, reason="rank 1 failed")
    node.restarts(6.5, 1, "rank 1 failed", start_s=0.1)
    warmth = node.events[-1]["metadata"]
    assert isinstance(warmth, dict)
    why_not = "it is not ready yet: the one before was promoted"
    warmth |= {"promoted": [0], "cold": {"1": why_not, "2": why_not, "3": "\x1b[2Jit has died", "4": 7}}
    said = told(of(node), 1)
    assert f"  1 worker of {node.name} had been standing by" in said
    assert f"  local ranks 1, 2 of {node.name} started cold: {why_not}" in said
    assert f"  local rank 3 of {node.name} started cold: \\x1b[2Jit has died" in said
    assert sum("started cold" in line for line in said) == 2, "a reason that is no text is none"


def test_of_many_who_started_cold_a_few_are_named_and_the_rest_is_counted() -> None:
    node = Node("node-a", 0).begins(max_restarts=3).starts(1.0, 0, nodes=1)
    node.exits(5.0, 0, 1, message="exit status 3", status=3).starts(6.0, 1, nodes=1, reason="rank 1 failed")
    node.restarts(6.5, 1, "rank 1 failed", start_s=0.1)
    warmth = node.events[-1]["metadata"]
    assert isinstance(warmth, dict)
    warmth["cold"] = {str(rank): "no" for rank in range(10)}
    assert f"  local ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more of {node.name} started cold: no" in told(of(node), 1)
