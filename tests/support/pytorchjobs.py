"""PyTorchJobs for tests of the operator."""

from __future__ import annotations

import copy
from typing import Any

_RESNET: dict[str, Any] = {
    "apiVersion": "training.kubedl.io/v1alpha1",
    "kind": "PyTorchJob",
    "metadata": {"name": "resnet"},
    "spec": {
        "enableElastic": True,
        "elasticPolicy": {
            "rdzvBackend": "etcd",
            "rdzvEndpoint": "etcd-service:2379",
            "minReplicas": 1,
            "maxReplicas": 3,
            "nProcPerNode": 1,
        },
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "restartPolicy": "ExitCode",
                "template": {"spec": {"containers": [{"name": "pytorch", "image": "test/none:1"}]}},
            },
            "Worker": {
                "replicas": 1,
                "restartPolicy": "OnFailure",
                "template": {
                    "spec": {
                        "volumes": [
                            {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "pvc-torch-checkpoint"}}
                        ],
                        "containers": [
                            {
                                "name": "pytorch",
                                "image": "test/none:1",
                                "args": ["/workspace/examples/imagenet/main.py", "--arch=resnet50", "--epochs=20"],
                                "resources": {"limits": {"nvidia.com/gpu": 1}},
                                "volumeMounts": [{"name": "checkpoint", "mountPath": "/mnt/blob/data"}],
                            }
                        ],
                    }
                },
            },
        },
    },
}


def resnet(namespace: str, name: str = "resnet", **policy: object) -> dict[str, Any]:
    """Return the job of the tutorial, with more fields of its elastic policy."""
    job = copy.deepcopy(_RESNET)
    job["metadata"] = {"name": name, "namespace": namespace}
    job["spec"]["elasticPolicy"] |= policy
    return job


def quick(namespace: str, name: str = "quick", **spec: object) -> dict[str, Any]:
    """Return a small elastic job whose search takes a moment: every sample counts."""
    hasty = {"warmUpSamples": 0, "windowSamples": 1, "cooldownSeconds": 0, "pendingGraceSeconds": 0}
    job = resnet(namespace, name, **hasty)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"] |= spec
    return job
