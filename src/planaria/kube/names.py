"""How everything that belongs to a PyTorchJob is called. Pure: from a job's name alone all of it is known."""

from __future__ import annotations

import re

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP = "training.kubedl.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
JOB_KIND = "PyTorchJob"
PLURAL = "pytorchjobs"

GROUP_LABEL = "group-name"
JOB_LABEL = "job-name"
TYPE_LABEL = "replica-type"
INDEX_LABEL = "replica-index"
ROLE_LABEL = "job-role"

MASTER = "Master"
WORKER = "Worker"
PORT = 23456
PORT_NAME = "pytorchjob-port"
TRAINER = "pytorch"

TOKEN_KEY = "token"  # noqa: S105  the name of the entry, not one

LONGEST_JOB = 50  # "NAME-worker-12345" has to be a DNS label, of at most 63 letters
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # of DNS: the whole name of a namespace has to match it
JOB_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Names(Value):
    """What a job's objects are called."""

    job: str

    @property
    def agent(self) -> str:
        """Return the name of the pods' ServiceAccount, and of its Role and RoleBinding."""
        return f"{self.job}-agent"

    @property
    def run(self) -> str:
        """Return the name of the Lease and the ConfigMap in which the `kubernetes` store keeps the run."""
        return f"{self.job}-run"

    @property
    def progress(self) -> str:
        """Return the name of the ConfigMap that agents push their metrics into."""
        return f"{self.job}-progress"

    @property
    def token(self) -> str:
        """Return the name of the Secret with the token of a job that no operator looks after."""
        return f"{self.job}-token"

    def token_of(self, uid: str) -> str:
        """Return the name of the Secret with the token of the job of that uid.

        The operator cannot read a Secret, so its name says whose it is: one that was there before the job has another.
        """
        return f"{self.token}-{uid[:8]}"

    def replica(self, kind: str, index: int) -> str:
        """Return the name of the pod and the service of one replica, `kind` being Master or Worker."""
        return f"{self.prefix(kind)}{index}"

    def prefix(self, kind: str) -> str:
        """Return what the names of all replicas of a kind begin with."""
        return f"{self.job}-{kind.lower()}-"

    def labels(self, kind: str | None = None, index: int | None = None) -> dict[str, str]:
        """Return the labels of the job's objects, of one kind of replicas, or of one replica."""
        labels = {GROUP_LABEL: GROUP, JOB_LABEL: self.job}
        if kind is not None:
            labels[TYPE_LABEL] = kind.lower()
        if index is not None:
            labels[INDEX_LABEL] = str(index)
        return labels

    def selector(self, kind: str | None = None) -> str:
        """Return the label selector of the job's objects, or of one kind of replicas, as the API takes it."""
        return ",".join(f"{name}={value}" for name, value in self.labels(kind).items())


def trainer_among(containers: Sequence[str]) -> str:
    """Return the name of the container that trains: `pytorch`, or else the first; also where none is known."""
    return TRAINER if TRAINER in containers or not containers else containers[0]


def replica_kind(text: str) -> str | None:
    """Return Master or Worker, however it is spelled; None for anything else."""
    return {MASTER.lower(): MASTER, WORKER.lower(): WORKER}.get(text.lower())


def name_problem(job: str) -> str | None:
    """Say what is wrong with a job's name, which becomes part of host names."""
    if len(job) > LONGEST_JOB or re.fullmatch(JOB_PATTERN, job) is None:
        return (
            f"metadata.name expects at most {LONGEST_JOB} lower-case letters, digits and dashes, a letter first and no dash "
            f"last, since pods are reached by it; got {job!r}"
        )
    return None
