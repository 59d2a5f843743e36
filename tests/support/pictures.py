"""Pictures of made-up runs, as `planaria.insight` draws them: one that failed, one that runs and hangs, one of 1,000 ranks."""

from __future__ import annotations

import math
from typing import Any

from planaria.base.value import replace
from planaria.insight.model import (
    PHASES,
    Cause,
    Effective,
    Evidence,
    Moment,
    Node,
    Outcome,
    Rank,
    Redone,
    Restart,
    RunSeen,
)

START_MS = 1_794_000_000_000
HOSTS = ("node-a", "node-b", "node-c")


def _at(seconds: float) -> int:
    return START_MS + round(seconds * 1000)


def _restart(number: int, at_s: float, reason: str, kind: str, times_ms: tuple[float, ...]) -> Restart:
    phases = {name: ms / 1000 for name, ms in zip(PHASES, times_ms, strict=True)}
    redone = Redone(int(at_s * 10), int(at_s * 10) - 3) if kind == "failed" else Redone(None, None)
    total_s = sum(phases.values())
    return Restart(number, reason, kind, kind == "failed", _at(at_s), total_s, phases, "node-a-1a2b", redone=redone)


def _rank(number: int, host: str, seconds: float, slow: float = 1.0) -> Rank:
    """Return one rank after `seconds` of steps, ten a second and a little more or less."""
    rate = (10 + math.sin(number * 1.7 + seconds / 9)) / slow
    return Rank(
        number,
        host,
        f"{host}-1a2b",
        number % 2,
        4100 + number,
        step=int(seconds * 10),
        samples=int(seconds * 320),
        rate=rate,
        samples_rate=rate * 32,
        phase="step",
        age_s=0.05 + (number % 7) / 90,
        straggler=None if slow < 1.2 else slow,
    )


RECOVERIES = (
    _restart(1, 41.0, "rank 3 failed", "failed", (0.6, 0.4, 2.8, 9.1, 11.9, 212.0)),
    _restart(2, 96.5, "node-c left", "members", (180.0, 0.5, 3.3, 61.0, 12.4, 198.0)),
    _restart(3, 142.0, "node-c joined", "members", (0.3, 0.4, 44.0, 35.2, 14.0, 240.5)),
)
TIMELINE = (
    Moment(_at(0.0), "node-a", "planaria.run.started", "the agent begins, with 2 workers"),
    Moment(_at(0.2), "node-a", "planaria.round.started", "round 0 starts with 6 workers on 3 nodes"),
    Moment(_at(41.0), "node-b", "planaria.worker.exited", "rank 3 failed after 40.6 s: killed by SIGKILL"),
    Moment(_at(41.3), "node-a", "planaria.restart", "restarted within 237 ms for round 1: rank 3 failed"),
    Moment(_at(96.5), "node-c", "planaria.run.ended", "the run was ended by a signal (SIGTERM)"),
    Moment(_at(97.0), "node-a", "planaria.round.started", "round 2 starts with 4 workers on 2 nodes: node-c left"),
    Moment(_at(142.3), "node-a", "planaria.round.started", "round 3 starts with 6 workers on 3 nodes: node-c joined"),
)


def seen(seconds: float, run_id: str) -> RunSeen:
    """Return a run of three nodes and six ranks that has recovered three times; rank 4 is slow."""
    ranks = tuple(_rank(number, HOSTS[number // 2], seconds, 1.62 if number == 4 else 1.0) for number in range(6))
    nodes = tuple(
        Node(f"{host}-1a2b", host, "running", None, 3, (2 * number, 2 * number + 1), 0.0, f"{host}:8080")
        for number, host in enumerate(HOSTS)
    )
    step = int(seconds * 10)
    return RunSeen(
        run_id=run_id,
        state="running",
        is_over=False,
        world_size=6,
        nodes=nodes,
        ranks=ranks,
        restarts_used=1,
        restarts_allowed=3,
        restarts=RECOVERIES,
        failures=(),
        newest_commit={
            "node": {"step": step - 4, "round": 3, "generation": 91},
            "buddy": {"step": step - 30, "round": 3, "generation": 88},
            "disk": None,
        },
        timeline=TIMELINE,
        world_over_time=((_at(0.2), 6), (_at(41.3), 6), (_at(97.0), 4), (_at(142.3), 6)),
        hang=None,
        stragglers=({"rank": 4, "host": "node-c", "slower_by": 1.62},),
        effective=Effective(START_MS, seconds, seconds * 0.968, is_reported=True),
        outcome=None,
        evidence=(),
        gaps=(),
    )


def live(seconds: float = 180.0, *, run_id: str = "llm-7b-pretrain") -> dict[str, Any]:
    """Return it as the page gets it."""
    return seen(seconds, run_id).as_json()


def drained(seconds: float = 180.0, *, run_id: str = "drained") -> dict[str, Any]:
    """Return the same run, which node-c has just left; nobody has begun the round without it, or told so."""
    found = seen(seconds, run_id)
    *stay, last = found.nodes
    left = replace(last, state="signal", age_s=None, has_ended=True)
    return replace(found, nodes=(*stay, left), world_size=4, stragglers=()).as_json()


def killed(seconds: float = 180.0, *, run_id: str = "killed") -> dict[str, Any]:
    """Return the same run, of which nobody is left and no end was written."""
    found = seen(seconds, run_id)
    nodes = tuple(replace(one, state="lost", age_s=40.0, source="/runs/killed/node") for one in found.nodes)
    return replace(found, state="gone", nodes=nodes, stragglers=()).as_json()


def hanging(seconds: float = 240.0, *, run_id: str = "speech-eval") -> dict[str, Any]:
    """Return the same run, in which rank 2 has not come to a collective."""
    found = seen(seconds, run_id)
    sentence = "rank 2 on node-b is behind: no step for 41.0 s, usually one takes 0.1 s; evidence in /runs/hang-0001"
    still = tuple(
        replace(one, age_s=41.0, behind=one.rank == 2, rate=0.0, samples_rate=0.0, straggler=None)
        for one in found.ranks
    )
    hang = {"round": 3, "phase": "step", "ranks": [2], "step": 2000, "gap_s": 41.0, "usual_s": 0.1, "floor_s": 30.0}
    return replace(
        found,
        ranks=still,
        stragglers=(),
        hang={**hang, "policy": "report", "evidence": "hang-0001", "sentence": sentence},
        timeline=(*found.timeline, Moment(_at(seconds), "node-b", "planaria.hang", sentence)),
        evidence=(Evidence("node-b-1a2b", "hang-0001", ("rank-2.stacks.txt", "host.txt")),),
    ).as_json()


CAUSE = Cause(
    3,
    2,
    "node-b",
    "node-b-1a2b",
    4102,
    1,
    "exit status 1",
    "ValueError: loss is nan at step 2030",
    kind="exception",
    where="train.py:88",
    age_s=60.7,
    timestamp=_at(203.0),
    lines=(
        "Traceback (most recent call last):",
        '  File "train.py", line 88, in <module>',
        "    check(loss, step)",
        "ValueError: loss is nan at step 2030",
    ),
)


def failed(*, run_id: str = "vision-finetune") -> dict[str, Any]:
    """Return the same run after its end: rank 2 failed once too often."""
    found = seen(203.0, run_id)
    sentence = "the run failed: rank 2 failed, and no restart was left"
    ranks = tuple(
        replace(one, state="failed" if one.rank == 2 else "stopped", rate=None, samples_rate=None, straggler=None)
        for one in found.ranks
    )
    told = (
        Moment(_at(203.0), "node-b", "planaria.worker.exited", "rank 2 failed after 60.7 s: ValueError: loss is nan"),
        Moment(_at(203.2), "node-a", "planaria.run.ended", sentence),
    )
    return replace(
        found,
        state="failed",
        is_over=True,
        restarts_used=3,
        ranks=ranks,
        nodes=tuple(replace(one, state="failed") for one in found.nodes),
        failures=(CAUSE,),
        stragglers=(),
        world_over_time=(*found.world_over_time, (_at(203.1), 0)),
        timeline=(*found.timeline, *told),
        outcome=Outcome("failed", 1, sentence, "node-b-1a2b", _at(203.2), CAUSE, {"detect": 0.0006, "end": 0.031}),
        evidence=(Evidence("node-b-1a2b", "failure-rank-2", ("stacks.txt", "host.txt")),),
    ).as_json()


def thousand(seconds: float = 60.0, count: int = 1000, *, run_id: str = "thousand") -> dict[str, Any]:
    """Return a run of `count` ranks, eight on a node, in which every number moves with `seconds`."""
    found = seen(seconds, run_id)
    hosts = [f"gpu-{number:03d}" for number in range(count // 8)]
    return replace(
        found,
        world_size=count,
        ranks=tuple(_rank(n, hosts[n // 8], seconds, 1.4 if n in (17, 555) else 1.0) for n in range(count)),
        nodes=tuple(
            Node(f"{host}-1a2b", host, "running", None, 3, tuple(range(8 * n, 8 * n + 8)), 0.0, f"{host}:8080")
            for n, host in enumerate(hosts)
        ),
        world_over_time=tuple((_at(n * seconds / 300), count - (n * 7) % 41) for n in range(300)),
        timeline=tuple(
            Moment(_at(n / 8), hosts[n % len(hosts)], "planaria.restart", f"restarted within {n} ms for round {n}")
            for n in range(500)
        ),
        stragglers=tuple({"rank": n, "host": hosts[n // 8], "slower_by": 1.4} for n in (17, 555)),
    ).as_json()


OWN = "document.title='owned'"
MARKUP = f'<script>{OWN}</script><img src=x onerror="{OWN}">\x1b[31mred\x1b[0m\x1b]0;x\x07\u202e'


def hostile() -> dict[str, Any]:
    """Return a run in which every text that others can choose is markup or a terminal's escape."""
    poisoned = _poisoned({**failed(), **{key: hanging()[key] for key in ("hang", "evidence")}, "gaps": ["x"]})
    assert isinstance(poisoned, dict)
    return poisoned


def _poisoned(found: object) -> object:
    if isinstance(found, dict):
        return {key: _poisoned(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [_poisoned(one) for one in found]
    return MARKUP if isinstance(found, str) else found
