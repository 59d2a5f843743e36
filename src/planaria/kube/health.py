"""How a kubelet asks an agent in a pod how it is, whoever makes the pod. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json

PORT = 8080


def own_address(name: str) -> Json:
    """Return a variable with the pod's address, of whichever family: a kubelet probes this one, and no other."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def environment() -> list[Json]:
    """Return the variables that let an agent answer at the pod's address alone."""
    return [{"name": "PET_HEALTH_CHECK_PORT", "value": str(PORT)}, own_address("PET_HEALTH_CHECK_HOST")]


def probes(port: str | int) -> Json:
    """Return the probes of the container, which ask at a port of it, by number or name."""
    return {
        "startupProbe": _probe("/livez", port, period_s=5, failures=120),  # code and data may take their time
        "livenessProbe": _probe("/livez", port, period_s=20, failures=3),
        "readinessProbe": _probe("/readyz", port, period_s=5, failures=1),
    }


def _probe(path: str, port: str | int, period_s: int, failures: int) -> Json:
    where = {"path": path, "port": port}
    return {"httpGet": where, "periodSeconds": period_s, "timeoutSeconds": 3, "failureThreshold": failures}
