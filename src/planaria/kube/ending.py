"""How a job ends, and what is left to do then. Pure."""

from __future__ import annotations

from planaria.base.value import replace
from planaria.kube import conditions, restart, status
from planaria.kube.model import Decision, Delete
from planaria.kube.names import JOB_KIND
from planaria.kube.pods import has_our_agent, trainer_of
from planaria.kube.status import Told
from planaria.kube.times import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.case import Case
    from planaria.kube.memory import Memory
    from planaria.kube.model import Action

# A member that ends with status 0 says that the run is done; the others end in the same moment, and get this long for it.
SETTLE_S = 60.0


def remember(case: Case) -> Memory:
    """Return the memory with what is done by now."""
    finished = [look for look in case.looks if look.judged is not None and look.judged.verdict == restart.FINISHED]
    if case.spec.elastic is None:
        return replace(case.memory, done=case.memory.done | {look.pod.name for look in finished})
    # One that is being deleted may have been told to end; then its status says nothing about the run.
    finished = [look for look in finished if not look.pod.is_going]
    outside = {look.pod.name for look in finished if not case.spec.is_member(look.pod.kind)}
    kept = replace(case.memory, done=case.memory.done | outside)
    if kept.first_done_s is None and any(case.spec.is_member(look.pod.kind) for look in finished):
        return replace(kept, first_done_s=case.now_s)
    return kept


def end_of(case: Case, started_s: float) -> Told | None:
    """Return how the job ended; None while it goes on. Success comes before all but a failure beside it."""
    name = case.job.name
    if (why := _spoilt(case)) is not None:
        return Told(conditions.FAILED, "JobFailed", f"PyTorchJob {name} failed: {why}, while others were done.")
    if _is_done(case):
        return Told(conditions.SUCCEEDED, "JobSucceeded", f"PyTorchJob {name} successfully completed.")
    if case.memory.first_done_s is not None:
        return None
    for look in case.looks:
        if look.judged is not None and look.judged.verdict == restart.FATAL and not look.pod.is_going:
            return Told(conditions.FAILED, "JobFailed", f"PyTorchJob {name} failed: {look.judged.why}.")
    limit = case.spec.backoff_limit
    if limit is not None and case.memory.total_restarts > limit:
        counted = f"{case.memory.told_restarts}, and backoffLimit is {limit}"
        told = f"PyTorchJob {name} failed: {counted}{_last_cause(case)}."
        return Told(conditions.FAILED, "BackoffLimitExceeded", told)
    deadline_s = case.spec.deadline_s
    if deadline_s is not None and case.now_s - started_s >= deadline_s:
        told = f"PyTorchJob {name} failed: activeDeadlineSeconds, {deadline_s}, are over."
        return Told(conditions.FAILED, "DeadlineExceeded", told)
    return None


def wake_after(case: Case, started_s: float) -> float | None:
    """Return when the job may end without anything else happening."""
    ends = []
    if case.memory.first_done_s is not None:
        ends.append(case.memory.first_done_s + SETTLE_S - case.now_s)
    if case.spec.deadline_s is not None:
        ends.append(started_s + case.spec.deadline_s - case.now_s)
    return min(ends, default=None)


def after(case: Case) -> Decision:
    """Return what is to be done about a job that is over: clean up, count what is left, delete it when its time has come."""
    job = case.job
    counts = status.replica_statuses(case.spec.kinds, case.looks, job.status.get("replicaStatuses") or {})
    now = {**job.status, "replicaStatuses": counts, "observedGeneration": job.generation}
    left_s = _left_s(case)
    if left_s is not None and left_s <= 0:
        return Decision(now, (Delete(JOB_KIND, job.name, job.uid),))
    return Decision(now, _cleaning(case), wake_after_s=left_s)


def _left_s(case: Case) -> float | None:
    completed = case.job.status.get("completionTime")
    if case.spec.ttl_s is None or not completed:
        return None
    return min(seconds(completed), case.now_s) + case.spec.ttl_s - case.now_s


def _cleaning(case: Case) -> tuple[Action, ...]:
    has_failed = conditions.state_of(case.job.status["conditions"]) == conditions.FAILED
    clean = "Running" if case.spec.clean == "None" and has_failed else case.spec.clean  # a failed job does not train on
    if clean == "None":
        return ()
    pods = [look.pod for look in case.looks if not look.pod.is_going and (clean == "All" or look.is_live)]
    actions: list[Action] = [Delete("Pod", pod.name, pod.uid) for pod in pods]
    if clean == "All":
        owned = sorted(case.world.owned.items())
        actions += [Delete(kind, name, uid) for (kind, name), uid in owned if kind == "Service"]
    return tuple(actions)


def _is_done(case: Case) -> bool:
    if case.spec.elastic is None:
        return set(case.plain_names) <= case.memory.done
    if case.memory.first_done_s is None:
        return False
    is_settled = case.now_s - case.memory.first_done_s >= SETTLE_S
    return is_settled or not any(look.is_live and look.pod.is_running for look in case.members)


def _spoilt(case: Case) -> str | None:
    """Return which member failed while others were done. Ours agree on the end; another's status 0 is about itself alone."""
    if case.spec.elastic is None or case.memory.first_done_s is None:
        return None
    for look in case.members:
        replicas = case.spec.replicas(look.pod.kind)
        if replicas is None or has_our_agent(case.spec.elastic, trainer_of(replicas.template["spec"])):
            continue
        if look.judged is not None and look.judged.counts and not look.pod.is_going:
            return look.judged.why
    return None


def _last_cause(case: Case) -> str:
    lasts = [(look.pod.name, look.pod.last) for look in case.looks]
    causes = [restart.told(name, last) for name, last in lasts if last is not None and last.status != 0]
    causes += [look.judged.why for look in case.looks if look.judged is not None and look.judged.counts]
    causes += [attempt.why for attempt in case.memory.attempts.values() if not attempt.is_weather]
    return f"; {causes[0]}" if causes else ""
