from __future__ import annotations

from typing import Any

import pytest

from planaria.kube.logline import DEFAULT_PATTERN, Metric, metric_of
from planaria.kube.scaling_fields import FIELDS, expected, policy_of, problems_of, schema
from planaria.kube.scaling_model import Policy

TUTORIAL = {
    "rdzvBackend": "etcd",
    "rdzvEndpoint": "etcd-service:2379",
    "minReplicas": 1,
    "maxReplicas": 3,
    "nProcPerNode": 1,
}


def test_the_tutorials_policy_has_no_problem() -> None:
    assert problems_of(TUTORIAL, 1) == []
    assert policy_of(TUTORIAL, 1) == Policy(min=1, max=3)


def test_defaults_stand_in_one_place_only() -> None:
    """The values of the policy and the table of fields say the same."""
    assert policy_of({"minReplicas": 1, "maxReplicas": 1}, 1) == Policy(1, 1)
    metric = {field.name.partition(".")[2]: field.default for field in FIELDS if field.name.startswith("metric.")}
    assert metric_of(metric) == Metric() == metric_of(None)
    assert Metric().pattern == DEFAULT_PATTERN


def test_every_field_reaches_the_policy() -> None:
    given = {
        "minReplicas": 2,
        "maxReplicas": 9,
        "allowedReplicas": [8, 2, 4, 4],
        "minGain": 0.2,
        "minEfficiency": 0.5,
        "warmUpSamples": 1,
        "windowSamples": 3,
        "trialTimeoutSeconds": 120,
        "pendingGraceSeconds": 5,
        "cooldownSeconds": 0,
        "retrySeconds": 10,
        "maxRetrySeconds": 100,
        "metric": {"batch": "global"},
    }
    assert problems_of(given, 2) == []
    assert policy_of(given, 2) == Policy(2, 9, (2, 4, 8), 0.2, 0.5, 1, 3, 120.0, 5.0, 0.0, 10.0, 100.0, "global")


@pytest.mark.parametrize(
    ("given", "workers", "bounds"),
    [
        ({}, 4, (4, 4)),
        ({"minReplicas": 2}, 4, (2, 4)),
        ({"minReplicas": 6}, 4, (6, 6)),
        ({"maxReplicas": 8}, 4, (4, 8)),
        ({"maxReplicas": 3}, 4, (3, 3)),
    ],
)
def test_a_missing_bound_comes_from_the_workers_and_never_from_the_master(
    given: dict[str, object], workers: int, bounds: tuple[int, int]
) -> None:
    policy = policy_of(given, workers)
    assert (policy.min, policy.max) == bounds
    assert problems_of(given, workers) == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"minReplicas": 4, "maxReplicas": 3}, "minReplicas: expected at most maxReplicas (3), got 4"),
        ({"minReplicas": 0}, "minReplicas: expected a whole number from 1 to 10000"),
        ({"maxReplicas": 1.5}, "maxReplicas: expected a whole number from 1 to 10000"),
        ({"maxReplicas": True}, "maxReplicas: expected a whole number from 1 to 10000"),
        ({"allowedReplicas": []}, "allowedReplicas: expected a list of at most 64 whole numbers from 1 to 10000"),
        ({"allowedReplicas": 4}, "allowedReplicas: expected a list of at most 64 whole numbers from 1 to 10000"),
        ({"maxReplicas": 3, "allowedReplicas": [4]}, "allowedReplicas: expected at least one number from 1 to 3"),
        ({"minGain": -0.1}, "minGain: expected a number from 0 to 10"),
        ({"minEfficiency": "0.5"}, "minEfficiency: expected a number from 0 to 1"),
        ({"minEfficiency": float("nan")}, "minEfficiency: expected a number from 0 to 1"),
        ({"windowSamples": 0}, "windowSamples: expected a whole number from 1 to 100"),
        ({"retrySeconds": 9_000}, "maxRetrySeconds: expected at least retrySeconds (9000)"),
        ({"metric": "Time"}, "metric: expected an object with pattern, unit, batch and sample"),
        ({"metric": {"unit": "minutes"}}, "metric.unit: expected s or ms"),
        ({"metric": {"batch": "local"}}, "metric.batch: expected worker or global"),
        ({"metric": {"patern": "x"}}, "metric.patern: there is no such field"),
        ({"metric": {"pattern": "x" * 513}}, "metric.pattern: expected a text of at most 512 letters"),
        ({"metric": {"pattern": ""}}, "metric.pattern: expected a text of at most 512 letters"),
        ({"metric": {"sample": 3}}, "metric.sample: expected a text of at most 4096 letters"),
    ],
)
def test_a_wrong_field_gets_one_sentence(given: dict[str, object], sentence: str) -> None:
    assert problems_of(given, 1) == [f"elasticPolicy.{sentence}"]


def test_all_problems_are_told_at_once() -> None:
    assert len(problems_of({"minGain": -1, "windowSamples": 0, "metric": {"unit": "h"}}, 1)) == 3


def test_the_schema_has_every_field_with_its_bounds() -> None:
    found: dict[str, Any] = schema()
    metric = found["metric"]["properties"]
    names = {*found} - {"metric"} | {f"metric.{name}" for name in metric}
    assert names == {field.name for field in FIELDS}
    assert found["minReplicas"]["minimum"] == 1
    assert found["allowedReplicas"]["items"] == {"type": "integer", "minimum": 1, "maximum": 10_000}
    assert metric["unit"]["enum"] == ["s", "ms"]
    assert metric["pattern"]["maxLength"] == 512
    assert all("default" not in one for one in [*found.values(), *metric.values()])


def test_every_field_says_what_it_expects() -> None:
    assert all(expected(field) and field.meaning and not field.meaning.endswith(".") for field in FIELDS)
