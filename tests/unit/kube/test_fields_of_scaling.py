from __future__ import annotations

from typing import Any

import pytest
from kubesim.given import elastic_spec

from planaria.kube import spec
from planaria.kube.logline import DEFAULT_PATTERN, Metric, metric_of
from planaria.kube.scaling_fields import FIELDS, policy_of, problems_of, schema, told
from planaria.kube.scaling_model import Policy

A_LIST = "a list of 1 to 64 items, each a whole number from 1 to 10000"
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
        ({"minReplicas": 4, "maxReplicas": 3}, "minReplicas expects at most maxReplicas (3), got 4"),
        ({"minReplicas": 0}, "minReplicas expects a whole number from 1 to 10000, got 0"),
        ({"maxReplicas": 1.5}, "maxReplicas expects a whole number from 1 to 10000, got 1.5"),
        ({"maxReplicas": True}, "maxReplicas expects a whole number from 1 to 10000, got True"),
        ({"allowedReplicas": []}, "allowedReplicas is empty"),
        ({"allowedReplicas": 4}, f"allowedReplicas expects {A_LIST}, got 4"),
        ({"allowedReplicas": [1] * 65}, f"allowedReplicas expects {A_LIST}, got [{'1, ' * 19}1,..."),
        ({"allowedReplicas": [1, 0]}, "allowedReplicas[1] expects a whole number from 1 to 10000, got 0"),
        (
            {"maxReplicas": 3, "allowedReplicas": [4]},
            "allowedReplicas expects at least one number from 1 to 3, got [4]",
        ),
        ({"minGain": -0.1}, "minGain expects a number from 0 to 10, got -0.1"),
        ({"minEfficiency": "0.5"}, "minEfficiency expects a number from 0 to 1, got '0.5'"),
        ({"minEfficiency": float("nan")}, "minEfficiency expects a number from 0 to 1, got nan"),
        ({"windowSamples": 0}, "windowSamples expects a whole number from 1 to 100, got 0"),
        ({"trialTimeoutSeconds": 0}, "trialTimeoutSeconds expects a number from 1 to 2592000, got 0"),
        ({"retrySeconds": 9_000}, "maxRetrySeconds expects at least retrySeconds (9000), got 3600"),
        ({"metric": "Time"}, "metric expects an object, got 'Time'"),
        ({"metric": {"unit": "minutes"}}, "metric.unit expects one of s, ms, got 'minutes'"),
        ({"metric": {"batch": "local"}}, "metric.batch expects one of worker, global, got 'local'"),
        ({"metric": {"patern": "x"}}, "metric has no field patern"),
        (
            {"metric": {"pattern": "x" * 513}},
            f"metric.pattern expects a string of 1 to 512 letters, got '{'x' * 59}...",
        ),
        ({"metric": {"pattern": ""}}, "metric.pattern expects a string of 1 to 512 letters, got ''"),
        ({"metric": {"sample": 3}}, "metric.sample expects a string of 1 to 4096 letters, got 3"),
    ],
)
def test_a_wrong_field_gets_one_sentence_with_what_it_has(given: dict[str, object], sentence: str) -> None:
    policy = {"minReplicas": 1} | given
    assert spec.problems_of("resnet", elastic_spec() | {"elasticPolicy": policy}) == (f"spec.elasticPolicy.{sentence}",)


def test_all_problems_are_told_at_once() -> None:
    wrong = {"minGain": -1, "windowSamples": 0, "metric": {"unit": "h"}, "nProcPerNode": 0.5}
    assert len(spec.problems_of("resnet", elastic_spec(policy=wrong))) == 4


def test_the_schema_has_every_field_with_its_bounds() -> None:
    found: dict[str, Any] = schema()
    metric = found["metric"]["properties"]
    names = {*found} - {"metric"} | {f"metric.{name}" for name in metric}
    assert names == {field.name for field in FIELDS}
    assert found["minReplicas"]["minimum"] == 1
    assert found["allowedReplicas"]["items"] == {"type": "integer", "minimum": 1, "maximum": 10_000}
    assert metric["unit"]["enum"] == ["s", "ms"]
    assert (metric["pattern"]["minLength"], metric["pattern"]["maxLength"]) == (1, 512)
    assert all("default" not in one for one in [*found.values(), *metric.values()])


def test_every_field_says_what_it_expects() -> None:
    assert all(told(field) and field.meaning and not field.meaning.endswith(".") for field in FIELDS)
