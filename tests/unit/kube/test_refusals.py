from __future__ import annotations

import time

import pytest

from planaria.errors import KubeError
from planaria.kube.model import Create
from planaria.kube.refusals import Refusals, sentence_of

KEY = ("n", "resnet")
POD = Create("Pod", "resnet-worker-0", {})


def test_what_was_refused_is_told_and_not_tried_again_at_once() -> None:
    refusals = Refusals(time.monotonic)
    assert refusals.of(KEY, 1) == {}
    refusals.add(KEY, POD, "Pod resnet-worker-0 was refused: 4GB is no quantity")
    assert refusals.of(KEY, 1) == {("Pod", "resnet-worker-0"): "Pod resnet-worker-0 was refused: 4GB is no quantity"}
    assert refusals.is_fresh(KEY, POD)
    refusals.clear(KEY, POD)
    assert not refusals.is_fresh(KEY, POD)


def test_another_spec_is_tried_at_once() -> None:
    refusals = Refusals(time.monotonic)
    refusals.of(KEY, 1)
    refusals.add(KEY, POD, "refused")
    assert refusals.of(KEY, 2) == {}
    assert not refusals.is_fresh(KEY, POD)


def test_what_nobody_wants_any_more_is_forgotten() -> None:
    refusals = Refusals(time.monotonic)
    refusals.of(KEY, 1)
    refusals.keep(KEY, ())
    refusals.add(KEY, POD, "refused")
    refusals.keep(KEY, {("Pod", "resnet-worker-0")})
    assert refusals.is_fresh(KEY, POD)
    refusals.keep(KEY, {("Service", "resnet-worker-0")})
    assert refusals.of(KEY, 1) == {}


def test_a_job_that_is_no_more_leaves_nothing() -> None:
    refusals = Refusals(time.monotonic)
    refusals.of(KEY, 1)
    refusals.add(KEY, POD, "refused")
    refusals.forget(KEY)
    assert refusals.of(KEY, 1) == {}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            'Pod "resnet-worker-0" is invalid: spec.containers[1].name: Duplicate value: "pytorch"',
            'spec.containers[1].name: Duplicate value: "pytorch"',
        ),
        (
            'pods "resnet-worker-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2',
            "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2",
        ),
        (
            'pods is forbidden: User "operator" cannot create resource "pods" in API group "" in the namespace "n"',
            'pods is forbidden: User "operator" cannot create resource "pods" in API group "" in the namespace "n"',
        ),
        (
            'Pod in version "v1" cannot be handled as a Pod: expect [ or n, but found {, error found in #10 byte of ...|"a"|',
            'Pod in version "v1" cannot be handled as a Pod: expect [ or n, but found {',
        ),
    ],
)
def test_a_refusal_is_told_with_its_cause_and_no_more(said: str, why: str) -> None:
    problem = KubeError(f"POST /api/v1/namespaces/n/pods was refused with 422: {said}", status=422, said=said)
    assert sentence_of(POD, problem) == f"Pod resnet-worker-0 was refused: {why}"
