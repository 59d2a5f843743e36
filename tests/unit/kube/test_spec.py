from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubesim.given import elastic_spec, plain_spec, template

from planaria.kube import spec as module
from planaria.kube.spec import changes_of, fixed_of, is_elastic, problems_of, spec_of

Json = dict[str, Any]


def _with(spec: Json, path: str, value: object) -> Json:
    """Return the spec with one field changed; None takes it away."""
    changed = copy.deepcopy(spec)
    *way, last = path.split(".")
    inner = changed
    for name in way:
        inner = inner[name]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return changed


WORKER = "pytorchReplicaSpecs.Worker"
WRONG = [
    (elastic_spec(4, 3), "spec.elasticPolicy.minReplicas expects at most maxReplicas (3), got 4"),
    (elastic_spec(0, 3), "spec.elasticPolicy.minReplicas expects a whole number from 1 to 10000, got 0"),
    (
        elastic_spec(policy={"rdzvBackend": "zookeeper"}),
        "spec.elasticPolicy.rdzvBackend expects one of kubernetes, etcd, etcd-v2, c10d, embedded, got 'zookeeper'",
    ),
    (
        elastic_spec(policy={"rdzvBackend": "etcd"}),
        "spec.elasticPolicy.rdzvEndpoint is missing: rdzvBackend etcd needs HOST:PORT of the etcd server",
    ),
    (
        elastic_spec(policy={"rdzvEndpoint": "etcd:2379"}),
        "spec.elasticPolicy.rdzvEndpoint needs a spec.elasticPolicy.rdzvBackend beside it: etcd, etcd-v2, c10d or embedded",
    ),
    (
        elastic_spec(policy={"rdzvBackend": "kubernetes", "rdzvEndpoint": "etcd:2379"}),
        "spec.elasticPolicy.rdzvEndpoint has no meaning with rdzvBackend kubernetes: leave it out",
    ),
    (
        elastic_spec(policy={"rdzvBackend": "etcd", "rdzvEndpoint": "etcd 2379"}),
        "spec.elasticPolicy.rdzvEndpoint expects HOST:PORT without spaces, got 'etcd 2379'",
    ),
    (
        elastic_spec(policy={"nProcPerNode": 0}),
        "spec.elasticPolicy.nProcPerNode expects a number from 1 to 9999, or auto, gpu, cpu, got 0",
    ),
    (
        elastic_spec(policy={"nProcPerNode": "many"}),
        "spec.elasticPolicy.nProcPerNode expects a number from 1 to 9999, or auto, gpu, cpu, got 'many'",
    ),
    (
        elastic_spec(policy={"nProcPerNode": 10_000}),
        "spec.elasticPolicy.nProcPerNode expects a number from 1 to 9999, or auto, gpu, cpu, got 10000",
    ),
    (
        elastic_spec(policy={"nProcPerNode": "1" * 5000}),
        f"spec.elasticPolicy.nProcPerNode expects a number from 1 to 9999, or auto, gpu, cpu, got '{'1' * 59}...",
    ),
    (
        elastic_spec(policy={"nProcPerNode": "\u0663"}),  # a digit, elsewhere
        "spec.elasticPolicy.nProcPerNode expects a number from 1 to 9999, or auto, gpu, cpu, got '\\u0663'",
    ),
    (elastic_spec(policy={"nProcPerNode": 1.5}), "spec.elasticPolicy.nProcPerNode expects a number or a word, got 1.5"),
    (elastic_spec(policy={"masterTrains": "yes"}), "spec.elasticPolicy.masterTrains expects true or false, got 'yes'"),
    (_with(elastic_spec(), "elasticPolicy", [1]), "spec.elasticPolicy expects an object, got [1]"),
    (
        _with(elastic_spec(master=True), WORKER, None),
        "spec.pytorchReplicaSpecs.Worker is missing: spec.elasticPolicy is about Workers",
    ),
    ({}, "spec.pytorchReplicaSpecs is missing"),
    ({"pytorchReplicaSpecs": {}}, "spec.pytorchReplicaSpecs is empty"),
    (
        {"pytorchReplicaSpecs": {"Chief": {"template": template()}}},
        "spec.pytorchReplicaSpecs expects Master and Worker, got 'Chief'",
    ),
    (
        {"pytorchReplicaSpecs": {"Worker": {"template": template()}, "worker": {"template": template()}}},
        "spec.pytorchReplicaSpecs has Worker twice",
    ),
    (
        plain_spec(0, master=False) | {"pytorchReplicaSpecs": {"Worker": {"replicas": 0, "template": template()}}},
        "spec.pytorchReplicaSpecs.Worker.replicas expects at least 1 in a job without a Master, got 0",
    ),
    (
        _with(plain_spec(), "pytorchReplicaSpecs.Master.replicas", 2),
        "spec.pytorchReplicaSpecs.Master.replicas expects 1, got 2",
    ),
    (
        _with(plain_spec(), f"{WORKER}.replicas", "two"),
        "spec.pytorchReplicaSpecs.Worker.replicas expects a whole number from 0 to 10000, got 'two'",
    ),
    (
        _with(plain_spec(), f"{WORKER}.restartPolicy", "Sometimes"),
        "spec.pytorchReplicaSpecs.Worker.restartPolicy expects one of Always, OnFailure, Never, ExitCode, got 'Sometimes'",
    ),
    (_with(plain_spec(), f"{WORKER}.template", None), "spec.pytorchReplicaSpecs.Worker.template is missing"),
    (
        _with(plain_spec(), f"{WORKER}.template.spec.containers", []),
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers is empty",
    ),
    (
        _with(plain_spec(), f"{WORKER}.template.spec.containers", [{"image": "x"}]),
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].name is missing",
    ),
    (plain_spec(backoffLimit=-1), "spec.backoffLimit expects a whole number of at least 0, got -1"),
    (plain_spec(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds expects a whole number of at least 1, got 0"),
    (
        plain_spec(ttlSecondsAfterFinished=True),
        "spec.ttlSecondsAfterFinished expects a whole number of at least 0, got True",
    ),
    (plain_spec(cleanPodPolicy="Some"), "spec.cleanPodPolicy expects one of None, Running, All, got 'Some'"),
    (plain_spec(suspend="no"), "spec.suspend expects true or false, got 'no'"),
]


@pytest.mark.parametrize(("spec", "sentence"), WRONG, ids=[sentence[:60] for _, sentence in WRONG])
def test_a_wrong_spec_is_refused_with_one_sentence_that_names_the_field(spec: Json, sentence: str) -> None:
    assert problems_of("resnet", spec) == (sentence,)


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["9" * 5000, "1"])
)
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner), max_leaves=6
)
PLACES = [
    *("pytorchReplicaSpecs", WORKER, f"{WORKER}.replicas", f"{WORKER}.template", f"{WORKER}.template.spec.containers"),
    *(f"elasticPolicy.{name}" for name in ("maxReplicas", "nProcPerNode", "metric", "minGain", "rdzvEndpoint", "x")),
    *("elasticPolicy", "backoffLimit", "suspend", "enableElastic"),
]


@given(st.sampled_from(PLACES), ANYTHING)
def test_whatever_a_field_holds_is_a_good_job_or_a_sentence(place: str, value: object) -> None:
    spec = _with(elastic_spec(), place, value) if value is not None else elastic_spec()
    problems = problems_of("resnet", spec)
    assert not any("cannot be read" in problem for problem in problems)
    if not problems:
        spec_of("resnet", spec)


def test_a_spec_that_breaks_the_checks_is_told_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_processes", int)
    spec = elastic_spec(policy={"nProcPerNode": "many"})
    [problem] = problems_of("resnet", spec)
    assert problem == "spec cannot be read: ValueError: invalid literal for int() with base 10: 'many'"


@pytest.mark.parametrize("name", ["1st", "resNet", "resnet-", "a" * 51, "res.net"])
def test_a_name_that_no_host_can_have_is_refused(name: str) -> None:
    [problem] = problems_of(name, elastic_spec())
    assert problem.startswith("metadata.name expects at most 50 lower-case letters")
    assert repr(name) in problem


def test_what_is_not_said_is_the_default() -> None:
    spec = spec_of(
        "resnet", {"pytorchReplicaSpecs": {"Master": {"template": template()}, "Worker": {"template": template()}}}
    )
    assert spec.master is not None
    assert spec.worker is not None
    assert (spec.master.replicas, spec.master.restart) == (1, "ExitCode")
    assert (spec.worker.replicas, spec.worker.restart) == (1, "OnFailure")
    assert (spec.clean, spec.ttl_s, spec.deadline_s, spec.backoff_limit) == ("None", None, None, None)
    assert not spec.is_suspended
    assert spec.elastic is None


def test_kinds_are_known_however_they_are_spelled() -> None:
    entries = elastic_spec(master=True)["pytorchReplicaSpecs"]
    shouted = {name.upper(): entry for name, entry in entries.items()}
    spec = spec_of("resnet", elastic_spec() | {"pytorchReplicaSpecs": shouted})
    assert spec.kinds == ("Master", "Worker")


@pytest.mark.parametrize(
    ("policy", "meeting"),
    [
        ({}, ("kubernetes", "resnet-run")),
        ({"rdzvBackend": "kubernetes"}, ("kubernetes", "resnet-run")),
        ({"rdzvBackend": "etcd", "rdzvEndpoint": "etcd-service:2379"}, ("etcd", "etcd-service:2379")),
        ({"rdzvBackend": "c10d"}, ("c10d", "resnet-worker-0:23456")),
        ({"rdzvBackend": "embedded"}, ("embedded", "resnet-worker-0:23456")),
        ({"rdzvBackend": "c10d", "rdzvEndpoint": "elsewhere"}, ("c10d", "elsewhere")),
    ],
)
def test_workers_meet_where_the_policy_says_or_in_the_cluster_itself(policy: Json, meeting: tuple[str, str]) -> None:
    elastic = spec_of("resnet", elastic_spec(policy=policy)).elastic
    assert elastic is not None
    assert (elastic.backend, elastic.endpoint) == meeting


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        (elastic_spec(), True),
        (elastic_spec() | {"enableElastic": False}, False),
        (elastic_spec() | {"elasticPolicy": {}}, False),
        (plain_spec(enableElastic=True), False),
    ],
)
def test_a_job_is_elastic_when_it_says_so_and_has_a_policy(spec: Json, answer: bool) -> None:
    assert problems_of("resnet", spec) == ()
    assert is_elastic(spec) is answer


CHANGES = [
    (elastic_spec(), "elasticPolicy.minReplicas", 2, "from 1"),
    (elastic_spec(), "elasticPolicy.maxReplicas", 5, "from 3"),
    (elastic_spec(), "elasticPolicy.nProcPerNode", 8, "from 1"),
    (elastic_spec(), "elasticPolicy.rdzvBackend", "c10d", "from kubernetes"),
    (elastic_spec(), "elasticPolicy.masterTrains", True, "from false"),
    (elastic_spec(), "pytorchReplicaSpecs.Worker.restartPolicy", "Never", "from OnFailure"),
    (elastic_spec(), "pytorchReplicaSpecs.Worker.template", template(image="other"), ""),
    (plain_spec(), "pytorchReplicaSpecs.Worker.replicas", 5, "from 2"),
    (plain_spec(0), "pytorchReplicaSpecs", plain_spec(1)["pytorchReplicaSpecs"], "from Master"),
    (elastic_spec(), "pytorchReplicaSpecs", elastic_spec(master=True)["pytorchReplicaSpecs"], "from Worker"),
]


@pytest.mark.parametrize(("spec", "path", "value", "told"), CHANGES, ids=[path for _, path, _, _ in CHANGES])
def test_what_is_in_the_pods_cannot_change(spec: Json, path: str, value: object, told: str) -> None:
    before = fixed_of(spec_of("resnet", spec))
    sentences = changes_of(before, fixed_of(spec_of("resnet", _with(spec, path, value))))
    changed = f"spec.{path} was changed {told}".strip()
    expected = f"{changed}, which a job with pods cannot do: undo it, or suspend the job first"
    assert expected in sentences


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pytorchReplicaSpecs.Worker.replicas", 3),
        ("elasticPolicy.minGain", 0.5),
        ("backoffLimit", 3),
        ("cleanPodPolicy", "All"),
        ("suspend", True),
    ],
)
def test_what_the_operator_alone_reads_may_change_at_any_time(path: str, value: object) -> None:
    before = fixed_of(spec_of("resnet", elastic_spec()))
    assert changes_of(before, fixed_of(spec_of("resnet", _with(elastic_spec(), path, value)))) == ()


def test_a_job_goes_on_under_a_later_version_that_keeps_more() -> None:
    after = fixed_of(spec_of("resnet", elastic_spec()))
    for field in after:
        before = {name: value for name, value in after.items() if name != field}
        assert changes_of(before, after) == ()
