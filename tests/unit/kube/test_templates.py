"""Templates are their owners': whatever is in them, a decision comes out, and mistakes are told in a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubesim.given import NAME, UID, Desk, elastic_spec, plain_spec, template

from planaria.kube import capacity
from planaria.kube.model import Now
from planaria.kube.plan import decide
from planaria.kube.seen import JobSeen, World

Json = dict[str, Any]
FREE = {"nodes": 1.0, "cpu": 4.0, "memory": 1e9}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _object(*, must: dict[str, st.SearchStrategy[Any]] | None = None, **may: st.SearchStrategy[Any]) -> Any:
    """An object with these fields, each of them as it should be or anything else."""
    return st.fixed_dictionaries(must or {}, optional=may)


def _list(item: st.SearchStrategy[Any]) -> Any:
    return st.lists(item, max_size=2) | anything


word = st.just("a") | anything
amounts = _object(cpu=st.sampled_from(["1", "4GB", "nan", "1e999", 10**400]) | anything, memory=anything) | anything
container = _object(
    must={"name": st.just("pytorch")},
    command=_list(st.just("planaria") | anything),
    env=_list(_object(name=word, value=word) | anything),
    volumeMounts=_list(_object(name=word, mountPath=word) | anything),
    resources=_object(limits=amounts, requests=amounts) | anything,
    ports=_list(_object(name=word, containerPort=word) | anything),
    readinessProbe=_object(httpGet=_object(path=st.just("/readyz") | anything, port=word) | anything) | anything,
)
pod = _object(
    must={"containers": st.lists(container, min_size=1, max_size=2) | st.lists(container | anything, max_size=2)},
    volumes=_list(anything),
    serviceAccountName=word,
    serviceAccount=word,
    hostNetwork=anything,
    hostname=anything,
)
metadata = _object(labels=_object(a=word) | anything, annotations=_object(a=word) | anything) | anything
templates = _object(must={"spec": pod}, metadata=metadata) | anything


@pytest.mark.parametrize("spec", [elastic_spec(master=True), plain_spec(1)], ids=["elastic", "plain"])
@settings(max_examples=150, deadline=None)
@given(given_template=templates)
def test_a_decision_comes_out_whatever_a_template_holds(spec: Json, given_template: object) -> None:
    worker = {**spec["pytorchReplicaSpecs"]["Worker"], "template": given_template}
    job = {**spec, "pytorchReplicaSpecs": {**spec["pytorchReplicaSpecs"], "Worker": worker}}
    decision = decide(JobSeen(NAME, "n", UID, 1, False, job, {}), World(free=FREE), Now(1000.0, "token"))
    assert decision.status["state"] in ("Created", "Invalid")
    assert (decision.status["state"] == "Invalid") == (decision.actions == ())


def _container(**fields: object) -> Callable[[], Json]:
    return lambda: template(**fields)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (_container(env={"A": "b"}), "spec.containers[0].env expects a list, got {'A': 'b'}"),
        (_container(env=["A=b"]), "spec.containers[0].env[0] expects an object, got 'A=b'"),
        (_container(resources=[1]), "spec.containers[0].resources expects an object, got [1]"),
        (_container(volumeMounts={"name": "x"}), "spec.containers[0].volumeMounts expects a list, got {'name': 'x'}"),
        (
            _container(volumeMounts=[{"mountPath": 1}]),
            "spec.containers[0].volumeMounts[0].mountPath expects a string, got 1",
        ),
        (_container(command="planaria run x"), "spec.containers[0].command expects a list, got 'planaria run x'"),
        (lambda: template() | {"metadata": {"labels": ["a"]}}, "metadata.labels expects an object, got ['a']"),
    ],
)
@pytest.mark.parametrize("make", [elastic_spec, plain_spec])
def test_a_template_of_a_wrong_shape_is_told_in_one_sentence(
    make: Callable[[], Json], made: Callable[[], Json], sentence: str
) -> None:
    spec = make()
    spec["pytorchReplicaSpecs"]["Worker"]["template"] = made()
    desk = Desk(spec)
    assert desk.look().actions == ()
    assert (desk.state, desk.reason) == ("Invalid", "InvalidSpec")
    assert desk.message == f"spec.pytorchReplicaSpecs.Worker.template.{sentence}"


@pytest.mark.parametrize("amount", ["4GB", "1 GiB", "one", None, True, ["1"], "", "1e999"])
def test_what_is_no_quantity_is_left_to_the_api_server_which_refuses_the_pod(amount: object) -> None:
    spec = elastic_spec(worker={"template": template(resources={"limits": {"memory": amount}})})
    desk = Desk(spec)
    desk.world["free"] = FREE
    desk.look()
    assert desk.created == ["resnet-worker-0"]
    assert capacity.quantity(amount) is None


@pytest.mark.parametrize(
    ("amount", "number"),
    [("1", 1.0), (2, 2.0), (0.5, 0.5), ("500m", 0.5), ("1.5Gi", 1.5 * 2**30), ("1e3", 1e3), ("1E", 1e18), (".5k", 500)],
)
def test_quantities_are_read_as_the_api_server_reads_them(amount: object, number: float) -> None:
    assert capacity.quantity(amount) == pytest.approx(number)


def test_fields_with_nothing_in_them_are_as_good_as_none() -> None:
    nothing = template(env=None, command=None, resources=None, volumeMounts=None, ports=None, readinessProbe=None)
    nothing = {"metadata": None, "spec": {**nothing["spec"], "volumes": None, "serviceAccountName": None}}
    desk = Desk(elastic_spec(worker={"template": nothing}))
    desk.look()
    assert desk.created == ["resnet-worker-0"]


def test_a_template_that_the_api_server_refused_can_be_mended() -> None:
    desk = Desk(elastic_spec(worker={"template": template(resources={"limits": {"memory": "4GB"}})}))
    desk.world["refusals"] = {
        ("Pod", "resnet-worker-0"): "Pod resnet-worker-0 was refused: quantities must match the regular expression"
    }
    desk.now_s += 1.0
    desk.status = desk.decide().status  # the pod is not made
    assert (desk.state, desk.reason) == ("BelowMin", "CreateRefused")
    desk.spec = elastic_spec(worker={"template": template(resources={"limits": {"memory": "4G"}})})
    desk.generation += 1
    desk.world.clear()
    desk.look()
    assert desk.state != "Invalid"
    assert desk.created == ["resnet-worker-0"]
