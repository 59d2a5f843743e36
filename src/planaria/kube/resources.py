"""The kinds of objects that the operator knows, and where an API server keeps them. Pure."""

from __future__ import annotations

from urllib.parse import quote

from planaria.base.value import Value
from planaria.kube import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Value):
    """One kind of objects: `group` is empty for the core."""

    name: str
    plural: str
    version: str = "v1"
    group: str = ""
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return what an object of this kind says in its field apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version


JOB = Kind(names.JOB_KIND, names.PLURAL, names.VERSION, names.GROUP)
POD = Kind("Pod", "pods")
SERVICE = Kind("Service", "services")
CONFIG_MAP = Kind("ConfigMap", "configmaps")
SECRET = Kind("Secret", "secrets")
SERVICE_ACCOUNT = Kind("ServiceAccount", "serviceaccounts")
ROLE = Kind("Role", "roles", group="rbac.authorization.k8s.io")
ROLE_BINDING = Kind("RoleBinding", "rolebindings", group="rbac.authorization.k8s.io")
LEASE = Kind("Lease", "leases", group="coordination.k8s.io")
EVENT = Kind("Event", "events")
NODE = Kind("Node", "nodes", is_namespaced=False)
NAMESPACE = Kind("Namespace", "namespaces", is_namespaced=False)
DEFINITION = Kind(
    "CustomResourceDefinition", "customresourcedefinitions", group="apiextensions.k8s.io", is_namespaced=False
)
CLUSTER_ROLE = Kind("ClusterRole", "clusterroles", group="rbac.authorization.k8s.io", is_namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "ClusterRoleBinding", "clusterrolebindings", group="rbac.authorization.k8s.io", is_namespaced=False
)
DEPLOYMENT = Kind("Deployment", "deployments", group="apps")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        JOB,
        POD,
        SERVICE,
        CONFIG_MAP,
        SECRET,
        SERVICE_ACCOUNT,
        ROLE,
        ROLE_BINDING,
        LEASE,
        EVENT,
        NODE,
        NAMESPACE,
        DEFINITION,
        CLUSTER_ROLE,
        CLUSTER_ROLE_BINDING,
        DEPLOYMENT,
    )
}


def path(kind: Kind, namespace: str = "", name: str = "", part: str = "") -> str:
    """Return the path of all objects of a kind, of those in a namespace, of one, or of a part (`status`, `log`) of one."""
    words = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.is_namespaced and namespace:
        words += ["namespaces", namespace]
    words += [kind.plural, name, part]
    return "/" + "/".join(quote(word, safe="") for word in words if word)
