"""The picture of a PyTorchJob for the web page: what its status, its pods and its agents' last push tell. Pure.

It is the picture that `planaria.insight` makes of a run, with less in it: the operator does not speak with agents, since it
never reads the token of a job. Pods stand for nodes, and a pod that runs counts as a worker.
"""

from __future__ import annotations

from planaria.base.text import several
from planaria.base.value import Value, replace
from planaria.contract.progress import Record
from planaria.insight.model import Effective, Moment, Node, Outcome, RunSeen
from planaria.insight.picture import picture
from planaria.kube.times import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.kube.model import Plain
    from planaria.kube.seen import JobSeen, PodSeen

_FINAL = {"Succeeded": ("done", 0), "Failed": ("failed", 1)}
_WAITS = ("BelowMin", "Restarting", "Invalid", "Suspended", "Created")
NO_RANKS = (
    "the operator does not speak with agents: ranks, recoveries and logs are seen with planaria dashboard in a pod"
)
OF_THE_LEADER = (
    "recoveries, hangs and ranks are as the leading agent pushes them, which knows the ranks of its own pod: "
    "planaria dashboard in a pod shows all, and evidence"
)


_NOTHING = picture([])


class Sizes(Value):
    """How many pods of a job ran when, as far as this operator has seen it: milliseconds since 1970, and pods.

    `rounds` has the first record of each round that was pushed, and when it was seen.
    """

    seen: tuple[tuple[int, int], ...] = ()
    rounds: tuple[tuple[int, Record], ...] = ()

    def with_size(self, now_ms: int, size: int, most: int = 500) -> Sizes:
        """Return it with one more entry, if that says anything new."""
        if self.seen and self.seen[-1][1] == size:
            return self
        return replace(self, seen=(*self.seen, (now_ms, size))[-most:])

    def with_round(self, now_ms: int, pushed: Record, most: int = 100) -> Sizes:
        """Return it with one more record, if that is of a round that was not there yet."""
        if self.rounds and self.rounds[-1][1].round == pushed.round:
            return self
        return replace(self, rounds=(*self.rounds, (now_ms, pushed))[-most:])


class Told(Value):
    """What agents have pushed: the newest record, the run as the leading one tells of it, and how many ran when."""

    pushed: Record | None = None
    run: RunSeen | None = None
    sizes: Sizes = Sizes()


def run_id(job: JobSeen) -> str:
    """Return what the page calls a job."""
    return f"{job.namespace}/{job.name}"


def running(pods: Sequence[PodSeen]) -> int:
    """Return how many pods train."""
    return sum(pod.is_running for pod in pods)


def portrait(job: JobSeen, pods: Sequence[PodSeen], told: Told, now_ms: int) -> dict[str, object]:
    """Return the picture, as the page draws it."""
    status, pushed, sizes = job.status, told.pushed, told.sizes
    run = _present(told.run or _NOTHING, pods)
    state = str(status.get("state") or "Created")
    newest = _newest(status)
    ended = _FINAL.get(state)
    began_ms = _ms(status.get("startTime"))
    until_ms = _ms(status.get("completionTime")) or now_ms
    world = sizes.seen if ended is None else (*sizes.seen, (until_ms, 0))
    seen = RunSeen(
        run_id=run_id(job),
        state=state if ended is None else ended[0],
        is_over=ended is not None,
        world_size=running(pods),
        nodes=tuple(_node(pod, pushed, run) for pod in pods) or _nobody(state, newest),
        ranks=run.ranks if ended is None else (),
        restarts_used=_whole(status.get("restarts")),
        restarts_allowed=_whole(job.spec.get("backoffLimit")),
        restarts=run.restarts,
        failures=run.failures,
        newest_commit=run.newest_commit,
        timeline=_timeline(status, job.name, sizes, run),
        world_over_time=world,
        hang=run.hang if ended is None else None,
        stragglers=run.stragglers if ended is None else (),
        effective=Effective(began_ms, max(0.0, (until_ms - (began_ms or until_ms)) / 1000), 0.0, is_reported=False),
        outcome=None if ended is None else Outcome(*ended, _sentence(state, newest), "", until_ms),
        evidence=(),
        gaps=(NO_RANKS if told.run is None else OF_THE_LEADER,),
    )
    progress = {} if pushed is None else {"step": pushed.step, "samples": pushed.samples}
    effective = {"since": began_ms, "seconds": seen.effective.seconds, "share": None}
    return {**seen.as_json(), "effective": effective, "progress": progress}


def _present(run: RunSeen, pods: Sequence[PodSeen]) -> RunSeen:
    """Return what an agent tells without the ranks whose pod does not run; who is gone neither hangs nor is slow."""
    live = {pod.name for pod in pods if pod.is_running}
    ranks = tuple(rank for rank in run.ranks if rank.node in live)
    return replace(run, ranks=ranks) if ranks else replace(run, ranks=(), hang=None, stragglers=())


def _newest(status: Plain) -> Plain:
    """Return the condition of the state."""
    conditions = [one for one in status.get("conditions") or () if one.get("status") == "True"]
    return conditions[-1] if conditions else {}


def _sentence(state: str, condition: Plain) -> str:
    return f"the job {state.lower()}: {condition.get('message') or condition.get('reason') or 'no message'}"


def _node(pod: PodSeen, pushed: Record | None, run: RunSeen) -> Node:
    trouble = pod.unschedulable or pod.stuck or (f"{pod.reason}: {pod.message}" if pod.reason else "")
    if not trouble and pod.is_running and not pod.is_ready:
        trouble = "it runs and is not ready: its log says what it waits for"
    state = "going" if pod.is_going else pod.phase.lower()
    where = f"{pod.name} on {pod.node}" if pod.node else pod.name
    number = None if pushed is None else pushed.round
    ended = pod.ended or pod.last
    if ended is not None and ended.status:
        state += f", its container ended with {ended.status} {ended.reason}".rstrip()
    ranks = tuple(rank.rank for rank in run.ranks if rank.node == pod.name)
    return Node(pod.name, where, state, trouble or None, number, ranks, 0.0, "kubernetes")


def _nobody(state: str, condition: Plain) -> tuple[Node, ...]:
    """Return one who says why there are no pods, for a job that waits."""
    if state not in _WAITS:
        return ()
    why = str(condition.get("message") or condition.get("reason") or "its pods are being made")
    return (Node("", "the job", state, why, None, (), 0.0, "kubernetes"),)


def _timeline(status: Plain, name: str, sizes: Sizes, run: RunSeen) -> tuple[Moment, ...]:
    """Return what agents tell, each by its own clock, with what the operator has seen of rounds that they do not tell of."""
    found = [one for one in run.timeline if one.name != "planaria.run.started"]
    since = min((one.timestamp for one in found if one.name == "planaria.round.started"), default=None)
    found += [
        Moment(at_ms, name, "planaria.round.started", _round(pushed))
        for at_ms, pushed in sizes.rounds
        if since is None or at_ms < since
    ]
    for one in status.get("conditions") or ():
        at_ms = _ms(one.get("lastTransitionTime"))
        said = ": ".join(str(one[key]) for key in ("type", "message") if one.get(key))
        if at_ms is not None and said:
            found.append(Moment(at_ms, name, f"planaria.job.{one.get('reason', '')}", said))
    return tuple(sorted(found, key=lambda moment: moment.timestamp))


def _round(pushed: Record) -> str:
    sizes = several(pushed.world, "worker"), several(pushed.nodes, "node")
    return f"the agents are in round {pushed.round}, with {sizes[0]} on {sizes[1]}"


def _ms(text: object) -> int | None:
    try:
        return round(seconds(str(text)) * 1000) if text else None
    except ValueError:
        return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
