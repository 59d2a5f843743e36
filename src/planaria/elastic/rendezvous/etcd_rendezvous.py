"""A rendezvous through etcd, under torch's names, on our protocol and etcd's v3 API.

torch's `EtcdRendezvous` is left out: it is the steps of another protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.elastic.rendezvous.handler import MeetingHandler
from planaria.elastic.rendezvous.meeting import meeting_of
from planaria.elastic.utils.secrets import credentials_here
from planaria.errors import InternalError

if TYPE_CHECKING:
    from planaria.agent.settings import Meeting
    from planaria.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters

__all__ = [
    "EtcdRendezvousHandler",
    "EtcdRendezvousRetryImmediately",
    "EtcdRendezvousRetryableFailure",
    "create_rdzv_handler",
]


class EtcdRendezvousRetryableFailure(Exception):
    """A step came too late and is worth another try. Ours tries by itself and raises this never."""


class EtcdRendezvousRetryImmediately(Exception):
    """Likewise, without a pause."""


class EtcdRendezvousHandler(MeetingHandler):
    """A handler for `etcd`. `rdzv_impl` describes the meeting."""

    def __init__(self, rdzv_impl: Meeting, local_addr: str | None) -> None:
        super().__init__("etcd", rdzv_impl.run_id, rdzv_impl)
        self.local_addr = local_addr


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Make the handler for `etcd`; settings are those of `--rdzv-conf`.

    Raises:
        ValueError: They cannot be used.
    """
    meeting = meeting_of(params, credentials_here(), "etcd")
    if meeting is None:
        raise InternalError("a meeting through etcd is one, however few its nodes are")
    return EtcdRendezvousHandler(meeting, params.local_addr)
