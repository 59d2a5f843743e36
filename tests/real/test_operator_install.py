"""The operator's installation on a real API server, and an operator that has no other permissions than those."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from operator_rig import Rig
from programs import clean_environment
from pytorchjobs import quick
from waiting import PATIENCE_S, wait_until

from planaria.kube.main import operator
from planaria.kube.resources import POD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kube_cluster import Cluster

PLANARIA = str(Path(__file__).parents[2] / "bin" / "planaria")
IMAGE = "registry.example.com/planaria:1"
JOBS = "/apis/training.kubedl.io/v1alpha1"
FORBIDDEN = re.compile(r"\b403\b")  # and not a part of the number of a port
WHOLE = [
    "namespace/{}",
    "customresourcedefinition/pytorchjobs.training.kubedl.io",
    "serviceaccount/planaria-operator",
    "clusterrole/planaria-operator",
    "clusterrolebinding/planaria-operator",
    "service/planaria-operator",
    "deployment/planaria-operator",
]


def planaria(*words: str, status: int = 0) -> str:
    """Run the command here, since importing a client takes longer than what it does; return what it says."""
    shown, said = io.StringIO(), []
    with contextlib.redirect_stdout(shown), pytest.MonkeyPatch.context() as patch:
        patch.setattr("planaria.kube.main._complain", said.append)
        assert operator(words) == status, said
    return shown.getvalue() if status == 0 else "\n".join(said)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("install",), "--image"),
        (("run", "--kubeconfig", "/nonexistent"), "there is no kubeconfig /nonexistent"),
        (("run", "--port", "x"), "argument --port: expected a port from 0 to 65535"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(words: tuple[str, ...], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, PLANARIA, "operator", *words],
        env=clean_environment("KUBE"),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("install", "--image", IMAGE), ("uninstall",)])
def test_ctrl_c_ends_a_command_that_waits_at_once_and_quietly(tmp_path: Path, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # it takes connections and never answers
        nobody.settimeout(PATIENCE_S)
        at = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": [context]}
        config |= {"clusters": [{"name": "here", "cluster": {"server": at}}], "users": [{"name": "me", "user": {}}]}
        (tmp_path / "config").write_text(json.dumps(config))
        command = [sys.executable, PLANARIA, "operator", *words, "--kubeconfig", str(tmp_path / "config")]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=clean_environment("KUBE"), text=True, **pipes) as process:
            try:
                with nobody.accept()[0] as connection:
                    assert connection.recv(1)
                    process.send_signal(signal.SIGINT)
                    said = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
    assert (process.returncode, *said) == (130, "", "")


def test_a_reader_that_has_read_enough_of_a_dry_run_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        words = [sys.executable, PLANARIA, "operator", "install", "--image", IMAGE, "--dry-run"]
        done = subprocess.run(
            words, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=100, env=clean_environment("KUBE")
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture(scope="module")
def namespace(kube_api: Cluster) -> Iterator[str]:
    """Where an operator is installed; nobody runs its Deployment here."""
    name = f"ops-{secrets.token_hex(4)}"
    flags = ("--namespace", name, "--kubeconfig", kube_api.kubeconfig)
    planaria("install", "--image", IMAGE, "--no-wait", *flags)
    yield name
    told = planaria("uninstall", "--json", *flags).splitlines()
    results = {line["object"]: line["result"] for line in map(json.loads, told)}
    assert results["deployment/planaria-operator"] == "deleted"
    assert results["customresourcedefinition/pytorchjobs.training.kubedl.io"] == "kept"


def test_the_same_installation_again_changes_nothing_and_another_changes_what_is_different(
    kube_api: Cluster, namespace: str
) -> None:
    flags = ("--namespace", namespace, "--kubeconfig", kube_api.kubeconfig, "--no-wait")
    again = planaria("install", "--image", IMAGE, *flags).splitlines()
    assert again == [f"{name.format(namespace)} unchanged" for name in WHOLE]
    changed = planaria("install", "--image", f"{IMAGE}0", "--json", *flags).splitlines()
    assert [json.loads(line)["result"] for line in changed] == ["unchanged"] * 6 + ["configured"]


def test_what_a_dry_run_prints_is_what_a_server_takes(kube_api: Cluster, namespace: str) -> None:
    text = planaria("install", "--image", IMAGE, "--namespace", namespace, "--dry-run")
    answers = kube_api.kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    assert len(answers.splitlines()) == len(WHOLE)


def test_an_installation_that_does_not_become_ready_says_how_far_it_got(kube_api: Cluster, namespace: str) -> None:
    flags = ("--namespace", namespace, "--kubeconfig", kube_api.kubeconfig, "--timeout", "1")
    told = planaria("install", "--image", IMAGE, *flags, status=69)
    assert "deployment/planaria-operator is not ready after 1 s: waiting for the cluster to see the Deployment" in told


def kubeconfig_of(cluster: Cluster, account: str, namespace: str, path: Path, shown: Iterable[str]) -> str:
    """Write a kubeconfig with which one acts as a service account, once that is shown what is at some paths."""
    client = cluster.client_of(account, namespace)
    wait_until(lambda: all(map(client.may, shown)), "the API server has heard of its roles")
    found: dict[str, Any] = json.loads(Path(cluster.kubeconfig).read_text())
    found["users"] = [{"name": "test", "user": {"token": cluster.token(account, namespace)}}]
    path.write_text(json.dumps(found))
    return str(path)


def test_an_operator_with_no_other_permissions_brings_a_job_to_its_end(
    kube_api: Cluster, rig: Rig, namespace: str, tmp_path: Path
) -> None:
    own = kubeconfig_of(kube_api, "planaria-operator", namespace, tmp_path / "kubeconfig", [f"{JOBS}/pytorchjobs"])
    with rig.stage("quick", room=8, speed=lambda n: 100.0 * n) as stage, rig.operator(stage, kubeconfig=own):
        rig.call(rig.api.create(quick(stage.namespace, cleanPodPolicy="All", ttlSecondsAfterFinished=1)))
        rig.wait_for(stage, "it has three workers", lambda _: stage.most == 3)
        rig.call(rig.player.finish(stage))
        wait_until(lambda: not rig.call(rig.api.list(POD, stage.namespace)).items, "its pods are gone", between_s=0.1)
        jobs = f"{JOBS}/namespaces/{stage.namespace}/pytorchjobs"
        wait_until(lambda: not kube_api.client.get(jobs)["items"], "its time is over", between_s=0.1)
        told = kube_api.client.get(f"/api/v1/namespaces/{stage.namespace}/events")["items"]
        assert "JobSucceeded" in {event["reason"] for event in told}
        assert not [line for line in rig.said if FORBIDDEN.search(line)]


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("update", "pytorchjobs"),
        ("patch", "pods"),
        ("delete", "nodes"),
        ("create", "deployments"),
    ],
)
def test_an_operator_may_not_do_what_it_has_no_use_for(kube_api: Cluster, namespace: str, verb: str, what: str) -> None:
    account = f"system:serviceaccount:{namespace}:planaria-operator"
    done = kube_api.try_kubectl("auth", "can-i", verb, what, "--as", account, "--all-namespaces")
    assert done.stdout.strip() == "no"


def test_an_operator_of_two_namespaces_has_roles_there_alone_and_leaves_the_jobs_of_others_alone(
    kube_api: Cluster, rig: Rig, tmp_path: Path
) -> None:
    home = f"ops-{secrets.token_hex(4)}"
    with rig.stage("quick") as one, rig.stage("quick") as two, rig.stage("quick") as outside:
        mine = [f"--jobs-in={stage.namespace}" for stage in (one, two)]
        flags = (*mine, "--namespace", home, "--kubeconfig", kube_api.kubeconfig)
        told = planaria("install", "--image", IMAGE, "--no-wait", *flags)
        assert "cluster" not in told
        found = kube_api.client.get(f"/apis/apps/v1/namespaces/{home}/deployments/planaria-operator")
        words = found["spec"]["template"]["spec"]["containers"][0]["command"][1:]
        shown = [f"{JOBS}/namespaces/{stage.namespace}/pytorchjobs" for stage in (one, two)]
        shown.append(f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/planaria-operator")
        own = kubeconfig_of(kube_api, "planaria-operator", home, tmp_path / "kubeconfig", shown)
        run = [*words, "--port=0", "--host=127.0.0.1", f"--lease={home}/planaria-operator", "--kubeconfig", own]
        for stage in (outside, one, two):
            rig.call(rig.api.create(quick(stage.namespace)))
        with (tmp_path / "said").open("w+") as said:
            operating = subprocess.Popen([sys.executable, PLANARIA, *run], env=clean_environment("KUBE"), stderr=said)
            try:
                for stage in (one, two):
                    rig.wait_for(stage, "its worker runs", lambda _, stage=stage: stage.most)
            finally:
                operating.terminate()
                status = operating.wait(PATIENCE_S)
            said.seek(0)
            lines = said.read().splitlines()
        assert status == 0
        assert [line for line in lines if FORBIDDEN.search(line) or "refused" in line or "Traceback" in line] == [
            line for line in lines if "going on without a view of nodes" in line
        ]
        assert "status" not in rig.job(outside)
        assert not rig.call(rig.api.list(POD, outside.namespace)).items
        removed = planaria("uninstall", *flags).splitlines()
        assert removed.count("role/planaria-operator deleted") == 2
        assert "role/planaria-operator-lease deleted" in removed
