"""How a job that is not over stands, in one state and one sentence. Pure."""

from __future__ import annotations

from planaria.kube import conditions, restart
from planaria.kube.names import WORKER
from planaria.kube.spec import KUBERNETES
from planaria.kube.status import Told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from planaria.kube.case import Case
    from planaria.kube.memory import Attempt
    from planaria.kube.seen import Ended, PodSeen

_UNSETTLED = ("", conditions.CREATED, conditions.SUSPENDED, conditions.INVALID)
MESSAGE_LETTERS = 1000
# Workers that run meet first, after every resize again, and a pod is told to be ready seconds later: that is usual.
_IDLE_S = 120.0


def told(case: Case, changed: tuple[str, ...], made: Collection[str] = ()) -> Told:
    """Return the state of a job; `changed` is what was changed that may not change, `made` are the pods that are made now."""
    name, before = case.job.name, conditions.state_of(case.job.status.get("conditions") or ())
    if changed:
        return Told(conditions.INVALID, "ImmutableFieldChanged", "; ".join(changed)[:MESSAGE_LETTERS])
    if case.memory.first_done_s is None and case.is_idle:
        return _idle(case, before)
    if case.running >= case.needed or case.memory.first_done_s is not None:
        return _runs(case)
    failures, obstacles = _failures(case), _obstacles(case)
    echoes = _echoes(case, made)
    if failures or (not obstacles and any(not echo.is_weather for echo in echoes)):
        whys = failures or [echo.why for echo in echoes if not echo.is_weather]
        return _restarting(case, whys[0], obstacles[0][1] if obstacles else "")
    obstacles += [("WorkersMissing", f"{echo.why}; it is replaced") for echo in echoes]
    if not obstacles and before in _UNSETTLED:
        return Told(conditions.CREATED, "JobCreated", f"PyTorchJob {name} is created.")
    reason, obstacle = obstacles[0] if obstacles else ("WorkersMissing", "its pods are starting")
    return Told(conditions.BELOW_MIN, reason, f"PyTorchJob {name} waits, {_few(case)}: {obstacle}."[:MESSAGE_LETTERS])


def wake_after(case: Case) -> float | None:
    """Return when Workers that run and do not train are worth a word."""
    left_s = None if case.memory.idle_s is None else case.memory.idle_s + _IDLE_S - case.now_s
    return left_s if left_s is not None and left_s > 0 else None


def absent(case: Case) -> str:
    """Return the first Worker that does not run, with the kubelet's word for it; "" while all run.

    The word stays the same while nothing changes: an image that cannot be pulled is tried and waited for by turns.
    """
    for look in case.of_kind(WORKER):
        if look.is_live and not look.pod.is_running:
            word = (look.pod.stuck or "").partition(":")[0]
            word = "ImagePullBackOff" if word == "ErrImagePull" else word
            return f"{look.pod.name} ({word})" if word else look.pod.name
    return ""


def _runs(case: Case) -> Told:
    return Told(conditions.RUNNING, "JobRunning", f"PyTorchJob {case.job.name} is running.")


def _idle(case: Case, before: str) -> Told:
    """Say of a job whose Workers run, and too few of them train, that they meet; after a while, that they wait."""
    name = case.job.name
    if wake_after(case) is None:
        waits = [look.pod.name for look in case.of_kind(WORKER) if look.is_live and not look.pod.is_ready]
        found = [f"the log of {waits[0]} says what they wait for"] if waits else []
        found += [sentence for _, sentence in _lost(case)]
        if _lost(case) and case.spec.elastic is not None and case.spec.elastic.backend == KUBERNETES:
            found.append("if that machine is off for good, delete its Node")
        message = f"PyTorchJob {name} waits, {_few(case)} and {case.training} train: {'; '.join(found)}."
        return Told(conditions.BELOW_MIN, "NotTraining", message[:MESSAGE_LETTERS])
    if before == conditions.RUNNING:
        return _runs(case)
    if before in _UNSETTLED:
        return Told(conditions.CREATED, "JobCreated", f"PyTorchJob {name} is created.")
    if before == conditions.RESTARTING:
        return Told(before, "JobRestarting", f"PyTorchJob {name} is restarting: its Workers run and meet.")
    return Told(conditions.BELOW_MIN, "WorkersMissing", f"PyTorchJob {name} waits: its Workers run and meet.")


def _few(case: Case) -> str:
    return f"{case.running} of at least {case.needed} {'Workers' if case.spec.elastic else 'pods'} run"


def _restarting(case: Case, why: str, obstacle: str) -> Told:
    total = f"{case.memory.told_restarts} so far" if case.memory.total_restarts else "it is replaced"
    message = f"PyTorchJob {case.job.name} is restarting, {_few(case)}: {why}; {total}."
    message += f" Besides, {obstacle}." if obstacle else ""
    return Told(conditions.RESTARTING, "JobRestarting", message[:MESSAGE_LETTERS])


def _failures(case: Case) -> list[str]:
    """Return what has failed and is not mended: containers that wait to be restarted, pods that wait to be replaced."""
    found = []
    for look in case.looks:
        pod = look.pod
        crash = pod.ended or _crash(pod)  # the first: in the moment before the kubelet restarts it
        if look.is_live and crash is not None and crash.status != 0:
            found.append(restart.told(pod.name, crash))
    uids, names = {look.pod.uid for look in case.looks}, {look.pod.name for look in case.looks}
    for name, attempt in sorted(case.memory.attempts.items()):
        waits = attempt.uid in uids or (name not in names and attempt.ready_s > case.now_s)
        if waits and attempt.why and not attempt.is_weather:
            found.append(attempt.why)
    return found


def _crash(pod: PodSeen) -> Ended | None:
    """Return how a container ended that waits to be started again, and that nothing but its own failures holds up."""
    is_own = pod.stuck is None or pod.stuck.startswith("CrashLoopBackOff")
    return pod.last if not pod.is_running and pod.restarts and is_own else None


def _echoes(case: Case, made: Collection[str]) -> list[Attempt]:
    """Return what became of pods before those that are made now or start: worth a word where nothing else is in the way."""
    there = {look.pod.name: look for look in case.looks}
    return [
        attempt
        for name, attempt in sorted(case.memory.attempts.items())
        if attempt.why and (name in made or (name in there and not there[name].pod.is_running))
    ]


def _obstacles(case: Case) -> list[tuple[str, str]]:
    """Return what else is in the way, the hardest first, with a word for it."""
    pods = [look.pod for look in case.looks if look.is_live and _crash(look.pod) is None]
    found = [("CreateRefused", refusal) for refusal in case.world.refusals.values()]
    found += [("Unschedulable", f"{pod.name} finds no room ({pod.unschedulable})") for pod in pods if pod.unschedulable]
    found += [("ContainerWaiting", f"{pod.name} cannot start ({pod.stuck})") for pod in pods if pod.stuck]
    found += _lost(case)
    found += [
        ("NameTaken", f"the {kind} {name} is there and not of this job") for kind, name in sorted(case.world.foreign)
    ]
    return found


def _lost(case: Case) -> list[tuple[str, str]]:
    return [
        ("NodeLost", f"{look.pod.name} is on {look.pod.node}, which is lost")
        for look in case.looks
        if look.pod.node in case.world.lost_nodes
    ]
