"""A real Kubernetes for tests: an API server and, where wished, controllers and nodes, in namespaces of their own, as root.

    with Cluster.start(nodes=2) as cluster:
        cluster.kubectl("apply", "-f", "job.yaml")
        cluster.client.get("/api/v1/namespaces/default/pods")

There is no way out of its network. The one way in is a port of this machine's loopback that leads to the API server:
`cluster.url`. `kubectl` and clients of tests are started outside, with `cluster.kubeconfig`; `cluster.run_inside` is for
programs that shall be in its network. It takes 5 s to have an API server and 15 s to have two nodes.

An API server alone accepts pods that nobody runs: there are no controllers, no service accounts but those that a test makes,
and a namespace that is deleted stays. Nodes are numbered from 1 and called `node1`, ... Programs are found by `kube_programs`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import certificates
import kube_control
import kube_images
import kube_programs
from enclosure import PATH, PATIENCE_S, Enclosure, Inmate
from kube_client import Client, Refused, Who
from kube_control import API_PORT, FIRST_SERVICE
from kube_node import BRIDGE, GATEWAY, Node
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from certificates import Certificate

SUPPORT = Path(__file__).parent
GPU = "nvidia.com/gpu"
START_S = 90.0

# What a kubelet sets for the whole machine: it gets copies.
KERNEL_SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
# The first process. What anybody in there writes to /run or /var is in memory, and seen by nobody outside.
INIT = f"""\
set -eu
folder=$1
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$folder/resolv.conf" /etc/resolv.conf
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/var/changed /run/var/work
mount -t overlay -o lowerdir=/var,upperdir=/run/var/changed,workdir=/run/var/work overlay /var
for setting in {" ".join(KERNEL_SETTINGS)}; do
  mkdir -p "/run/settings/${{setting%/*}}"
  cat "/proc/sys/$setting" >"/run/settings/$setting"
  mount --bind "/run/settings/$setting" "/proc/sys/$setting"
done
ip link set lo up
ip link add {BRIDGE} type bridge
ip address add {GATEWAY}/16 dev {BRIDGE}
ip link set {BRIDGE} up
sysctl -qw net.ipv4.ip_forward=1
touch "$folder/begun"
cat >/dev/null
:  # or this shell would become that program, and bury nobody
"""


class Cluster:
    """`folder` is its own, seen inside under the same name. `client` calls the API server as its administrator."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.nodes: dict[int, Node] = {}
        self._has_controllers = False
        self._loaded: set[str] = set()
        self._programs: dict[str, Inmate] = {}
        self._write("resolv.conf", "nameserver 127.0.0.1\n")  # nobody answers there, which is known at once
        self._pki = f"{folder}/pki"
        os.mkdir(self._pki)
        self.authority = self._certificate("authority")
        self.administrator = self._certificate("admin", group="system:masters")
        self._certificate("service-accounts")
        names = f"IP:127.0.0.1,IP:{GATEWAY},IP:{FIRST_SERVICE},DNS:localhost,DNS:kubernetes.default.svc"
        self._certificate("server", names=names)
        # The port is ours from now on, and whoever connects waits until somebody accepts.
        self._door = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._door.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self.client = Client(Who("127.0.0.1", self.port, self.authority.cert, self.administrator))
        self.kubeconfig = self._kubeconfig("outside", self.url, self.administrator)
        self._inner_kubeconfig = self._kubeconfig("inside", f"https://{GATEWAY}:{API_PORT}", self.administrator)
        self._enclosure = Enclosure(folder, INIT)  # last: from here on the folder goes with it

    @classmethod
    def start(cls, nodes: int = 0, dir: str | None = None, controllers: bool | None = None) -> Self:  # noqa: A002  as in tempfile
        """Start one, in a new folder or in an empty one, which goes when it ends. Nodes need controllers.

        Raises:
            RuntimeError: It did not start; with what its programs said last.
        """
        if dir is None:
            dir = tempfile.mkdtemp(prefix="plk-", dir="/tmp")  # noqa: A001  short: the path of a socket has 107 characters
        try:
            found = cls(dir)
        except BaseException:
            shutil.rmtree(dir)
            raise
        try:
            found._start(nodes, bool(nodes) if controllers is None else controllers)
        except BaseException as exc:
            logs = found.logs()
            found.close()
            if isinstance(exc, AssertionError | subprocess.CalledProcessError):
                raise RuntimeError(f"Kubernetes did not start: {exc}\n{logs}") from exc
            raise
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, and wait until it is gone.

        Raises:
            AssertionError: Something is left on this machine.
        """
        self._door.close()
        self._enclosure.close()
        for program in self._programs.values():
            program.end()
        for node in self.nodes.values():
            node.reap()
        left = [path for node in self.nodes.values() for path in node.groups if os.path.exists(path)]
        assert not left, f"groups of an ended cluster are left: {left}"
        assert not os.path.exists(self.folder), f"the folder of an ended cluster is left: {self.folder}"

    # Its programs.

    def _start(self, nodes: int, controllers: bool) -> None:
        self._has_controllers = controllers
        wait_until(lambda: os.path.exists(f"{self.folder}/begun") or self._enclosure.has_ended(), "it has begun")
        assert not self._enclosure.has_ended(), "its first process ended"
        self._run_python(
            "door", "kube_door.py", str(self._door.fileno()), GATEWAY, str(API_PORT), fds=[self._door.fileno()]
        )
        self._run("etcd", kube_control.etcd())
        self._run("api", kube_control.api_server(self._pki, has_controllers=controllers))
        # Whoever makes nodes waits for programs most of the time, and so do we.
        with ThreadPoolExecutor(1 + nodes) as pool:
            made = self._make_nodes(pool, nodes)
            self.wait_for_api()
            if controllers:
                self._run("controllers", kube_control.controllers(self._pki, self._inner_kubeconfig))
            if nodes:
                self._start_network()
            for each in made:
                each.result()
        for node in self.nodes.values():
            node.start_kubelet()
        for node in self.nodes.values():
            self._wait_for(node)
        if controllers:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            wait_until(lambda: self._answers(account).get("secrets"), "pods may be made", START_S, 0.1)

    def _make_nodes(self, pool: ThreadPoolExecutor, count: int) -> list[Future[None]]:
        if not count:
            return []
        archives = pool.submit(kube_images.write_all, self.folder)
        return [pool.submit(self._add_node, number, archives) for number in range(1, count + 1)]

    def _add_node(self, number: int, archives: Future[tuple[str, ...]]) -> None:
        node = Node(self._enclosure, number, kube_images.PAUSE)
        self.nodes[number] = node
        own = self._certificate(
            f"system:node:{node.name}", names=f"IP:{node.address},DNS:{node.name}", group="system:nodes"
        )
        kubeconfig = self._kubeconfig(node.name, f"https://{GATEWAY}:{API_PORT}", own)
        node.configure(GATEWAY, self.authority.cert, own, kubeconfig)
        for archive in archives.result():
            node.load(archive)

    def _start_network(self) -> None:
        settings = self._write("proxy.json", json.dumps(kube_control.proxy_settings(self._inner_kubeconfig)))
        self._run("proxy", [kube_programs.program("kube-proxy"), f"--config={settings}"])
        self._run("scheduler", kube_control.scheduler(self._inner_kubeconfig))
        self._run_python(
            "dns", "kube_dns.py", GATEWAY, GATEWAY, str(API_PORT), self.authority.cert, *self.administrator
        )

    def _run(self, name: str, words: Sequence[str], fds: Sequence[int] = ()) -> None:
        self._programs[name] = Inmate(self._enclosure.command(), words, f"{self.folder}/{name}.log", {}, fds)

    def _run_python(self, name: str, script: str, *words: str, fds: Sequence[int] = ()) -> None:
        self._run(name, [sys.executable, str(SUPPORT / script), *words], fds)

    def logs(self) -> str:
        """Return the last things that all programs said."""
        found = {name: program.log() for name, program in self._programs.items()}
        found |= {node.name: node.logs() for node in self.nodes.values()}
        return "\n".join(f"--- {name}\n{text}" for name, text in found.items())

    # Files.

    def _write(self, name: str, text: str) -> str:
        path = f"{self.folder}/{name}"
        with open(path, "w") as file:
            file.write(text)
        return path

    def _certificate(self, name: str, *, names: str = "", group: str = "") -> Certificate:
        signer = None if name == "authority" else self.authority
        return certificates.make_certificate(Path(self._pki), name, names=names, signed_by=signer, group=group)

    def _kubeconfig(self, name: str, url: str, certificate: Certificate) -> str:
        user = {"client-certificate": certificate.cert, "client-key": certificate.key}
        return self._write(f"{name}.kubeconfig", json.dumps(self._configuration(url, user)))

    def _configuration(self, url: str, user: Mapping[str, str]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": self.authority.cert}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }

    # What tests ask for.

    def kubectl(self, *words: str, stdin: str | None = None, timeout_s: float = PATIENCE_S) -> str:
        """Run `kubectl` and return what it printed on standard output.

        Raises:
            AssertionError: It failed; with all it said.
        """
        done = self.try_kubectl(*words, stdin=stdin, timeout_s=timeout_s)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {(done.stdout + done.stderr)[-4000:]}"
        return done.stdout.strip()

    def try_kubectl(
        self, *words: str, stdin: str | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run `kubectl`, which may fail."""
        return subprocess.run(
            [kube_programs.program("kubectl"), *words],
            env={"PATH": PATH, "HOME": self.folder, "KUBECONFIG": self.kubeconfig},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def run_inside(
        self, words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in its network, with its processes and mounts, as its administrator; it may fail."""
        return subprocess.run(
            [*self.command(), *words],
            env={"PATH": PATH, "HOME": self.folder, "KUBECONFIG": self._inner_kubeconfig, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def command(self) -> list[str]:
        """Return the words before a command that shall run in there."""
        return self._enclosure.command()

    def token(self, account: str, namespace: str = "default") -> str:
        """Return a token that says its bearer is a service account, which must be there."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["api"]}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        found: str = self.client.create(path, request)["status"]["token"]
        return found

    def client_of(self, account: str, namespace: str = "default") -> Client:
        """Return a client that calls as a service account."""
        return Client(Who("127.0.0.1", self.port, self.authority.cert, token=self.token(account, namespace)))

    def is_ready(self, node: str) -> bool:
        """Tell whether a node says that it is ready, and is believed."""
        conditions = self._answers(f"/api/v1/nodes/{node}").get("status", {}).get("conditions", ())
        return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)

    def _answers(self, path: str) -> dict[str, Any]:
        """Return an object, empty where it cannot be had."""
        with contextlib.suppress(OSError, HTTPException, Refused):
            found: dict[str, Any] = self.client.get(path)
            return found
        return {}

    def load(self, archive: Path | str) -> None:
        """Let all nodes have an image from a file, under the names in it; once, however often a test asks for it."""
        if str(archive) in self._loaded:
            return
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for done in [pool.submit(node.load, archive) for node in self.nodes.values()]:
                done.result()
        self._loaded.add(str(archive))

    def give_gpus(self, node: int, count: int) -> None:
        """Let a node say that it has so many GPUs. Pods that run keep theirs; fewer than those take is no room at all."""
        amount = {GPU: str(count)}
        self.client.patch(f"/api/v1/nodes/node{node}/status", {"status": {"capacity": amount, "allocatable": amount}})

    # Weather.

    def kill_kubelet(self, node: int) -> None:
        """End a kubelet by SIGKILL: its containers run on, and the node is not ready after kube_control.NODE_GRACE_S."""
        self.nodes[node].kill_kubelet()

    def restart_kubelet(self, node: int) -> None:
        """Start the kubelet that was ended, and wait until its node is ready."""
        self.nodes[node].start_kubelet()
        self._wait_for(self.nodes[node])

    def _wait_for(self, node: Node) -> None:
        wait_until(lambda: self.is_ready(node.name), f"{node.name} is ready", START_S, 0.1)

    def stop_api(self, number: int = signal.SIGKILL) -> None:
        """End the API server. What it knows is in etcd; whoever calls finds the connection closed."""
        self._programs["api"].end(number)

    def start_api(self) -> None:
        """Start the API server that was ended, and wait until it answers."""
        self._run("api", kube_control.api_server(self._pki, has_controllers=self._has_controllers))
        self.wait_for_api()

    def wait_for_api(self) -> None:
        """Wait until the API server says that it is ready. It says so before it has made the first namespace."""

        def is_ready() -> bool:
            assert not self._programs["api"].has_ended(), "the API server ended"
            with contextlib.suppress(OSError, HTTPException, Refused):
                return bool(self.client.get("/readyz") == "ok") and self.client.has("/api/v1/namespaces/default")
            return False

        wait_until(is_ready, "the API server is ready", START_S, 0.05)
