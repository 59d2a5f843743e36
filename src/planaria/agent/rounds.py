"""Who is in the world of this life. One node alone needs nobody's consent; one of many is told its place. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.contract.env import Round

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Job, StartWorkers
    from planaria.rendezvous.messages import Place


class Neighbours(Value):
    """Where the agent of slot 0 is, and the agent of the next slot; empty for a node alone."""

    anchor: str = ""
    buddy: str = ""


def lone_round(job: Job, order: StartWorkers, master_port: int) -> Round:
    """Return the round of a job that runs on this node only: it has every rank."""
    size = job.local_world_size
    return Round(
        number=order.round,
        run_id=job.run_id,
        role=job.role,
        group_rank=0,
        group_world_size=1,
        first_rank=0,
        world_size=size,
        first_role_rank=0,
        role_world_size=size,
        local_world_size=size,
        master_addr=job.master_addr,
        master_port=master_port,
        restart_count=order.restart_count,
        max_restarts=job.max_restarts,
        restart_reason=order.reason,
    )


def placed_round(job: Job, place: Place) -> Round:
    """Return the round as this node's workers see it from their place; a spectator, who has no slot, starts none.

    In a static run the master's address is the one that was given: a service name or a virtual address leads to rank 0 where
    what its host calls itself may not.
    """
    is_static = job.meeting is not None and job.meeting.backend == "static"
    return Round(
        number=place.round,
        run_id=job.run_id,
        role=job.role,
        group_rank=place.slot or 0,
        group_world_size=place.size,
        first_rank=place.first_rank,
        world_size=place.world_size,
        first_role_rank=place.first_role_rank,
        role_world_size=place.role_world_size,
        local_world_size=job.local_world_size,
        master_addr=job.master_addr if is_static else place.master_addr,
        master_port=place.master_port,
        restart_count=place.restart_count,
        max_restarts=job.max_restarts,
        restart_reason=place.reason,
    )
