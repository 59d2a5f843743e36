"""The objects of an elastic job that `kubectl apply` makes: bare pods, a batch Job, or a PyTorchJob for the operator. Pure.

One source for all of them, and for the files under kubernetes/ and example/torchelastic/, which `planaria k8s render` prints.
Nothing here is newer than Kubernetes 1.20, and nothing has been removed since.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube import grace, health, names
from planaria.kube.names import Names
from planaria.kube.objects import RBAC, agent_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from planaria.kube.yaml_text import Document

    Object = dict[str, Any]

IMAGE = "hello_elastic:dev"
USER = 1000  # of the image; files that pods share belong to this group
ETCD_PORT = 2379
BATCH_FAILURES = 20  # of a batch Job; evictions count as well, so that six, its default, are soon used up
REPLACED_AFTER_S = (
    30  # a pod of a lost node; agents know of the loss in 6 s, and what replaces it joins whenever it comes
)

PODS_COMMENT = """\
Pods and headless services. A pod with the same configuration and another number joins; one that is deleted leaves, and the
others go on. Nobody replaces a bare pod whose node is lost: `--job` has a batch Job that does, `--operator` scales it, too."""
JOB_COMMENT = """\
A batch Job without a number of completions: pods that are lost are replaced, and when one has succeeded, none is started
any more. `kubectl patch job NAME -p '{"spec":{"parallelism":2}}'` scales it."""
STORE_COMMENT = """\
What the `kubernetes` store keeps a run in, and what its agents may do: read and change these two, by name, and nothing else."""
OPERATOR_COMMENT = (
    "For the operator: `planaria operator install`. It makes pods and services, and everything else a run needs."
)


class Volume(Value):
    """A claim, and where its file system is in the container."""

    claim: str
    path: str


class Wanted(Value):
    """What an owner asks for. An empty text means: not said."""

    name: str
    script: str
    args: tuple[str, ...] = ()
    namespace: str = ""
    image: str = IMAGE
    min_nodes: int = 1
    max_nodes: int = 3
    pods: int = 3
    nproc: str = "1"
    gpus: int = 0
    cpu: str = "1"
    memory: str = "4Gi"
    shared_memory: str = "1Gi"
    store: str = "etcd"
    etcd: str = f"etcd:{ETCD_PORT}"
    checkpoints: Volume | None = None
    volumes: tuple[Volume, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    sha256: str = ""
    service_account: str = ""
    grace_s: int = 30
    max_restarts: int = 100
    has_master: bool = False

    @property
    def has_role(self) -> bool:
        """Tell whether the pods talk to the API server themselves."""
        return self.store == "kubernetes"


def pods(job: Wanted) -> tuple[Document, ...]:
    """Return bare pods and their services, numbered from 1."""
    numbered = [
        ("", made) for number in range(1, job.pods + 1) for made in (_bare_pod(job, number), _service(job, number))
    ]
    (_, first), *rest = numbered
    return (*_of_the_store(job), (PODS_COMMENT, first), *rest)


def batch_job(job: Wanted) -> tuple[Document, ...]:
    """Return a batch Job whose pods are the nodes."""
    spec = _pod_spec(job) | {"tolerations": [_tolerates(fate) for fate in ("not-ready", "unreachable")]}
    template = {"metadata": {"labels": _labels(job)}, "spec": spec}
    made = new("batch/v1", "Job", job.name, job.namespace, _labels(job)) | {
        "spec": {"parallelism": job.pods, "backoffLimit": BATCH_FAILURES, "template": template}
    }
    return (*_of_the_store(job), (JOB_COMMENT, made))


def pytorch_job(job: Wanted) -> tuple[Document, ...]:
    """Return a PyTorchJob. A Master is outside the world; it is there for those who have one in their tables."""
    spec = _pod_spec(job, by_operator=True)
    del spec["restartPolicy"]  # that of the replicas counts
    policy: Object = {} if job.has_role else {"rdzvBackend": "etcd", "rdzvEndpoint": job.etcd}
    policy |= {"minReplicas": job.min_nodes, "maxReplicas": job.max_nodes}
    policy["nProcPerNode"] = int(job.nproc) if job.nproc.isdigit() else job.nproc
    replicas: Object = {names.MASTER: _idle_master(job)} if job.has_master else {}
    replicas[names.WORKER] = {"replicas": job.pods, "restartPolicy": "OnFailure", "template": {"spec": spec}}
    made = new(names.API_VERSION, names.JOB_KIND, job.name, job.namespace) | {
        "spec": {"enableElastic": True, "elasticPolicy": policy, "pytorchReplicaSpecs": replicas}
    }
    return ((OPERATOR_COMMENT, made),)


def _idle_master(job: Wanted) -> Object:
    container = {
        "name": names.TRAINER,
        "image": job.image,
        "command": ["tini", "-s", "--", "sleep", "infinity"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": powerless(),
    }
    spec = {"securityContext": secure(), "containers": [container]}
    return {"replicas": 1, "restartPolicy": "ExitCode", "template": {"spec": spec}}


def literal(text: str) -> str:
    """Return text as Kubernetes shall hand it on: it would put variables in the place of $(NAME), and $ in that of $$."""
    return text.replace("$", "$$")


def secure(**more: object) -> Object:
    """Return who a pod runs as: nobody special."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
        **more,
    }


def powerless() -> Object:
    """Return what a container may do beyond its user's rights: nothing."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def new(api_version: str, kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None) -> Object:
    """Return the beginning of every object."""
    meta: Object = {"name": name}
    if namespace:
        meta["namespace"] = namespace
    if labels:
        meta["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _labels(job: Wanted, number: int | None = None) -> dict[str, str]:
    labels = {names.JOB_LABEL: job.name}
    return labels if number is None else labels | {"worker": str(number)}


def _pod_name(job: Wanted, number: int) -> str:
    return f"{job.name}-worker-{number}"


def _bare_pod(job: Wanted, number: int) -> Object:
    made = new("v1", "Pod", _pod_name(job, number), job.namespace, _labels(job, number))
    return made | {"spec": _pod_spec(job)}


def _service(job: Wanted, number: int) -> Object:
    """Return the name of a pod: others find it also before it is at work."""
    made = new("v1", "Service", _pod_name(job, number), job.namespace, _labels(job, number))
    ports = [{"name": "health", "port": health.PORT, "protocol": "TCP"}]
    return made | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(job, number),
            "ports": ports,
        }
    }


def _tolerates(fate: str) -> Object:
    key = f"node.kubernetes.io/{fate}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": REPLACED_AFTER_S}


def _pod_spec(job: Wanted, *, by_operator: bool = False) -> Object:
    spec: Object = {"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": grace.of_pod(job.grace_s)}
    if not by_operator:
        spec |= _account(job)
    elif job.service_account:
        spec["serviceAccountName"] = job.service_account
    spec["enableServiceLinks"] = False  # else every service of the namespace gives a job some variables
    spec["securityContext"] = secure(fsGroupChangePolicy="OnRootMismatch")
    spec["topologySpreadConstraints"] = [_spread(job)]
    spec["containers"] = [_container(job, by_operator=by_operator)]
    spec["volumes"] = [
        *({"name": _volume_name(at), "persistentVolumeClaim": {"claimName": one.claim}} for at, one in _mounted(job)),
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": job.shared_memory}},
    ]
    return spec


def _account(job: Wanted) -> Object:
    name = job.service_account or (Names(job.name).agent if job.has_role else "")
    account: Object = {"serviceAccountName": name} if name else {}
    return account if job.has_role else account | {"automountServiceAccountToken": False}


def _spread(job: Wanted) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {names.JOB_LABEL: job.name}},
    }


def _mounted(job: Wanted) -> list[tuple[int, Volume]]:
    first = (job.checkpoints,) if job.checkpoints else ()
    return list(enumerate((*first, *job.volumes)))


def _volume_name(at: int) -> str:
    return "persistent-storage" if at == 0 else f"persistent-storage-{at + 1}"


def _container(job: Wanted, *, by_operator: bool) -> Object:
    mounts = [{"name": _volume_name(at), "mountPath": one.path} for at, one in _mounted(job)]
    return {
        "name": names.TRAINER if by_operator else "elastic-trainer-worker",
        "image": job.image,
        "args": [literal(word) for word in (job.script, *job.args)],
        "env": _environment(job, by_operator=by_operator),
        "ports": [{"name": "health", "containerPort": health.PORT, "protocol": "TCP"}],
        **health.probes("health"),
        "lifecycle": {"preStop": {"exec": {"command": ["planaria", "drain", "--no-wait"]}}},
        "resources": _resources(job),
        "securityContext": powerless(),
        "volumeMounts": [*mounts, {"name": "dshm", "mountPath": "/dev/shm"}],  # noqa: S108  a mount
    }


def _resources(job: Wanted) -> Object:
    limits: Object = {"memory": job.memory}
    if job.gpus:
        limits["nvidia.com/gpu"] = job.gpus
    return {"requests": {"cpu": job.cpu, "memory": job.memory}, "limits": limits}


def _environment(job: Wanted, *, by_operator: bool) -> list[Object]:
    told = {} if by_operator else _meeting(job) | {"PET_NPROC_PER_NODE": job.nproc}
    told |= {"PET_MAX_RESTARTS": str(job.max_restarts), grace.WORKERS: str(job.grace_s)}
    if job.checkpoints:
        told["PET_SNAPSHOT_DIR"] = f"{job.checkpoints.path.rstrip('/')}/commits/{job.name}"
    if job.sha256:
        told["PLANARIA_FETCH_SHA256"] = job.sha256
    env: list[Object] = [{"name": name, "value": value} for name, value in told.items()]
    env += health.environment()
    if not by_operator:  # it says where a node is, and makes a secret of its own
        env.append(health.own_address("PET_LOCAL_ADDR"))
        secret = {"name": Names(job.name).token, "key": names.TOKEN_KEY, "optional": True}
        env.append({"name": "PLANARIA_TOKEN", "valueFrom": {"secretKeyRef": secret}})
    return [*env, *({"name": name, "value": literal(value)} for name, value in job.environment)]


def _meeting(job: Wanted) -> dict[str, str]:
    return {
        "PET_NNODES": f"{job.min_nodes}:{job.max_nodes}",
        "PET_RDZV_BACKEND": job.store,
        "PET_RDZV_ENDPOINT": Names(job.name).run if job.has_role else job.etcd,
        "PET_RDZV_ID": job.name,
    }


def _of_the_store(job: Wanted) -> tuple[Document, ...]:
    """Return what the `kubernetes` store needs; agents may not make it, so that they need no right to."""
    if not job.has_role:
        return ()
    called, labels = Names(job.name), _labels(job)
    account = job.service_account or called.agent
    rules = agent_rules([called.run], [called.run])
    made = [
        new("v1", "ConfigMap", called.run, job.namespace, labels),
        new("coordination.k8s.io/v1", "Lease", called.run, job.namespace, labels),
        *([] if job.service_account else [new("v1", "ServiceAccount", account, job.namespace, labels)]),
        new(f"{RBAC}/v1", "Role", called.agent, job.namespace, labels) | {"rules": rules},
        new(f"{RBAC}/v1", "RoleBinding", called.agent, job.namespace, labels)
        | {
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": called.agent},
            "subjects": [
                {"kind": "ServiceAccount", "name": account} | ({"namespace": job.namespace} if job.namespace else {})
            ],
        },
    ]
    first, *rest = made
    return ((STORE_COMMENT, first), *(("", one) for one in rest))
