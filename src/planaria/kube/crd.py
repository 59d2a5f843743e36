"""The CustomResourceDefinition of PyTorchJob: schema with defaults, columns, status and scale. Pure."""

from __future__ import annotations

from planaria.kube import conditions
from planaria.kube.fields import spec_schema
from planaria.kube.names import GROUP, JOB_KIND, JOB_PATTERN, LONGEST_JOB, PLURAL, VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json

NAME = f"{PLURAL}.{GROUP}"
_KEEP = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_COUNT: Json = {"type": "integer", "format": "int32"}
_TIME: Json = {"type": "string", "format": "date-time"}
_WORD: Json = {"type": "string"}
_COLUMNS = (
    ("State", "string", ".status.state", 0, "the state of the job"),
    ("Workers", "integer", ".status.replicaStatuses.Worker.active", 0, "Workers that run"),
    ("Target", "integer", ".status.targetReplicas", 0, "Workers that should run, of an elastic job"),
    ("Age", "date", ".metadata.creationTimestamp", 0, "since when it exists"),
    ("Scaling", "string", ".status.elasticScaling.Worker.elasticCondition", 1, "where the search for the best size is"),
    ("Restarts", "integer", ".status.restarts", 1, "restarts and replacements that count against backoffLimit"),
)
# What autoscalers and `kubectl scale` write is a starting size: the target of an elastic job lives in the status.
_SCALE = {
    "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
    "statusReplicasPath": ".status.replicaStatuses.Worker.active",
    "labelSelectorPath": ".status.selector",
}


def definition() -> Json:
    """Return the definition, for apiextensions.k8s.io/v1."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {"status": {}, "scale": dict(_SCALE)},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": meaning}
            for name, kind, path, priority, meaning in _COLUMNS
        ],
    }
    names = {"kind": JOB_KIND, "listKind": f"{JOB_KIND}List", "plural": PLURAL, "singular": "pytorchjob"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _schema() -> Json:
    described = "A training job of PyTorch: a Master, Workers, or both; elastic where its policy says so."
    return {
        "type": "object",
        "description": described,
        "required": ["spec"],
        "properties": {
            "apiVersion": dict(_WORD),
            "kind": dict(_WORD),
            "metadata": {"type": "object", "properties": {"name": _name()}},
            "spec": spec_schema(),
            "status": _status(),
        },
    }


def _name() -> Json:
    """Return the schema of a job's name, all that a schema of Kubernetes 1.20 may say of metadata."""
    return {"type": "string", "maxLength": LONGEST_JOB, "pattern": JOB_PATTERN}


def _status() -> Json:
    return {
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "state": {
                "type": "string",
                "description": "the condition that is true now: " + ", ".join(conditions.STATES),
            },
            "conditions": {"type": "array", "items": _condition()},
            "replicaStatuses": {"type": "object", "additionalProperties": _counts()},
            "startTime": dict(_TIME),
            "completionTime": dict(_TIME),
            "restarts": {**_COUNT, "description": "restarts and replacements that count against backoffLimit"},
            "selector": {**_WORD, "description": "the labels of the Workers' pods"},
            "targetReplicas": {**_COUNT, "description": "how many Workers an elastic job should have now"},
            "elasticScaling": {"type": "object", "additionalProperties": _elastic()},
            "scaling": {**_KEEP, "description": "what was measured at which size; the operator's own"},
            "operator": {**_KEEP, "description": "what the operator has to remember; its own"},
        },
    }


def _condition() -> Json:
    return {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": dict(_WORD),
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": dict(_WORD),
            "message": dict(_WORD),
            "lastUpdateTime": dict(_TIME),
            "lastTransitionTime": dict(_TIME),
        },
    }


def _counts() -> Json:
    return {
        "type": "object",
        "properties": {name: dict(_COUNT) for name in ("active", "succeeded", "failed", "evicted")},
    }


def _elastic() -> Json:
    return {
        "type": "object",
        "properties": {
            "continue": {"type": "boolean", "description": "whether the search for a better size goes on"},
            "currentReplicas": dict(_COUNT),
            "lastReplicas": {**_COUNT, "description": "the size before this one"},
            "elasticCondition": {
                "type": "string",
                "enum": ["Start", "Continue", "Stop", "ReachMaxMetric", "ReachMaxReplicas"],
            },
            "message": dict(_WORD),
            "startTime": {**_TIME, "description": "since when it is so"},
        },
    }
