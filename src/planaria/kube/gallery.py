"""The pictures of all jobs that an operator looks after, for the web page that it serves. Read-only, on the operator's loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from planaria.base.value import replace
from planaria.contract import glimpse
from planaria.contract.progress import Record, read
from planaria.insight.fields import integer, number, objects, part, text
from planaria.insight.model import NodeSeen
from planaria.insight.picture import picture
from planaria.kube.names import trainer_among
from planaria.kube.portrait import Sizes, Told, portrait, run_id
from planaria.kube.seen import NO_METRICS, job_seen

if TYPE_CHECKING:
    from planaria.dashboard.answers import Json
    from planaria.insight.model import RunSeen
    from planaria.kube.books import Books
    from planaria.kube.model import Plain
    from planaria.kube.seen import JobSeen, PodSeen
    from planaria.kube.tails import Tails
    from planaria.kube.watching import Key


class Gallery:
    """Where the page's pictures come from. `wall` is the time of day in seconds."""

    def __init__(self, books: Books, wall: Callable[[], float], tails: Tails | None = None) -> None:
        self._books = books
        self._wall = wall
        self._tails = tails
        self._seen_of: dict[Key, tuple[str, RunSeen | None]] = {}
        self._sizes: dict[Key, Sizes] = {}

    def saw(self, key: Key) -> None:
        """Take note of how many pods of a job run, and of the round they are in, whenever anything of it has changed."""
        if self._books.jobs.get(key) is None:
            self._sizes.pop(key, None)
            self._seen_of.pop(key, None)
            return
        size = sum(_runs(pod) for pod in self._books.pods.of_job(key))
        found = self._sizes.get(key, Sizes()).with_size(self._now_ms(), size)
        pushed = self._pushed(key)
        self._sizes[key] = found if pushed is None else found.with_round(self._now_ms(), pushed)

    def runs(self) -> list[Json]:
        """Return every job, those first that still go on."""
        jobs = [job_seen(obj) for obj in self._books.jobs]
        told: list[Json] = [
            {
                "run_id": run_id(job),
                "state": str(job.status.get("state") or "Created"),
                "is_over": job.status.get("state") in ("Succeeded", "Failed"),
            }
            for job in jobs
        ]
        return sorted(told, key=lambda one: (bool(one["is_over"]), str(one["run_id"])))

    def picture(self, run_id: str) -> Json | None:
        """Return the picture of a job that is called `NAMESPACE/NAME`."""
        key = _key(run_id)
        obj = self._books.jobs.get(key)
        if obj is None:
            return None
        told = Told(self._pushed(key), self._seen(key), self._sizes.get(key, Sizes()))
        job = job_seen(obj)
        return portrait(job, self._pods(job), told, self._now_ms())

    def log_tail(self, run_id: str, rank: int, stream: str) -> Json | None:  # noqa: ARG002  a pod has one log for both
        """Return the end of what the pod of a rank printed, where it is known which that is, or say where logs are."""
        key = _key(run_id)
        if self._books.jobs.get(key) is None:
            return None
        seen = self._seen(key)
        hosts = [one.host for one in seen.ranks if one.rank == rank] if seen is not None else []
        pod = self._books.pods.get((key[0], hosts[0])) if hosts else None
        if pod is None or self._tails is None:
            why = f"the pods have the logs: kubectl logs -n {key[0]} POD, of job {key[1]}; which is rank {rank}'s is not known"
            return {"text": "", "why": why}
        containers = [text(one, "name") for one in objects(part(pod, "spec"), "containers")]
        content, why = self._tails.tail((key[0], hosts[0], trainer_among(containers)))
        return {"text": content, "why": why}

    def evidence(self, run_id: str, node: str, name: str, file: str) -> None:
        """Have none."""

    def order(self, run_id: str, command: str, node: str) -> tuple[bool, str]:  # noqa: ARG002  as above
        """Refuse: who may change a job is decided by Kubernetes."""
        return False, "jobs are changed with kubectl"

    def _pushed(self, key: Key) -> Record | None:
        found = read(self._books.progress(key))
        return found if isinstance(found, Record) else None

    def _seen(self, key: Key) -> RunSeen | None:
        """Return the run of a job that is there, as its leading agent tells of it; what was pushed once is read once."""
        pushed = self._books.glimpse(key)
        known = self._seen_of.get(key)
        if known is None or known[0] != pushed:
            known = self._seen_of[key] = pushed, _run_of(pushed)
        return known[1]

    def _pods(self, job: JobSeen) -> tuple[PodSeen, ...]:
        return self._books.world(job, NO_METRICS).pods

    def _now_ms(self) -> int:
        return round(self._wall() * 1000)


def _key(run_id: str) -> Key:
    namespace, _, name = run_id.partition("/")
    return namespace, name


def _run_of(pushed: str) -> RunSeen | None:
    """Return the picture of what an agent pushed: of its own node alone, which is what its host is called."""
    host, events = glimpse.read(pushed)
    if not events:
        return None
    try:
        return _with_stragglers(picture([NodeSeen(host, "kubernetes", events=events)]), events)
    except Exception:  # noqa: BLE001  whatever somebody has written there, the job has a page
        return None


def _with_stragglers(run: RunSeen, events: tuple[Json, ...]) -> RunSeen:
    """Return it with those who were slow when the agent last told so: it tells again when that changes."""
    told = [part(one, "metadata") for one in events if one.get("name") == "planaria.straggler"]
    slow = objects(told[-1], "ranks") if told and not run.is_over else ()
    by_rank = {integer(one, "rank"): number(one, "slower_by") for one in slow}
    ranks = tuple(replace(one, straggler=by_rank[one.rank]) if one.rank in by_rank else one for one in run.ranks)
    return replace(run, ranks=ranks, stragglers=slow)


def _runs(pod: Plain) -> bool:
    """Tell whether a container of a pod runs; whatever its status holds, since nobody is there to catch us here."""
    return any("running" in part(one, "state") for one in objects(part(pod, "status"), "containerStatuses"))
