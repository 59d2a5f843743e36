"""Explain what was decided last, and why: the restart, the end, the wait or the hang, its first cause and its price. Pure."""

from __future__ import annotations

from planaria.agent.report import OTHERS_SHOWN, by_reason
from planaria.base.text import safe_line, several
from planaria.base.value import Value, as_dict
from planaria.insight.fields import integers, number, text
from planaria.insight.model import SCHEMA, Cause, Redone
from planaria.insight.sentences import PAST, date, meaning, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.insight.model import Effective, Outcome, Restart, RunSeen

_AT_WORK = "running"
_UNFINISHED = {**PAST, "away": "no agent of the run answers at the moment"}


class Decision(Value):
    """One decision. `kind`: restart, end, hang, waiting, going on. `phases_ms` is where its time went."""

    kind: str
    sentence: str
    timestamp: int | None = None
    round: int | None = None
    charged: bool | None = None
    total_ms: float | None = None
    phases_ms: Mapping[str, float] = {}
    node: str = ""
    first_cause: Cause | None = None
    redone: Redone = Redone(None, None)
    notes: tuple[str, ...] = ()


class Reasons(Value):
    """The answer to `planaria why`. `rounds` are those that restarts led to: each can be asked for."""

    run_id: str
    decision: Decision
    effective: Effective
    rounds: tuple[int, ...]
    gaps: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return it as `planaria why --json` prints it."""
        told = as_dict(self)
        decision = as_dict(self.decision)
        decision["redone"] = {**as_dict(self.decision.redone), "steps": self.decision.redone.steps}
        effective = {**as_dict(self.effective), "share": self.effective.share}
        return {"schema": SCHEMA, **told, "decision": decision, "effective": effective}


def why(run: RunSeen, round_number: int | None = None) -> Reasons | None:
    """Return the reasons of the last decision, or of the restart that led to a round; None: there is no such restart."""
    rounds = tuple(one.round for one in run.restarts)
    if round_number is not None:
        found = [_restarted(one, run) for one in run.restarts if one.round == round_number]
        decision = found[0] if found else None
    else:
        decision = _last(run)
    return None if decision is None else Reasons(run.run_id, decision, run.effective, rounds, run.gaps)


def _last(run: RunSeen) -> Decision:
    if run.outcome is not None:
        return _ended(run.outcome, run)
    if run.hang is not None:
        return _hanging(run.hang)
    if run.state != _AT_WORK:
        return _unfinished(run)
    if run.restarts:
        return _restarted(run.restarts[-1], run)
    return Decision("going on", "nothing had to be decided so far: the workers of the first round are at work")


def _restarted(one: Restart, run: RunSeen) -> Decision:
    price = "charged to --max-restarts" if one.charged else "not charged to --max-restarts"
    notes = []
    if one.world_size is not None and one.nodes is not None:
        notes.append(f"round {one.round} has {several(one.world_size, 'worker')} on {several(one.nodes, 'node')}")
    if run.restarts_used is not None and run.restarts_allowed is not None:
        notes.append(f"{run.restarts_used} of {several(run.restarts_allowed, 'restart')} used so far")
    if one.promoted:
        notes.append(f"{several(len(one.promoted), 'worker')} of {one.node} had been standing by")
    for ranks, reason in by_reason(one.cold):
        more = f" and {len(ranks) - OTHERS_SHOWN} more" if len(ranks) > OTHERS_SHOWN else ""
        who = f"local rank{'s' * (len(ranks) > 1)} {', '.join(ranks[:OTHERS_SHOWN])}{more}"
        notes.append(f"{who} of {one.node} started cold: {reason}")
    return Decision(
        "restart",
        f"all workers were started again for round {one.round}, within {span(one.total_s)}: {one.reason} ({price})",
        one.began,
        one.round,
        one.charged,
        _ms(one.total_s),
        {phase: _ms(seconds) for phase, seconds in one.phases.items()},
        one.node,
        one.first_cause,
        one.redone,
        tuple(notes),
    )


def _ended(one: Outcome, run: RunSeen) -> Decision:
    notes = [f"every launcher that saw it exits with {one.status}"] if one.status else []
    if run.restarts_used is not None and run.restarts_allowed is not None:
        used = f"{run.restarts_used} of {run.restarts_allowed} restarts used"  # the agents may have said the same
        notes += [f"{run.restarts_used} of {several(run.restarts_allowed, 'restart')} used"] * (
            used not in one.sentence
        )
    reached = max((rank.step for rank in run.ranks if rank.step is not None), default=None)
    commits = [stamp for stamp in run.newest_commit.values() if stamp is not None]
    if reached is not None:
        notes.append(f"the workers had come to step {reached}{_kept(run.newest_commit) if commits else ''}")
    total_s = sum(one.phases.values())
    return Decision(
        "end",
        f"{one.sentence}{_spent(one, run)}",
        one.timestamp,
        one.first_cause.round if one.first_cause is not None else None,
        total_ms=_ms(total_s) if one.phases else None,
        phases_ms={phase: _ms(seconds) for phase, seconds in one.phases.items()},
        node=one.first_cause.node if one.first_cause is not None else one.node,
        first_cause=one.first_cause,
        notes=tuple(notes),
    )


def _spent(one: Outcome, run: RunSeen) -> str:
    """Say that no restart was left, where the nodes gave no other reason for the end."""
    if one.outcome != "failed" or one.first_cause is None or ":" in one.sentence:
        return ""
    is_spent = run.restarts_allowed is not None and (run.restarts_used or 0) >= run.restarts_allowed
    return f": rank {one.first_cause.rank} failed{', and no restart was left' if is_spent else ''}"


def _kept(commits: Mapping[str, Mapping[str, object] | None]) -> str:
    newest = {tier: stamp["step"] for tier, stamp in commits.items() if stamp is not None}
    return "; newest commit: " + ", ".join(f"step {step} ({tier})" for tier, step in newest.items())


def _hanging(hang: Mapping[str, object]) -> Decision:
    ranks = ", ".join(str(rank) for rank in integers(hang, "ranks")[:8])
    said = text(hang, "sentence") or f"the workers do not go on; first suspects: rank {ranks or '?'}"
    notes = []
    gap_s, usual_s, evidence = number(hang, "gap_s"), number(hang, "usual_s"), text(hang, "evidence")
    if gap_s is not None and usual_s is not None:
        notes.append(f"nothing for {span(gap_s)}, where {span(usual_s)} are usual")
    if text(hang, "policy"):
        notes.append(f"the policy is to {text(hang, 'policy')} (--hang-policy)")
    if evidence:
        notes.append(f"evidence: {evidence}")
    found = hang.get("timestamp")
    return Decision("hang", said, found if isinstance(found, int) else None, notes=tuple(notes))


def _unfinished(run: RunSeen) -> Decision:
    """Tell of a run in which something is under way: what the nodes say they wait for, and the failure that began it."""
    said = list(dict.fromkeys(node.why_not_ready for node in run.nodes if node.why_not_ready))
    notes = tuple(f"{node.host}: {node.why_not_ready}" for node in run.nodes if node.why_not_ready)
    cause = None
    if run.state in ("settling", "stopping", "restarting"):
        newest = max((node.round for node in run.nodes if node.round is not None), default=None)
        cause = next((one for one in run.failures if one.round == newest), None)
    kind = "waiting" if run.state == "waiting" else run.state
    sentence = said[0] if len(said) == 1 else _UNFINISHED.get(run.state, f"the run is {run.state}")
    return Decision(kind, sentence, first_cause=cause, notes=notes if len(said) > 1 else ())


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


# For people.


def lines(reasons: Reasons) -> list[str]:
    """Return the answer as lines for a terminal; everything foreign in them is harmless."""
    decision = reasons.decision
    when = "" if decision.timestamp is None else f" at {date(decision.timestamp)}"
    told = [
        f"run {safe_line(reasons.run_id, 200)}: {safe_line(decision.kind, 40)}{when}",
        f"  {safe_line(decision.sentence)}",
    ]
    if decision.first_cause is not None:
        told += _cause_lines(decision.first_cause)
    told += _phase_lines(decision)
    told += _redone_lines(decision.redone)
    told += [f"  {safe_line(note)}" for note in decision.notes]
    told += _effective_lines(reasons.effective)
    earlier = [number for number in reasons.rounds if decision.kind != "restart" or number != decision.round]
    if earlier:
        shown = ", ".join(map(str, earlier[-8:]))
        told.append(f"  other restarts led to round {shown} (--round)")
    return [*told, *(f"  not seen: {safe_line(gap)}" for gap in reasons.gaps[:8])]


def _cause_lines(cause: Cause) -> list[str]:
    pid = "" if cause.pid is None else f", pid {cause.pid}"
    age = "" if cause.age_s is None else f" after {span(cause.age_s)}"
    told = [f"  first cause: rank {cause.rank} on {safe_line(cause.host, 200)}{pid}, failed{age}: {_words(cause)}"]
    if cause.where:
        told.append(f"    {'in phase' if cause.kind == 'watchdog' else 'at'} {safe_line(cause.where)}")
    told += [f"    | {safe_line(line, 200)}" for line in cause.lines]
    return [*told, *(f"    log: {safe_line(path)}" for path in cause.log_files)]


def _words(cause: Cause) -> str:
    """Say how it ended, with the message unless that only repeats the status."""
    known = cause.meaning or meaning(cause.status, cause.killer)
    message = safe_line(cause.message)
    return known if not message or known.startswith(message) else f"{message} ({known})"


def _phase_lines(decision: Decision) -> list[str]:
    if not decision.phases_ms:
        return []
    spent = ", ".join(f"{phase} {length:g}" for phase, length in decision.phases_ms.items())
    total = sum(decision.phases_ms.values()) if decision.total_ms is None else decision.total_ms
    return [f"  phases in ms, on {safe_line(decision.node, 200)}: {spent}; together {total:g}"]


def _redone_lines(redone: Redone) -> list[str]:
    if redone.reached is None:
        return []
    if redone.resumed is None:
        return [f"  the workers had come to step {redone.reached}; none is reported since then"]
    again = several(redone.steps or 0, "step")
    return [
        f"  the workers had come to step {redone.reached} and went on with step {redone.resumed}: {again} done again"
    ]


def _effective_lines(effective: Effective) -> list[str]:
    share = effective.share
    if share is None:
        return []
    since = "" if effective.since is None else f" since {date(effective.since)}"
    whose = "stepping" if effective.is_reported else "at work (no worker reports steps)"
    trained = f"{span(effective.training_seconds)} of {span(effective.seconds)}"
    again = f"; about {span(effective.redone_seconds)} of it for steps done again" if effective.redone_seconds else ""
    return [f"  effective training time{since}: {trained} {whose}, {100 * share:.1f} %{again}"]
