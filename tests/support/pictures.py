"""Pictures of made-up runs, as `planaria.insight` draws them: one that failed, one that runs and hangs, one of 1,000 ranks."""

from __future__ import annotations

import math
from typing import Any

START = 1_794_000_000.0
HOSTS = ("node-a", "node-b", "node-c")
PHASES = ("detect", "decide", "stop", "rendezvous", "start", "ready")


def recovery(number: int, at_s: float, reason: str, kind: str, times_ms: tuple[float, ...], node: str) -> dict[str, Any]:
    """Return one restart with its six phases in milliseconds."""
    phases = {name: ms / 1000 for name, ms in zip(PHASES, times_ms, strict=True)}
    return {
        "round": number,
        "reason": reason,
        "kind": kind,
        "charged": kind == "failure",
        "began": START + at_s,
        "total_s": sum(phases.values()),
        "phases": phases,
        "node": node,
    }


def rank(number: int, host: str, seconds: float, *, slow: float = 1.0, state: str = "running") -> dict[str, Any]:
    """Return one rank after `seconds` of steps, ten a second and a little more or less."""
    rate = (10 + math.sin(number * 1.7 + seconds / 9)) / slow
    return {
        "rank": number,
        "host": host,
        "node": f"{host}-1a2b",
        "pid": 4100 + number,
        "state": state,
        "step": int(seconds * 10),
        "samples": int(seconds * 320),
        "rate": rate if state == "running" else None,
        "samples_rate": rate * 32 if state == "running" else None,
        "phase": "step",
        "age_s": 0.05 + (number % 7) / 90,
        "behind": False,
        "straggler": None if slow < 1.2 else slow,
    }


def happening(at_s: float, host: str, name: str, sentence: str) -> dict[str, Any]:
    """Return one line of the timeline."""
    return {"timestamp": START + at_s, "host": host, "name": name, "sentence": sentence}


def _nodes(state: str) -> list[dict[str, Any]]:
    return [
        {
            "node": f"{host}-1a2b",
            "host": host,
            "state": state,
            "why_not_ready": None,
            "round": 3,
            "ranks": [2 * number, 2 * number + 1],
            "age_s": 0.2,
            "source": "folder",
        }
        for number, host in enumerate(HOSTS)
    ]


RECOVERIES = (
    recovery(1, 41.0, "rank 3 was killed by SIGKILL", "failure", (0.6, 0.4, 2.8, 9.1, 11.9, 212.0), "node-b-1a2b"),
    recovery(2, 96.5, "node-c left", "members", (180.0, 0.5, 3.3, 61.0, 12.4, 198.0), "node-a-1a2b"),
    recovery(3, 142.0, "node-c joined", "members", (0.3, 0.4, 44.0, 35.2, 14.0, 240.5), "node-a-1a2b"),
)
EVENTS = (
    happening(0.0, "node-a", "planaria.run.started", "the run began with 2 workers on this node"),
    happening(0.2, "node-a", "planaria.round.started", "round 0 began: 3 nodes, 6 workers"),
    happening(41.0, "node-b", "planaria.worker.exited", "rank 3 was killed by SIGKILL (the kernel was out of memory)"),
    happening(41.3, "node-a", "planaria.restart", "restart 1 of 3 because rank 3 failed: 237 ms"),
    happening(70.0, "node-a", "planaria.commit", "step 700 is safe on another node"),
    happening(96.5, "node-c", "planaria.run.ended", "this node drained"),
    happening(97.0, "node-a", "planaria.round.started", "round 2 began: 2 nodes, 4 workers, because node-c left"),
    happening(142.3, "node-a", "planaria.round.started", "round 3 began: 3 nodes, 6 workers, because node-c joined"),
)


def live(seconds: float = 180.0, *, run_id: str = "llm-7b-pretrain") -> dict[str, Any]:
    """Return a run of three nodes and six ranks that has recovered three times; rank 4 is slow."""
    ranks = [rank(number, HOSTS[number // 2], seconds, slow=1.62 if number == 4 else 1.0) for number in range(6)]
    return {
        "schema": 1,
        "run_id": run_id,
        "state": "running",
        "world_size": 6,
        "nodes": _nodes("running"),
        "ranks": ranks,
        "restarts": {"used": 1, "allowed": 3, "list": list(RECOVERIES)},
        "newest_commit": {
            "node": {"step": int(seconds * 10) - 4, "round": 3, "generation": 91},
            "peer": {"step": int(seconds * 10) - 30, "round": 3, "generation": 88},
            "disk": None,
        },
        "timeline": list(EVENTS),
        "world_over_time": [
            [START, 0],
            [START + 0.2, 6],
            [START + 41.0, 0],
            [START + 41.3, 6],
            [START + 96.5, 0],
            [START + 97.0, 4],
            [START + 142.0, 0],
            [START + 142.3, 6],
            [START + seconds, 6],
        ],
        "hang": None,
        "stragglers": [{"rank": 4, "host": "node-c", "slower_by": 1.62}],
        "effective": {"since": START, "seconds": seconds, "training_seconds": seconds * 0.968, "share": 0.968},
        "outcome": None,
        "evidence": [],
        "gaps": [],
    }


def hanging(seconds: float = 240.0) -> dict[str, Any]:
    """Return the same run, in which rank 2 has not come to a collective."""
    found = live(seconds)
    for one in found["ranks"]:
        one.update(age_s=41.0 if one["rank"] == 2 else 40.2, behind=one["rank"] == 2, rate=0.0, samples_rate=0.0)
    sentence = "rank 2 on node-b is behind: no step for 41.0 s, usually one takes 0.1 s"
    found["hang"] = {
        "round": 3,
        "phase": "step",
        "ranks": [2],
        "step": 2000,
        "gap_s": 41.0,
        "usual_s": 0.1,
        "floor_s": 30.0,
        "policy": "report",
        "evidence": "hang-0001",
        "sentence": sentence,
    }
    found["timeline"].append(happening(seconds, "node-b", "planaria.hang", sentence))
    found["evidence"] = [{"node": "node-b-1a2b", "name": "hang-0001", "files": ["rank-2.stacks.txt", "host.txt"]}]
    return found


def failed() -> dict[str, Any]:
    """Return the same run after its end: rank 2 failed once too often."""
    found = live(203.0)
    cause = "Rank 2 on node-b failed: ValueError: loss is nan at step 2030 (train.py:88)"
    found.update(
        state="failed",
        world_size=0,
        outcome={
            "outcome": "failed",
            "status": 1,
            "sentence": "the run failed: rank 2 raised ValueError, and no restart was left",
            "first_cause": cause,
        },
    )
    found["restarts"]["used"] = 3
    for one in found["ranks"]:
        one.update(state="failed" if one["rank"] == 2 else "stopped", rate=None, samples_rate=None, phase=None)
    for node in found["nodes"]:
        node.update(state="ended")
    found["stragglers"] = []
    found["world_over_time"][-1] = [START + 203.0, 6]
    found["world_over_time"].append([START + 203.1, 0])
    found["timeline"].append(happening(203.0, "node-b", "planaria.worker.exited", cause))
    found["timeline"].append(happening(203.2, "node-a", "planaria.run.ended", found["outcome"]["sentence"]))
    found["evidence"] = [{"node": "node-b-1a2b", "name": "failure-rank-2", "files": ["stacks.txt", "host.txt"]}]
    return found


def thousand(seconds: float = 60.0, count: int = 1000) -> dict[str, Any]:
    """Return a run of `count` ranks, eight on a node, in which every number moves with `seconds`."""
    found = live(seconds, run_id="thousand")
    found["ranks"] = [
        rank(number, f"gpu-{number // 8:03d}", seconds, slow=1.4 if number in (17, 555) else 1.0)
        for number in range(count)
    ]
    found["world_size"] = count
    found["nodes"] = [
        {**found["nodes"][0], "node": f"gpu-{n:03d}-1a2b", "host": f"gpu-{n:03d}", "ranks": list(range(8 * n, 8 * n + 8))}
        for n in range(count // 8)
    ]
    found["world_over_time"] = [[START + n * seconds / 300, count - (n * 7) % 41] for n in range(300)]
    found["timeline"] = [
        happening(n / 8, f"gpu-{n % 125:03d}", "planaria.commit", f"step {n} is safe on another node") for n in range(500)
    ]
    found["stragglers"] = [{"rank": n, "host": f"gpu-{n // 8:03d}", "slower_by": 1.4} for n in (17, 555)]
    return found


MARKUP = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[31mred\x1b[0m\u202etxt"


def hostile() -> dict[str, Any]:
    """Return a run in which every text that others can choose is markup or a terminal's escape."""
    return _poisoned(hanging(), {"schema", "timestamp"}) | {
        "run_id": MARKUP,
        "outcome": {"outcome": MARKUP, "status": 1, "sentence": MARKUP, "first_cause": MARKUP},
    }


def _poisoned(found: Any, kept: set[str]) -> Any:
    if isinstance(found, dict):
        return {key: value if key in kept else _poisoned(value, kept) for key, value in found.items()}
    if isinstance(found, list):
        return [_poisoned(one, kept) for one in found]
    return MARKUP if isinstance(found, str) else found
