"""What only a node of many hears and is ordered: the events and effects between its worker group and the rendezvous.

`member.py` connects them; `meeting.py` reports the events and performs the effects. A node alone imports none of it.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from planaria.contract.failure import Failure
    from planaria.rendezvous.messages import Place

    EndKind = Literal["done", "failed", "timeout", "lost", "refused", "stopped"]


class RoundStarted(Value):
    """A round begins, with this node at `place`."""

    place: Place
    at: float


class RoundStopped(Value):
    """The round is over, and `round` comes next. Workers that listen have `grace_s` to end by themselves."""

    round: int
    reason: str
    grace_s: float
    at: float
    has_listeners: bool = False


class LeaseMoved(Value):
    """From `until` on no worker of this node may live; None: nobody is waiting for it to be dead."""

    until: float | None


class Fenced(Value):
    """The lease ran out: another world may begin without this node."""

    reason: str
    at: float


class RunEnded(Value):
    """The run is over; `failures` are the job's, first cause first. Without any, `status` is that of a failed run."""

    kind: EndKind
    explanation: str
    failures: tuple[Failure, ...]
    restart_count: int
    at: float
    status: int = 1


class GoodbyeSaid(Value):
    """The others know that this node leaves, or will not hear of it from us any more."""


class MeetOthers(Value):
    """Let the rendezvous look for the other nodes."""


class TakePlace(Value):
    """Say so and start the workers of this node's place in a round; report `WorkersStarted`."""

    place: Place


class TellResize(Value):
    """Tell workers that listen on the control socket that the world is about to change."""

    reason: str
    grace_s: float


class TellFence(Value):
    """Say why the workers are killed."""

    reason: str


class TellLife(Value):
    """Say what ended a life before the others are told; not `clean`: and that something of it is still there."""

    clean: bool


class ReportStopped(Value):
    """Tell the rendezvous that no worker lives, and which port rank 0 could use."""


class ReportDone(Value):
    """Tell the rendezvous that every worker of this node ended well."""


class ReportFailed(Value):
    """Tell the rendezvous which workers failed, first cause first; `free`: the start itself could not happen.

    `why` says why no other life can be expected to help; empty: one may.
    """

    failures: tuple[Failure, ...]
    free: bool = False
    why: str = ""


class AnnounceLeave(Value):
    """Tell the rendezvous that this node is about to leave, so that the others can stop in good order."""

    reason: str


class RequestEnd(Value):
    """Ask the others for the end of the run; it comes as `RunEnded`, on this node as on all."""

    reason: str
    grace_s: float


class LeaveRun(Value):
    """Say goodbye to the others, who go on; report `GoodbyeSaid`."""

    reason: str


if TYPE_CHECKING:
    SeatEvent = RoundStarted | RoundStopped | LeaseMoved | Fenced | RunEnded | GoodbyeSaid
    SeatEffect = (
        MeetOthers
        | TakePlace
        | TellResize
        | TellFence
        | TellLife
        | ReportStopped
        | ReportDone
        | ReportFailed
        | AnnounceLeave
        | RequestEnd
        | LeaveRun
    )
