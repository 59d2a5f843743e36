"""What stands beside the pods of an elastic job: the right to its own few objects, and those objects. Pure.

Pods may read and change these names and create or delete nothing: the operator makes them.
"""

from __future__ import annotations

from planaria.contract import progress
from planaria.kube.names import API_VERSION, JOB_KIND, TOKEN_KEY, Names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json, Plain
    from planaria.kube.seen import JobSeen
    from planaria.kube.spec import JobSpec

RBAC = "rbac.authorization.k8s.io"
_VERBS = ("get", "list", "watch", "update", "patch")


def owned(job: JobSeen, api_version: str, kind: str, name: str, **rest: object) -> Json:
    """Return an object that goes when the job goes. `labels` and `annotations` are for its metadata."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": JOB_KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta: Json = {
        "name": name,
        "namespace": job.namespace,
        "labels": rest.pop("labels", None) or Names(job.name).labels(),
        "ownerReferences": [owner],
    }
    annotations = rest.pop("annotations", None)
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}


def agent_rules(config_maps: list[str], leases: list[str]) -> list[Json]:
    """Return what agents may do: read and change these, by name, and nothing else."""
    return [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": config_maps, "verbs": list(_VERBS)},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": leases, "verbs": list(_VERBS)},
    ]


def beside(job: JobSeen, spec: JobSpec, token: str) -> list[Json]:
    """Return the objects of a job that are neither pods nor services, in the order in which they are needed."""
    if spec.elastic is None:
        return []
    names = Names(job.name)
    accounts = _accounts(spec, names)
    made = [owned(job, "v1", "ServiceAccount", names.agent)] if names.agent in accounts else []
    return [
        *made,
        _role(job, names),
        _binding(job, names, accounts),
        owned(job, "v1", "Secret", names.token_of(job.uid), type="Opaque", stringData={TOKEN_KEY: token}),
        owned(job, "v1", "ConfigMap", names.progress, data={progress.KEY: ""}),
        owned(job, "v1", "ConfigMap", names.run, data={}),
        owned(job, "coordination.k8s.io/v1", "Lease", names.run, spec={}),
    ]


def account_of(pod_spec: Plain, names: Names) -> str:
    """Return as whom a member runs: ours, unless the user named one, by its name of today or by the older one."""
    return pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount") or names.agent


def _accounts(spec: JobSpec, names: Names) -> list[str]:
    """Return the ServiceAccounts of the members: ours, or those that the user named."""
    members = [
        replicas for kind in spec.kinds if spec.is_member(kind) and (replicas := spec.replicas(kind)) is not None
    ]
    return sorted({account_of(replicas.template["spec"], names) for replicas in members})


def _role(job: JobSeen, names: Names) -> Json:
    rules = agent_rules([names.run, names.progress], [names.run])
    return owned(job, f"{RBAC}/v1", "Role", names.agent, rules=rules)


def _binding(job: JobSeen, names: Names, accounts: list[str]) -> Json:
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": job.namespace} for account in accounts]
    role = {"apiGroup": RBAC, "kind": "Role", "name": names.agent}
    return owned(job, f"{RBAC}/v1", "RoleBinding", names.agent, roleRef=role, subjects=subjects)
