"""The pictures of all jobs that an operator looks after, for the web page that it serves. Read-only, on the operator's loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from planaria.contract.progress import Record, read
from planaria.insight.fields import objects, part
from planaria.kube.portrait import Sizes, portrait, run_id
from planaria.kube.seen import NO_METRICS, job_seen

if TYPE_CHECKING:
    from planaria.dashboard.answers import Json
    from planaria.kube.books import Books
    from planaria.kube.model import Plain
    from planaria.kube.seen import JobSeen, PodSeen
    from planaria.kube.watching import Key


class Gallery:
    """Where the page's pictures come from. `wall` is the time of day in seconds."""

    def __init__(self, books: Books, wall: Callable[[], float]) -> None:
        self._books = books
        self._wall = wall
        self._sizes: dict[Key, Sizes] = {}

    def saw(self, key: Key) -> None:
        """Take note of how many pods of a job run, and of the round they are in, whenever anything of it has changed."""
        if self._books.jobs.get(key) is None:
            self._sizes.pop(key, None)
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
        namespace, _, name = run_id.partition("/")
        obj = self._books.jobs.get((namespace, name))
        if obj is None:
            return None
        job, sizes = job_seen(obj), self._sizes.get((namespace, name), Sizes())
        return portrait(job, self._pods(job), self._pushed((namespace, name)), sizes, self._now_ms())

    def log_tail(self, run_id: str, rank: int, stream: str) -> Json | None:  # noqa: ARG002  as every source has it
        """Say where logs are."""
        namespace, _, name = run_id.partition("/")
        return {"text": "", "why": f"the pods have the logs: kubectl logs -n {namespace} POD, of job {name}"}

    def evidence(self, run_id: str, node: str, name: str, file: str) -> None:
        """Have none."""

    def order(self, run_id: str, command: str, node: str) -> tuple[bool, str]:  # noqa: ARG002  as above
        """Refuse: who may change a job is decided by Kubernetes."""
        return False, "jobs are changed with kubectl"

    def _pushed(self, key: Key) -> Record | None:
        found = read(self._books.progress(key))
        return found if isinstance(found, Record) else None

    def _pods(self, job: JobSeen) -> tuple[PodSeen, ...]:
        return self._books.world(job, NO_METRICS).pods

    def _now_ms(self) -> int:
        return round(self._wall() * 1000)


def _runs(pod: Plain) -> bool:
    """Tell whether a container of a pod runs; whatever its status holds, since nobody is there to catch us here."""
    return any("running" in part(one, "state") for one in objects(part(pod, "status"), "containerStatuses"))
