from __future__ import annotations

import time

from planaria.kube.model import Create
from planaria.kube.refusals import Refusals

KEY = ("n", "resnet")
POD = Create("Pod", "resnet-worker-0", {})


def test_what_was_refused_is_told_and_not_tried_again_at_once() -> None:
    refusals = Refusals(time.monotonic)
    assert refusals.of(KEY, 1) == ()
    refusals.add(KEY, POD, "Pod resnet-worker-0 was refused: 4GB is no quantity")
    assert refusals.of(KEY, 1) == ("Pod resnet-worker-0 was refused: 4GB is no quantity",)
    assert refusals.is_fresh(KEY, POD)
    refusals.clear(KEY, POD)
    assert not refusals.is_fresh(KEY, POD)


def test_another_spec_is_tried_at_once() -> None:
    refusals = Refusals(time.monotonic)
    refusals.of(KEY, 1)
    refusals.add(KEY, POD, "refused")
    assert refusals.of(KEY, 2) == ()
    assert not refusals.is_fresh(KEY, POD)


def test_a_job_that_is_no_more_leaves_nothing() -> None:
    refusals = Refusals(time.monotonic)
    refusals.of(KEY, 1)
    refusals.add(KEY, POD, "refused")
    refusals.forget(KEY)
    assert refusals.of(KEY, 1) == ()
