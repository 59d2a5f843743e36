"""Everything an operator decides about one PyTorchJob. Pure: values in, a decision out.

The status is what was decided, and is written first; the actions follow from it and from what is there. So an operator that
is killed between any two calls leaves a state from which the next one goes on, and deciding twice changes nothing.
"""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.kube import burial, capacity, conditions, ending, evidence, memory, scaling, standing, status
from planaria.kube.case import OVERDUE_S, Case, look_at
from planaria.kube.logline import metric_of
from planaria.kube.model import Bury, Create, Decision, Delete
from planaria.kube.names import MASTER, WORKER
from planaria.kube.objects import beside
from planaria.kube.places import Ground, Places, elastic_places, fixed_places
from planaria.kube.pods import pod, service
from planaria.kube.scaling_model import Situation, Verdict, Wants
from planaria.kube.spec import changes_of, fixed_of, problems_of, refixed, spec_of
from planaria.kube.status import TARGET, Told
from planaria.kube.times import seconds, stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.logline import Metric
    from planaria.kube.memory import Memory
    from planaria.kube.model import Action, Now
    from planaria.kube.seen import JobSeen, World

_REPLICA = ("Pod", "Service")  # what a replica consists of
_TAKEN_S = 5.0  # nobody tells us when a name that somebody else has is free: look again


def decide(job: JobSeen, world: World, now: Now) -> Decision:
    """Return what is to be done about a job."""
    if job.is_going:  # whatever it owns goes with it
        return Decision(dict(job.status))
    problems = problems_of(job.name, job.spec) or world.problems
    is_terminal = conditions.state_of(job.status.get("conditions") or ()) in conditions.TERMINAL
    if problems:
        return Decision(dict(job.status)) if is_terminal else _refused(job, problems, now.wall_s)
    spec = spec_of(job.name, job.spec)
    looks = tuple(look_at(spec, pod) for pod in world.pods)
    kept = memory.decode(job.status.get("operator"))
    case = Case(job, spec, world, kept, looks, now.wall_s, now.token)
    if is_terminal:
        return ending.after(case)
    if spec.is_suspended:
        return _suspended(case)
    if world.untried and not status.was_accepted(job.status):
        return _untried(job, world.untried, now.wall_s)
    return _at_work(replace(case, memory=_remembered(case)))


def to_try(job: JobSeen) -> Metric | None:
    """Return the metric of a good spec whose pattern is not ours: it is tried before anything is made. None: there is none."""
    elastic = job.spec.get("elasticPolicy")
    given = elastic.get("metric") if isinstance(elastic, dict) else None
    metric = metric_of(given if isinstance(given, dict) else None)
    return metric if metric.is_foreign and not problems_of(job.name, job.spec) else None


def tried(world: World, sentence: str | None, trouble: str) -> World:
    """Return the world with what is known of a pattern: what is wrong with it, or None and why that is not known."""
    if sentence is None:
        return replace(world, untried=trouble or "it is being tried")
    return replace(world, problems=(sentence,) if sentence else ())


def _refused(job: JobSeen, problems: tuple[str, ...], now_s: float) -> Decision:
    told = Told(conditions.INVALID, "InvalidSpec", "; ".join(problems)[: standing.MESSAGE_LETTERS])
    after = status.written(job, told, memory.decode(job.status.get("operator")), now_s)
    return Decision(after, events=status.events(job.status, after))


def _untried(job: JobSeen, why: str, now_s: float) -> Decision:
    """Make nothing yet. A job that was wrong stays so until it is known that it is not any more."""
    is_wrong = conditions.state_of(job.status.get("conditions") or ()) == conditions.INVALID
    told = Told(
        conditions.INVALID if is_wrong else conditions.CREATED,
        "PatternUntried",
        f"PyTorchJob {job.name} waits until its elasticPolicy.metric.pattern was tried: {why}."[
            : standing.MESSAGE_LETTERS
        ],
    )
    return Decision(status.written(job, told, memory.decode(job.status.get("operator")), now_s))


def _suspended(case: Case) -> Decision:
    """Take the pods away; the place in the search stays. Without pods, everything may be changed."""
    kept = memory.remember(case.memory, case.looks, case.now_s)
    kept = memory.Memory(
        restarts_gone=kept.restarts_gone,
        restarts=kept.restarts,
        renewed=kept.renewed,
        leaving=kept.leaving,
        fixed=kept.fixed if case.looks else {},
        made=kept.made if case.looks else frozenset(),
    )
    told = Told(conditions.SUSPENDED, "JobSuspended", f"PyTorchJob {case.job.name} is suspended.")
    counts = status.replica_statuses(case.spec.kinds, case.looks, {})
    after = status.written(case.job, told, kept, case.now_s, replicaStatuses=counts, startTime=None)
    actions = tuple(_delete(look.pod.name, look.pod.uid) for look in case.looks if not look.pod.is_going)
    return Decision(after, actions, status.events(case.job.status, after))


def _remembered(case: Case) -> Memory:
    kept = memory.remember(case.memory, case.looks, case.now_s)
    # Before it has run, and without pods, such as with a template that was refused, everything may be changed.
    is_new = not (case.looks or kept.done or kept.has_run)
    fixed, made = fixed_of(case.spec), frozenset[str]() if is_new else kept.made
    if kept.fixed and not is_new:  # likewise the templates of a kind that never had a pod
        fixed = refixed(kept.fixed, fixed, made)
    target = case.job.status.get(TARGET)
    has_run = kept.has_run or (target is not None and case.running >= target) or _overdue_in(case) == 0
    kept = replace(kept, fixed=fixed, made=made, has_run=has_run)
    kept = replace(
        kept,
        idle_s=min(kept.idle_s or case.now_s, case.now_s) if case.is_idle else None,
        crowded_s=min(kept.crowded_s or case.now_s, case.now_s) if _refusal(case) else None,
    )
    return ending.remember(replace(case, memory=kept))


def _overdue_in(case: Case) -> float | None:
    """Return how long a job that runs, and has never had all its first Workers, is still waited for; None: it is not."""
    if case.spec.elastic is None or case.memory.has_run:
        return None
    since_s = conditions.since_s(case.job.status.get("conditions") or (), conditions.RUNNING)
    if since_s is None:
        return None
    return max(0.0, since_s + case.spec.elastic.policy.trial_timeout_s - case.now_s)


def _at_work(case: Case) -> Decision:
    started = _started(case)
    end = ending.end_of(case, started)
    if end is not None:
        return _ended(case, end)
    changed = changes_of(case.memory.fixed, fixed_of(case.spec))
    settling = case.memory.first_done_s is not None
    verdict = None if changed or settling else _scaled(case)
    if verdict is not None:
        case = replace(case, memory=_with_room(case))
    made = _Made((), None) if changed or settling else _pods(case, verdict)
    told = standing.told(case, changed, made.pods)
    after = status.written(
        case.job,
        told,
        case.memory,
        case.now_s,
        startTime=stamp(started),
        replicaStatuses=status.replica_statuses(case.spec.kinds, case.looks, {}),
        **(status.scaled(verdict) if verdict is not None else {}),
    )
    wakes = (made.wake_after_s, verdict.wake_after_s if verdict else None, ending.wake_after(case, started))
    wake = _soonest(*wakes, standing.wake_after(case), _overdue_in(case))
    wants = verdict.wants if verdict is not None else Wants()
    actions = (*_burials(case), *made.actions)  # first: it needs nothing that is made, and others wait for it
    return Decision(after, actions, status.events(case.job.status, after), wake, wants)


def _burials(case: Case) -> tuple[Action, ...]:
    """Name the nodes of the run whose pods are gone: who is left need not wait for a word of theirs."""
    newest = case.world.round
    living = [pod.uid for pod in case.world.pods if not pod.has_ended]
    dead = burial.gone((node for node in newest.nodes if node not in newest.buried), living)
    return (Bury(dead),) if dead else ()


def _ended(case: Case, end: Told) -> Decision:
    """Write down how it ended, and do at once what follows from that."""
    counts = status.replica_statuses(case.spec.kinds, case.looks, {})
    after = status.written(case.job, end, case.memory, case.now_s, replicaStatuses=counts)
    follows = ending.after(replace(case, job=replace(case.job, status=after)))
    return replace(follows, events=status.events(case.job.status, after))


def _started(case: Case) -> float:
    start = case.job.status.get("startTime")
    return min(seconds(start), case.now_s) if start else case.now_s


def _scaled(case: Case) -> Verdict | None:
    if case.spec.elastic is None or case.spec.worker is None:
        return None
    kept, workers = case.memory, [look for look in case.of_kind(WORKER) if look.is_live]
    refused = [case.now_s - kept.refused[look.pod.uid] for look in workers if look.pod.uid in kept.refused]
    situation = Situation(
        start=case.spec.worker.replicas,
        placed=sum(bool(look.pod.node) for look in workers),
        running=case.running,
        is_resumed=not case.job.status.get("startTime"),  # a suspended job has none
        is_started=kept.has_run,
        unschedulable_s=max(refused, default=None),
        refused_s=None if kept.crowded_s is None else case.now_s - kept.crowded_s,
        refusal=_refusal(case),
        room=_has_room(case),
        samples=case.world.metrics.samples,
        watched_s=case.world.metrics.watched_s,
        trouble=case.world.metrics.trouble,
        absent=standing.absent(case),
    )
    known = evidence.decode(case.job.status.get("scaling"))
    return scaling.scale(case.spec.elastic.policy, known, situation, case.now_s)


def _refusal(case: Case) -> str:
    """Return what the API server says about a Worker that it will not have: a quota, for one; "" if it says nothing."""
    prefix = case.names.prefix(WORKER)
    found = (why for (kind, name), why in case.world.refusals.items() if kind in _REPLICA and name.startswith(prefix))
    return next(found, "")


def _has_room(case: Case) -> bool:
    return capacity.grew(case.memory.free, _free(case))


def _free(case: Case) -> dict[str, float] | None:
    """Return what the cluster has for this job of what a Worker asks for, with what the job has of it now."""
    if case.world.free is None or case.spec.worker is None:
        return None
    asked = capacity.requests(case.spec.worker.template)
    return {name: amount for name, amount in case.world.free.items() if name in asked or name == capacity.NODES}


def _with_room(case: Case) -> Memory:
    free = capacity.kept(case.memory.free, _free(case), is_refused=bool(case.memory.refused))
    return replace(case.memory, free=free)


class _Made(Value):
    actions: tuple[Action, ...]
    wake_after_s: float | None

    @property
    def pods(self) -> tuple[str, ...]:
        """Return the names of the pods that are made."""
        return tuple(action.name for action in self.actions if isinstance(action, Create) and action.kind == "Pod")


def _pods(case: Case, verdict: Verdict | None) -> _Made:
    bodies = [(str(body["kind"]), body) for body in beside(case.job, case.spec, case.token)]
    wanted = [(kind, str(body["metadata"]["name"]), body) for kind, body in bodies]
    actions: list[Action] = [
        Create(kind, name, body)
        for kind, name, body in wanted
        if (kind, name) not in case.world.owned and (kind, name) not in case.world.foreign
    ]
    wakes = [_TAKEN_S if case.world.foreign else None]
    if case.spec.master is not None:
        actions += _kept(case, MASTER, fixed_places(_ground(case, MASTER), _not_done(case, MASTER, 1)))
    if case.spec.worker is not None:
        ground = _ground(case, WORKER)
        places = (
            elastic_places(ground, verdict.target)
            if verdict is not None
            else fixed_places(ground, _not_done(case, WORKER, case.spec.worker.replicas))
        )
        actions += _kept(case, WORKER, places)
    if any((kind, name) in case.world.foreign for kind, name, _ in wanted):  # pods would write into what is another's
        actions = [one for one in actions if not (isinstance(one, Create) and one.kind in _REPLICA)]
    wakes += [attempt.ready_s - case.now_s for attempt in case.memory.attempts.values() if attempt.ready_s > case.now_s]
    wakes += [
        since_s + look.pod.grace_s + OVERDUE_S + 1.0 - case.now_s
        for look in case.looks
        if (since_s := case.memory.leaving.get(look.pod.uid)) is not None and not case.is_lost(look.pod)
    ]
    return _Made(tuple(actions), _soonest(*wakes))


def _not_done(case: Case, kind: str, count: int) -> list[int]:
    return [index for index in range(count) if case.names.replica(kind, index) not in case.memory.done]


def _ground(case: Case, kind: str) -> Ground:
    prefix = case.names.prefix(kind)
    late = {name for name, attempt in case.memory.attempts.items() if attempt.ready_s > case.now_s}
    taken = {name for object_kind, name in case.world.foreign if object_kind in _REPLICA}
    held = {
        int(name[len(prefix) :]) for name in late | taken if name.startswith(prefix) and name[len(prefix) :].isdecimal()
    }
    looks = case.of_kind(kind)
    lost = frozenset(look.pod.uid for look in looks if case.is_lost(look.pod))
    return Ground(looks, frozenset(held), lost)


def _kept(case: Case, kind: str, places: Places) -> list[Action]:
    """Return the actions that fill and clear places, each pod with its service, and clear services that nobody needs."""
    actions: list[Action] = [_delete(gone.name, gone.uid) for gone in places.delete]
    used = {look.pod.index for look in case.of_kind(kind)} | set(places.create)
    for index in sorted(used):
        name = case.names.replica(kind, index)
        if ("Service", name) not in case.world.owned and ("Service", name) not in case.world.foreign:
            actions.append(Create("Service", name, service(case.job, kind, index)))
        if index in places.create:
            actions.append(Create("Pod", name, pod(case.job, case.spec, kind, index)))
    return actions + _idle_services(case, kind, used)


def _idle_services(case: Case, kind: str, used: set[int]) -> list[Action]:
    prefix = case.names.prefix(kind)
    waiting = {name for name, attempt in case.memory.attempts.items() if attempt.ready_s > case.now_s}
    keep = {case.names.replica(kind, index) for index in used} | waiting | set(case.memory.done)
    return [
        Delete("Service", name, uid)
        for (object_kind, name), uid in sorted(case.world.owned.items())
        if object_kind == "Service" and name.startswith(prefix) and name not in keep
    ]


def _delete(name: str, uid: str) -> Delete:
    return Delete("Pod", name, uid)


def _soonest(*wakes: float | None) -> float | None:
    return min((max(0.0, wake) for wake in wakes if wake is not None), default=None)
