"""What an agent tells of itself: a sentence for `/readyz`, values for `/v1/status`, lines for `/metrics`. Pure."""

from __future__ import annotations

from math import isfinite

from planaria.agent.model import RUNNING
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.contract.commit import TIERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.agent.model import Group, Job
    from planaria.agent.stragglers import Pace
    from planaria.contract.commit import Stamp
    from planaria.contract.control import Progress
    from planaria.contract.env import Round
    from planaria.process.standbys import StandbysSeen
    from planaria.process.workers import WorkerSeen
    from planaria.rendezvous.driver import Snapshot

SCHEMA = 1
_NOT_READY = {
    "checking": "this node is being checked before it joins",
    "waiting": "waiting for the other nodes",
    "starting": "the workers are being started",
    "settling": "a worker failed; the others may fail alike",
    "resizing": "the world is about to change",
    "stopping": "the workers are being stopped",
    "restarting": "the workers of the last round have ended; the next round has not begun",
    "draining": "this node is draining",
    "finishing": "the job is ending",
    "leaving": "this node is saying goodbye",
    "done": "the job has ended",
}


class Watched(Value):
    """What was seen of an agent over time. `rates` are steps and samples a second, by local rank."""

    node: str
    started_at: float
    """In seconds since 1970, by this node's clock."""
    uptime_s: float
    trained_s: float
    steps_reported: bool
    rates: Mapping[int, tuple[float | None, float | None]]
    evidence: tuple[str, ...] = ()
    run_folder: str | None = None
    """The folder of the run, with one for each node in it."""


class View(Value):
    """What can be seen of an agent at one moment. `progress` is the newest report of each local rank, and when it came."""

    job: Job
    group: Group
    now: float
    host: str
    agent_pid: int
    launcher_pid: int
    life: Round | None = None
    workers: tuple[WorkerSeen, ...] = ()
    progress: Mapping[int, tuple[Progress, float]] = {}
    meeting: Snapshot | None = None
    address: str = ""
    """Where it answers over TCP."""
    commits: Mapping[str, Stamp] = {}
    """The newest complete commit by tier."""
    standbys: StandbysSeen | None = None
    """Who stands by; None where nobody is to."""
    watched: Watched | None = None
    """None where nobody has watched so far."""
    phases: Mapping[int, str] = {}
    """What each local rank is at, as far as it has said anything."""
    hang: Mapping[str, object] | None = None
    """The newest hang, until it is over."""
    stragglers: Sequence[Mapping[str, object]] = ()
    paces: Mapping[int, Pace] = {}
    """Of each local rank of which enough is known."""


def why_not_ready(view: View) -> str:
    """Say why this node does not work in a completed round; empty when it does."""
    if view.group.phase == RUNNING:
        return ""
    if view.group.phase == "draining" and view.group.outcome is not None:
        return "the job is being ended by its owner"
    if view.group.phase == "checking" and view.group.set_aside:
        return safe_line(f"set aside, to be checked again: {view.group.set_aside}", 1000)
    waiting_for = view.meeting.waiting_for if view.meeting is not None and view.group.phase == "waiting" else ""
    return safe_line(waiting_for) or _NOT_READY[view.group.phase]


def why_nobody_can_be_asked(view: View) -> str:
    """Say why this node, which goes, cannot ask the others for the end of the run; empty when it can."""
    group, seen = view.group, view.meeting
    if seen is None or group.run_over or group.phase not in ("draining", "finishing", "leaving", "done"):
        return ""
    if group.phase in ("leaving", "done"):
        return "this node has said goodbye to the run already; ask another of its nodes"
    if not seen.has_leader:
        return "this node drains and is not in touch with the others; ask another node of the run"
    return ""


def as_json(view: View) -> dict[str, object]:
    """Return the content of `/v1/status`; docs/health.md describes it."""
    job, group = view.job, view.group
    return {
        "schema": SCHEMA,
        "job": {
            "run_id": job.run_id,
            "role": job.role,
            "host": view.host,
            "node": None if view.watched is None else view.watched.node,
            "run_folder": None if view.watched is None else view.watched.run_folder,
            "launcher_pid": view.launcher_pid,
            "agent_pid": view.agent_pid,
            "address": view.address or None,
            "local_world_size": job.local_world_size,
            "min_nodes": job.meeting.min_nodes if job.meeting else 1,
            "max_nodes": job.meeting.max_nodes if job.meeting else 1,
        },
        "state": group.phase,
        "ready": not why_not_ready(view),
        "why_not_ready": why_not_ready(view) or None,
        "round": _round(view),
        "members": _members(view),
        "workers": [_worker(view, worker) for worker in view.workers],
        "standbys": _standbys(view),
        "restarts": {"used": group.restarts, "allowed": group.max_restarts},
        "last_reason": group.reason or None,
        "set_aside": {"times": group.setbacks, "why": safe_line(group.set_aside, 1000)} if group.set_aside else None,
        "progress": {str(one.rank): _step(view, one) for one in view.workers},
        "hang": view.hang,
        "stragglers": list(view.stragglers),
        "newest_commit": {tier: _commit(view.commits.get(tier)) for tier in TIERS},
        **_over_time(view.watched),
    }


def _over_time(watched: Watched | None) -> dict[str, object]:
    if watched is None:
        return {"started_at": None, "uptime_s": None, "trained_s": None, "steps_reported": False, "evidence": []}
    return {
        "started_at": round(watched.started_at, 3),
        "uptime_s": round(watched.uptime_s, 3),
        "trained_s": round(watched.trained_s, 3),
        "steps_reported": watched.steps_reported,
        "evidence": list(watched.evidence),
    }


def _commit(stamp: Stamp | None) -> dict[str, object] | None:
    if stamp is None:
        return None
    return {
        "step": stamp.step,
        "round": stamp.round,
        "generation": stamp.generation,
        "run": stamp.run,
        "world_size": stamp.world_size,
    }


def _round(view: View) -> dict[str, object] | None:
    life = view.life
    if life is None or not view.workers:
        return None
    return {
        "number": life.number,
        "restart_count": life.restart_count,
        "reason": life.restart_reason or None,
        "world_size": life.world_size,
        "first_rank": life.first_rank,
        "master_addr": life.master_addr,
        "master_port": life.master_port,
    }


def _members(view: View) -> dict[str, object]:
    """Tell who is in the newest round, as far as this node was told: all of a small one, the deputies of a large one."""
    seen = view.meeting
    if seen is None:
        return {"count": 1, "node_rank": 0, "known": [view.host], "is_leader": True, "waiting_for": None}
    standing = seen.standing
    return {
        "count": standing.size,
        "node_rank": standing.slot,
        "known": [one.node for one in standing.deputies[: standing.size]],
        "is_leader": seen.is_leading,
        "waiting_for": seen.waiting_for or None,
    }


def _worker(view: View, worker: WorkerSeen) -> dict[str, object]:
    return {
        "rank": worker.rank,
        "local_rank": worker.local_rank,
        "pid": worker.pid,
        "state": "running" if worker.is_alive else "ended",
        "age_s": round(view.now - worker.started_at, 3),
    }


def _standbys(view: View) -> dict[str, object] | None:
    if view.standbys is None:
        return None
    seen, counts = view.standbys.seen, _standby_counts(view)
    return {
        **counts,
        "why_fewer": view.standbys.why if counts["ready"] < counts["wanted"] and view.standbys.why else None,
        "processes": [
            {"local_rank": one.local_rank, "pid": one.pid, "state": "ready" if one.is_ready else "starting"}
            for one in seen
        ],
    }


def _standby_counts(view: View) -> dict[str, int]:
    """Count those that are wanted, ready and on their way. Of a number that was asked for, more than workers help nobody."""
    if view.standbys is None:
        return {}
    asked, size = view.job.standbys, view.job.local_world_size
    ready = sum(one.is_ready for one in view.standbys.seen)
    return {
        "wanted": size if asked is None else min(asked, size),
        "ready": ready,
        "starting": len(view.standbys.seen) - ready,
    }


_STANDBYS = {
    "wanted": ("planaria_standbys_wanted", "Standbys that this node is to have."),
    "ready": ("planaria_standbys_ready", "Standbys that wait to be promoted."),
    "starting": ("planaria_standbys_starting", "Standbys that are on their way."),
}


def _step(view: View, worker: WorkerSeen) -> dict[str, object] | None:
    if worker.local_rank not in view.progress:
        return None
    report, at = view.progress[worker.local_rank]
    values = {name: value if isfinite(value) else None for name, value in report.values}  # JSON has no NaN
    rates = view.watched.rates if view.watched is not None else {}
    rate, samples_rate = rates.get(worker.local_rank, (None, None))
    told = {"step": report.step, "age_s": round(view.now - at, 3), "phase": view.phases.get(worker.local_rank)}
    pace = view.paces.get(worker.local_rank)
    usual = {name: _rounded(getattr(pace, name, None)) for name in ("step_s", "step_mean_s", "busy_s")}
    return {**told, "rate": rate, "samples_rate": samples_rate, **usual, "values": values}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def as_gauges(view: View, counted: str) -> str:
    """Return this moment's numbers in Prometheus' text format, after what was `counted`."""
    gauges = [("planaria_ready", "Whether this node works in a completed round.", int(not why_not_ready(view)))]
    gauges += [(*_STANDBYS[key], count) for key, count in _standby_counts(view).items()]
    lines = [f"# HELP {name} {what}\n# TYPE {name} gauge\n{name} {value}\n" for name, what, value in gauges]
    return "".join([counted, *lines])
