"""Run the checks of `planaria doctor` in a process of their own, and tell the group what they found. It decides nothing.

A disk, a driver or a name server that hangs holds up that process alone: it is killed when its time is over. Only a run with
`--preflight` imports this file.
"""

from __future__ import annotations

import os
import sys

from planaria.agent.model import CHECKING, CheckNode, NodeChecked, TellSetAside
from planaria.agent.quarantine import aside_line, judged, unchecked_line
from planaria.base.addresses import join_address, look_up, split_address
from planaria.base.value import replace
from planaria.process.helper import Helper, Order
from planaria.rendezvous.addresses import Endpoint, Routes, known, reach, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from planaria.agent.driver import Driver
    from planaria.agent.model import Job
    from planaria.agent.settings import Meeting
    from planaria.base.addresses import Target
    from planaria.base.loop import Loop

WITHIN_S = 30.0  # the doctor gives up on what hangs after half of that


def doctor_argv(job: Job) -> list[str]:
    """Return the command line that checks what this job would use."""
    folders = {
        "--log-dir": job.logs.log_dir,
        "--run-dir": job.run_dir,
        "--snapshot-dir": job.shelter.directory,
    }
    flags = [f"--checks={','.join(job.preflight)}", f"--nproc-per-node={job.local_world_size}"]
    flags += [f"{name}={path}" for name, path in folders.items() if path and path != os.devnull]
    if job.meeting is not None:
        flags += _meeting_flags(job.meeting)
    return [sys.executable, "-P", "-m", "planaria", "doctor", "--json", f"--parent={os.getpid()}", *flags]


def _meeting_flags(meeting: Meeting) -> list[str]:
    """Return where the agents meet, as far as that is an address: with `static`, one port above the workers'."""
    if meeting.backend not in ("embedded", "static", "etcd"):
        return []
    above = meeting.backend == "static"
    pairs = [split_address(endpoint) for endpoint in meeting.endpoints]
    endpoints = [join_address(host, min(port + above, 65535)) for host, port in pairs]
    # Behind TLS it cannot be seen without a certificate who answers: that somebody does has to do.
    backend = "etcd" if meeting.backend == "etcd" or "tls_cert" in meeting.options else "c10d"
    return [f"--rdzv-endpoint={','.join(endpoints)}", f"--rdzv-backend={backend}"]


def has_endpoint(endpoint: Endpoint) -> bool:
    """Tell whether other nodes meet at this one. Loopback is every node's own, and says nothing."""
    spots = spread([endpoint])
    return len(spots) == 1 and not endpoint.is_loopback and reach(spots, os.uname().nodename, None, Routes()).owned == 0


class Preflight:
    """Performs what a group that is being checked orders."""

    def __init__(
        self, job: Job, loop: Loop, driver: Driver, environ: Mapping[str, str], say: Callable[[str], object]
    ) -> None:
        self._argv = doctor_argv(job)
        self._meeting = job.meeting
        self._has_endpoint = False
        self._loop = loop
        self._driver = driver
        self._environ = environ
        self._say = say
        self._warned: set[str] = set()
        self._helper: Helper | None = None

    def perform(self, effect: CheckNode | TellSetAside) -> None:
        """Check the node, or say what came of it."""
        if isinstance(effect, TellSetAside):
            self._say(aside_line(effect.problem, effect.after_s, has_endpoint=self._has_endpoint))
            return
        self._look_for_endpoint()
        order = Order(tuple(self._argv), self._environ, WITHIN_S)
        try:
            self._helper = Helper(self._loop, order, self._hear, self._conclude)
        except OSError as problem:
            self._post(f"the checks cannot be started: {problem.strerror}")

    def _look_for_endpoint(self) -> None:
        """Find out, by the time the checks end if names are found by then, whether everybody waits for this node."""
        meeting = self._meeting
        if meeting is None or len(meeting.endpoints) != 1:
            return
        if meeting.backend == "static":
            self._has_endpoint = meeting.node_rank == 0
        elif meeting.backend == "embedded":
            host, port = split_address(meeting.endpoints[0])
            endpoint = known(Endpoint(host, port))
            self._has_endpoint = has_endpoint(endpoint)
            if endpoint.addresses is None:
                look_up(self._loop, host, port, lambda found: self._located(endpoint, found))

    def _located(self, endpoint: Endpoint, found: list[Target] | str) -> None:
        if not isinstance(found, str):
            addresses = tuple(str(address[0]) for _, address in found)
            self._has_endpoint = has_endpoint(replace(endpoint, addresses=addresses))

    def _hear(self) -> None:
        # All of it is one line. The end of the pipe may never come: a thread that hangs in a disk holds it open.
        if self._helper is not None and self._helper.heard.endswith(b"\n"):
            self._helper.dismiss()
            self._conclude()

    def _conclude(self) -> None:
        helper, self._helper = self._helper, None
        if helper is None or self._driver.group.phase != CHECKING:  # who wants the end has killed it, and nobody waits
            return
        found = judged(helper.heard)
        if found is None:
            self._warn([unchecked_line(WITHIN_S if helper.is_late else None)])
            self._post("")
            return
        if self._driver.observer is not None:
            self._driver.observer.checked(found.bad, found.count, self._loop.now())
        self._warn(found.lines)
        self._post(found.problem)

    def _warn(self, lines: Iterable[str]) -> None:
        """Say each line once."""
        for line in lines:
            if line not in self._warned:
                self._warned.add(line)
                self._say(f"preflight: {line}")

    def _post(self, problem: str) -> None:
        self._driver.post(NodeChecked(problem, self._loop.now()))
