"""The objects of one job in a real cluster, for one test, and a service account that may use these and nothing else."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from waiting import wait_until

from planaria.kube.objects import agent_rules
from planaria.store.api import Where

if TYPE_CHECKING:
    from pathlib import Path

    from kube_cluster import Cluster

NAMESPACE = "default"
WRITES = re.compile(
    r'^apiserver_request_total\{.*resource="(?:leases|configmaps)".*verb="(?:POST|PUT|PATCH|DELETE)".*\} (\d+)',
    re.MULTILINE,
)


class Place(NamedTuple):
    """A Lease and a ConfigMap called `name`, a ConfigMap for progress, and the way to them with the rights of an agent."""

    cluster: Cluster
    name: str
    token_file: Path

    @property
    def endpoint(self) -> str:
        return f"{NAMESPACE}/{self.name}"

    @property
    def where(self) -> Where:
        options = (("server", self.cluster.url), ("token_file", str(self.token_file)))
        return Where((self.endpoint,), ca=self.cluster.authority.cert, options=options)

    @property
    def flags(self) -> dict[str, str]:
        """What a `Crew` takes."""
        conf = f"server={self.cluster.url},cacert={self.cluster.authority.cert},token_file={self.token_file}"
        return {"backend": "kubernetes", "endpoint": self.endpoint, "conf": conf}

    @property
    def progress(self) -> str:
        return f"{self.name}-progress"

    def path(self, kind: str) -> str:
        return f"{_folder(kind)}/{self.name}"

    def told(self) -> dict[str, Any]:
        """Return the newest record of progress, empty when there is none."""
        data = self.cluster.client.get(f"{_folder('configmaps')}/{self.progress}").get("data") or {}
        found: dict[str, Any] = json.loads(data.get("progress", "{}"))
        return found

    def writes(self) -> int:
        """Return how many writes of such objects the API server has seen from anybody."""
        return sum(map(int, WRITES.findall(self.cluster.client.get("/metrics"))))


def make_place(cluster: Cluster, folder: Path) -> Place:
    """Make the objects, and a token in a file."""
    name = f"run-{uuid.uuid4().hex[:12]}"
    metadata = {"name": name}
    rules = agent_rules([name, f"{name}-progress"], [name])
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    create = cluster.client.create
    create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": metadata})
    create(f"{rights}/roles", {"metadata": metadata, "rules": rules})
    create(f"{rights}/rolebindings", {"metadata": metadata, "subjects": [subject], "roleRef": role})
    for kind in ("configmaps", "leases"):
        create(_folder(kind), {"metadata": metadata})
    create(_folder("configmaps"), {"metadata": {"name": f"{name}-progress"}})
    account = cluster.client_of(name, NAMESPACE)
    wait_until(lambda: account.may(f"{_folder('configmaps')}/{name}"), "the API server has heard of the role")
    token_file = folder / f"{name}.token"
    token_file.write_text(cluster.token(name, NAMESPACE))
    return Place(cluster, name, token_file)


def _folder(kind: str) -> str:
    group = "/api/v1" if kind == "configmaps" else "/apis/coordination.k8s.io/v1"
    return f"{group}/namespaces/{NAMESPACE}/{kind}"
