"""The pods and services of a job. Pure.

A user's template is taken as it is; what is added are labels, a host name, variables that he did not set himself, and for the
members of an elastic job what their agent needs. Arguments and commands are never touched.
"""

from __future__ import annotations

import copy

from planaria.contract.env import KUBE_PROGRESS, POD_UID, TOKEN
from planaria.kube import grace, health
from planaria.kube.names import MASTER, PORT, PORT_NAME, ROLE_LABEL, TOKEN_KEY, WORKER, Names, trainer_among
from planaria.kube.objects import account_of, owned
from planaria.kube.restart import kubelet_policy
from planaria.kube.spec import EMBEDDED, KUBERNETES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json, Plain
    from planaria.kube.seen import JobSeen
    from planaria.kube.spec import Elastic, JobSpec

SHM_SIZE = "1Gi"  # containers get 64 MB, with which torch's data loaders fail; it counts as the container's memory
SHM_PATH = "/dev/shm"  # noqa: S108  the path that libraries use
_SHM_VOLUME = "planaria-shm"
_OUR_PROGRAMS = frozenset({"planaria", "planaria-entry", "fetch_and_run"})


def service(job: JobSeen, kind: str, index: int) -> Json:
    """Return the headless service by which one replica is reached under its pod's name."""
    names = Names(job.name)
    labels = names.labels(kind, index)
    port = {"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT}
    # Agents meet before any of them is ready.
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": [port], "selector": labels}
    return owned(job, "v1", "Service", names.replica(kind, index), labels=labels, spec=spec)


def pod(job: JobSeen, spec: JobSpec, kind: str, index: int) -> Json:
    """Return the pod of one replica."""
    replicas = spec.replicas(kind)
    assert replicas is not None, "nobody asks for a kind that the job does not have"
    names = Names(job.name)
    name, template = names.replica(kind, index), copy.deepcopy(dict(replicas.template))
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), **names.labels(kind, index)}
    if kind == MASTER:
        labels[ROLE_LABEL] = "master"
    body = owned(
        job, "v1", "Pod", name, labels=labels, annotations=meta.get("annotations") or {}, spec=template["spec"]
    )
    inner = body["spec"]
    is_member = spec.is_member(kind)
    inner["restartPolicy"] = kubelet_policy(replicas.restart, is_member)
    inner.setdefault("hostname", name)
    trainer = trainer_of(inner)
    if spec.elastic is None:
        _add_env(trainer, _plain_env(names, spec, kind, index))
    elif is_member:
        _make_member(job, spec, inner, trainer)
    else:
        _add_env(trainer, _outside_env())
    return body


def trainer_of(pod_spec: Plain) -> Json:
    """Return the container that trains."""
    containers: list[Json] = pod_spec["containers"]
    wanted = trainer_among([container["name"] for container in containers])
    return next(container for container in containers if container["name"] == wanted)


def has_our_agent(elastic: Elastic, container: Plain) -> bool:
    """Tell whether a container surely runs our agent: by a backend or probe that nobody else knows, or its program's name."""
    if elastic.backend in (KUBERNETES, EMBEDDED) or health.is_asked(container):
        return True
    command = container.get("command") or ()
    return any(str(word).rsplit("/", 1)[-1] in _OUR_PROGRAMS for word in command[:4])


def asks_agent(elastic: Elastic, pod_spec: Plain) -> bool:
    """Tell whether the kubelet asks the agent how it is: by the user's own probe, or by ours."""
    return health.is_asked(trainer_of(pod_spec)) or _gets_probes(elastic, pod_spec)


def _gets_probes(elastic: Elastic, pod_spec: Plain) -> bool:
    """Tell whether probes are to be added: the agent surely is ours, and the user has no probes or port of his own."""
    trainer = trainer_of(pod_spec)
    if not has_our_agent(elastic, trainer) or pod_spec.get("hostNetwork"):
        return False
    if {"startupProbe", "livenessProbe", "readinessProbe"} & trainer.keys():
        return False
    names = [str(variable.get("name", "")) for variable in trainer.get("env") or ()]
    return not any(name.endswith("HEALTH_CHECK_PORT") for name in names)


def _make_member(job: JobSeen, spec: JobSpec, inner: Json, trainer: Json) -> None:
    assert spec.elastic is not None
    names = Names(job.name)
    _add_env(trainer, _elastic_env(job, names, spec, spec.elastic))
    inner["serviceAccountName"] = account_of(inner, names)
    _add_grace(inner, trainer)
    _add_shm(inner, trainer)
    if _gets_probes(spec.elastic, inner):
        _add_health(trainer)


def _elastic_env(job: JobSeen, names: Names, spec: JobSpec, elastic: Elastic) -> list[Json]:
    extra = 1 if elastic.master_trains and spec.master is not None else 0
    return [
        _text("PET_NNODES", f"{elastic.policy.min + extra}:{elastic.policy.max + extra}"),
        _text("PET_NPROC_PER_NODE", elastic.processes),
        _text("PET_RDZV_ID", job.uid),
        _text("PET_RDZV_BACKEND", elastic.backend),
        _text("PET_RDZV_ENDPOINT", elastic.endpoint),
        # A pod's host name is known to the cluster's DNS a moment after the pod starts; its address is known at once.
        health.own_address("PET_LOCAL_ADDR"),
        {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": names.token_of(job.uid), "key": TOKEN_KEY}}},
        _text(KUBE_PROGRESS, names.progress),
        _text("PYTHONUNBUFFERED", "1"),
    ]


def _plain_env(names: Names, spec: JobSpec, kind: str, index: int) -> list[Json]:
    """Return the variables of torch's `env://`. The Master is rank 0; without one, the first Worker is."""
    master = spec.master is not None
    workers = 0 if spec.worker is None else spec.worker.replicas
    first = names.replica(MASTER if master else WORKER, 0)
    return [
        _text("MASTER_ADDR", first),
        _text("MASTER_PORT", str(PORT)),
        _text("WORLD_SIZE", str(workers + master)),
        _text("RANK", str(0 if kind == MASTER else index + master)),
        _text("PYTHONUNBUFFERED", "1"),
    ]


def _outside_env() -> list[Json]:
    """Return what a Master outside the world gets: a world of its own, so that a script for one process runs."""
    return [
        _text("MASTER_ADDR", "localhost"),
        _text("MASTER_PORT", str(PORT)),
        _text("WORLD_SIZE", "1"),
        _text("RANK", "0"),
        _text("PYTHONUNBUFFERED", "1"),
    ]


def _text(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _add_env(container: Json, added: list[Json]) -> None:
    """Add variables before the user's, of which each stays as it is and may refer to ours."""
    given = container.get("env") or []
    names = {variable.get("name") for variable in given}
    container["env"] = [variable for variable in added if variable["name"] not in names] + given


def _add_grace(inner: Json, trainer: Json) -> None:
    """Give the pod time to drain. Where the user did, the agent has to know, or it waits longer for workers than it lives."""
    own = inner.get("terminationGracePeriodSeconds")
    names = [str(variable.get("name", "")) for variable in trainer["env"]]
    if own is None:
        inner["terminationGracePeriodSeconds"] = grace.POD_S
    elif isinstance(own, int) and not any(name.endswith("SHUTDOWN_TIMEOUT") for name in names):
        _add_env(trainer, [_text(grace.WORKERS, str(grace.of_workers(own)))])


def _add_shm(inner: Json, trainer: Json) -> None:
    mounts = trainer.get("volumeMounts") or []
    if any((mount.get("mountPath") or "").rstrip("/") == SHM_PATH for mount in mounts) or inner.get("hostIPC"):
        return
    inner["volumes"] = [
        *(inner.get("volumes") or []),
        {"name": _SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}},
    ]
    trainer["volumeMounts"] = [*mounts, {"name": _SHM_VOLUME, "mountPath": SHM_PATH}]


def _add_health(trainer: Json) -> None:
    """Let the kubelet ask the agent whether it lives, and whether its workers run in a round."""
    _add_env(trainer, health.environment())
    trainer.update(health.probes(health.PORT))
