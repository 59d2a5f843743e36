from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.kube.logline import (
    DEFAULT_PATTERN,
    LINE_LIMIT,
    Metric,
    Reading,
    metric_of,
    problems_of,
    read_line,
    reading,
)
from planaria.kube.scaling_model import Sample

TAIL = "\tData  0.155 ( 0.170)\tLoss 2.5284e+00 (2.5905e+00)\tAcc@1  42.19 ( 39.71)\tAcc@5  64.06 ( 65.81)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"Epoch: [17][   0/1563]\tTime  5.969 ( 5.969){TAIL}", Reading(5.969, 0, 17)),
        (f"Epoch: [17][  50/1563]\tTime  0.258 ( 0.385){TAIL}", Reading(0.258, 50, 17)),
        (f"Epoch: [9][1500/1563]\tTime  0.258 ( 0.385){TAIL}", Reading(0.258, 1500, 9)),
        (f"Epoch: [100][ 50/1563]\tTime  0.258 ( 0.385){TAIL}", Reading(0.258, 50, 100)),
        (f"Epoch: [12345][ 50/1563]\tTime  0.258 ( 0.385){TAIL}", Reading(0.258, 50, 12345)),
        (f"Epoch: [17][  50/1563]\tTime 100.123 (99.385){TAIL}", Reading(100.123, 50, 17)),
        (f"Epoch: [17][  50/1563]\tTime 30.000 (30.385){TAIL}", Reading(30.0, 50, 17)),
        ("Epoch: [17][  50/1563]\tTime  0.258 ( 0.385)", Reading(0.258, 50, 17)),
        ("Epoch: [17][ 50/1563] Time 0.258", Reading(0.258, 50, 17)),
        (f"[rank0]: Epoch: [1][5/9]\tTime  1.500 ( 1.500){TAIL}", Reading(1.5, 5, 1)),
        ("Epoch: [0][  5/ 99]\tTime 3", Reading(3.0, 5, 0)),
    ],
)
def test_a_line_of_the_usual_kind_is_never_misread(line: str, expected: Reading) -> None:
    assert read_line(line, Metric()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Epoch",
        "Epoch: 17 of 20 done",
        "Epoch: [17][  50/1563]",
        "Epoch: [17][  50/1563]\tData 0.258",
        "Epoch: [17][  50/1563]\tTime  nan ( nan)",
        "Epoch: [17][  50/1563]\tTime  0.000 ( 0.100)",
        "Epoch: [17][  50/1563]\tTime  0.2.58",
        "Test: [ 50/1563]\tTime  0.258 ( 0.385)",
        'error: could not read logs of "resnet-worker-0": context deadline exceeded',
        "Epoch: [" + "1" * 5000 + "][1/2]\tTime 1.0",
        " " * LINE_LIMIT + "Epoch: [17][  50/1563]\tTime  0.258",
    ],
)
def test_another_line_is_never_taken_for_a_measurement(line: str) -> None:
    assert read_line(line, Metric()) is None


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.text(alphabet="Epoch: []Time0123456789./\t", max_size=200))
def test_no_line_makes_reading_fail(line: str) -> None:
    found = read_line(line, Metric())
    assert found is None or found.seconds > 0


@pytest.mark.parametrize("part", ["Epoch: [", "1", " ", "Epoch: [1][", "Epoch: [1][1/1] Time ", "\t"])
def test_the_default_pattern_is_fast_on_every_line(part: str) -> None:
    """Count by the size of the work, not by a clock: without the bounds some of these would take hours."""
    line = (part * LINE_LIMIT)[:LINE_LIMIT]
    assert read_line(line, Metric()) is None
    assert "+" not in DEFAULT_PATTERN
    assert "*" not in DEFAULT_PATTERN


@pytest.mark.parametrize(
    ("groups", "unit", "expected"),
    [
        ({"time": "258", "step": "5", "epoch": "1"}, "ms", Reading(0.258, 5, 1)),
        ({"time": "30"}, "s", Reading(30.0)),
        ({"time": " 1e-3 "}, "s", Reading(0.001)),
        ({"time": ".5", "step": None}, "s", Reading(0.5)),
        ({"time": "1.5", "step": "five", "epoch": "-1"}, "s", Reading(1.5)),
        ({"time": "1.5", "step": "9" * 13}, "s", Reading(1.5)),
        ({"time": "0"}, "s", None),
        ({"time": "-1"}, "s", None),
        ({"time": "inf"}, "s", None),
        ({"time": "1_000"}, "s", None),
        ({"time": ""}, "s", None),
        ({"time": None}, "s", None),
        ({}, "s", None),
    ],
)
def test_groups_are_numbers_or_nothing(groups: dict[str, str | None], unit: str, expected: Reading | None) -> None:
    assert reading(groups, metric_of({"unit": unit})) == expected


def test_a_reading_is_a_sample_of_the_workers_that_ran() -> None:
    assert Reading(0.25, 5, 1).sample(3) == Sample(3, seconds=0.25, step=5, epoch=1)


def test_what_a_spec_leaves_out_is_the_default() -> None:
    assert metric_of(None) == metric_of({}) == Metric(DEFAULT_PATTERN, "s", "worker", "")
    given_metric = {"pattern": "(?P<time>.)", "unit": "ms", "batch": "global", "sample": "1"}
    assert metric_of(given_metric) == Metric("(?P<time>.)", "ms", "global", "1")


def test_a_sample_that_the_default_does_not_match_is_refused() -> None:
    assert problems_of(Metric(sample="Epoch: [17][ 50/1563] Time 0.258")) == []
    assert problems_of(Metric(sample="epoch 17 took 3 s")) == [
        "spec.elasticPolicy.metric.sample expects a line that the pattern matches"
    ]


def test_a_pattern_of_others_is_neither_read_nor_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re, "compile", None)
    for pattern in (r"(?P<time>(a+)+)$", "("):
        assert problems_of(Metric(pattern, sample="a" * 64 + "b")) == []
