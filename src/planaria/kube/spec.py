"""The spec of a PyTorchJob as a value, and everything that can be wrong with it, a sentence each. Pure."""

from __future__ import annotations

import hashlib
import json
import re

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.kube import fields, scaling_fields, schema
from planaria.kube.names import MASTER, PORT, WORKER, Names, name_problem, replica_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.kube.model import Plain
    from planaria.kube.scaling_model import Policy

DEFAULT_RESTART = {MASTER: "ExitCode", WORKER: "OnFailure"}
KUBERNETES, EMBEDDED = "kubernetes", "embedded"
_PROCESS_WORDS = ("auto", "gpu", "cpu")
_PROCESSES = re.compile(r"[1-9][0-9]{0,3}")  # of other digits, or of very many, nobody makes a number
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_SHAPE = fields.spec_schema()


class Replicas(Value):
    """One entry of pytorchReplicaSpecs."""

    replicas: int
    restart: str
    template: Plain


class Elastic(Value):
    """The elasticPolicy of a job that has one and enables it."""

    policy: Policy
    backend: str
    endpoint: str
    processes: str
    master_trains: bool


class JobSpec(Value):
    """What the owner of a job wants."""

    master: Replicas | None
    worker: Replicas | None
    elastic: Elastic | None
    clean: str
    ttl_s: int | None
    deadline_s: int | None
    backoff_limit: int | None
    is_suspended: bool

    def replicas(self, kind: str) -> Replicas | None:
        """Return the entry of one kind."""
        return self.master if kind == MASTER else self.worker

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of replicas that the job has, the Master first."""
        return tuple(kind for kind in (MASTER, WORKER) if self.replicas(kind) is not None)

    def is_member(self, kind: str) -> bool:
        """Tell whether pods of a kind are members of the world that trains: all but a Master beside elastic Workers."""
        return kind == WORKER or self.elastic is None or self.elastic.master_trains


def problems_of(name: str, spec: Plain) -> tuple[str, ...]:
    """Return what is wrong with the spec of the job of this name; nothing for a good one.

    A spec that breaks the checks themselves is wrong as well: its owner is told, where a log of ours would tell nobody.
    """
    try:
        return _problems_of(name, spec)
    except _BROKEN as problem:
        return (f"spec cannot be read: {type(problem).__name__}: {safe_line(str(problem))}",)


def _problems_of(name: str, spec: Plain) -> tuple[str, ...]:
    found = [problem for problem in (name_problem(name),) if problem]
    found += schema.problems(_SHAPE, spec, "spec")
    if found:
        return tuple(found)
    found += _of_replicas(spec)
    elastic = spec.get("elasticPolicy")
    if elastic and not found:
        found += _of_elastic(spec, elastic)
    return tuple(found)


def spec_of(name: str, spec: Plain) -> JobSpec:
    """Read a spec that has no problems."""
    kinds = _by_kind(spec)
    return JobSpec(
        master=_replicas(MASTER, kinds),
        worker=_replicas(WORKER, kinds),
        elastic=_elastic(name, spec, kinds) if is_elastic(spec) else None,
        clean=spec.get("cleanPodPolicy") or "None",
        ttl_s=spec.get("ttlSecondsAfterFinished"),
        deadline_s=spec.get("activeDeadlineSeconds"),
        backoff_limit=spec.get("backoffLimit"),
        is_suspended=bool(spec.get("suspend")),
    )


def is_elastic(spec: Plain) -> bool:
    """Tell whether a job is an elastic one: it says so and has a policy that is not empty."""
    return bool(spec.get("enableElastic")) and bool(spec.get("elasticPolicy"))


def fixed_of(spec: JobSpec) -> dict[str, str]:
    """Return what a job may not change while it has pods, by field: its value, or a digest of a template.

    These are in the pods, and the pods of one world must agree; a plain job's size is in their WORLD_SIZE.
    """
    fixed = {
        "enableElastic with elasticPolicy": _kept(spec.elastic is not None),
        "pytorchReplicaSpecs": " and ".join(spec.kinds),
    }
    for kind in spec.kinds:
        replicas = spec.replicas(kind)
        assert replicas is not None
        fixed[f"pytorchReplicaSpecs.{kind}.restartPolicy"] = replicas.restart
        fixed[f"pytorchReplicaSpecs.{kind}.template"] = _digest(replicas.template)
        if spec.elastic is None or kind == MASTER:
            fixed[f"pytorchReplicaSpecs.{kind}.replicas"] = _kept(replicas.replicas)
    if spec.elastic is not None:
        fixed |= {
            "elasticPolicy.minReplicas": _kept(spec.elastic.policy.min),
            "elasticPolicy.maxReplicas": _kept(spec.elastic.policy.max),
            "elasticPolicy.rdzvBackend": spec.elastic.backend,
            "elasticPolicy.rdzvEndpoint": spec.elastic.endpoint,
            "elasticPolicy.nProcPerNode": spec.elastic.processes,
            "elasticPolicy.masterTrains": _kept(spec.elastic.master_trains),
        }
    return fixed


def refixed(before: Mapping[str, str], after: Mapping[str, str], made: frozenset[str]) -> dict[str, str]:
    """Return what is fixed, with the templates and restart policies of kinds that never had a pod as they are now."""
    own = [
        f"pytorchReplicaSpecs.{kind}.{field}"
        for kind in (MASTER, WORKER)
        if kind not in made
        for field in ("restartPolicy", "template")
    ]
    return {**before, **{field: after[field] for field in own if field in before and field in after}}


def changes_of(before: Plain, after: Plain) -> tuple[str, ...]:
    """Return what was changed that may not change, a sentence each."""
    found = []
    for field in sorted(before):  # what only a later version keeps was never promised to stay
        was, is_now = before.get(field), after.get(field)
        if was != is_now:
            told = "" if was is None or was.startswith("sha256:") else f" from {was}"
            found.append(
                f"spec.{field} was changed{told}, which a job with pods cannot do: undo it, or suspend the job first"
            )
    return tuple(found)


def _kept(value: bool | int) -> str:
    return json.dumps(value)


def _digest(value: Plain) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def _by_kind(spec: Plain) -> dict[str, Plain]:
    kinds: dict[str, Plain] = {}
    for name, entry in spec["pytorchReplicaSpecs"].items():
        kind = replica_kind(name)
        if kind is not None:
            kinds.setdefault(kind, entry)
    return kinds


def _replicas(kind: str, kinds: dict[str, Plain]) -> Replicas | None:
    entry = kinds.get(kind)
    if entry is None:
        return None
    count = entry.get("replicas")
    return Replicas(
        1 if count is None else count, entry.get("restartPolicy") or DEFAULT_RESTART[kind], entry["template"]
    )


def _workers(kinds: dict[str, Plain]) -> int:
    worker = _replicas(WORKER, kinds)
    return 0 if worker is None else worker.replicas


def _elastic(name: str, spec: Plain, kinds: dict[str, Plain]) -> Elastic:
    given = spec["elasticPolicy"]
    backend, endpoint = given.get("rdzvBackend") or KUBERNETES, given.get("rdzvEndpoint") or ""
    if backend == KUBERNETES:
        endpoint = Names(name).run
    elif not endpoint:
        endpoint = f"{Names(name).replica(WORKER, 0)}:{PORT}"
    processes = given.get("nProcPerNode")
    return Elastic(
        policy=scaling_fields.policy_of(given, _workers(kinds)),
        backend=backend,
        endpoint=endpoint,
        processes=str(1 if processes is None else processes),
        master_trains=bool(given.get("masterTrains")),
    )


def _of_replicas(spec: Plain) -> list[str]:
    found, seen = [], set()
    for name in spec["pytorchReplicaSpecs"]:
        kind = replica_kind(name)
        if kind is None:
            found.append(f"spec.pytorchReplicaSpecs expects Master and Worker, got {name!r}")
        elif kind in seen:
            found.append(f"spec.pytorchReplicaSpecs has {kind} twice")
        seen.add(kind)
    if found:
        return found
    kinds = _by_kind(spec)
    master = _replicas(MASTER, kinds)
    if master is not None and master.replicas != 1:
        found.append(f"spec.pytorchReplicaSpecs.Master.replicas expects 1, got {master.replicas}")
    if is_elastic(spec) and WORKER not in kinds:
        found.append("spec.pytorchReplicaSpecs.Worker is missing: spec.elasticPolicy is about Workers")
    elif not is_elastic(spec) and master is None and _workers(kinds) == 0:
        found.append("spec.pytorchReplicaSpecs.Worker.replicas expects at least 1 in a job without a Master, got 0")
    return found


def _of_elastic(spec: Plain, elastic: Plain) -> list[str]:
    found = _of_meeting(
        elastic.get("rdzvBackend") or KUBERNETES, elastic.get("rdzvEndpoint") or "", "rdzvBackend" in elastic
    )
    processes = elastic.get("nProcPerNode")
    if processes is not None and not _is_processes(processes):
        described = f"a number from 1 to 9999, or {', '.join(_PROCESS_WORDS)}"
        found.append(schema.expected("spec.elasticPolicy.nProcPerNode", described, processes))
    return found + scaling_fields.problems_of(elastic, _workers(_by_kind(spec)))


def _is_processes(value: int | str) -> bool:
    return value in _PROCESS_WORDS or _PROCESSES.fullmatch(str(value)) is not None


def _of_meeting(backend: str, endpoint: str, is_given: bool) -> list[str]:
    if backend == KUBERNETES and endpoint:
        if is_given:
            return ["spec.elasticPolicy.rdzvEndpoint has no meaning with rdzvBackend kubernetes: leave it out"]
        return [
            "spec.elasticPolicy.rdzvEndpoint needs a spec.elasticPolicy.rdzvBackend beside it: etcd, etcd-v2, c10d or embedded"
        ]
    if backend.startswith("etcd") and not endpoint:
        return [f"spec.elasticPolicy.rdzvEndpoint is missing: rdzvBackend {backend} needs HOST:PORT of the etcd server"]
    if any(letter.isspace() for letter in endpoint):
        return [f"spec.elasticPolicy.rdzvEndpoint expects HOST:PORT without spaces, got {endpoint!r}"]
    return []
