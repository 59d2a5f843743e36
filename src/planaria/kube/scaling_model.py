"""The values that the scaling of a job is decided from, and what comes out. Pure.

Sizes are numbers of Workers. Times ending in `_s` that are points in time are seconds of the operator's wall clock, since
they outlive the operator; a clock that jumps costs patience, never a wrong size.
"""

from __future__ import annotations

from typing import Literal

from planaria.base.value import Value

Batch = Literal["worker", "global"]
Source = Literal["", "lines", "pushed"]
Condition = Literal["Start", "Continue", "Stop", "ReachMaxMetric", "ReachMaxReplicas"]
Cause = Literal["", "room", "gain", "silence"]
Mark = tuple[int | None, int | None]
"""Epoch and step."""
Timed = tuple[int | None, int | None, float]
"""Epoch, step and throughput."""

FOREVER = float("inf")


class Policy(Value):
    """What the owner of a job wants. Made by `scaling_fields.policy_of`, which has the defaults and their reasons."""

    min: int
    max: int
    allowed: tuple[int, ...] = ()  # empty: every size from min to max
    min_gain: float = 0.1
    min_efficiency: float = 0.6
    warm_up: int = 2
    window: int = 5
    trial_timeout_s: float = 1800.0
    pending_grace_s: float = 60.0
    cooldown_s: float = 60.0
    retry_s: float = 300.0
    max_retry_s: float = 3600.0
    batch: Batch = "worker"


class Sample(Value):
    """How fast one step was: its `seconds` (from a log line), or the whole job's samples per second, `rate` (pushed).

    Several samples of one step are one: the slowest counts, since workers wait for each other. So a sample that comes twice
    changes nothing.
    """

    size: int  # the Workers that made it: whoever hands it over has made sure that those who are new have joined
    seconds: float | None = None
    rate: float | None = None
    step: int | None = None
    epoch: int | None = None
    is_only: bool = False  # of a line, long after anybody pushed: it counts, though what was pushed is preferred


class Situation(Value):
    """What the operator sees of a job now."""

    start: int  # Worker.replicas of the spec; when it changes, the search begins again
    placed: int  # Worker pods that have a node and have not ended, also while their image is pulled
    running: int  # Worker pods that run
    is_resumed: bool = False  # it was suspended since the last call
    is_started: bool = True  # training has begun, or could have long ago; before that nothing is measured
    unschedulable_s: float | None = (
        None  # for how long the scheduler has refused a pod that should be: the longest; None: none
    )
    refused_s: float | None = None  # for how long the API server has refused to make a pod that should be; None: none
    refusal: str = ""  # its words
    room: bool = (
        False  # capacity may have appeared since the last call: a node, or a pod of another PyTorchJob that ended
    )
    samples: tuple[Sample, ...] = ()  # new since the last call
    watched_s: float = FOREVER  # for how long this operator process has watched the job
    trouble: str = ""  # what is wrong with its metrics, one sentence; said where samples are missed
    absent: str = ""  # a Worker pod that does not run, with a word of its kubelet's


class ElasticScaling(Value):
    """The block `status.elasticScaling.Worker`, as people read it."""

    condition: Condition
    goes_on: bool  # `continue`
    current: int  # `currentReplicas`
    last: int | None = None  # `lastReplicas`: the size before this one, larger after a retreat
    message: str = ""
    since_s: float = 0.0  # `startTime`: when this block changed last


class Figure(Value):
    """The throughput that was measured at one size: a median."""

    size: int
    rate: float
    at_s: float


class Evidence(Value):
    """All that the policy remembers of a job. It lives in `status.scaling` (`evidence.encode`, `evidence.decode`).

    While `good < current` a larger size is on trial; else `good == current`.
    """

    start: int
    good: int
    elastic: ElasticScaling
    reason: str  # of the last decision, one word, as `status.scaling.reason` shows it
    changed_s: float  # when the current size was chosen
    ready_s: float | None = None  # when all its Workers ran first
    source: Source = ""  # of the figures and the window; those of two sources are never compared
    batch: Batch = "worker"
    figures: tuple[Figure, ...] = ()
    window: tuple[Timed, ...] = ()  # what was measured at this size since the last figure
    skip: int = 0  # samples still to leave out
    skipped: tuple[Mark, ...] = ()  # the steps that were left out
    refused: int | None = None  # the size that did not work
    cause: Cause = ""  # why not
    failures: int = 0  # trials that did not work, in this search, or since room was there for long
    refused_s: float = 0.0  # when a size was refused last, or one was taken
    has_room: bool = False  # capacity appeared since the refusal


class Corrupt(Value):
    """Evidence that cannot be read, and why."""

    why: str


class Wants(Value):
    """How many samples are worth a write of the status, and whether anything waits for them."""

    samples: int = 1  # with fewer, nothing new can be decided
    is_measuring: bool = True  # a size is being measured; else the job is at rest, and its figure only kept fresh


class Verdict(Value):
    """What to do."""

    evidence: Evidence
    wake_after_s: float | None  # call again after so long, if nothing happens before; None: nothing is due
    wants: Wants

    @property
    def target(self) -> int:
        """Return how many Worker pods should exist."""
        return self.evidence.elastic.current

    @property
    def elastic(self) -> ElasticScaling:
        """Return what people are shown of it."""
        return self.evidence.elastic

    @property
    def reason(self) -> str:
        """Return the one word for the last decision."""
        return self.evidence.reason
