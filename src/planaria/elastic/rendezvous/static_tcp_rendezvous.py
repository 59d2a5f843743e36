"""A rendezvous whose nodes and ranks are known beforehand, under torch's names, on our protocol.

The agents meet one port above the endpoint's; the endpoint itself is for the workers. Unlike torch's, a restart is agreed on:
all nodes stop before any starts again, with a fresh store.
"""

from __future__ import annotations

from datetime import timedelta
from logging import getLogger
from typing import TYPE_CHECKING

from planaria.agent.settings import Meeting
from planaria.base.addresses import join_address
from planaria.elastic.rendezvous.api import RendezvousStoreInfo
from planaria.elastic.rendezvous.handler import MeetingHandler
from planaria.elastic.rendezvous.meeting import meeting_of
from planaria.elastic.rendezvous.utils import parse_rendezvous_endpoint
from planaria.elastic.utils.secrets import credentials_here

if TYPE_CHECKING:
    from planaria.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]

logger = getLogger(__name__)

_TIMEOUT_S = 600


class StaticTCPRendezvous(MeetingHandler):
    """A handler for `static`. `timeout` is in seconds: how long the others may take to come."""

    def __init__(
        self, master_addr: str, master_port: int, rank: int, world_size: int, run_id: str, timeout: int
    ) -> None:
        meeting = Meeting(
            backend="static",
            endpoints=(join_address(master_addr, master_port),),
            run_id=run_id,
            min_nodes=world_size,
            max_nodes=world_size,
            node_rank=rank,
            token=credentials_here().token,
            join_timeout_s=float(timeout),
        )
        super().__init__("static", run_id, meeting if world_size > 1 else None)
        self.master_addr = master_addr
        self.master_port = master_port
        self.rank = rank
        self.world_size = world_size
        self.run_id = run_id
        self.timeout = timedelta(seconds=timeout)
        self.master = RendezvousStoreInfo(master_addr, master_port)


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Make the handler for `static`: `params` name the rank of this node, and the endpoint for the workers of all."""
    if "rank" not in params.config:
        raise ValueError("rank is absent in RendezvousParameters.Try add --node-rank to the cmd request")
    endpoint = params.endpoint.strip()
    if not endpoint:
        raise ValueError(
            "endpoint is absent in RendezvousParametersTry add --master-port and --master-addr to the cmd request"
        )
    host, port = parse_rendezvous_endpoint(endpoint, -1)
    if port == -1:
        raise ValueError(f"Port is absent in endpoint: {endpoint}. Try launching with --master-port")
    described = meeting_of(params, credentials_here(), "static")
    timeout = int(described.join_timeout_s) if described is not None else _TIMEOUT_S
    rank = params.get_as_int("rank") or 0
    handler = StaticTCPRendezvous(host, port, rank, params.max_nodes, params.run_id, timeout)
    handler.describe(described)
    handler.local_addr = params.local_addr
    return handler
