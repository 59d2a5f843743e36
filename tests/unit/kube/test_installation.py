from __future__ import annotations

from typing import Any

from planaria.base.value import replace
from planaria.kube.crd import definition
from planaria.kube.install import rollout
from planaria.kube.installation import RULES, Install, names, objects
from planaria.kube.model import Create
from planaria.kube.objects import beside
from planaria.kube.resources import KINDS
from planaria.kube.seen import JobSeen
from planaria.kube.spec import spec_of

CHOSEN = Install("registry.example.com/planaria:1", "ops", 3, "Always", ("--tasks=2",))


def by_kind() -> dict[str, Any]:
    return {obj["kind"]: obj for obj in objects(CHOSEN, definition())}


def test_everything_is_applied_in_an_order_that_works() -> None:
    made = objects(CHOSEN, definition())
    assert names(made) == [
        "namespace/ops",
        "customresourcedefinition/pytorchjobs.training.kubedl.io",
        "serviceaccount/planaria-operator",
        "clusterrole/planaria-operator",
        "clusterrolebinding/planaria-operator",
        "service/planaria-operator",
        "deployment/planaria-operator",
    ]
    for obj in made:
        kind = KINDS[obj["kind"]]
        assert obj["apiVersion"] == kind.api_version
        assert (obj["metadata"].get("namespace") == "ops") == (kind.is_namespaced)


def test_what_was_chosen_is_in_the_deployment() -> None:
    spec = by_kind()["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], container["image"], container["imagePullPolicy"]) == (3, CHOSEN.image, "Always")
    assert container["command"] == ["planaria", "operator", "run", "--port=8080", "--tasks=2"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert by_kind()["Service"]["spec"]["selector"] == spec["selector"]["matchLabels"]


def test_the_operator_may_not_read_secrets_write_specs_or_do_anything_by_a_star() -> None:
    for rule in by_kind()["ClusterRole"]["rules"]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        if "secrets" in rule["resources"]:
            assert rule["verbs"] == ["create"]
        if "pytorchjobs" in rule["resources"]:
            assert not {"update", "patch", "create"} & set(rule["verbs"])
    assert len({(group, name) for group, found, _, _ in RULES for name in found}) == sum(len(row[1]) for row in RULES)


def test_an_operator_of_a_few_namespaces_has_a_role_in_each_and_none_of_the_cluster() -> None:
    made = objects(replace(CHOSEN, jobs_in=("vision", "speech", "vision")), definition())
    granted = [obj for obj in made if obj["apiVersion"].startswith("rbac.")]
    assert [(obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in granted] == [
        ("Role", "ops", "planaria-operator-lease"),
        ("RoleBinding", "ops", "planaria-operator-lease"),
        ("Role", "vision", "planaria-operator"),
        ("RoleBinding", "vision", "planaria-operator"),
        ("Role", "speech", "planaria-operator"),
        ("RoleBinding", "speech", "planaria-operator"),
    ]
    account = {"kind": "ServiceAccount", "name": "planaria-operator", "namespace": "ops"}
    for role, binding in zip(granted[::2], granted[1::2], strict=True):
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [account]
        assert all("nodes" not in rule["resources"] for rule in role["rules"])
    assert len(granted[2]["rules"]) == len(RULES) - 1
    assert granted[0]["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    ]
    (container,) = made[-1]["spec"]["template"]["spec"]["containers"]
    assert container["command"][3:] == ["--port=8080", "--namespace=vision", "--namespace=speech", "--tasks=2"]


def test_the_operator_holds_everything_that_it_hands_on_to_agents() -> None:
    """Kubernetes refuses a Role that gives more than its maker has."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    spec = {
        "enableElastic": True,
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}},
    }
    job = JobSeen("j", "n", "u", 1, False, spec, {})
    made = beside(job, spec_of("j", spec), "token")
    (role,) = (body for body in made if body["kind"] == "Role")
    held = {(group, name, verb) for group, found, verbs, _ in RULES for name in found for verb in verbs}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            assert {(group, name, verb) for name in rule["resources"] for verb in rule["verbs"]} <= held
    for body in made:
        kind = KINDS[Create(body["kind"], body["metadata"]["name"], body).kind]
        assert (kind.group, kind.plural, "create") in held


def test_a_rollout_is_done_when_all_replicas_are_new_and_ready() -> None:
    spec, meta = {"replicas": 2}, {"generation": 3}
    status = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    assert rollout({"spec": spec, "metadata": meta, "status": status})[0]
    for less in ({"observedGeneration": 2}, {"readyReplicas": 1}, {"updatedReplicas": 1}, {"replicas": 3}):
        assert not rollout({"spec": spec, "metadata": meta, "status": status | less})[0]
    assert rollout({"spec": spec, "metadata": meta}) == (False, "waiting for the cluster to see the Deployment")
