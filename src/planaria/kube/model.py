"""What is decided about a job: things to be done, in order, the status that says so, and what people are told. Pure values."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube.scaling_model import Wants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Json = dict[str, Any]
    Plain = Mapping[str, Any]


class Create(Value):
    """Make an object. That it is there already is as good: the next look says whose it is."""

    kind: str
    name: str
    body: Json


class Delete(Value):
    """Delete the object of this uid; that it is gone, or another by now, is as good.

    A pod has its own grace: its end by SIGTERM is the drain. What it owns goes in the background.
    """

    kind: str
    name: str
    uid: str


class Bury(Value):
    """Tell the agents of the run that these nodes are gone for good, if a fresh look says so too."""

    nodes: tuple[str, ...]


Action = Create | Delete | Bury


class Event(Value):
    """One line for people, to be written as an Event about the job."""

    reason: str
    message: str
    is_warning: bool = False


class Decision(Value):
    """What is to be done now.

    `status` is written first, with the resourceVersion of the job that was read, and only if it differs from what is there;
    then `actions`, in order. So the status is what was decided and the actions follow from it: whoever is killed in between
    decides the same again. A conflict or a failure means: read again, decide again. `events` are told after the status.
    `wake_after_s`: when to look again though nothing has changed; None: no need.
    """

    status: Json
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_after_s: float | None = None
    wants: Wants = Wants()  # samples that the next decision is worth being made for


class Now(Value):
    """What a decision cannot know by itself."""

    wall_s: float  # seconds since 1970 on the operator's clock; only its own readings are ever compared
    token: str  # a fresh random token, for a job that has none yet
