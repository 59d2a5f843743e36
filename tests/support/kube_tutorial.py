"""The job of KubeDL's tutorial in a namespace of a real cluster: its own files, applied by the commands it has.

What is swapped is the image, when it is pulled, where the volume is, and how often a line is printed; and the search is in a
hurry. The files in `tutorial/` are those that the tutorial prints.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import images
import kube_images
import kube_programs
import yaml
from enclosure import PATH
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kube_cluster import Cluster

FILES = Path(__file__).parent / "tutorial"
NAMESPACE = "elastic-job"
ETCD = "k8s.gcr.io/etcd:3.5.1-0"
HASTY = {
    "warmUpSamples": 0,
    "windowSamples": 2,
    "cooldownSeconds": 0,
    "pendingGraceSeconds": 3,
    "retrySeconds": 50,  # a tenth of it when room appears
}
PATIENCE_S = 120.0


class Watch:
    """All that becomes of the objects of one kind in a namespace, in order, as `kubectl get --watch` tells it."""

    def __init__(self, cluster: Cluster, namespace: str, kind: str) -> None:
        self._path = Path(cluster.folder, f"{namespace}-{kind}.json")
        with self._path.open("w") as file:
            self._process = subprocess.Popen(
                [kube_programs.program("kubectl"), "-n", namespace, "get", kind, "--watch", "--output=json"],
                env={"PATH": PATH, "HOME": cluster.folder, "KUBECONFIG": cluster.kubeconfig},
                stdin=subprocess.DEVNULL,
                stdout=file,
            )

    def seen(self) -> list[dict[str, Any]]:
        """Return what was told so far; the same object in each of its states."""
        text, found, at = self._path.read_text(), [], 0
        decoder = json.JSONDecoder()
        with contextlib.suppress(json.JSONDecodeError):  # half of the last one
            while at < len(text):
                one, at = decoder.raw_decode(text, at)
                at += 1  # a line ends
                found.append(one)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Tutorial:
    """The job `resnet`, an etcd and a volume. `folder` is what the volume has, and is seen by all nodes."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        folder.chmod(0o777)
        cluster.load(images.etcd(ETCD))
        cluster.kubectl("create", "ns", namespace)
        self._jobs = Watch(cluster, namespace, "pytorchjobs")
        self._pods = Watch(cluster, namespace, "pods")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.close()
        self._pods.close()
        # Nobody has to wait for pods that say goodbye.
        self.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")
        self.cluster.kubectl("delete", "--wait=false", f"pv/{self._volume}")

    def create(self, words: Sequence[str] = (), **policy: object) -> list[str]:
        """Do as the tutorial says; the job gets more words, and more fields of its policy. Return what kubectl said."""
        (job,) = self._read("torchelastic-resnet.yaml")
        job["spec"]["elasticPolicy"] |= HASTY | policy
        replicas = job["spec"]["pytorchReplicaSpecs"]
        for kind, image in (("Master", kube_images.PAUSE), ("Worker", kube_images.IMAGENET)):
            (container,) = replicas[kind]["template"]["spec"]["containers"]
            container |= {"image": image, "imagePullPolicy": "Never"}
        (container,) = replicas["Worker"]["template"]["spec"]["containers"]
        args = ["--print-freq=1" if word.startswith("--print-freq") else word for word in container["args"]]
        container["args"] = [*args, *words]
        volume, claim = self._read("pv.yaml")
        volume["spec"]["hostPath"] = {"path": str(self.folder)}
        volume["metadata"]["name"] = claim["spec"]["volumeName"] = self._volume  # volumes are in no namespace
        said = [
            self._kubectl("apply", "etcd.yaml", self._read("etcd.yaml")),
            self._kubectl("create", "pv.yaml", [volume, claim]),
            self._kubectl("create", "torchelastic-resnet.yaml", [job]),
        ]
        return "\n".join(said).splitlines()

    def begin(self) -> None:
        """Let the workers make their first step."""
        (self.folder / "begin").touch()

    @property
    def _volume(self) -> str:
        return f"pv-torch-checkpoint{self.namespace.removeprefix(NAMESPACE)}"

    def _read(self, name: str) -> list[Any]:
        text = (FILES / name).read_text().replace("  ...\n", "")  # where it leaves something open
        return list(yaml.safe_load_all(text.replace(NAMESPACE, self.namespace)))

    def _kubectl(self, verb: str, name: str, objects: list[Any]) -> str:
        path = Path(self.cluster.folder, f"{self.namespace}-{name}")
        path.write_text(yaml.safe_dump_all(objects))
        return self.cluster.kubectl(verb, "-f", str(path))

    # What is seen.

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl(*words, "-n", self.namespace)

    def statuses(self) -> list[dict[str, Any]]:
        """Return every status that the job has had."""
        return [found for job in self._jobs.seen() if (found := job.get("status"))]

    def blocks(self) -> list[dict[str, Any]]:
        """Return every status block of the scaling that people have seen."""
        found = (status.get("elasticScaling", {}).get("Worker") for status in self.statuses())
        return [block for block in found if block]

    def sizes(self) -> list[int]:
        """Return the sizes that the job was given, one after the other."""
        found: list[int] = []
        for block in self.blocks():
            if found[-1:] != [block["currentReplicas"]]:
                found.append(block["currentReplicas"])
        return found

    def pods_seen(self) -> list[dict[str, Any]]:
        """Return every state of every pod that there was."""
        return self._pods.seen()

    def workers(self) -> dict[str, str]:
        """Return the workers that are there, and not going, with their uids."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=job-name=resnet,replica-type=worker"
        found = (pod["metadata"] for pod in self.cluster.client.get(path)["items"])
        return {about["name"]: about["uid"] for about in found if "deletionTimestamp" not in about}

    def log(self, pod: str) -> str:
        return self.cluster.try_kubectl("-n", self.namespace, "logs", pod, "--tail=50").stdout

    def wait(self, what: str, test: Callable[[], Any]) -> Any:
        try:
            return wait_until(test, what, PATIENCE_S, 0.1)
        except AssertionError as problem:
            problem.add_note(self.kubectl("get", "pods,events", "-o", "wide"))
            problem.add_note(json.dumps(self.statuses()[-1:], indent=1))
            for pod in self.workers():
                problem.add_note(f"{pod}: {self.log(pod)[-2000:]}")
            raise

    def wait_for_pods(self, *names: str) -> None:
        """Wait until the kubelets find pods ready."""

        def are_ready() -> bool:
            found = self.cluster.client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
            return {*names} <= {
                pod["metadata"]["name"]
                for pod in found
                for one in pod["status"].get("conditions", ())
                if (one["type"], one["status"]) == ("Ready", "True")
            }

        self.wait(f"{', '.join(names)} are ready", are_ready)

    def wait_for(self, what: str, **wanted: object) -> dict[str, Any]:
        """Wait until the block of the scaling says all of this; return it."""

        def is_so() -> dict[str, Any] | None:
            return next((block for block in self.blocks()[-1:] if block.items() >= wanted.items()), None)

        found: dict[str, Any] = self.wait(what, is_so)
        return found
