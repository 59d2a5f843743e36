"""How a kubelet asks an agent in a pod how it is, whoever makes the pod. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json, Plain

PORT = 8080
_PORT_VARIABLE = "PET_HEALTH_CHECK_PORT"
_READY = "/readyz"


def own_address(name: str) -> Json:
    """Return a variable with the pod's address, of whichever family: a kubelet probes this one, and no other."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def environment() -> list[Json]:
    """Return the variables that let an agent answer at the pod's address alone."""
    return [{"name": _PORT_VARIABLE, "value": str(PORT)}, own_address("PET_HEALTH_CHECK_HOST")]


def probes(port: str | int) -> Json:
    """Return the probes of the container, which ask at a port of it, by number or name."""
    return {
        "startupProbe": _probe("/livez", port, period_s=5, failures=120),  # code and data may take their time
        "livenessProbe": _probe("/livez", port, period_s=20, failures=3),
        "readinessProbe": _probe(_READY, port, period_s=5, failures=1),
    }


def is_asked(container: Plain) -> bool:
    """Tell whether a container's own probe asks our agent whether its workers run in a round, where it was told to listen."""
    asked = (container.get("readinessProbe") or {}).get("httpGet") or {}
    named = {port.get("name"): port.get("containerPort") for port in container.get("ports") or ()}
    port = str(asked.get("port"))
    told = [variable.get("value") for variable in container.get("env") or () if variable.get("name") == _PORT_VARIABLE]
    return asked.get("path") == _READY and told[-1:] == [str(named.get(port, port))]


def _probe(path: str, port: str | int, period_s: int, failures: int) -> Json:
    where = {"path": path, "port": port}
    return {"httpGet": where, "periodSeconds": period_s, "timeoutSeconds": 3, "failureThreshold": failures}
