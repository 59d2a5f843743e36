from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kubesim.given import Desk, elastic_spec

from planaria.kube import schema
from planaria.kube.crd import definition
from planaria.kube.names import name_problem

Json = dict[str, Any]
[VERSION] = definition()["spec"]["versions"]
WHOLE = VERSION["schema"]["openAPIV3Schema"]


def _nodes(node: Json, path: str = "") -> list[tuple[str, Json]]:
    found = [(path, node)]
    for name, inner in (node.get("properties") or {}).items():
        found += _nodes(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            found += _nodes(node[name], f"{path}[{name}]")
    return found


def test_the_definition_is_of_the_job_that_people_know() -> None:
    spec = definition()["spec"]
    assert definition()["metadata"]["name"] == "pytorchjobs.training.kubedl.io"
    assert (spec["group"], spec["scope"], VERSION["name"]) == ("training.kubedl.io", "Namespaced", "v1alpha1")
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert [column["name"] for column in VERSION["additionalPrinterColumns"]][:2] == ["State", "Workers"]


def test_the_schema_is_structural() -> None:
    for path, node in _nodes(WHOLE):
        assert ("type" in node) != bool(node.get("x-kubernetes-int-or-string")), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert "x-kubernetes-validations" not in node, f"{path}: Kubernetes 1.20 knows none"
        assert node["type"] != "array" or "items" in node if "type" in node else True, path
        assert set(node.get("required", ())) <= set(node.get("properties", ())), path


@pytest.mark.parametrize(
    "name",
    ["resnet", "a", "a-1", "a" * 50, "a" * 51, "a.b", "1a", "-a", "a-", "A", "", "a\n", "a_b", "a--b"],
)
def test_the_server_refuses_at_apply_the_names_that_the_operator_would_refuse(name: str) -> None:
    shape = WHOLE["properties"]["metadata"]["properties"]["name"]
    is_refused = len(name) > shape["maxLength"] or re.search(shape["pattern"].replace("$", r"\Z"), name) is None
    assert is_refused == (name_problem(name) is not None)


def test_every_default_is_a_value_that_is_allowed() -> None:
    defaults = [(path, node) for path, node in _nodes(WHOLE) if "default" in node]
    assert defaults
    for path, node in defaults:
        assert schema.problems(node, node["default"], path) == []


def test_every_field_of_the_spec_is_described() -> None:
    silent = {path for path, node in _nodes(WHOLE["properties"]["spec"]) if not node.get("description")}
    within = (".template.", "[items]")
    assert {path for path in silent if not any(part in path for part in within)} == {
        "",
        ".pytorchReplicaSpecs[additionalProperties]",
    }


def test_what_is_written_as_status_is_in_the_schema_so_that_no_server_prunes_it() -> None:
    desk = Desk(elastic_spec(master=True, backoffLimit=0))
    desk.look()
    desk.run_all().look()
    desk.grow({1: 10.0, 2: 19.0, 3: 19.0})
    desk.end(0, 1)
    desk.look()
    shape = WHOLE["properties"]["status"]
    assert _unknown(shape, json.loads(json.dumps(desk.status)), "status") == []
    assert schema.problems(shape, desk.status, "status") == []


def _unknown(node: Json, value: Any, path: str) -> list[str]:
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        return [problem for item in value for problem in _unknown(node["items"], item, path)]
    if not isinstance(value, dict):
        return []
    found = []
    for name, item in value.items():
        inner = node.get("properties", {}).get(name, node.get("additionalProperties"))
        found += [f"{path}.{name}"] if inner is None else _unknown(inner, item, f"{path}.{name}")
    return found


def test_a_job_as_people_have_it_fits() -> None:
    spec = elastic_spec(
        master=True, policy={"rdzvBackend": "etcd", "rdzvEndpoint": "etcd-service:2379", "nProcPerNode": 1}
    )
    spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = [
        {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "pvc-torch-checkpoint"}}
    ]
    assert schema.problems(WHOLE["properties"]["spec"], spec, "spec") == []
    assert _unknown(WHOLE["properties"]["spec"], spec, "spec") == []
