"""What the rendezvous works with: settings, what a node knows of a round, events that happen and effects that are ordered.

Events are in the past tense, effects are orders. Times are local monotonic seconds. `messages.py` has what agents say.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from planaria.rendezvous.messages import Ask, Ended, Leads, Message, Place

    LostMajority = Literal["wait", "exit", "continue"]

SELF = "self"
"""The address of the leader in its own process, and the connection to it."""


class Rules(Value):
    """What every node of a run has to be told alike: promises about leases, and who may run, hold only then."""

    ttl_s: float = 5.0
    min_nodes: int = 1
    max_nodes: int = 1
    max_restarts: int = 0


class Settings(Value):
    """What one agent was told about the run. All but the first group are the same on every node."""

    node: str
    host: str
    address: str
    local_world_size: int
    role: str = "default"
    slot: int | None = None
    pod_uid: str = ""
    """Of the pod that this agent runs in, if it knows one: its name begins with it, see `contract/burial.py`."""

    run_id: str = "none"
    min_nodes: int = 1
    max_nodes: int = 1
    max_restarts: int = 0
    endpoints: tuple[str, ...] = ()
    owned: int | None = None
    """Which of the endpoints is this agent's own listener; None: another host's."""
    external: bool = False
    """A store arbitrates; else the members vote."""
    ttl_s: float = 5.0
    quiet_s: float = 2.0
    boot_quiet_s: float = 2.0
    gather_s: float = 0.2
    join_timeout_s: float = 600.0
    resize_grace_s: float = 10.0
    on_lost_majority: LostMajority = "wait"
    always_restart: bool = False

    @property
    def rules(self) -> Rules:
        """What no two nodes of a run may think differently about."""
        return Rules(self.ttl_s, self.min_nodes, self.max_nodes, self.max_restarts)

    @property
    def lease_s(self) -> float:
        """How long a lease holds, from the moment its renewal was sent."""
        return max(self.ttl_s - 1.0, self.ttl_s * 0.6)

    @property
    def silence_s(self) -> float:
        """After how much silence a member is fenced for certain."""
        return self.ttl_s * 1.1

    @property
    def renew_s(self) -> float:
        """How often a member renews: what its leader knows of the others may be two periods old."""
        return self.lease_s / 5

    @property
    def suspect_s(self) -> float:
        """After how much silence of the leader a member looks for another."""
        return self.ttl_s * 0.4


class Deputy(Value):
    """A node that may have to lead one day. `in_base`: it was in the round before, too."""

    node: str
    address: str
    in_base: bool = False


class Held(Value):
    """Until when a node heard from the leader it had, and until when its lease runs or ran."""

    heard_at: float = float("-inf")
    lease_until: float = float("-inf")


class Standing(Value):
    """What a node knows of the newest round it was told of. `slot` is None for one that is not in it.

    `next_round` is the highest number it was ever asked to stop for, `epoch` names the run as long as it lives: an id may
    be used again.
    """

    epoch: str = ""
    term: int = 0
    round: int = -1
    size: int = 0
    slot: int | None = None
    restart_count: int = 0
    deputies: tuple[Deputy, ...] = ()
    next_round: int = 0
    home: int | None = None
    """Its slot in the last round that it ran."""
    ran: int = -1
    """The number of that round."""
    base: int = 0
    """How many of the last round that had begun may have been alive when this one was announced, and whether it was one of
    them: as long as nobody knows that this round started, those decide with it."""
    in_base: bool = False
    begun: int = -1
    """The number of the newest round that had started when it was told of this one."""
    keeps: bool = False
    """Whether all who were in that round are in this one, but those in `without`."""
    without: tuple[str, ...] = ()

    @property
    def has_begun(self) -> bool:
        """Tell whether this round is known to have started."""
        return self.round >= 0 and max(self.ran, self.begun) >= self.round


# Events. A connection has a name that its owner chose: `to` is one this agent opened, `conn` any.


class Opened(Value):
    """The connection that was ordered is there."""

    conn: str


class Lost(Value):
    """A connection ended or could not be made; `refused`: the host lives and nobody listens there."""

    conn: str
    refused: bool = False


class Received(Value):
    """A message came."""

    conn: str
    message: Message


class Answered(Value):
    """An `AskAround` was answered: by whom, or `refused`, or (neither) not at all."""

    address: str
    leads: Leads | None = None
    refused: bool = False


class Ticked(Value):
    """The moment ordered by the last `WakeAt` has come."""


class WorkersStopped(Value):
    """No worker of this node is alive any more; a fresh master port is reserved."""

    port: int


class WorkersFailed(Value):
    """Workers failed by themselves; see `Failed`. `WorkersStopped` came first."""

    failures: tuple[str, ...]
    at: tuple[float, ...]
    names_peer: tuple[bool, ...]
    free: bool = False
    why: str = ""


class WorkersDone(Value):
    """All workers ended well. `WorkersStopped` came first."""


class LeaveAnnounced(Value):
    """The owner wants this node out; its workers still run."""

    reason: str


class LeaveRequested(Value):
    """The owner wants this node out; its workers are dead."""

    reason: str


class EndRequested(Value):
    """The owner wants the run to end, on every node. Workers that listen get `grace_s` to end by themselves."""

    reason: str
    grace_s: float


class KeyRead(Value):
    """The store answered: the value of one of the run's keys, or None; `revision` 0 when it is absent."""

    key: str
    value: str | None
    revision: int
    age_s: float = 0.0


class KeyWritten(Value):
    """A `WriteKey` was answered: its new revision, or 0 when somebody else wrote first."""

    key: str
    revision: int


class StoreAnswered(Value):
    """The lease on the leader key was renewed; the request left at `sent_at`."""

    sent_at: float


class StoreLeaseLost(Value):
    """The store no longer knows our lease: whatever hung on it is gone."""


class StoreTrouble(Value):
    """The store did not do what it was asked, in its own words. It is asked again, unless we go.

    `final`: it will not before people have changed something, a password or a right.
    """

    why: str
    final: bool = False


# Effects.


class Connect(Value):
    """Open a connection called `conn`; report `Opened` or `Lost`."""

    conn: str
    address: str


class Send(Value):
    """Send a message; dropped when the connection is gone."""

    conn: str
    message: Message


class Close(Value):
    """End a connection, after what was sent; nothing more is reported of it."""

    conn: str


class AskAround(Value):
    """Ask `address`, and report `Answered` within a second."""

    address: str
    ask: Ask


class WakeAt(Value):
    """Report `Ticked` at this moment, instead of any moment ordered before. None: not at all."""

    when: float | None


class StopWorkers(Value):
    """Stop the workers, if any; report `WorkersStopped`, also when none runs."""

    round: int
    reason: str
    grace_s: float


class KillWorkers(Value):
    """Kill all workers at once and report `WorkersStopped`."""

    reason: str


class StartWorkers(Value):
    """Start the workers of this place."""

    place: Place


class Fence(Value):
    """From `deadline` on no worker may live: tell the guardian. None: a node alone needs no fence."""

    deadline: float | None


class EndRun(Value):
    """The run is over for this agent."""

    ended: Ended


class Say(Value):
    """Tell people, in one line. `passing`: only the newest is worth a line on a terminal."""

    text: str
    passing: bool = False


class ReadKey(Value):
    """Read one of the run's keys, and report `KeyRead` now and at every change from now on."""

    key: str


class WriteKey(Value):
    """Write a key if its revision is still `expect` (None: whatever it is); `leased`: it goes when this agent does.

    Reports `KeyWritten`. A None value deletes the key.
    """

    key: str
    value: str | None
    expect: int | None
    leased: bool = False


if TYPE_CHECKING:
    LocalEvent = WorkersStopped | WorkersFailed | WorkersDone | LeaveAnnounced | LeaveRequested | EndRequested
    Event = (
        Opened
        | Lost
        | Received
        | Answered
        | Ticked
        | WorkersStopped
        | WorkersFailed
        | WorkersDone
        | LeaveAnnounced
        | LeaveRequested
        | EndRequested
        | KeyRead
        | KeyWritten
        | StoreAnswered
        | StoreLeaseLost
        | StoreTrouble
    )
    Effect = (
        Connect
        | Send
        | Close
        | AskAround
        | WakeAt
        | StopWorkers
        | KillWorkers
        | StartWorkers
        | Fence
        | EndRun
        | Say
        | ReadKey
        | WriteKey
    )
