"""What a campaign is made of: faults, what this machine can do, what was seen. Pure values."""

from __future__ import annotations

from planaria.base.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    Loss = Literal["nothing", "workers", "node", "all"]

MOST_FAULTS = 100_000
HANG_S = 0.7
"""How long a worker hangs where nobody would find out that it does."""


class Fault(Value):
    """One strike. It comes when the job has made so many steps since it has recovered from the one before."""

    number: int
    kind: str
    variant: str
    node: int
    local_rank: int
    after_steps: int
    lasts_s: float = 0.0

    def __str__(self) -> str:
        place = "all nodes" if self.loss == "all" else f"n{self.node + 1}"
        rank = f" local rank {self.local_rank}" if self.local_rank >= 0 else ""
        time = f" for {self.lasts_s:.2f} s" if self.lasts_s else ""
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.kind}{variant} {place}{rank}{time}"

    @property
    def loss(self) -> Loss:
        """What may be lost by it, at worst."""
        return _LOSSES.get((self.kind, self.variant)) or _LOSSES.get((self.kind, "")) or "nothing"

    @property
    def is_fatal(self) -> bool:
        """Tell whether the round cannot outlive it."""
        return self.kind in ("kill-worker", "kill-agent") or self.variant == "for ever"

    def where_no_steps_are_told(self) -> Fault:
        """Return what is done to a job of which nobody knows how far it is: a hang would be for ever indeed."""
        return replace(self, variant="", lasts_s=HANG_S) if self.variant == "for ever" else self

    @property
    def is_charged(self) -> bool:
        """Tell whether the restart that it causes is paid from the budget."""
        return self.loss == "workers"


_LOSSES: dict[tuple[str, str], Loss] = {
    ("kill-worker", ""): "workers",
    ("hang", "for ever"): "workers",
    ("kill-agent", ""): "node",
    ("pause-node", ""): "node",
    ("slow-network", ""): "node",
    ("cut-network", ""): "node",
    ("corrupt-snapshot", "all nodes lost"): "all",
    ("lose-all", ""): "all",
}


class Facts(Value):
    """What a plan depends on besides its seed. `cannot` has why a kind cannot be done here."""

    nodes: int = 3
    nproc: int = 1
    ttl_s: float = 3.0
    finds_hangs: bool = False
    cannot: Mapping[str, str] = {}


class Worker(Value):
    """A worker process. Alive is what it surely was at `last_alive_at`; moments are of this machine's monotonic clock.

    One that was stopped together with its whole node has lived until `stopped_at`: what it does in the moments after it wakes,
    before anybody can end it, no clock can prevent.
    """

    node: str
    pid: int
    rank: int
    era: int
    round: int
    world_size: int
    restart_count: int
    started_at: float
    last_alive_at: float
    stopped_at: float | None = None
    woken_at: float | None = None


class Strike(Value):
    """A fault as it came. `left_out` says why it did not; `floor` is the step that no life may begin below after it."""

    fault: Fault
    at: float
    era: int = 0
    round: int = 0
    step: int | None = None
    floor: int | None = None
    back_s: float | None = None
    left_out: str = ""


class NodeEnd(Value):
    """A launcher that ended: how, whether that was our doing, and what it left.

    `left` has the processes that still lived some seconds later, `litter` what was in the folder for its temporary files. One
    that `is_late` did not end by itself after its agent had died, or was told to: we killed it.
    """

    node: str
    status: int
    at: float
    is_ours: bool
    left: tuple[str, ...] = ()
    litter: tuple[str, ...] = ()
    is_late: bool = False


class Said(Value):
    """One line of a node, or one event of its agent, when it was read. `step` is where a life says that it goes on."""

    at: float
    node: str
    text: str
    step: int | None = None


class Memory(Value):
    """An agent's memory at a moment: what is its own, and what it shares (commits that it keeps)."""

    at: float
    own_kib: int
    shared_kib: int


class Budget(Value):
    """Restarts that were paid, and faults that may cost one, since all nodes were last lost."""

    era: int
    charged: int
    allowed: int


class Observed(Value):
    """All that a campaign has seen."""

    planned: int
    began_at: float = 0.0
    ended_at: float = 0.0
    strikes: tuple[Strike, ...] = ()
    workers: tuple[Worker, ...] = ()
    ends: tuple[NodeEnd, ...] = ()
    said: tuple[Said, ...] = ()
    memory: Mapping[str, tuple[Memory, ...]] = {}
    budgets: tuple[Budget, ...] = ()
    shared_memory_left: tuple[str, ...] = ()
    expected: str | None = None
    result: str | None = None
    """What the undisturbed run came to, and what this one did; None: nothing was to be compared, or there is nothing."""
    stuck: str = ""
    """Why the campaign could not go on; empty: it did to its end."""
    is_interrupted: bool = False
