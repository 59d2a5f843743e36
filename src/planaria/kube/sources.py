"""Where the lines of a job are, from which its steps are read. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube.logline import Metric, metric_of
from planaria.kube.names import WORKER, trainer_among

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json
    from planaria.kube.seen import JobSeen, World
    from planaria.kube.settling import Life


class Worker(Value):
    """A worker that runs."""

    name: str
    uid: str
    restarts: int = 0

    @property
    def life(self) -> Life:
        """Return which of its lives this is."""
        return self.uid, self.restarts


class Source(Value):
    """Where a job's lines are: its running workers, the lowest index first, and how they are read."""

    namespace: str
    workers: tuple[Worker, ...]
    container: str
    metric: Metric = Metric()
    is_resting: bool = False  # its search has stopped: no need to hurry


def source_of(job: JobSeen, world: World, status: Json) -> Source | None:
    """Return where the lines of an elastic job are; None for another, and for one that has ended."""
    elastic = (status.get("elasticScaling") or {}).get(WORKER)
    if elastic is None or status.get("completionTime"):
        return None
    workers = tuple(
        Worker(pod.name, pod.uid, pod.restarts)
        for pod in world.pods
        if pod.kind == WORKER and pod.is_running and not pod.is_going
    )
    metric = metric_of((job.spec.get("elasticPolicy") or {}).get("metric"))
    return Source(job.namespace, workers, _container(job), metric, is_resting=not elastic.get("continue"))


def _container(job: JobSeen) -> str:
    """Return the name of the container that trains."""
    replicas = {kind.lower(): one for kind, one in (job.spec.get("pytorchReplicaSpecs") or {}).items()}
    template = (replicas.get(WORKER.lower()) or {}).get("template") or {}
    return trainer_among([str(one.get("name")) for one in (template.get("spec") or {}).get("containers") or ()])
