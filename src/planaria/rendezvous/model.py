"""What the rendezvous works with: settings, the messages agents exchange, events that happen and effects that are ordered.

Messages are values with plain fields, so that `wire.py` can check every one that arrives. Events are in the past tense,
effects are orders. Times are local monotonic seconds; ages cross the network, moments never do.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    LostMajority = Literal["wait", "exit", "continue"]
    Ending = Literal["done", "failed", "timeout", "lost"]

SELF = "self"
"""The address of the leader in its own process, and the connection to it."""


class Settings(Value):
    """What one agent was told about the run. All but the first group are the same on every node."""

    node: str
    host: str
    address: str
    local_world_size: int
    role: str = "default"
    slot: int | None = None

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
    fixed_port: bool = False

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
    """How many members of the round before were there when this one was announced, and whether it was one of them: as long
    as nobody knows that this round started, those decide with it."""
    in_base: bool = False


# Messages to the leader.


class Join(Value):
    """Take me in. `state` is what my workers do: idle, running, stopping, done or failed; then a Failed follows.

    `bound_term` is the term of the leader I held to last, `since_ack_s` how long ago it last answered; `fenced`: that is
    too long. `dead` are nodes whose address refused me.
    """

    run_id: str
    node: str
    host: str
    address: str
    local_world_size: int
    role: str
    slot_wish: int | None
    standing: Standing
    state: str
    bound_term: int
    fenced: bool
    since_ack_s: float
    age_s: float
    port: int = 0
    dead: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """Nodes that said goodbye to me."""


class Renew(Value):
    """I am here; `echo` is the number of the last Ack that reached me."""

    seq: int
    echo: int


class Stopped(Value):
    """No worker of mine is alive; I wait for `round`. Rank 0 could listen on `port`. `fenced`: I had to kill them."""

    round: int
    port: int
    fenced: bool


class Placed(Value):
    """I know who is in `round`."""

    round: int


class Failed(Value):
    """Workers of mine failed in `round`: one JSON text a failure, `ages_s` ago."""

    round: int
    failures: tuple[str, ...]
    ages_s: tuple[float, ...]
    names_peer: tuple[bool, ...]
    free: bool = False
    """The start itself could not happen (the master port was taken): costs no restart."""


class Done(Value):
    """All workers of mine ended well in `round`."""

    round: int


class Departing(Value):
    """I am about to leave: let everybody stop in good order first."""

    reason: str


class Leave(Value):
    """Goodbye: no worker of mine is alive, and none will be."""

    reason: str


class Heard(Value):
    """I know how the run ended."""


# Messages to a member.


class Welcome(Value):
    """You are in."""

    term: int
    node: str


class Ack(Value):
    """Renewal `seq` is granted, for at most `left_s` from the moment you sent it."""

    seq: int
    left_s: float


class Stop(Value):
    """Stop your workers, if any run, and wait for `round`. Workers that listen get `grace_s` to stop by themselves."""

    round: int
    reason: str
    grace_s: float


class Place(Value):
    """Round `round` as one member sees it; `slot` is None for a spectator."""

    epoch: str
    term: int
    round: int
    size: int
    slot: int | None
    first_rank: int
    world_size: int
    first_role_rank: int
    role_world_size: int
    master_addr: str
    master_port: int
    restart_count: int
    reason: str
    deputies: tuple[Deputy, ...]
    base: int = 0
    in_base: bool = False


class Start(Value):
    """Everybody knows `round`: start your workers. Grants a lease as `Ack` does, from when you sent `Placed`."""

    round: int
    left_s: float


class Waiting(Value):
    """What the leader waits for, in one line for people."""

    text: str


class Ended(Value):
    """The run is over, for everybody alike. `failures` are JSON texts, first cause first."""

    kind: str
    status: int
    explanation: str
    failures: tuple[str, ...]
    restart_count: int


class Farewell(Value):
    """Everybody knows how the run ended: you may go."""


class Redirect(Value):
    """Another leads: at `address`, with `term`; an empty address: I do not any more, look around.

    With your own address: lead, you are my heir. `gone` is the node that said goodbye with it, if one did.
    """

    address: str
    term: int
    gone: str = ""


class Refused(Value):
    """You cannot be in this run."""

    why: str


# Between any two agents, on a connection of its own.


class Ask(Value):
    """Who leads `run_id`? If I do, or claim to, this is my address; `valid`: I have my majority."""

    run_id: str
    node: str
    address: str
    term: int
    round: int
    valid: bool


class Leads(Value):
    """Who I think leads: `address` is empty when I know nobody, and my own when it is me.

    `node` is who answers. `valid`: it is me, and I have my majority. `seeking`: I look for a leader too.
    """

    run_id: str
    node: str
    address: str
    term: int
    round: int
    valid: bool
    seeking: bool


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


class WorkersDone(Value):
    """All workers ended well. `WorkersStopped` came first."""


class LeaveAnnounced(Value):
    """The owner wants this node out; its workers still run."""

    reason: str


class LeaveRequested(Value):
    """The owner wants this node out; its workers are dead."""

    reason: str


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
    ToLeader = Join | Renew | Stopped | Placed | Failed | Done | Departing | Leave | Heard
    ToMember = Welcome | Ack | Stop | Place | Start | Waiting | Ended | Farewell | Redirect | Refused
    Message = ToLeader | ToMember | Ask | Leads
    LocalEvent = WorkersStopped | WorkersFailed | WorkersDone | LeaveAnnounced | LeaveRequested
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
        | KeyRead
        | KeyWritten
        | StoreAnswered
        | StoreLeaseLost
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
