"""The Kubernetes that tests have: real programs, on this machine alone, and nothing of it is left."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kube_control
import kube_images
import kube_programs
import pytest
from kube_client import Refused
from kube_cluster import KERNEL_SETTINGS
from waiting import wait_dead, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube_cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]  # the first of them starts a cluster

PATIENCE_S = 100.0  # torch alone takes a minute to load where many others want the processors
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
SLEEPS = "import signal; print('here', flush=True); signal.pause()"
SERVES = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"
ASKS = """\
import socket, sys, time, urllib.request
while True:
    try:
        print(urllib.request.urlopen(f"http://{sys.argv[1]}:8000/", timeout=5).status, flush=True)
        break
    except OSError as exc:
        print(exc, flush=True)
        time.sleep(0.2)  # nobody tells when a service has its endpoints
print(socket.gethostbyname(sys.argv[1]))
"""
MAKER = """\
import sys
sys.path[:0] = [sys.argv[1]]
from kube_cluster import Cluster
with Cluster.start(nodes=1) as cluster:
    cluster.kubectl("run", "sleeps", "--image=" + sys.argv[2], "--restart=Never", "--command", "--", "sleep", "1000")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/sleeps", "--timeout=60s")
    print(cluster.folder, flush=True)
    sys.stdin.read()
"""


def pod(name: str, *words: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that runs our image's Python, and is gone at once when told to go."""
    container = {"name": "main", "image": kube_images.PLANARIA, "command": ["python3", "-c", *words]}
    limits = spec.pop("limits", None)
    if limits:
        container["resources"] = {"limits": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec},
    }


def service(name: str, **spec: Any) -> dict[str, Any]:
    """Return a service for the pod of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"name": name}, "ports": [{"port": 8000}], **spec},
    }


def phase(cluster: Cluster, name: str) -> str:
    found: str = cluster.client.get(f"{PODS}/{name}")["status"]["phase"]
    return found


def reach(cluster: Cluster, name: str, wanted: str) -> None:
    wait_until(lambda: phase(cluster, name) == wanted, f"{name} is {wanted}", PATIENCE_S, 0.1)


def logs(cluster: Cluster, name: str) -> str:
    found: str = cluster.client.call("GET", f"{PODS}/{name}/log")
    return found


FAILS = "#!/bin/sh\necho E: no such package >&2\nexit 100\n"


def test_where_the_sources_are_not_to_be_had_one_line_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    if why := kube_programs.why_no_api():
        pytest.skip(why)
    tools, cache, rest = (tmp_path / name for name in ("tools", "cache", "rest"))
    for folder in (tools, cache, rest):
        folder.mkdir()
    (tools / "apt-get").write_text(FAILS)
    (tools / "apt-get").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache), "TMPDIR": str(rest)}
    done = subprocess.run(
        ["sh", str(kube_programs.SCRIPT)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"(kubernetes: (installing|building) .*\n)?kubernetes: .* not to be had here.*\n", done.stderr)
    assert [path.suffix for path in (cache / "planaria").iterdir()] == [".lock"]
    assert list(rest.iterdir()) == []


@pytest.fixture
def clean(kube_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with two nodes, without what the test has made in it."""
    yield kube_cluster
    client = kube_cluster.client
    for place in (PODS, SERVICES):
        for found in client.get(place)["items"]:
            if found["metadata"]["name"] != "kubernetes":
                client.delete(f"{place}/{found['metadata']['name']}")
    wait_until(lambda: not client.get(PODS)["items"], "its pods are gone", PATIENCE_S, 0.1)
    for node in kube_cluster.nodes:
        kube_cluster.give_gpus(node, 0)


def test_a_kind_of_object_can_be_added_and_is_checked(kube_api: Cluster) -> None:
    names = {"plural": "worms", "singular": "worm", "kind": "Worm"}
    heads = {"type": "integer", "maximum": 2, "default": 1}
    spec = {"type": "object", "properties": {"heads": heads}, "default": {}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    kube_api.client.create(
        CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "worms.example.com"},
            "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
        },
    )
    place = "/apis/example.com/v1/namespaces/default/worms"
    wait_until(lambda: kube_api.client.has(place), "worms are served", between_s=0.1)
    worm: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Worm", "metadata": {"name": "one"}}
    assert kube_api.client.create(place, worm)["spec"] == {"heads": 1}
    with pytest.raises(Refused, match="should be less than or equal to 2"):
        kube_api.client.create(place, worm | {"metadata": {"name": "two"}, "spec": {"heads": 9}})
    assert kube_api.kubectl("get", "worms", "-o", "name") == "worm.example.com/one"


def test_a_service_account_may_do_what_its_role_says_and_nothing_else(kube_api: Cluster) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    kube_api.client.create("/api/v1/namespaces/default/serviceaccounts", account)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["ours"], "verbs": ["get"]}]
    kube_api.client.create(f"{ROLES}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    kube_api.client.create(f"{ROLES}/rolebindings", binding)
    maps = "/api/v1/namespaces/default/configmaps"
    kube_api.client.create(maps, {"metadata": {"name": "ours"}, "data": {"a": "b"}})
    reader = kube_api.client_of("reader")

    wait_until(lambda: reader.may(f"{maps}/ours"), "the API server has heard of the role")
    assert reader.get(f"{maps}/ours")["data"] == {"a": "b"}
    for path in (maps, f"{maps}/theirs", PODS):
        with pytest.raises(Refused, match="403"):
            reader.get(path)


def test_pods_are_accepted_where_nobody_runs_them(kube_api: Cluster) -> None:
    made = kube_api.client.create(PODS, pod("nobody", SLEEPS))
    assert made["status"]["phase"] == "Pending"
    kube_api.client.patch(f"{PODS}/nobody/status", {"status": {"phase": "Running"}})
    assert phase(kube_api, "nobody") == "Running"
    kube_api.client.delete(f"{PODS}/nobody")
    assert not kube_api.client.has(f"{PODS}/nobody")


def test_the_api_server_goes_away_and_comes_back_with_all_it_knew(kube_api: Cluster) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    kube_api.client.create(maps, {"metadata": {"name": "stays"}})
    kube_api.stop_api()
    with pytest.raises(ConnectionError):
        kube_api.client.get(f"{maps}/stays")
    kube_api.start_api()
    assert kube_api.client.has(f"{maps}/stays")


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="forms a real process group")
def test_a_pod_runs_our_image_as_the_dockerfile_says_and_its_output_is_kept(clean: Cluster) -> None:
    made = pod("ours", "")
    made["spec"]["containers"][0].pop("command")
    made["spec"]["containers"][0]["args"] = ["--standalone", "--nproc-per-node=2", "/workspace/echo.py"]
    clean.client.create(PODS, made)
    reach(clean, "ours", "Succeeded")
    assert "after init process group, rank=1, world_size = 2" in clean.kubectl("logs", "ours")
    clean.client.create(PODS, pod("who", "import os; print(os.getuid(), os.getcwd())"))
    reach(clean, "who", "Succeeded")
    assert logs(clean, "who") == "1000 /workspace\n"


@pytest.mark.parametrize("address", [{}, {"clusterIP": "None"}], ids=["with an address", "headless"])
def test_pods_on_two_nodes_find_each_other_by_the_name_of_a_service(clean: Cluster, address: dict[str, str]) -> None:
    clean.client.create(SERVICES, service("serves", **address))
    clean.client.create(PODS, pod("serves", SERVES, nodeName="node1"))
    clean.client.create(PODS, pod("asks", ASKS, "serves", nodeName="node2"))
    reach(clean, "asks", "Succeeded")
    *_, status, found = logs(clean, "asks").splitlines()
    own = clean.client.get(f"{SERVICES}/serves")["spec"]["clusterIP"]
    assert status == "200"
    assert found == (clean.client.get(f"{PODS}/serves")["status"]["podIP"] if address else own)


def test_room_for_gpus_is_taken_and_given_back(clean: Cluster) -> None:
    clean.give_gpus(1, 1)
    clean.client.create(PODS, pod("first", SLEEPS, limits={"nvidia.com/gpu": "1"}))
    reach(clean, "first", "Running")
    clean.client.create(PODS, pod("second", SLEEPS, limits={"nvidia.com/gpu": "1"}))
    wait_until(lambda: "Insufficient nvidia.com/gpu" in _scheduled(clean, "second"), "it has no place", PATIENCE_S, 0.1)
    clean.give_gpus(2, 1)
    reach(clean, "second", "Running")
    assert clean.client.get(f"{PODS}/second")["spec"]["nodeName"] == "node2"


def _scheduled(cluster: Cluster, name: str) -> str:
    """Return what the scheduler says of a pod, if anything."""
    conditions = cluster.client.get(f"{PODS}/{name}")["status"].get("conditions", ())
    return next((found.get("message", "") for found in conditions if found["type"] == "PodScheduled"), "")


def test_a_node_whose_kubelet_died_is_not_ready_but_its_containers_live_on(clean: Cluster) -> None:
    client = clean.client
    clean.give_gpus(2, 1)
    # A pod that has no time to end is forgotten without a word from its kubelet.
    client.create(PODS, pod("lives", SLEEPS, nodeName="node2", terminationGracePeriodSeconds=1))
    reach(clean, "lives", "Running")
    name = client.get(f"{PODS}/lives")["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    pid = clean.nodes[2].running()[name]
    clean.kill_kubelet(2)
    try:
        wait_until(lambda: not clean.is_ready("node2"), "node2 is missed", PATIENCE_S, 0.2)
        wait_until(
            lambda: "deletionTimestamp" in client.get(f"{PODS}/lives")["metadata"], "it is evicted", PATIENCE_S, 0.2
        )
        assert clean.nodes[2].running()[name] == pid
    finally:
        clean.restart_kubelet(2)
    wait_until(lambda: not client.has(f"{PODS}/lives"), "the kubelet carries the eviction out", PATIENCE_S, 0.2)
    assert name not in clean.nodes[2].running()
    assert client.get("/api/v1/nodes/node2")["status"]["allocatable"]["nvidia.com/gpu"] == "1"


def test_nothing_is_left_when_whoever_started_it_is_killed() -> None:
    if why := kube_programs.why_no_nodes():
        pytest.skip(why)
    before = _surroundings()
    words = [sys.executable, "-c", MAKER, str(Path(kube_control.__file__).parent), kube_images.PLANARIA]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        folder = maker.stdout.readline().strip()
        assert folder, "it did not start"
        inside = _processes_of(folder)
        assert len(inside) > 8
        assert _groups(folder)
        maker.send_signal(signal.SIGKILL)
    for pid in inside:
        assert wait_dead(pid), pid
    wait_until(lambda: not os.path.exists(folder) and not _groups(folder), "its folder and groups are gone")
    assert _surroundings() == before


def _processes_of(folder: str) -> list[int]:
    """Return whoever was started with the folder in one of its words."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline") as file:
                if folder in file.read():
                    found.append(int(name))
        except OSError:  # it has ended
            continue
    return found


def _groups(folder: str) -> list[str]:
    return [top for top, *_ in os.walk("/sys/fs/cgroup") if os.path.basename(folder) in top]


def _surroundings() -> dict[str, object]:
    """Return what a cluster must not change: mounts, links, settings, and folders where its programs like to write."""
    with open("/proc/self/mounts") as file:
        mounts = file.read().splitlines()
    links = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout)
    places = ("/opt/containerd", "/usr/libexec/kubernetes", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods")
    return {
        "mounts": [line for line in mounts if "plk-" in line or "kubelet" in line or "containerd" in line],
        "links": [link["ifname"] for link in links if link["ifname"].startswith(("cni", "veth"))],
        "settings": {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS},
        "places": [place for place in places if os.path.exists(place)],
    }
