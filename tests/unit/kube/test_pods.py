from __future__ import annotations

import copy
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
from kubesim.given import Desk, elastic_spec, plain_spec, template

from planaria.kube.model import Create
from planaria.kube.names import MASTER, WORKER
from planaria.kube.objects import beside
from planaria.kube.pods import asks_agent, has_our_agent, pod, service
from planaria.kube.seen import JobSeen
from planaria.kube.spec import spec_of

Json = dict[str, Any]


def _job(spec: Json) -> JobSeen:
    return JobSeen("resnet", "elastic-job", "uid-7", 1, False, spec, {})


def _pod(spec: Json, kind: str = WORKER, index: int = 0) -> Json:
    return pod(_job(spec), spec_of("resnet", spec), kind, index)


def _env(body: Json) -> dict[str, object]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in body["spec"]["containers"][0]["env"]}


ETCD = {"rdzvBackend": "etcd", "rdzvEndpoint": "etcd-service:2379", "nProcPerNode": 1}


def test_a_pod_bears_its_place_its_owner_and_its_name() -> None:
    meta = _pod(elastic_spec(), index=2)["metadata"]
    assert (meta["name"], meta["namespace"]) == ("resnet-worker-2", "elastic-job")
    assert meta["labels"] == {
        "group-name": "training.kubedl.io",
        "job-name": "resnet",
        "replica-type": "worker",
        "replica-index": "2",
    }
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "training.kubedl.io/v1alpha1",
            "kind": "PyTorchJob",
            "name": "resnet",
            "uid": "uid-7",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert _pod(elastic_spec(master=True), MASTER)["metadata"]["labels"]["job-role"] == "master"


def test_a_user_s_labels_and_annotations_stay_but_for_those_that_name_the_place() -> None:
    spec = elastic_spec()
    metadata = {"labels": {"team": "vision", "job-name": "other"}, "annotations": {"note": "x"}}
    spec["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = metadata
    meta = _pod(spec)["metadata"]
    assert (meta["labels"]["team"], meta["labels"]["job-name"], meta["annotations"]) == (
        "vision",
        "resnet",
        {"note": "x"},
    )


def test_elastic_workers_hear_how_to_meet_and_nothing_that_changes_with_their_number() -> None:
    env = _env(_pod(elastic_spec(policy=ETCD)))
    assert env == {
        "PET_NNODES": "1:3",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_ID": "uid-7",
        "PET_RDZV_BACKEND": "etcd",
        "PET_RDZV_ENDPOINT": "etcd-service:2379",
        "PET_LOCAL_ADDR": {"fieldRef": {"fieldPath": "status.podIP"}},
        "PLANARIA_POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "PLANARIA_TOKEN": {"secretKeyRef": {"name": "resnet-token-uid-7", "key": "token"}},
        "PLANARIA_KUBE_PROGRESS": "resnet-progress",
        "PYTHONUNBUFFERED": "1",
    }


def test_the_pods_of_every_size_are_the_same() -> None:
    small, large = elastic_spec(start=1), elastic_spec(start=3)
    assert _pod(small) == _pod(large)


def test_workers_meet_in_the_cluster_itself_unless_told_otherwise() -> None:
    env = _env(_pod(elastic_spec()))
    assert (env["PET_RDZV_BACKEND"], env["PET_RDZV_ENDPOINT"]) == ("kubernetes", "resnet-run")


def test_a_master_beside_elastic_workers_is_outside_their_world() -> None:
    body = _pod(elastic_spec(master=True, policy=ETCD), MASTER)
    env = _env(body)
    assert not any(name.startswith(("PET_", "PLANARIA_")) for name in env)
    assert (env["WORLD_SIZE"], env["RANK"], env["MASTER_ADDR"]) == ("1", "0", "localhost")
    assert "serviceAccountName" not in body["spec"]


def test_a_master_that_trains_is_one_more_node() -> None:
    spec = elastic_spec(master=True, policy={"masterTrains": True})
    assert _env(_pod(spec, MASTER))["PET_NNODES"] == "2:4"
    assert _env(_pod(spec))["PET_NNODES"] == "2:4"


@pytest.mark.parametrize(
    ("spec", "kind", "index", "rank", "first"),
    [
        (plain_spec(2), MASTER, 0, "0", "resnet-master-0"),
        (plain_spec(2), WORKER, 1, "2", "resnet-master-0"),
        (plain_spec(3, master=False), WORKER, 0, "0", "resnet-worker-0"),
        (plain_spec(3, master=False), WORKER, 2, "2", "resnet-worker-0"),
    ],
)
def test_pods_of_a_plain_job_have_ranks(spec: Json, kind: str, index: int, rank: str, first: str) -> None:
    assert _env(_pod(spec, kind, index)) == {
        "MASTER_ADDR": first,
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "3",
        "RANK": rank,
        "PYTHONUNBUFFERED": "1",
    }


def test_arguments_and_commands_are_never_touched() -> None:
    args = ["/workspace/examples/imagenet/main.py", "--arch=resnet50", "/workspace/data/tiny-imagenet-200"]
    container = _pod(elastic_spec(policy=ETCD, worker={"template": template(args=args)}))["spec"]["containers"][0]
    assert container["args"] == args
    assert "command" not in container


def test_a_user_s_own_variables_win_and_come_last_so_that_they_may_refer_to_ours() -> None:
    own = [{"name": "PET_NNODES", "value": "2:2"}, {"name": "WHERE", "value": "$(PET_RDZV_ENDPOINT)"}]
    env = _pod(elastic_spec(worker={"template": template(env=own)}))["spec"]["containers"][0]["env"]
    assert [item for item in env if item["name"] == "PET_NNODES"] == own[:1]
    assert env[-2:] == own


def test_the_template_itself_is_not_changed() -> None:
    spec = elastic_spec()
    before = copy.deepcopy(spec)
    _pod(spec)
    assert spec == before


def test_members_get_shared_memory_and_time_to_drain_unless_the_user_said_so() -> None:
    inner = _pod(elastic_spec(policy=ETCD))["spec"]
    assert inner["terminationGracePeriodSeconds"] == 60
    assert inner["volumes"] == [{"name": "planaria-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    assert inner["containers"][0]["volumeMounts"] == [{"name": "planaria-shm", "mountPath": "/dev/shm"}]
    assert inner["serviceAccountName"] == "resnet-agent"
    own = template(volumeMounts=[{"name": "mine", "mountPath": "/dev/shm/"}])
    own["spec"] |= {"volumes": [{"name": "mine", "emptyDir": {}}], "terminationGracePeriodSeconds": 5}
    own["spec"]["serviceAccountName"] = "trainer"
    inner = _pod(elastic_spec(worker={"template": own}))["spec"]
    assert (inner["terminationGracePeriodSeconds"], len(inner["volumes"]), inner["serviceAccountName"]) == (
        5,
        1,
        "trainer",
    )


@pytest.mark.parametrize(
    ("pod_s", "variables", "told"),
    [
        (None, [], None),  # 60, of which the agent gives workers its usual 30
        (0, [], "0"),
        (20, [], "10"),
        (59, [], "29"),
        (60, [], "30"),
        (600, [], "570"),
        (600, ["PET_SHUTDOWN_TIMEOUT"], "5"),
        (600, ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"], None),
        ("soon", [], None),  # the API server has the words for that
    ],
)
def test_workers_of_a_pod_with_a_grace_of_its_own_have_less_than_the_pod_unless_the_user_said_so(
    pod_s: object, variables: list[str], told: str | None
) -> None:
    own = template(env=[{"name": name, "value": "5"} for name in variables])
    own["spec"]["terminationGracePeriodSeconds"] = pod_s
    body = _pod(elastic_spec(worker={"template": own}))
    assert body["spec"]["terminationGracePeriodSeconds"] == (60 if pod_s is None else pod_s)
    assert _env(body).get("PET_SHUTDOWN_TIMEOUT") == told


def test_a_plain_pod_is_left_as_it_is_but_for_names_variables_and_policy() -> None:
    inner = _pod(plain_spec())["spec"]
    assert inner.keys() == {"containers", "restartPolicy", "hostname"}


@pytest.mark.parametrize(
    ("policy", "command", "asked"),
    [
        ({}, None, True),
        (ETCD, None, False),
        (ETCD, ["planaria", "run"], True),
        (ETCD, ["tini", "--", "/opt/planaria/bin/planaria-entry"], True),
        (ETCD, ["torchrun", "--nnodes=1:3"], False),
    ],
)
def test_the_kubelet_asks_the_agent_only_where_it_is_surely_ours(
    policy: Json, command: list[str] | None, asked: bool
) -> None:
    own = template() if command is None else template(command=command)
    container = _pod(elastic_spec(policy=policy, worker={"template": own}))["spec"]["containers"][0]
    assert ("livenessProbe" in container) is asked
    assert any(item["name"] == "PET_HEALTH_CHECK_PORT" for item in container["env"]) is asked
    if asked:
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8080}
        (host,) = (item for item in container["env"] if item["name"] == "PET_HEALTH_CHECK_HOST")
        assert host["valueFrom"]["fieldRef"] == {"fieldPath": "status.podIP"}, "of IPv6 clusters, too, and no other"


@pytest.mark.parametrize(
    "own",
    [
        template(livenessProbe={"exec": {"command": ["true"]}}),
        template(env=[{"name": "TORCHELASTIC_HEALTH_CHECK_PORT", "value": "9"}]),
    ],
)
def test_a_user_s_own_probes_and_port_stay(own: Json) -> None:
    container = _pod(elastic_spec(worker={"template": own}))["spec"]["containers"][0]
    assert "readinessProbe" not in container


ASKED = template(
    env=[{"name": "PET_HEALTH_CHECK_PORT", "value": "9000"}],
    ports=[{"name": "health", "containerPort": 9000}],
    readinessProbe={"httpGet": {"path": "/readyz", "port": "health"}},
)


@pytest.mark.parametrize(
    ("changes", "is_ours"),
    [
        ({}, True),
        ({"readinessProbe": {"httpGet": {"path": "/readyz", "port": 9000}}}, True),
        ({"readinessProbe": {"httpGet": {"path": "/readyz", "port": 9001}}}, False),
        ({"readinessProbe": {"httpGet": {"path": "/healthz", "port": "health"}}}, False),
        ({"readinessProbe": None}, False),
        ({"env": []}, False),
    ],
)
def test_a_probe_that_asks_our_agent_tells_that_it_is_ours(changes: Json, is_ours: bool) -> None:
    own = copy.deepcopy(ASKED)
    own["spec"]["containers"][0] |= changes
    elastic = spec_of("resnet", elastic_spec(policy=ETCD, worker={"template": own})).elastic
    assert elastic is not None
    assert has_our_agent(elastic, own["spec"]["containers"][0]) is is_ours
    assert asks_agent(elastic, own["spec"]) is is_ours
    container = _pod(elastic_spec(policy=ETCD, worker={"template": own}))["spec"]["containers"][0]
    assert container.get("readinessProbe") == own["spec"]["containers"][0].get("readinessProbe")


def test_the_container_that_trains_is_the_one_called_so_or_the_first() -> None:
    two = {"spec": {"containers": [{"name": "side", "image": "s"}, {"name": "pytorch", "image": "t"}]}}
    containers = _pod(elastic_spec(worker={"template": two}))["spec"]["containers"]
    assert ["env" in container for container in containers] == [False, True]


@pytest.mark.parametrize(
    ("restart", "kind", "kubelet"),
    [
        ("Always", WORKER, "OnFailure"),
        ("OnFailure", WORKER, "OnFailure"),
        ("Never", WORKER, "Never"),
        ("ExitCode", WORKER, "Never"),
        ("Always", MASTER, "Always"),
        ("ExitCode", MASTER, "Never"),
    ],
)
def test_the_kubelet_restarts_in_place_what_may_be_restarted(restart: str, kind: str, kubelet: str) -> None:
    spec = elastic_spec(master=True)
    spec["pytorchReplicaSpecs"][kind]["restartPolicy"] = restart
    assert _pod(spec, kind)["spec"]["restartPolicy"] == kubelet


def test_every_replica_has_a_headless_service_of_its_name() -> None:
    body = service(_job(elastic_spec()), WORKER, 1)
    assert body["metadata"]["name"] == "resnet-worker-1"
    assert body["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "ports": [{"name": "pytorchjob-port", "port": 23456, "protocol": "TCP", "targetPort": 23456}],
        "selector": {
            "group-name": "training.kubedl.io",
            "job-name": "resnet",
            "replica-type": "worker",
            "replica-index": "1",
        },
    }


def test_pods_may_change_their_own_few_objects_and_create_or_delete_nothing() -> None:
    spec = elastic_spec()
    made = {
        (body["kind"], body["metadata"]["name"]): body for body in beside(_job(spec), spec_of("resnet", spec), "secret")
    }
    rules = made["Role", "resnet-agent"]["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch", "update", "patch"}
    assert {name for rule in rules for name in rule["resourceNames"]} == {"resnet-run", "resnet-progress"}
    assert {resource for rule in rules for resource in rule["resources"]} == {"configmaps", "leases"}
    subjects = made["RoleBinding", "resnet-agent"]["subjects"]
    assert subjects == [{"kind": "ServiceAccount", "name": "resnet-agent", "namespace": "elastic-job"}]


@pytest.mark.parametrize(
    "named",
    [
        {"serviceAccountName": "trainer"},
        {"serviceAccount": "trainer"},
        {"serviceAccountName": "trainer", "serviceAccount": "b"},
    ],
)
def test_a_service_account_of_the_user_gets_the_rights_instead_of_ours(named: Json) -> None:
    own = template()
    own["spec"] |= named
    spec = elastic_spec(worker={"template": own})
    assert _pod(spec)["spec"]["serviceAccountName"] == "trainer"
    bodies = beside(_job(spec), spec_of("resnet", spec), "secret")
    assert "ServiceAccount" not in {body["kind"] for body in bodies}
    [binding] = [body for body in bodies if body["kind"] == "RoleBinding"]
    assert [subject["name"] for subject in binding["subjects"]] == ["trainer"]


def test_a_service_account_with_no_name_is_ours() -> None:
    own = template()
    own["spec"] |= {"serviceAccountName": None, "serviceAccount": ""}
    assert _pod(elastic_spec(worker={"template": own}))["spec"]["serviceAccountName"] == "resnet-agent"


def test_a_plain_job_needs_nothing_beside() -> None:
    assert beside(_job(plain_spec()), spec_of("resnet", plain_spec()), "secret") == []


SCHEMA_CONTENTS = cache(kubernetes_validate.utils.schema_contents)  # a megabyte of definitions


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_everything_that_is_made_is_what_kubernetes_knows(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", SCHEMA_CONTENTS)
    trains = elastic_spec(master=True, policy={"masterTrains": True})
    for spec in (elastic_spec(master=True, policy=ETCD), trains, plain_spec(1)):
        for action in Desk(spec).look().actions:
            assert isinstance(action, Create)
            kubernetes_validate.validate(action.body, version, strict=True)
