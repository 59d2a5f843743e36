"""The operator on a real API server: what becomes of jobs. Kubelets, scheduler and agents are played (`kube_player`)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from operator_rig import Rig
from pytorchjobs import quick, resnet
from waiting import wait_until

from planaria.kube.resources import (
    CONFIG_MAP,
    JOB,
    LEASE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)

if TYPE_CHECKING:
    from kube_cluster import Cluster
    from kube_player import Stage


EVERYTHING = (POD, SERVICE, CONFIG_MAP, SECRET, LEASE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT)
SCALE = "/apis/training.kubedl.io/v1alpha1/namespaces/{}/pytorchjobs"
SUSPEND = '--type=merge -p={{"spec":{{"suspend":{}}}}}'
HASTY = {"warmUpSamples": 0, "windowSamples": 2}  # the tutorial's own job shows the defaults


def linear(workers: int) -> float:
    return 100.0 * workers


def no_gain(workers: int) -> float:
    return 100.0 * min(workers, 2)


def names(rig: Rig, stage: Stage, kind: Any) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in rig.call(rig.api.list(kind, stage.namespace)).items)


def condition(status: dict[str, Any]) -> str:
    true = [one["type"] for one in status.get("conditions", ()) if one["status"] == "True"]
    return true[-1] if true else ""


def block(text: str) -> dict[str, str]:
    """Return the lines of `kubectl describe` below Elastic Scaling."""
    found = re.search(r"^  Elastic Scaling:\n    Worker:\n((?:      .*\n)+)", text, re.MULTILINE)
    assert found is not None, text
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in found[1].splitlines())}


def test_the_tutorials_job_runs_and_grows_from_one_to_two_to_three_and_never_to_four(
    kube_api: Cluster, rig: Rig
) -> None:
    with rig.stage("resnet", room=8, speed=linear) as stage, rig.operator(stage):
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(resnet(stage.namespace)))
        rig.wait_for(stage, "it runs", lambda status: condition(status) == "Running")
        seen: list[int] = []

        def is_at_the_end(status: dict[str, Any]) -> bool:
            worker = status.get("elasticScaling", {}).get("Worker", {})
            if worker.get("currentReplicas") not in (None, *seen[-1:]):
                seen.append(worker["currentReplicas"])
            return bool(worker.get("elasticCondition") == "ReachMaxReplicas")

        rig.wait_for(stage, "it has three workers", is_at_the_end)
        described = kube_api.kubectl("describe", "pytorchjob", "resnet", "-n", stage.namespace)
        assert seen == [1, 2, 3]
        assert stage.most == 3
        shown = block(described)
        assert (shown["Continue"], shown["Current Replicas"], shown["Last Replicas"]) == ("false", "3", "2")
        assert shown["Elastic Condition"] == "ReachMaxReplicas"
        assert shown["Message"] == "Pytorch job has reached the max replicas"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown["Start Time"])
        assert re.search(r"Message: +PyTorchJob resnet is running\.\n +Reason: +JobRunning\n", described)
        pods = ["resnet-master-0", *(f"resnet-worker-{index}" for index in range(3))]
        assert (names(rig, stage, POD), names(rig, stage, SERVICE)) == (pods, pods)
        assert all(len(uids) == 1 for uids in stage.uids.values()), "a resize restarts nobody"
        assert names(rig, stage, CONFIG_MAP) == ["resnet-progress", "resnet-run"]
        assert names(rig, stage, SECRET) == [f"resnet-token-{rig.job(stage)['metadata']['uid'][:8]}"]
        assert names(rig, stage, LEASE) == ["operator", "resnet-run"]
        assert (names(rig, stage, ROLE), names(rig, stage, SERVICE_ACCOUNT)) == (["resnet-agent"], ["resnet-agent"])


def test_the_web_page_has_the_job_with_its_pods_and_its_round(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("quick", speed=linear) as stage, rig.operator(stage):
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(quick(stage.namespace)))
        rig.wait_for(stage, "it runs", lambda status: condition(status) == "Running")
        assert rig.page("/").startswith(b"<!doctype html>")
        name = f"{stage.namespace}/quick"
        listed = json.loads(rig.page("/api/runs"))
        assert listed["takes_orders"] is False
        assert [one["run_id"] for one in listed["runs"]] == [name]

        def picture() -> Any:
            found = json.loads(rig.page(f"/api/run/{name.replace('/', '%2F')}"))
            return found if found["world_size"] and found["progress"] else None

        found = wait_until(picture, "its pods run and their agents have pushed", between_s=0.1)
        assert found["nodes"][0]["host"].startswith("quick-")
        assert any(one["name"] == "planaria.round.started" for one in found["timeline"])


def test_what_kubectl_noted_in_a_job_is_still_there_after_its_status_was_written(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("resnet", room=8) as stage, rig.operator(stage):
        kube_api.kubectl("apply", "-f", "-", stdin=json.dumps(resnet(stage.namespace)))
        rig.wait_for(stage, "it runs", lambda status: condition(status) == "Running")
        assert "kubectl.kubernetes.io/last-applied-configuration" in rig.job(stage)["metadata"]["annotations"]


def test_without_room_it_returns_with_the_tutorials_message_and_grows_again_when_there_is_some(
    kube_api: Cluster, rig: Rig
) -> None:
    with rig.stage("resnet", room=2, speed=linear) as stage, rig.operator(stage):
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(resnet(stage.namespace, **HASTY)))

        def returned(status: dict[str, Any]) -> dict[str, str] | None:
            if status.get("elasticScaling", {}).get("Worker", {}).get("elasticCondition") != "Stop":
                return None
            found = block(kube_api.kubectl("describe", "pytorchjob", "resnet", "-n", stage.namespace))
            return found if found["Elastic Condition"] == "Stop" else None  # it may have tried again meanwhile

        shown = rig.wait_for(stage, "it has returned to two", returned)
        assert (shown["Continue"], shown["Current Replicas"], shown["Last Replicas"]) == ("false", "2", "3")
        assert shown["Message"] == "There exists pending pods, return to the last replicas"
        wait_until(
            lambda: "resnet-worker-2" not in names(rig, stage, POD), "the pod without a node is gone", between_s=0.1
        )
        rig.call(rig.player.give_room(stage, 3))
        rig.wait_for(
            stage,
            "it has grown",
            lambda status: status["elasticScaling"]["Worker"]["currentReplicas"] == 3 and stage.most == 3,
        )


def test_a_quota_that_is_used_up_brings_the_last_size_back_with_the_servers_words(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("quick", speed=linear) as stage, rig.operator(stage):
        quotas = f"/api/v1/namespaces/{stage.namespace}/resourcequotas"
        kube_api.client.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
        # Controllers would write this, and count pods; the server counts on from there.
        status = {"status": {"hard": {"pods": "2"}, "used": {"pods": "0"}}}
        kube_api.client.patch(f"{quotas}/few/status", status)
        rig.call(rig.api.create(quick(stage.namespace)))

        def stopped(status: dict[str, Any]) -> dict[str, Any] | None:
            worker: dict[str, Any] = status.get("elasticScaling", {}).get("Worker", {})
            return worker if worker.get("elasticCondition") == "Stop" else None

        shown = rig.wait_for(stage, "it has returned", stopped)
        assert (shown["currentReplicas"], shown["lastReplicas"]) == (2, 3)
        assert shown["message"] == (
            "Pod quick-worker-2 was refused: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2, "
            "return to the last replicas"
        )


def test_a_size_that_does_not_pay_is_left_for_the_better_one(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("resnet", room=8, speed=no_gain) as stage, rig.operator(stage):
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(resnet(stage.namespace, **HASTY)))

        def has_enough(status: dict[str, Any]) -> bool:
            return bool(status.get("elasticScaling", {}).get("Worker", {}).get("elasticCondition") == "ReachMaxMetric")

        rig.wait_for(stage, "the gain is gone", has_enough)
        shown = rig.elastic(stage)
        assert (shown["currentReplicas"], shown["lastReplicas"], shown["continue"]) == (2, 3, False)
        assert shown["message"] == "Pytorch job has reached the max metrics"
        wait_until(lambda: len(rig.player.workers(stage)) == 2, "the third is gone", between_s=0.1)


def test_kubectl_scale_begins_the_search_at_another_size_and_kubectl_get_shows_it(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("quick", room=8) as stage, rig.operator(stage):  # nobody pushes: it stays where it is
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(quick(stage.namespace)))
        rig.wait_for(stage, "it runs", lambda status: condition(status) == "Running")
        words = ("pytorchjob", "quick", "-n", stage.namespace)
        kube_api.kubectl("scale", *words, "--current-replicas=1", "--replicas=2")

        def has_two(status: dict[str, Any]) -> bool:
            return bool(status["replicaStatuses"]["Worker"].get("active") == 2)

        rig.wait_for(stage, "it has two workers", has_two)
        job = rig.job(stage)
        assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
        assert (job["status"]["targetReplicas"], job["status"]["scaling"]["reason"]) == (2, "StartChanged")
        titles, row = (line.split() for line in kube_api.kubectl("get", *words, "-o", "wide").splitlines())
        shown = dict(zip(titles, row, strict=True))
        assert shown.pop("AGE")
        found = " ".join(f"{title}={value}" for title, value in shown.items())
        assert found == "NAME=quick STATE=Running WORKERS=2 TARGET=2 SCALING=Start RESTARTS=0"
        scale = json.loads(kube_api.kubectl("get", "--raw", f"{SCALE.format(stage.namespace)}/quick/scale"))
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
        pods = kube_api.kubectl("get", "pods", "-n", stage.namespace, "-l", scale["status"]["selector"], "-o", "name")
        assert pods.split() == ["pod/quick-worker-0", "pod/quick-worker-1"]


def test_a_plain_job_has_the_variables_of_torch_and_can_be_suspended(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("resnet", room=8) as stage, rig.operator(stage):
        job = resnet(stage.namespace)
        del job["spec"]["enableElastic"], job["spec"]["elasticPolicy"]
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(job))
        rig.wait_for(stage, "it runs", lambda status: condition(status) == "Running")
        ranks = {"resnet-master-0": "0", "resnet-worker-0": "1", "resnet-worker-1": "2"}
        for pod in rig.call(rig.api.list(POD, stage.namespace)).items:
            env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
            assert (env["RANK"], env["WORLD_SIZE"]) == (ranks[pod["metadata"]["name"]], "3")
            assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("resnet-master-0", "23456")
        before = {name: list(uids) for name, uids in stage.uids.items()}
        assert before.keys() == ranks.keys()
        kube_api.kubectl("patch", "pytorchjob", "resnet", "-n", stage.namespace, *SUSPEND.format("true").split())
        rig.wait_for(stage, "it is suspended", lambda status: condition(status) == "Suspended")
        wait_until(lambda: names(rig, stage, POD) == [], "its pods are gone", between_s=0.1)
        kube_api.kubectl("patch", "pytorchjob", "resnet", "-n", stage.namespace, *SUSPEND.format("false").split())
        rig.wait_for(stage, "it runs again", lambda status: condition(status) == "Running")
        assert {name: uids[:-1] for name, uids in stage.uids.items()} == before


def test_a_job_ends_when_its_workers_do_and_its_events_tell_the_story(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("quick", room=8, speed=linear) as stage, rig.operator(stage):
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(quick(stage.namespace, cleanPodPolicy="All")))
        rig.wait_for(stage, "it has three workers", lambda _: stage.most == 3)
        rig.call(rig.player.finish(stage))
        rig.wait_for(stage, "it has succeeded", lambda status: condition(status) == "Succeeded")
        wait_until(lambda: names(rig, stage, POD) == [], "its pods are gone", between_s=0.1)
        told = kube_api.kubectl("get", "events", "-n", stage.namespace, "-o", "jsonpath={.items[*].reason}").split()
        assert {"JobRunning", "JobSucceeded"} <= set(told)


INVALID: dict[str, tuple[str, object, str]] = {
    "min > max": ("elasticPolicy.minReplicas", 4, "minReplicas"),
    "an unknown backend": ("elasticPolicy.rdzvBackend", "zookeeper", "rdzvBackend"),
    "a bad pattern": ("elasticPolicy.metric", {"pattern": "Time (?P<time"}, "pattern"),
    "no worker": ("pytorchReplicaSpecs.Worker", None, "spec.pytorchReplicaSpecs.Worker is missing"),
}


@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_spec_is_refused_in_a_sentence_and_nothing_is_made(kube_api: Cluster, rig: Rig, what: str) -> None:
    field, value, words = INVALID[what]
    with rig.stage("resnet") as stage, rig.operator(stage):
        job = resnet(stage.namespace)
        owner, _, name = field.partition(".")
        job["spec"][owner] = {**job["spec"][owner], name: value}
        if value is None:
            del job["spec"][owner][name]
        done = kube_api.try_kubectl("create", "-f", "-", stdin=json.dumps(job))
        if done.returncode == 0:
            rig.wait_for(stage, "it is refused", lambda status: condition(status) == "Invalid")
            assert words in rig.job(stage)["status"]["conditions"][-1]["message"]
        else:
            assert words in done.stderr
        made = [(kind.name, name) for kind in EVERYTHING for name in names(rig, stage, kind)]
        assert [one for one in made if one[1].startswith("resnet")] == []


@pytest.mark.parametrize("name", ["a" * 51, "a.b", "1a"])
def test_a_name_that_cannot_be_part_of_a_host_name_is_refused_at_apply(kube_api: Cluster, rig: Rig, name: str) -> None:
    with rig.stage("resnet") as stage:
        done = kube_api.try_kubectl("create", "-f", "-", stdin=json.dumps(resnet(stage.namespace, name)))
        assert done.returncode != 0
        assert "metadata.name" in done.stderr


def test_a_template_that_is_no_pod_is_told_in_a_sentence_and_can_be_mended(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("quick") as stage, rig.operator(stage):
        job = quick(stage.namespace)
        (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["env"] = {"A": "b"}
        refused = kube_api.try_kubectl("create", "-f", "-", stdin=json.dumps(job))
        assert refused.returncode != 0
        assert "env" in refused.stderr
        container["env"] = None  # as good as none
        container["resources"] = {"limits": {"cpu": 0.5, "memory": "4GB"}}
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(job))
        rig.wait_for(stage, "it says so", lambda status: "CreateRefused" in json.dumps(status.get("conditions")))
        container["resources"] = {"limits": {"cpu": 0.5, "memory": "4G"}}
        kube_api.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        wait_until(lambda: "quick-worker-0" in names(rig, stage, POD), "it is mended", between_s=0.1)


def test_a_template_of_workers_that_is_no_pod_is_mended_by_another_while_the_master_runs(
    kube_api: Cluster, rig: Rig
) -> None:
    with rig.stage("resnet") as stage, rig.operator(stage):
        job = resnet(stage.namespace)
        (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"nvidia.com/gpu": 1, "memory": "4GB"}}
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(job))
        rig.wait_for(stage, "it says so", lambda status: "CreateRefused" in json.dumps(status.get("conditions")))
        wait_until(lambda: "resnet-master-0" in names(rig, stage, POD), "the Master is there", between_s=0.1)
        container["resources"] = {"limits": {"nvidia.com/gpu": 1, "memory": "4G"}}
        kube_api.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        wait_until(lambda: "resnet-worker-0" in names(rig, stage, POD), "it is mended", between_s=0.1)


def test_a_job_with_broken_metrics_hurts_no_other(kube_api: Cluster, rig: Rig) -> None:
    """One has a pattern that never ends, nobody pushes for another and its logs cannot be read: no kubelet runs it."""
    with rig.stage("quick", room=8, speed=linear) as stage, rig.operator(stage):
        endless = {"pattern": "(?P<time>(a+)+)$"}
        slow, broken = quick(stage.namespace, "slow"), quick(stage.namespace, "broken")
        slow["spec"]["elasticPolicy"]["metric"] = endless | {"sample": "a" * 64 + "b"}
        broken["spec"]["elasticPolicy"] |= {"metric": endless, "trialTimeoutSeconds": 2}
        for job in (slow, broken, quick(stage.namespace)):
            kube_api.kubectl("create", "-f", "-", stdin=json.dumps(job))
        rig.wait_for(stage, "it has three workers", lambda status: status.get("targetReplicas") == 3)

        def status_of(name: str) -> dict[str, Any]:
            return rig.call(rig.api.get(JOB, stage.namespace, name)).get("status") or {}  # type: ignore[no-any-return]  # JSON

        wait_until(lambda: condition(status_of("slow")) == "Invalid", "the slow one is refused", between_s=0.1)
        assert "took more than 0.5 s on the sample" in status_of("slow")["conditions"][-1]["message"]
        wait_until(
            lambda: status_of("broken").get("scaling", {}).get("reason") == "MetricTrouble",
            "the broken one says so",
            between_s=0.1,
        )
        shown = status_of("broken")["elasticScaling"]["Worker"]
        assert shown["message"].startswith("Inconclusive: the logs cannot be read: ")
        assert (shown["elasticCondition"], shown["currentReplicas"]) == ("Stop", 1)


def test_what_somebody_else_has_under_a_name_of_ours_is_left_alone(
    kube_api: Cluster, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause_s in ("plan._TAKEN_S", "books._FOREIGN_S"):
        monkeypatch.setattr(f"planaria.kube.{pause_s}", 0.5)
    with rig.stage("quick", room=8, speed=linear) as stage, rig.operator(stage):
        spec = {"clusterIP": "None", "ports": [{"port": 1}]}
        theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "quick-worker-0"}, "spec": spec}
        kube_api.kubectl("create", "-n", stage.namespace, "-f", "-", stdin=json.dumps(theirs))
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(quick(stage.namespace)))
        told = "the Service quick-worker-0 is there and not of this job"
        rig.wait_for(stage, "it says so", lambda status: told in json.dumps(status.get("conditions")))
        assert names(rig, stage, POD) == []
        kube_api.kubectl("delete", "service", "quick-worker-0", "-n", stage.namespace)
        wait_until(lambda: "quick-worker-0" in names(rig, stage, POD), "it goes on", between_s=0.1)


def test_an_object_of_anybodys_that_is_six_times_as_long_in_a_watch_ends_nothing(kube_api: Cluster, rig: Rig) -> None:
    """A ConfigMap has up to 1 MiB; the server escapes a bracket by six letters."""
    label = {"group-name": "training.kubedl.io"}
    with rig.stage("quick", room=8) as stage, rig.operator(stage) as task:
        wait_until(lambda: any("jobs found" in one for one in rig.said), "everything is listed", 60)
        meta = {"name": "loud", "namespace": stage.namespace, "labels": label}
        loud = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "<" * 1_000_000}}
        rig.call(rig.api.create(loud))
        rig.call(rig.api.create(quick(stage.namespace)))
        rig.wait_for(stage, "it runs", lambda status: condition(status) == "Running")
        assert not task.done()
        assert not [one for one in rig.said if "the watch of" in one]


def test_an_api_server_that_goes_away_for_a_moment_costs_no_pod_and_no_evidence(kube_api: Cluster, rig: Rig) -> None:
    with rig.stage("quick", room=2, speed=linear) as stage, rig.operator(stage, lasts_s=60.0) as running:
        kube_api.kubectl("create", "-f", "-", stdin=json.dumps(quick(stage.namespace)))
        rig.wait_for(stage, "it has two workers", lambda _: stage.most == 2)
        kube_api.stop_api()
        kube_api.start_api()
        rig.insist(lambda: rig.player.give_room(stage, 3))
        rig.wait_for(stage, "it has three workers", lambda _: stage.most == 3)
        assert not running.done(), "the Lease lasts longer than that"
        assert len(stage.uids["quick-worker-0"]) == len(stage.uids["quick-worker-1"]) == 1
        assert [figure[0] for figure in rig.job(stage)["status"]["scaling"]["figures"]][:2] == [1, 2]
