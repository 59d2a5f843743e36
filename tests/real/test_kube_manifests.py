"""The files under kubernetes/, with a real Kubernetes: its kubectl, its servers, its nodes and its containers.

What a test machine lacks is swapped for something of its own: the image's name, EFS for a folder that both nodes see, the
script in S3 and its data for one in the image, and how much a pod asks for. All else is as in the files.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import images
import kube_images
import pytest
import yaml
from kube_client import Refused
from waiting import wait_until

from planaria.kube.manifests import IMAGE
from planaria.kube.parts import ETCD_IMAGE
from planaria.kube.render import COMMAND, rendered
from planaria.kube.render_flags import read
from planaria.kube.yaml_text import documents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube_cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

FOLDER = images.ROOT / "kubernetes"
FILES = sorted([*FOLDER.glob("*.yaml"), *images.ROOT.glob("example/torchelastic/*.yaml")])
INSTALLATION = FOLDER / "operator.yaml"  # in a namespace that it makes: test_operator_install.py has it on a server
SCRIPT = ("/workspace/examples/numpy/main.py", "--step-seconds=0.05", "--print-freq=5")
PATIENCE_S = 120.0
# Steps of the example that take no time any more once there is a file: whoever waits for its end need not wait long.
HURRY = """\
import os, runpy, sys, time
usual = time.sleep
time.sleep = lambda seconds: None if os.path.exists("/data/hurry") else usual(seconds)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
STARTS = r"round (\d+) starts on {} nodes"


def sized(found: Any, *words: str, before: tuple[str, ...] = ()) -> Any:
    """Return an object that a test machine has room for: pods with a script of the image, and little to ask for."""
    if isinstance(found, list):
        return [sized(one, *words, before=before) for one in found]
    if not isinstance(found, dict):
        return found
    made = {key: sized(value, *words, before=before) for key, value in found.items()}
    if made.get("image") == IMAGE:
        made["image"] = kube_images.PLANARIA
        made["args"] = [*before, *SCRIPT, *words]
        made["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}}
    return made


class Place:
    """A namespace of a cluster, and a folder that all of its nodes see."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.namespace = f"manifests-{secrets.token_hex(3)}"
        self._pods = f"/api/v1/namespaces/{self.namespace}/pods"

    def write(self, name: str, objects: list[Any]) -> str:
        path = self.folder / name
        path.write_text(documents([("", one) for one in objects]))
        return str(path)

    def kubectl(self, *words: str, timeout_s: float = PATIENCE_S) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, timeout_s=timeout_s)

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.cluster.client.get(f"{self._pods}?labelSelector=job-name=imagenet")["items"]
        return {one["metadata"]["name"]: one for one in found}

    def log(self, pod: str) -> str:
        """Return what a pod has said; nothing where it cannot be had. No kubectl, which takes a while to start."""
        with contextlib.suppress(Refused):
            return str(self.cluster.client.get(f"{self._pods}/{pod}/log"))
        return ""

    def wait_for_round(self, pod: str, nodes: int, after: int = -1) -> int:
        """Wait until a pod says that a later round starts on so many nodes; return its number."""

        def number() -> tuple[int, ...]:
            found = (int(one) for one in re.findall(STARTS.format(nodes), self.log(pod)))
            return tuple(one for one in found if one > after)

        try:
            found: tuple[int, ...] = wait_until(number, f"{pod} is in a round of {nodes}", PATIENCE_S, 0.1)
        except AssertionError:
            print(self.cluster.try_kubectl("-n", self.namespace, "describe", "pods").stdout[-6000:], self.log(pod))
            raise
        return found[0]

    def iterations(self) -> list[int]:
        """Return the steps that pods which are there have told of."""
        return [int(one) for pod in self.pods() for one in re.findall(r"iteration: (\d+)", self.log(pod))]

    def are_ready(self, *pods: str) -> bool:
        found = self.pods()
        return all(
            name in found
            and any(one["type"] == "Ready" and one["status"] == "True" for one in found[name]["status"]["conditions"])
            for name in pods
        )


@pytest.fixture
def place(kube_cluster: Cluster, tmp_path: Path) -> Iterator[Place]:
    kube_cluster.load(images.etcd(ETCD_IMAGE))
    found = Place(kube_cluster, tmp_path)
    kube_cluster.kubectl("create", "namespace", found.namespace)
    try:
        yield found
    finally:
        # The next test need not wait for pods that say goodbye, and the cluster ends what is left.
        found.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
        kube_cluster.kubectl("delete", "namespace", found.namespace, "--wait=false")
        kube_cluster.kubectl("delete", "--ignore-not-found", "--wait=false", f"pv/{found.namespace}")


def storage(place: Place) -> list[Any]:
    kind, volume, claim = yaml.safe_load_all((FOLDER / "storage.yaml").read_text())
    shared = place.folder / "efs"
    (shared / "commits").mkdir(parents=True)
    (shared / "commits").chmod(0o777)
    del volume["spec"]["csi"]
    volume["metadata"]["name"] = claim["spec"]["volumeName"] = place.namespace  # volumes are in no namespace
    volume["spec"]["hostPath"] = {"path": str(shared)}
    return [kind, volume, claim]


def test_pods_of_the_files_train_together_and_come_and_go(place: Place) -> None:
    text = (FOLDER / "imagenet.yaml").read_text()
    third = text.replace("imagenet-worker-2", "imagenet-worker-3").replace('worker: "2"', 'worker: "3"')
    two, three = (
        place.write(f"{name}.yaml", sized(list(yaml.safe_load_all(one)), "--epochs=100000"))
        for name, one in (("imagenet", text), ("third", third))
    )
    etcd = str(FOLDER / "etcd.yaml")
    said = place.kubectl("apply", "-f", place.write("storage.yaml", storage(place)), "-f", etcd, "-f", two)
    names = ["imagenet-worker-1", "imagenet-worker-2"]
    assert [line for line in said.splitlines() if "imagenet" in line] == [
        f"{kind}/{name} created" for name in names for kind in ("pod", "service")
    ]

    first = place.wait_for_round(names[0], 2)
    wait_until(lambda: place.are_ready(*names), "the kubelets find them ready", PATIENCE_S, 0.1)

    said = place.kubectl("apply", "-f", three)
    assert "pod/imagenet-worker-3 created" in said
    assert "pod/imagenet-worker-1 unchanged" in said
    joined = place.wait_for_round(names[0], 3, first)
    before = max(place.iterations(), default=0)

    uids = {name: one["metadata"]["uid"] for name, one in place.pods().items()}
    place.kubectl("delete", "pod", names[0], "--wait=true")
    left = place.wait_for_round(names[1], 2, joined)
    place.wait_for_round("imagenet-worker-3", 2, joined)
    wait_until(lambda: max(place.iterations(), default=0) > before, "it goes on", PATIENCE_S, 0.1)
    found = place.pods()
    assert {name: one["metadata"]["uid"] for name, one in found.items()} == {
        name: uid for name, uid in uids.items() if name != names[0]
    }
    assert [one["status"]["containerStatuses"][0]["restartCount"] for one in found.values()] == [0, 0]
    assert left > joined
    assert "lost" not in place.log(names[1]), "a pod that is deleted says goodbye"

    place.kubectl("delete", "pod", *found, "--wait=true")
    place.kubectl("apply", "-f", two)
    place.wait_for_round(names[0], 2, left)

    failed = [line for line in place.kubectl("get", "events").splitlines() if "FailedPreStopHook" in line]
    assert all("exited with 137" in line for line in failed), failed  # a slow one is killed with its container


def test_a_batch_job_without_etcd_replaces_what_is_lost_and_ends(place: Place) -> None:
    line = (FOLDER / "imagenet-no-etcd.yaml").read_text().partition("\n")[0].removeprefix(f"# {COMMAND}")
    made = list(yaml.safe_load_all(rendered(read(["--job", *shlex.split(line)]))))
    job = sized(made, "--epochs=4", "--step-seconds=1", before=("/data/hurry.py",))
    files = (place.write("storage.yaml", storage(place)), place.write("job.yaml", job))
    (place.folder / "efs" / "hurry.py").write_text(HURRY)
    said = place.kubectl(*itertools.chain(["apply"], *(("-f", file) for file in files)))
    assert "job.batch/imagenet created" in said
    wait_until(lambda: len(place.pods()) == 2, "two pods are made", PATIENCE_S, 0.1)
    one, other = sorted(place.pods())
    first = place.wait_for_round(one, 2)
    place.kubectl("delete", "pod", other, "--wait=false")
    place.wait_for_round(one, 2, first)
    assert len(set(place.pods()) - {one, other}) == 1
    (place.folder / "efs" / "hurry").touch()
    place.kubectl(
        "wait", "--for=condition=complete", "job/imagenet", f"--timeout={PATIENCE_S:.0f}s", timeout_s=2 * PATIENCE_S
    )
    commits = place.folder / "efs" / "commits" / "imagenet"
    assert any(commits.iterdir()), "the newest commit is on the claim"


def test_an_old_server_takes_every_file(kube_api: Cluster, tmp_path: Path) -> None:
    """Everything is known to Kubernetes 1.20: its kubectl reads our YAML and knows all fields, and so does its server."""
    paths = []
    for number, path in enumerate(path for path in FILES if path != INSTALLATION):
        text = path.read_text().replace("namespace: elastic-job", "namespace: default")
        copy = tmp_path / f"{number}-{path.name}"
        if "kind: PyTorchJob" in text:  # the templates in it
            replicas = yaml.safe_load(text)["spec"]["pytorchReplicaSpecs"]
            about = "apiVersion: v1\nkind: PodTemplate\nmetadata:\n  name: "
            text = "---\n".join(
                f"{about}{kind.lower()}\n{yaml.safe_dump({'template': one['template']})}"
                for kind, one in replicas.items()
            )
        copy.write_text(text)
        paths += ["-f", str(copy)]
    said = kube_api.kubectl("apply", "--dry-run=server", "--validate=true", *paths)
    created = re.findall(r"^(\S+) created \(server dry run\)$", said, re.MULTILINE)
    assert len(created) == len(said.splitlines())
    assert {
        "pod/imagenet-worker-2",
        "deployment.apps/etcd",
        "lease.coordination.k8s.io/imagenet-run",
        "podtemplate/worker",
    } < set(created)
