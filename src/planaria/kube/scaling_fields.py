"""Every field of `spec.elasticPolicy` that the scaling reads: its name, what it may hold, its default and why. Pure.

The schema of the CRD and the table of docs/scaling.md are made from `FIELDS`; values are checked by that schema, and here only
for what it cannot say. A dot in a name leads into an object: `metric.unit` is `unit` of `metric`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from planaria.base.value import Value
from planaria.kube import logline
from planaria.kube.evidence import WINDOW_LIMIT
from planaria.kube.logline import PATH
from planaria.kube.scaling_model import Policy
from planaria.kube.schema import described, expected

SIZE_LIMIT = 10_000  # Workers of one job; more than Kubernetes has nodes
_DAY_S = 86_400


class Field(Value):
    """One field."""

    name: str
    kind: Literal["integer", "number", "string", "integers"]
    meaning: str
    default: int | float | str | None = None  # None: see its meaning
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    longest: int | None = None  # letters of a string, items of a list


FIELDS: tuple[Field, ...] = (
    Field("minReplicas", "integer", "the fewest Workers; Worker.replicas unless given", None, 1, SIZE_LIMIT),
    Field("maxReplicas", "integer", "the most Workers; Worker.replicas unless given", None, 1, SIZE_LIMIT),
    Field(
        "allowedReplicas",
        "integers",
        "the only numbers of Workers to have, such as [1, 2, 4, 8]; every number in the bounds unless given",
        None,
        1,
        SIZE_LIMIT,
        longest=64,
    ),
    Field("minGain", "number", "how much faster, as a share, the job has to be with more Workers", 0.1, 0, 10),
    Field(
        "minEfficiency",
        "number",
        "how much of the throughput per Worker of the smallest size measured has to be left",
        0.6,
        0,
        1,
    ),
    Field("warmUpSamples", "integer", "samples to leave out after each change of size", 2, 0, WINDOW_LIMIT),
    Field("windowSamples", "integer", "samples whose median is the throughput of a size", 5, 1, WINDOW_LIMIT),
    Field(
        "trialTimeoutSeconds",
        "number",
        "how long to wait for these samples, and before that for pods to run",
        1800,
        1,
        30 * _DAY_S,
    ),
    Field(
        "pendingGraceSeconds",
        "number",
        "how long the scheduler may find no node for a pod before the job returns to fewer",
        60,
        0,
        _DAY_S,
    ),
    Field("cooldownSeconds", "number", "how long a size is kept before a larger one is tried", 60, 0, _DAY_S),
    Field("retrySeconds", "number", "when a size that failed is tried again, doubled after each time", 300, 1, _DAY_S),
    Field("maxRetrySeconds", "number", "the longest of these pauses", 3600, 1, 30 * _DAY_S),
    Field(
        "metric.pattern",
        "string",
        "a regular expression of Python with a group `time` and, if there are such, `step` and `epoch`",
        logline.DEFAULT_PATTERN,
        longest=logline.PATTERN_LIMIT,
    ),
    Field("metric.unit", "string", "the unit of `time`", "s", choices=("s", "ms")),
    Field(
        "metric.batch",
        "string",
        "whose batch a step is: each Worker has one of the same size, or all share one",
        "worker",
        choices=("worker", "global"),
    ),
    Field(
        "metric.sample",
        "string",
        "a line that the pattern has to match, tried before anything is made",
        None,
        longest=logline.LINE_LIMIT,
    ),
)

_TYPES = {"integer": "integer", "number": "number", "string": "string", "integers": "array"}


def schema() -> dict[str, object]:
    """Return the `properties` of these fields for the CRD's structural schema, without defaults.

    Defaults are applied when a policy is read, so that one that is improved later is improved for the jobs that are there.
    """
    properties: dict[str, object] = {}
    metric: dict[str, object] = {}
    for field in FIELDS:
        owner, _, name = field.name.rpartition(".")
        (metric if owner else properties)[name] = _schema_of(field)
    described = "how the time of a step is read from log lines; not used where agents push their progress"
    return {**properties, "metric": {"type": "object", "description": described, "properties": metric}}


def _schema_of(field: Field) -> dict[str, object]:
    default = "" if field.default is None or field.name == "metric.pattern" else f" (default {field.default})"
    made: dict[str, object] = {"type": _TYPES[field.kind], "description": field.meaning + default}
    bounds: dict[str, object] = {"minimum": field.least, "maximum": field.most}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    if field.kind == "integers":
        return {**made, "items": {"type": "integer", **bounds}, "minItems": 1, "maxItems": field.longest}
    if field.choices:
        bounds["enum"] = list(field.choices)
    if field.longest is not None:
        bounds |= {"minLength": 1, "maxLength": field.longest}
    return {**made, **bounds}


def problems_of(elastic: Mapping[str, object], workers: int) -> list[str]:
    """Return what is wrong with these fields, which are as the schema wants them; `workers` is Worker.replicas.

    A pattern is not run here: `matcher.check` tries it on the sample line, in a child process.
    """
    metric = elastic.get("metric")
    given = metric if isinstance(metric, Mapping) else {}
    known = {field.name.partition(".")[2] for field in FIELDS}
    found = [f"{PATH}.metric has no field {name}" for name in given if name not in known]
    return found or [*_problems_of_bounds(elastic, workers), *logline.problems_of(logline.metric_of(given))]


def _problems_of_bounds(elastic: Mapping[str, object], workers: int) -> list[str]:
    policy = policy_of(elastic, workers)
    if policy.min > policy.max:
        return [expected(f"{PATH}.minReplicas", f"at most maxReplicas ({policy.max})", policy.min)]
    found = []
    if policy.allowed and not any(policy.min <= size <= policy.max for size in policy.allowed):
        span = f"at least one number from {policy.min} to {policy.max}"
        found.append(expected(f"{PATH}.allowedReplicas", span, list(policy.allowed)))
    if policy.retry_s > policy.max_retry_s:
        least_s, most_s = f"{policy.retry_s:g}", f"{policy.max_retry_s:g}"
        found.append(f"{PATH}.maxRetrySeconds expects at least retrySeconds ({least_s}), got {most_s}")
    return found


def told(field: Field) -> str:
    """Return what a field may hold, as the end of a sentence."""
    return described(_schema_of(field))


def _value(elastic: Mapping[str, object], field: Field) -> object:
    owner, _, name = field.name.rpartition(".")
    held = elastic.get(owner) if owner else elastic
    return held.get(name) if isinstance(held, Mapping) else None


def policy_of(elastic: Mapping[str, object], workers: int) -> Policy:
    """Return the policy of a spec without problems.

    A missing bound is Worker.replicas, never the Master's, and the other bound where that would leave nothing between them.
    """
    given = {field.name: _value(elastic, field) for field in FIELDS}
    least, most = _whole(given["minReplicas"]), _whole(given["maxReplicas"])
    allowed = given["allowedReplicas"]
    lower = least if least is not None else max(1, min(workers, most or workers))
    return Policy(
        min=lower,
        max=most if most is not None else max(lower, workers),
        allowed=tuple(sorted({*allowed})) if isinstance(allowed, list) else (),
        min_gain=_number(given, "minGain"),
        min_efficiency=_number(given, "minEfficiency"),
        warm_up=int(_number(given, "warmUpSamples")),
        window=int(_number(given, "windowSamples")),
        trial_timeout_s=_number(given, "trialTimeoutSeconds"),
        pending_grace_s=_number(given, "pendingGraceSeconds"),
        cooldown_s=_number(given, "cooldownSeconds"),
        retry_s=_number(given, "retrySeconds"),
        max_retry_s=_number(given, "maxRetrySeconds"),
        batch="global" if given["metric.batch"] == "global" else "worker",
    )


_DEFAULTS = {field.name: field.default for field in FIELDS}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _number(given: Mapping[str, object], name: str) -> float:
    value = given[name] if given[name] is not None else _DEFAULTS[name]
    if not isinstance(value, (int, float)):
        raise TypeError(f"elasticPolicy.{name} was not checked")
    return float(value)
