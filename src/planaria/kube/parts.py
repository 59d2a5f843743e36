"""What a job may need beside itself: an etcd to meet through, a volume that all nodes share, a dataset on it. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube.manifests import ETCD_PORT, IMAGE, USER, literal, new, powerless, secure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.manifests import Object
    from planaria.kube.yaml_text import Document

ETCD_IMAGE = "registry.k8s.io/etcd:3.5.21-0"
TINY_IMAGENET = "https://cs231n.stanford.edu/tiny-imagenet-200.zip"
DATASET_POD = "download-dataset-task"

ETCD_COMMENT = """\
One etcd, for any number of jobs. Jobs that train go on while it is away; new rounds wait until it is back, and one that has
lost its memory is filled again. Whoever reaches it can disturb the jobs that meet through it: see docs/kubernetes.md."""
BARE_COMMENT = ETCD_COMMENT + "\nNobody replaces a bare pod whose node is lost."
STORAGE_COMMENT = "A volume that all nodes of a job mount at the same time, and the claim that pods name."
DATASET_COMMENT = """\
Fetches an archive with one folder of its own name and unpacks it onto the claim, once. As root, since a new file system is
root's; a folder `commits` is made for the user that trains."""
# Half of a download or of an unpacked archive never has the final name, so that it may be killed and started again.
FETCH = """\
import os, shutil, sys, urllib.request, zipfile
url, user = sys.argv[1], int(sys.argv[2])
name = url.rsplit("/", 1)[-1].removesuffix(".zip")
final, half = f"/data/{name}", f"/data/.{name}.half"
os.makedirs("/data/commits", exist_ok=True)
os.chown("/data/commits", user, user)
shutil.rmtree(half, ignore_errors=True)
if os.path.exists(final):
    print(f"{final} is there already")
    sys.exit()
os.mkdir(half)
print(f"fetching {url}", flush=True)
with urllib.request.urlopen(url, timeout=60) as source, open(f"{half}/archive", "wb") as archive:
    shutil.copyfileobj(source, archive, 1 << 20)
print("unpacking", flush=True)
with zipfile.ZipFile(f"{half}/archive") as archive:
    archive.extractall(half)
os.rename(f"{half}/{name}", final)
shutil.rmtree(half)
print(f"{final} is ready")
"""


class Etcd(Value):
    """An etcd: what its service is called, and whether a bare pod will do."""

    service: str = "etcd"
    namespace: str = ""
    is_bare: bool = False


class Storage(Value):
    """A claim on EFS or NFS. One of `efs` and `server` is said."""

    claim: str = "efs-claim"
    volume: str = "efs-pv"
    namespace: str = ""
    size: str = "5Gi"
    efs: str = ""
    server: str = ""
    path: str = ""


class Dataset(Value):
    """An archive that is to be on a claim."""

    claim: str = "efs-claim"
    namespace: str = ""
    image: str = IMAGE
    url: str = TINY_IMAGENET


def etcd(wanted: Etcd) -> tuple[Document, ...]:
    """Return the service and what stands behind it."""
    labels = {"app": "etcd"}
    port = {"name": "etcd-client-port", "port": ETCD_PORT, "protocol": "TCP", "targetPort": ETCD_PORT}
    service = new("v1", "Service", wanted.service, wanted.namespace) | {"spec": {"ports": [port], "selector": labels}}
    if wanted.is_bare:
        pod = new("v1", "Pod", "etcd", wanted.namespace, labels) | {"spec": _etcd_pod(wanted)}
        return ((BARE_COMMENT, service), ("", pod))
    template = {"metadata": {"labels": labels}, "spec": _etcd_pod(wanted)}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return ((ETCD_COMMENT, service), ("", new("apps/v1", "Deployment", "etcd", wanted.namespace) | {"spec": spec}))


def _etcd_pod(wanted: Etcd) -> Object:
    probe = {"httpGet": {"path": "/health", "port": "client"}, "periodSeconds": 5, "timeoutSeconds": 3}
    container = {
        "name": "etcd",
        "image": ETCD_IMAGE,
        "command": [
            "/usr/local/bin/etcd",
            "--data-dir=/var/lib/etcd/data",
            f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
            f"--advertise-client-urls=http://{wanted.service}:{ETCD_PORT}",
            "--auto-compaction-retention=1",
        ],
        "ports": [{"name": "client", "containerPort": ETCD_PORT, "protocol": "TCP"}],
        "readinessProbe": probe,
        "livenessProbe": probe | {"initialDelaySeconds": 10, "periodSeconds": 15, "failureThreshold": 4},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": powerless(),
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
    }
    return {
        "restartPolicy": "Always",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables of a service called etcd look like flags to etcd
        "securityContext": secure(),
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "2Gi"}}],
    }


def storage(wanted: Storage) -> tuple[Document, ...]:
    """Return a volume, its claim, and for EFS the class that both name."""
    kind = "efs-sc" if wanted.efs else ""
    shared: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": kind}
    source: Object = (
        {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": wanted.efs}}
        if wanted.efs
        else {"nfs": {"server": wanted.server, "path": wanted.path}}
    )
    capacity = {"capacity": {"storage": wanted.size}, "volumeMode": "Filesystem"}
    volume = new("v1", "PersistentVolume", wanted.volume) | {
        "spec": capacity | shared | {"persistentVolumeReclaimPolicy": "Retain"} | source
    }
    request = {"resources": {"requests": {"storage": wanted.size}}, "volumeName": wanted.volume}
    claim = new("v1", "PersistentVolumeClaim", wanted.claim, wanted.namespace) | {"spec": shared | request}
    made: list[Object] = [volume, claim]
    if wanted.efs:
        made.insert(0, new("storage.k8s.io/v1", "StorageClass", kind) | {"provisioner": "efs.csi.aws.com"})
    first, *rest = made
    return ((STORAGE_COMMENT, first), *(("", one) for one in rest))


def dataset(wanted: Dataset) -> tuple[Document, ...]:
    """Return a pod that fetches an archive."""
    container = {
        "name": "app",
        "image": wanted.image,
        "command": ["python3", "-c", FETCH, literal(wanted.url), str(USER)],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": powerless() | {"capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE"]}},
        "volumeMounts": [{"name": "persistent-storage", "mountPath": "/data"}],
    }
    claim = {"name": "persistent-storage", "persistentVolumeClaim": {"claimName": wanted.claim}}
    spec = {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [claim],
    }
    return ((DATASET_COMMENT, new("v1", "Pod", DATASET_POD, wanted.namespace) | {"spec": spec}),)
