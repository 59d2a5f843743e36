"""A node of a test cluster: a containerd and a kubelet of its own, with mounts and control groups of its own.

All nodes of a cluster are in one network; each has an address there, and so has each pod. Everything a node writes is in
memory, in the enclosure of its cluster, and goes with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import images
import kube_programs
from enclosure import PATH, PATIENCE_S, Enclosure, Inmate
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

BRIDGE = "cni0"
GATEWAY = "10.88.0.1"  # of pods; the API server and the DNS are there, too
NETWORK = "10.88.0.0/16"
LEASE_S = 4  # a node renews it every second

# Logs of pods have a fixed place, and every kubelet throws away those there that it does not know: each has its own.
BEGIN = """\
set -eu
place=$1
mkdir -p "$place/logs/pods" "$place/logs/containers" /var/log/pods /var/log/containers
mount --bind "$place/logs/pods" /var/log/pods
mount --bind "$place/logs/containers" /var/log/containers
exec containerd -c "$2"
"""
# The kernel here may not let even root lower what the killer of processes goes by: restrict_oom_score_adj.
CONTAINERD = """\
version = 2
root = "{place}/containers"
state = "{place}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{place}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{folder}/spec.json"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{folder}/cni"
"""


class Node:
    """Number n of a cluster is called `node<n>`. It begins with a containerd; a kubelet comes later, and may go and come."""

    def __init__(self, enclosure: Enclosure, number: int, pause: str) -> None:
        self.name = f"node{number}"
        self.address = f"10.88.255.{number}"
        self.socket = f"{enclosure.folder}/{self.name}/containerd.sock"
        self._enclosure = enclosure
        self._folder = f"{enclosure.folder}/{self.name}"  # seen outside
        self._place = f"/run/{self.name}"  # seen inside only
        self._group = f"{os.path.basename(enclosure.folder)}-{self.name}"
        self._kubelet: Inmate | None = None
        os.makedirs(f"{self._folder}/cni")
        self._inside("ip", "address", "add", f"{self.address}/16", "dev", BRIDGE)
        self.groups = _make_groups(self._group)
        self._write("cni/10-pods.conflist", _pod_network())
        self._write("spec.json", _base_spec())
        text = CONTAINERD.format(
            place=self._place, folder=self._folder, socket=self.socket, pause=pause, cni=kube_programs.CNI
        )
        with open(f"{self._folder}/containerd.toml", "w") as file:
            file.write(text)
        words = ["unshare", "--mount", "sh", "-c", BEGIN, "node", self._place, f"{self._folder}/containerd.toml"]
        self._containerd = Inmate(enclosure.command(), words, f"{self._folder}/containerd.log", {})

    def _write(self, name: str, content: object) -> None:
        with open(f"{self._folder}/{name}", "w") as file:
            json.dump(content, file)

    def _inside(self, *words: str) -> str:
        done = subprocess.run(
            [*self._enclosure.command(), *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-1000:]}"
        return done.stdout

    def load(self, archive: Path | str) -> None:
        """Take in an image from a file."""
        wait_until(lambda: os.path.exists(self.socket) or self._containerd.has_ended(), "containerd is there")
        self.ctr("images", "import", str(archive))

    def ctr(self, *words: str) -> str:
        """Ask containerd about the containers and images of pods."""
        return self._inside("ctr", "--address", self.socket, "--namespace", "k8s.io", *words)

    def running(self) -> dict[str, int]:
        """Return the processes of the containers that run here, by the container, also if no kubelet looks after them."""
        rows = re.findall(r"^(\S+)\s+(\d+)\s+RUNNING", self.ctr("tasks", "ls"), re.MULTILINE)
        return {name: int(pid) for name, pid in rows}

    def configure(self, dns: str, authority: str, certificate: tuple[str, str], kubeconfig: str) -> None:
        """Say what a kubelet has to know."""
        self._kubeconfig = kubeconfig
        with open(f"{self._folder}/resolv.conf", "w") as file:
            file.write("nameserver 127.0.0.1\n")  # nobody answers there, which is known at once
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": authority},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": certificate[0],
            "tlsPrivateKeyFile": certificate[1],
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "clusterDNS": [dns],
            "clusterDomain": "cluster.local",
            "evictionHard": {"memory.available": "100Mi"},
            "failSwapOn": False,
            # What a test says of a node's devices stands: there is nobody here who counts them.
            "featureGates": {"DevicePlugins": False},
            "healthzPort": 0,
            "imageGCHighThresholdPercent": 100,  # never: an image that is gone cannot be had again
            "nodeLeaseDurationSeconds": LEASE_S,
            "nodeStatusUpdateFrequency": "2s",
            "resolvConf": f"{self._folder}/resolv.conf",
            "volumePluginDir": f"{self._place}/plugins",
            "volumeStatsAggPeriod": "5s",  # a volume that is too full is noticed by then
        }
        self._write("kubelet.json", settings)

    def start_kubelet(self) -> None:
        """Start it, or start it again."""
        words = [
            kube_programs.program("kubelet"),
            f"--config={self._folder}/kubelet.json",
            f"--kubeconfig={self._kubeconfig}",
            f"--root-dir={self._place}/kubelet",
            f"--cert-dir={self._place}/pki",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{self.socket}",
        ]
        command = self._enclosure.command(self._containerd.pid)
        # It would look for a cloud it might be in, and wait for an answer.
        environment = {"AWS_EC2_METADATA_DISABLED": "true"}
        self._kubelet = Inmate(command, words, f"{self._folder}/kubelet.log", environment)

    def kill_kubelet(self) -> None:
        """End the kubelet. Its containers run on."""
        assert self._kubelet is not None
        self._kubelet.end()

    def reap(self) -> None:
        """Wait for its programs, whose enclosure has ended."""
        for program in self._programs():
            program.end()

    def logs(self) -> str:
        """Return the last things that its programs said."""
        return "\n".join(program.log() for program in self._programs())

    def _programs(self) -> list[Inmate]:
        return [found for found in (self._containerd, self._kubelet) if found is not None]


def _pod_network() -> dict[str, Any]:
    """Return what the plugins make of a pod: an address on the bridge, of a store that all nodes share."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/addresses",
        "ranges": [[{"subnet": NETWORK, "rangeStart": "10.88.1.0", "rangeEnd": "10.88.200.0", "gateway": GATEWAY}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _base_spec() -> Any:
    """Return what containers begin with: containerd's own idea, and the packages of tests where their images look for them."""
    said = subprocess.run(
        ["ctr", "oci", "spec"], env={"PATH": PATH}, capture_output=True, check=True, timeout=PATIENCE_S
    )
    spec = json.loads(said.stdout)
    options = ["rbind", "ro"]
    spec["mounts"].append(
        {"destination": images.HOST_SITE, "type": "bind", "source": images.host_site(), "options": options}
    )
    return spec


def _make_groups(name: str) -> list[str]:
    """Make the control groups that a kubelet wants to find, one in each hierarchy, and return where they are."""
    with open("/proc/self/mounts") as file:
        places = [place for _, place, kind, *_ in map(str.split, file) if kind == "cgroup"]
    for place in places:
        os.mkdir(f"{place}/{name}")
        for rule in ("cpuset.cpus", "cpuset.mems"):  # a set of processors begins empty
            if os.path.exists(f"{place}/{rule}"):
                with open(f"{place}/{rule}") as above, open(f"{place}/{name}/{rule}", "w") as file:
                    file.write(above.read())
    return [f"{place}/{name}" for place in places]
