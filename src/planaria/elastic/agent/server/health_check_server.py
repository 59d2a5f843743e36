"""A health check of an agent that asks, or of its caller's own: torch's interface, and a server behind it that answers.

`GET /livez` (and `/`) is 200 while the last sign of life is younger than the timeout, else 503. A subclass that serves by other
means overrides `start` and `stop`. It listens on loopback, or where the variable PET_HEALTH_CHECK_HOST says.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from planaria.base.addresses import join_address
from planaria.elastic.utils.logging import get_logger
from planaria.observe.request import Reply, refused
from planaria.observe.responder import LOOPBACK, Responder

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.observe.http import Peer, Respond
    from planaria.observe.request import Request

__all__ = ["HealthCheckServer", "create_healthcheck_server"]

HOST_VARIABLE = "PET_HEALTH_CHECK_HOST"
_PATHS = ("/", "/livez")

logger = get_logger(__name__)


class HealthCheckServer:
    """Tells probes whether the agent is alive.

    `alive_callback` returns when it last made progress, in seconds since the epoch; it is called in the server's thread, once
    for every probe. `timeout` is how many seconds ago that may be. A `port` of 0 is a free one, see the attribute `port`.
    """

    _alive_callback: Callable[[], int]
    _port: int
    _timeout: int
    host = ""
    """Where it listens; empty: where the variable says, or loopback. It may be set before the start."""

    def __init__(self, alive_callback: Callable[[], int], port: int, timeout: int) -> None:
        self._alive_callback = alive_callback
        self._port = port
        self._timeout = timeout
        self._responder: Responder | None = None

    @property
    def alive_callback(self) -> Callable[[], int]:
        """Return the callback that tells when the agent last made progress."""
        return self._alive_callback

    @property
    def port(self) -> int:
        """Return where it listens, or would."""
        return self._responder.port if self._responder is not None else self._port

    def start(self) -> None:
        """Answer from now on. Where the port cannot be had, say so and go on without: a probe is no reason to fail a job."""
        if self._responder is not None:
            return
        host = self.host or os.environ.get(HOST_VARIABLE) or LOOPBACK
        try:
            responder = Responder(host, self._port, self._answer)
            responder.start()
        except (OSError, RuntimeError, OverflowError) as problem:
            logger.warning("no health check at %s: %s", join_address(host, self._port), problem)
            return
        self._responder = responder

    def stop(self) -> None:
        """Answer nobody any more. Harmless when it was not started."""
        responder, self._responder = self._responder, None
        if responder is not None:
            responder.stop()

    def _answer(self, request: Request, _peer: Peer, respond: Respond) -> None:
        if request.path not in _PATHS:
            respond(refused(404, "there is no such page; there is /livez"))
        elif request.method == "POST":
            respond(refused(405, "expected GET or HEAD", ("Allow", "GET, HEAD")))
        else:
            respond(self._judge())

    def _judge(self) -> Reply:
        try:
            age_s = time.time() - self._alive_callback()
        except Exception as problem:  # noqa: BLE001  somebody else's code: whatever it is, it is no sign of life
            return refused(503, f"the callback failed: {type(problem).__name__}")
        if age_s < self._timeout:
            return Reply(200, b"alive\n")
        return refused(503, f"no progress for {age_s:.0f} s, expected some within {self._timeout} s")


def create_healthcheck_server(alive_callback: Callable[[], int], port: int, timeout: int) -> HealthCheckServer:
    """Return the server that an agent starts when it is given a port and nothing else."""
    return HealthCheckServer(alive_callback, port, timeout)
