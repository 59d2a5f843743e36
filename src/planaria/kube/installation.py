"""What an operator needs in a cluster: namespace, PyTorchJob, account, permissions, Deployment, Service. Pure.

The permissions are as few as the work allows. The operator never reads a Secret: it makes a job's token and cannot look at it
again. It holds what it hands on to the agents of a job (reading and writing ConfigMaps and Leases), since Kubernetes lets
nobody grant more than they have.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube.manifests import new, powerless, secure
from planaria.kube.objects import RBAC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.kube.model import Json

NAME = "planaria-operator"
NAMESPACE = "planaria-system"
PORT = 8080
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "planaria"}
_SELECTOR = {"app.kubernetes.io/name": NAME}
_READ = ("get", "list", "watch")

Rule = tuple[str, tuple[str, ...], tuple[str, ...], str]
RULES: tuple[Rule, ...] = (
    ("training.kubedl.io", ("pytorchjobs",), (*_READ, "delete"), "the jobs; deleted only by ttlSecondsAfterFinished"),
    ("training.kubedl.io", ("pytorchjobs/status",), ("update",), "their status; their spec is never written"),
    ("training.kubedl.io", ("pytorchjobs/finalizers",), ("update",), "to own what a job has, where owners are checked"),
    ("", ("pods",), (*_READ, "create", "delete"), "the replicas of a job"),
    ("", ("pods/log",), ("get",), "metrics of images that push none, and the end of a log for the web page"),
    ("", ("services",), (*_READ, "create", "delete"), "one name for each replica"),
    (
        "",
        ("configmaps",),
        (*_READ, "create", "update", "patch"),
        "a job's rendezvous and its progress; handed on by name",
    ),
    ("coordination.k8s.io", ("leases",), (*_READ, "create", "update", "patch"), "the same, and which operator acts"),
    ("", ("secrets",), ("create",), "the token of a job, which is never read again"),
    ("", ("serviceaccounts",), (*_READ, "create"), "whom the agents of a job act as"),
    (RBAC, ("roles", "rolebindings"), (*_READ, "create"), "what they may"),
    ("", ("events",), ("create", "patch"), "what people read in kubectl describe"),
    ("", ("nodes",), ("list", "watch"), "whether room has appeared"),
)
"""Group, resources, verbs, and what for."""

_LEASE_RULE: Rule = ("coordination.k8s.io", ("leases",), ("get", "create", "update"), "which operator acts")


class Install(Value):
    """What an owner may choose."""

    image: str
    namespace: str = NAMESPACE
    replicas: int = 2
    pull_policy: str = "IfNotPresent"
    flags: tuple[str, ...] = ()
    jobs_in: tuple[str, ...] = ()  # namespaces; empty: all


def objects(chosen: Install, definition: Json) -> tuple[Json, ...]:
    """Return everything to apply, in order."""
    return (
        _object("v1", "Namespace", chosen.namespace, None),
        definition,
        _object("v1", "ServiceAccount", NAME, chosen.namespace),
        *_permissions(chosen),
        _service(chosen),
        _deployment(chosen),
    )


def _permissions(chosen: Install) -> tuple[Json, ...]:
    """Return roles with their bindings: one of the cluster, or one in each namespace of jobs and one for the own Lease."""
    if not chosen.jobs_in:
        return _granted(chosen, NAME, None, RULES)
    of_jobs = [rule for rule in RULES if "nodes" not in rule[1]]  # they are of the cluster
    granted = [_granted(chosen, NAME, namespace, of_jobs) for namespace in dict.fromkeys(chosen.jobs_in)]
    own = _granted(chosen, f"{NAME}-lease", chosen.namespace, [_LEASE_RULE])
    return *own, *(obj for pair in granted for obj in pair)


def _granted(chosen: Install, name: str, namespace: str | None, rules: Sequence[Rule]) -> tuple[Json, Json]:
    kind = "ClusterRole" if namespace is None else "Role"
    told = [{"apiGroups": [group], "resources": [*names], "verbs": [*verbs]} for group, names, verbs, _ in rules]
    role = _object(f"{RBAC}/v1", kind, name, namespace) | {"rules": told}
    return role, _object(f"{RBAC}/v1", f"{kind}Binding", name, namespace) | {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": chosen.namespace}],
    }


def _service(chosen: Install) -> Json:
    port = {"name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http"}
    return _object("v1", "Service", NAME, chosen.namespace) | {"spec": {"selector": _SELECTOR, "ports": [port]}}


def _deployment(chosen: Install) -> Json:
    template = {
        "metadata": {
            "labels": _LABELS,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)},
        },
        "spec": {
            "serviceAccountName": NAME,
            "terminationGracePeriodSeconds": 20,
            "securityContext": secure(),
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart()]}},
            "containers": [_container(chosen)],
        },
    }
    return _object("apps/v1", "Deployment", NAME, chosen.namespace) | {
        "spec": {
            "replicas": chosen.replicas,
            "selector": {"matchLabels": _SELECTOR},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "template": template,
        }
    }


def _apart() -> Json:
    return {
        "weight": 100,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": _SELECTOR}},
    }


def _container(chosen: Install) -> Json:
    return {
        "name": "operator",
        "image": chosen.image,
        "imagePullPolicy": chosen.pull_policy,
        "command": ["planaria", "operator", "run", f"--port={PORT}", *_where(chosen), *chosen.flags],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": _probe("/healthz") | {"initialDelaySeconds": 10, "periodSeconds": 10, "failureThreshold": 3},
        "readinessProbe": _probe("/readyz") | {"periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": powerless() | {"readOnlyRootFilesystem": True},
    }


def _where(chosen: Install) -> list[str]:
    return [f"--namespace={namespace}" for namespace in dict.fromkeys(chosen.jobs_in)]


def _probe(where: str) -> Json:
    return {"httpGet": {"path": where, "port": "http"}, "timeoutSeconds": 5}


def _object(api_version: str, kind: str, name: str, namespace: str | None) -> Json:
    return new(api_version, kind, name, namespace or "", dict(_LABELS))


def names(made: Sequence[Json]) -> list[str]:
    """Return what people call these objects: `kind/name`."""
    return [f"{obj['kind'].lower()}/{obj['metadata']['name']}" for obj in made]
