"""What was seen of a run: what each node told as it came (`NodeSeen`), and the one picture of all of it (`RunSeen`)."""

from __future__ import annotations

from planaria.base.value import Value, as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
PHASES = ("detect", "decide", "stop", "rendezvous", "start", "ready")


class NodeSeen(Value):
    """One node, as it was found. `status` and `report` are what it says of itself, `events` its journal, oldest first.

    Nothing of it is checked. `age_s`: how long ago it was heard; `gap`: what could not be had of it.
    """

    node: str
    source: str
    """Where it was found: `socket`, `HOST:PORT`, or the path of a folder."""
    status: Mapping[str, object] | None = None
    events: tuple[Mapping[str, object], ...] = ()
    report: Mapping[str, object] | None = None
    evidence: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Folders of evidence by name, with the files in each."""
    age_s: float | None = None
    gap: str = ""
    owner: int | None = None
    """The user who wrote the journal of a folder."""
    is_alive: bool | None = None
    """Whether the agent that writes to a folder lives, by the lock that it holds; None: nobody can tell from here."""
    is_gone: bool = False
    """Whether nobody is there any more who could answer: one question without an answer does not say so."""


class Node(Value):
    """One node of the run. `state` is a phase of its agent, or how it ended there."""

    node: str
    host: str
    state: str
    why_not_ready: str | None
    round: int | None
    ranks: tuple[int, ...]
    age_s: float | None
    source: str
    has_ended: bool = False


class Rank(Value):
    """One worker of the newest round. `straggler` is how many times slower than the others it is."""

    rank: int
    host: str
    node: str
    local_rank: int | None = None
    pid: int | None = None
    state: str = "running"
    step: int | None = None
    samples: float | None = None
    rate: float | None = None
    samples_rate: float | None = None
    phase: str | None = None
    age_s: float | None = None
    behind: bool = False
    straggler: float | None = None


class Cause(Value):
    """A worker that failed of its own. `lines` are its last words: the end of its traceback, or of what it wrote to stderr."""

    round: int | None
    rank: int
    host: str
    node: str
    pid: int | None
    status: int
    meaning: str
    """What the status says, for people: `exit status 3`, `SIGKILL, by the kernel: out of memory`."""
    message: str
    kind: str = ""
    killer: str = ""
    where: str = ""
    """The line that raised; of a hang, for which the kind is `watchdog`, the phase."""
    lost_peer: bool = False
    """It failed because another worker had gone, as far as it says."""
    age_s: float | None = None
    timestamp: int = 0
    lines: tuple[str, ...] = ()
    log_files: tuple[str, ...] = ()


class Redone(Value):
    """What a restart cost in steps: the last one before it, and the first one after it, as far as they were reported."""

    reached: int | None
    resumed: int | None

    @property
    def steps(self) -> int | None:
        """How many steps were done again."""
        if self.reached is None or self.resumed is None:
            return None
        return max(0, self.reached - self.resumed + 1)


class Restart(Value):
    """One restart, as the node saw it on which it took longest. `began` and `phases` are by that node's clock."""

    round: int
    reason: str
    kind: str
    charged: bool
    began: int
    total_s: float
    phases: Mapping[str, float]
    node: str
    first_cause: Cause | None = None
    redone: Redone = Redone(None, None)
    world_size: int | None = None
    """How many workers the round has that it led to, and how many nodes."""
    nodes: int | None = None
    promoted: tuple[int, ...] = ()
    """The local ranks of that node whose workers were standbys; and why others were not."""
    cold: Mapping[str, str] = {}


class Moment(Value):
    """A line of the timeline. `timestamp` is in milliseconds since 1970, by the clock of that host."""

    timestamp: int
    host: str
    name: str
    sentence: str


class Effective(Value):
    """How much of its time the run trained. `is_reported`: workers report their steps, so that is known, not guessed."""

    since: int | None
    seconds: float
    training_seconds: float
    is_reported: bool
    redone_seconds: float = 0.0
    """About how much of that went into steps that had been done before."""

    @property
    def share(self) -> float | None:
        """Return a part of 1; None when there was no time yet."""
        return self.training_seconds / self.seconds if self.seconds > 0 else None


class Outcome(Value):
    """How the run ended. `phases`: what is known of its last moments, in seconds."""

    outcome: str
    status: int
    sentence: str
    node: str
    timestamp: int
    first_cause: Cause | None = None
    phases: Mapping[str, float] = {}


class Evidence(Value):
    """A folder of evidence on a node."""

    node: str
    name: str
    files: tuple[str, ...]


class RunSeen(Value):
    """The picture. Foreign text in it is as it came: whoever shows it makes it safe for where it is shown."""

    run_id: str
    state: str
    is_over: bool
    world_size: int | None
    nodes: tuple[Node, ...]
    ranks: tuple[Rank, ...]
    restarts_used: int | None
    restarts_allowed: int | None
    restarts: tuple[Restart, ...]
    failures: tuple[Cause, ...]
    newest_commit: Mapping[str, Mapping[str, object] | None]
    timeline: tuple[Moment, ...]
    world_over_time: tuple[tuple[int, int], ...]
    hang: Mapping[str, object] | None
    stragglers: tuple[Mapping[str, object], ...]
    effective: Effective
    outcome: Outcome | None
    evidence: tuple[Evidence, ...]
    gaps: tuple[str, ...]

    @property
    def is_past(self) -> bool:
        """Tell whether nothing more is to be expected of it."""
        return self.is_over or self.state in ("gone", "silent")

    def as_json(self) -> dict[str, object]:
        """Return it as `planaria status --json` prints it; docs/looking.md describes it."""
        told = as_dict(self)
        restarts = told.pop("restarts")
        used, allowed = told.pop("restarts_used"), told.pop("restarts_allowed")
        told["restarts"] = {"used": used, "allowed": allowed, "list": restarts}
        told["effective"] = {**as_dict(self.effective), "share": self.effective.share}
        return {"schema": SCHEMA, **told}
