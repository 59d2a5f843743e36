"""What agents say to each other. Values with plain fields, so that `wire.py` can check every one that arrives.

Ages cross the network, moments never do.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.rendezvous.model import Deputy, Rules, Standing

TYPE_CHECKING = False


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
    rules: Rules = Rules()
    """What I was told that has to be the same everywhere."""


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
    why: str = ""
    """Why no other life can be expected to help, for people; empty: one may."""


class Done(Value):
    """All workers of mine ended well in `round`."""

    round: int


class Departing(Value):
    """I am about to leave: let everybody stop in good order first."""

    reason: str


class Leave(Value):
    """Goodbye: no worker of mine is alive, and none will be."""

    reason: str


class Quit(Value):
    """An owner wants the run to end, everywhere. Workers that listen get `grace_s` to end by themselves."""

    reason: str
    grace_s: float

    def hurries(self, known: Quit | None) -> bool:
        """Tell whether this leaves less time than what was known before."""
        return known is None or self.grace_s < known.grace_s


class Heard(Value):
    """I know how the run ended."""


# Messages to a member.


class Welcome(Value):
    """You are in."""

    term: int
    node: str


class Ack(Value):
    """Renewal `seq` is granted, for at most `left_s` from the moment you sent it. Joining counts as renewal 0."""

    seq: int
    left_s: float


class Stop(Value):
    """Stop your workers, if any run, and wait for `round`. Workers that listen get `grace_s` to stop by themselves.

    `final`: an owner wants the end of the run. Who hears it tells whoever leads next: we may be gone by then, and so may
    the node that asked. It may come again, with less time than before.
    """

    round: int
    reason: str
    grace_s: float
    final: bool = False


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
    begun: int = -1
    """The newest round that has started: this one, or the one before."""
    keeps: bool = False
    """All who were in the one before are in this one, but those in `without`: few of its members are named."""
    without: tuple[str, ...] = ()
    anchor: str = ""
    """Where the agent of slot 0 is; empty for a spectator."""
    buddy: str = ""
    """Where the agent of the slot after mine is, and of slot 0 after the last; empty for one that is alone."""


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
    """Who leads `run_id`? If I do, or claim to, this is my address; `valid`: I have my majority.

    `vote` is a number of mine for a vote that nobody can count on any more, see `Member.lapsed_vote`; 0: there is none.
    """

    run_id: str
    node: str
    address: str
    term: int
    round: int
    valid: bool
    vote: int = 0


class Leads(Value):
    """Who I think leads: `address` is empty when I know nobody, and my own when it is me.

    `node` is who answers. `valid`: it is me, and I have my majority. `seeking`: I look for a leader too. `vote` is the one
    that was asked with, if I had my majority when nobody could count on that any more; `round` is my next one then.
    """

    run_id: str
    node: str
    address: str
    term: int
    round: int
    valid: bool
    seeking: bool
    vote: int = 0


if TYPE_CHECKING:
    ToLeader = Join | Renew | Stopped | Placed | Failed | Done | Departing | Leave | Quit | Heard
    ToMember = Welcome | Ack | Stop | Place | Start | Waiting | Ended | Farewell | Redirect | Refused
    Message = ToLeader | ToMember | Ask | Leads
