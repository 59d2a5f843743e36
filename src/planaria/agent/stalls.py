"""Whether a job restarts without getting any further. Pure.

A life counts when it failed by itself and reported no step above the highest of all lives before. A job that never reported a
step has no such lives, and neither has one whose steps begin anew, with each epoch for instance. A life that others killed, or
that failed because another process had gone, does not count.
"""

from __future__ import annotations

from planaria.agent.model import RESTARTING
from planaria.base.value import replace
from planaria.contract.failure import names_a_lost_peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Group, ProgressReported
    from planaria.contract.failure import Failure


def noted(group: Group, event: ProgressReported) -> Group:
    """Take a report. One that is read only after the end of its life was counted belongs to that life all the same."""
    wraps = group.wraps or event.went_back
    if group.phase == RESTARTING:
        if group.furthest is None or event.step > group.furthest:
            group = replace(group, furthest=event.step, stalled=0)
        return replace(group, wraps=wraps, progressed=True)
    if group.progressed and group.reached is not None and event.step <= group.reached and wraps == group.wraps:
        return group
    reached = event.step if group.reached is None else max(event.step, group.reached)
    return replace(group, progressed=True, reached=reached, wraps=wraps)


def counted(group: Group, causes: tuple[Failure, ...]) -> Group:
    """Take the end of a life, with its failures, first cause first."""
    reached, furthest = group.reached, group.furthest
    group = replace(group, reached=None)
    if reached is not None and (furthest is None or reached > furthest):
        return replace(group, furthest=reached, stalled=0)
    own = [one for one in causes if one.stopped_for is None]
    if furthest is None or group.wraps or not own or own[0].killer == "other" or names_a_lost_peer(own[0]):
        return group
    return replace(group, stalled=group.stalled + 1)


def why_it_stops(group: Group) -> str:
    """Say why another life cannot be expected to help; empty when it can."""
    if not group.stall_restarts or group.stalled < group.stall_restarts or group.wraps:
        return ""
    return (
        f"{group.stalled} lives in a row have ended without getting beyond step {group.furthest}, so this job does not "
        f"restart any more (--stall-restarts={group.stall_restarts}; 0 restarts all the same)"
    )
