"""One job with all that a decision needs, and what can be read off it. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube import restart
from planaria.kube.memory import Look, Memory
from planaria.kube.names import MASTER, WORKER, Names
from planaria.kube.pods import asks_agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.seen import JobSeen, PodSeen, World
    from planaria.kube.spec import JobSpec

OVERDUE_S = 30.0  # after its grace, a pod that is still there has a kubelet that does not answer


class Case(Value):
    """One job, now."""

    job: JobSeen
    spec: JobSpec
    world: World
    memory: Memory
    looks: tuple[Look, ...]
    now_s: float
    token: str

    @property
    def names(self) -> Names:
        """Return the names of the job's objects."""
        return Names(self.job.name)

    def of_kind(self, kind: str) -> tuple[Look, ...]:
        """Return the pods of one kind."""
        return tuple(look for look in self.looks if look.pod.kind == kind)

    @property
    def members(self) -> tuple[Look, ...]:
        """Return the pods that are members of the world."""
        return tuple(look for look in self.looks if self.spec.is_member(look.pod.kind))

    @property
    def running(self) -> int:
        """Return how many Workers of an elastic job run, or how many pods of a plain one run or are done."""
        if self.spec.elastic is not None:
            return sum(look.is_live and look.pod.is_running for look in self.of_kind(WORKER))
        return len(self.memory.done) + sum(
            look.is_live and look.pod.is_running for look in self.looks if look.pod.name not in self.memory.done
        )

    @property
    def is_idle(self) -> bool:
        """Tell whether enough Workers run and too few of them train, as their agents say; never where nobody asks these."""
        elastic, worker = self.spec.elastic, self.spec.worker
        if elastic is None or worker is None or self.running < self.needed:
            return False
        return asks_agent(elastic, worker.template["spec"]) and self.training < self.needed

    @property
    def training(self) -> int:
        """Return how many Workers are ready; where the kubelet asks agents, those whose workers run in a round."""
        return sum(look.is_live and look.pod.is_running and look.pod.is_ready for look in self.of_kind(WORKER))

    @property
    def needed(self) -> int:
        """Return how many have to run for the job to run."""
        if self.spec.elastic is not None:
            return self.spec.elastic.policy.min
        return len(self.plain_names)

    @property
    def plain_names(self) -> tuple[str, ...]:
        """Return the names of all pods of a plain job."""
        workers = 0 if self.spec.worker is None else self.spec.worker.replicas
        masters = (self.names.replica(MASTER, 0),) if self.spec.master is not None else ()
        return masters + tuple(self.names.replica(WORKER, index) for index in range(workers))

    def is_lost(self, pod: PodSeen) -> bool:
        """Tell whether a pod that is being deleted may never be heard of again."""
        if not pod.is_going:
            return False
        left_for_s = self.now_s - self.memory.leaving.get(pod.uid, self.now_s)
        return pod.node in self.world.lost_nodes or left_for_s > pod.grace_s + OVERDUE_S


def look_at(spec: JobSpec, pod: PodSeen) -> Look:
    """Return a pod with what follows if it is over. A kind that the spec no longer has follows the usual policy."""
    replicas = spec.replicas(pod.kind)
    policy = "OnFailure" if replicas is None else replicas.restart
    is_member = spec.is_member(pod.kind)
    return Look(pod, restart.judge(policy, pod) if restart.is_over(policy, is_member, pod) else None)
