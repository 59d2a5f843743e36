"""Every field of a PyTorchJob's spec as a piece of OpenAPI schema: types, bounds, defaults, meanings. Pure.

The CRD, the validation of `spec` and docs/kubernetes-api.md are made from it. Nothing in it needs more than Kubernetes 1.20.
"""

from __future__ import annotations

from planaria.kube import scaling_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json

BACKENDS = ("kubernetes", "etcd", "etcd-v2", "c10d", "embedded")
RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
CLEAN_POLICIES = ("None", "Running", "All")
_KEEP = {"x-kubernetes-preserve-unknown-fields": True}


def _maybe(kind: str, **shape: object) -> Json:
    """Return the schema of a field of a template, which may also be there with nothing in it."""
    return {"type": kind, "nullable": True, **shape}


def _list_of(**properties: Json) -> Json:
    """Return the schema of a list of objects of which these fields are read."""
    return _maybe("array", items={"type": "object", "properties": properties, **_KEEP})


def _container() -> Json:
    amounts = _maybe("object", **_KEEP)  # 1, 0.5 or 500m: what is no quantity the API server refuses with the pod
    return {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "command": _maybe("array", items={"type": "string"}),
            "env": _list_of(name={"type": "string"}),
            "ports": _list_of(name=_maybe("string")),
            "readinessProbe": _maybe("object", properties={"httpGet": _maybe("object", **_KEEP)}, **_KEEP),
            "volumeMounts": _list_of(mountPath=_maybe("string")),
            "resources": _maybe("object", properties={"limits": amounts, "requests": dict(amounts)}, **_KEEP),
        },
        **_KEEP,
    }


def _metadata() -> Json:
    words = _maybe("object", additionalProperties=_maybe("string"))
    return _maybe("object", properties={"labels": words, "annotations": dict(words)}, **_KEEP)


def replica_schema() -> Json:
    """Return the schema of one entry of pytorchReplicaSpecs. A template has a shape where it is read, and none elsewhere."""
    pod = {
        "type": "object",
        "description": (
            "the containers, volumes and whatever else a pod has; `pytorch`, or else the first container, trains"
        ),
        "required": ["containers"],
        "properties": {
            "containers": {"type": "array", "minItems": 1, "items": _container()},
            "volumes": _list_of(),
            "serviceAccountName": _maybe("string"),
            "serviceAccount": _maybe("string"),
        },
        **_KEEP,
    }
    template = {
        "type": "object",
        "description": "the pod, as in a Deployment",
        "required": ["spec"],
        "properties": {"metadata": _metadata(), "spec": pod},
    }
    return {
        "type": "object",
        "required": ["template"],
        "properties": {
            "replicas": {
                "type": "integer",
                "minimum": 0,
                "maximum": 10000,
                "default": 1,
                "description": (
                    "how many pods; of an elastic job's Workers, how many it starts with, and changing it restarts the "
                    "search"
                ),
            },
            "restartPolicy": {
                "type": "string",
                "enum": list(RESTART_POLICIES),
                "description": (
                    "what follows when a container ends: see the table; ExitCode for the Master and OnFailure for "
                    "Workers unless given"
                ),
            },
            "template": template,
        },
    }


def elastic_schema() -> Json:
    """Return the schema of elasticPolicy; what decides about sizes is described in docs/scaling.md."""
    own: Json = {
        "rdzvBackend": {
            "type": "string",
            "enum": list(BACKENDS),
            "description": (
                "how Workers find each other; `kubernetes`, which needs no server and our agent, unless given"
            ),
        },
        "rdzvEndpoint": {
            "type": "string",
            "maxLength": 1024,
            "description": (
                "where: HOST:PORT of etcd; of c10d and `embedded`, the first Worker at port 23456 unless given; nothing "
                "for `kubernetes`"
            ),
        },
        "nProcPerNode": {
            "x-kubernetes-int-or-string": True,
            "default": 1,
            "description": "training processes in each pod: a number, `auto`, `gpu` or `cpu`",
        },
        "masterTrains": {
            "type": "boolean",
            "default": False,
            "description": (
                "the Master is a member of the world, beside the Workers that minReplicas and maxReplicas count"
            ),
        },
    }
    return {
        "type": "object",
        "description": "with enableElastic: the bounds and rules of the number of Workers",
        "properties": {**own, **scaling_fields.schema()},
    }


def spec_schema() -> Json:
    """Return the schema of `spec`."""
    return {
        "type": "object",
        "required": ["pytorchReplicaSpecs"],
        "properties": {
            "pytorchReplicaSpecs": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 2,
                "description": "`Master`, `Worker` or both, in any spelling of upper and lower case",
                "additionalProperties": replica_schema(),
            },
            "enableElastic": {
                "type": "boolean",
                "default": False,
                "description": (
                    "with an elasticPolicy: the number of Workers follows the policy; without one the job is a plain one"
                ),
            },
            "elasticPolicy": elastic_schema(),
            **_run_policy(),
        },
    }


def _run_policy() -> Json:
    return {
        "cleanPodPolicy": {
            "type": "string",
            "enum": ["", *CLEAN_POLICIES],
            "default": "None",
            "description": (
                "which pods are deleted when the job is over: none (after a failure those that still run), those "
                "that still run, all with their services"
            ),
        },
        "ttlSecondsAfterFinished": {
            "type": "integer",
            "minimum": 0,
            "description": "how long after its end the job itself is deleted; never unless given",
        },
        "activeDeadlineSeconds": {
            "type": "integer",
            "minimum": 1,
            "description": "how long after its start, or since it was resumed, the job fails; never unless given",
        },
        "backoffLimit": {
            "type": "integer",
            "minimum": 0,
            "description": (
                "how many times containers may be restarted and failed pods replaced, all together, before the job "
                "fails; without limit unless given"
            ),
        },
        "suspend": {
            "type": "boolean",
            "default": False,
            "description": "the job has no pods while this is true; its status and its place in the search are kept",
        },
    }
