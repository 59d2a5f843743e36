"""Run the checks of `planaria doctor` in a process of their own, and tell the group what they found. It decides nothing.

A disk, a driver or a name server that hangs holds up that process alone: it is killed when its time is over. Only a run with
`--preflight` imports this file.
"""

from __future__ import annotations

import os
import sys

from planaria.agent.model import CheckNode, NodeChecked, TellSetAside
from planaria.agent.quarantine import aside_line, problem_of, sets_aside
from planaria.base import linux, signals
from planaria.base.addresses import join_address, look_up, split_address
from planaria.base.text import safe_line
from planaria.base.value import replace
from planaria.rendezvous.addresses import Endpoint, Routes, known, reach, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.driver import Driver
    from planaria.agent.model import Job, Meeting
    from planaria.base.addresses import Target
    from planaria.base.loop import Loop, Timer

WITHIN_S = 30.0  # the doctor gives up on what hangs after half of that
_MOST_BYTES = 1 << 20


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
        self._heard = bytearray()
        self._timer: Timer | None = None
        self._warned: set[str] = set()
        self._pid = 0

    def perform(self, effect: CheckNode | TellSetAside) -> None:
        """Check the node, or say what came of it."""
        if isinstance(effect, TellSetAside):
            self._say(aside_line(effect.problem, effect.after_s, has_endpoint=self._has_endpoint))
            return
        self._look_for_endpoint()
        self._heard.clear()
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            actions = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, write_end, 1)]
            actions.append((os.POSIX_SPAWN_DUP2, nothing, 2))
            try:
                self._pid = os.posix_spawn(sys.executable, self._argv, self._environ, file_actions=actions)
            finally:
                os.close(nothing)
        except OSError as problem:
            os.close(read_end)
            self._post(f"the checks cannot be started: {problem.strerror}")
            return
        finally:
            os.close(write_end)
        self._timer = self._loop.call_later(WITHIN_S, lambda: self._conclude(read_end, f" within {WITHIN_S:g} s"))
        self._loop.on_readable(read_end, lambda: self._read(read_end))

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

    def _read(self, pipe: int) -> None:
        data = os.read(pipe, 1 << 16)
        self._heard += data
        # All of it is one line. The end of the pipe may never come: a thread that hangs in a disk holds it open.
        if not data or data.endswith(b"\n") or len(self._heard) > _MOST_BYTES:
            self._conclude(pipe)

    def _let_go(self, pipe: int) -> None:
        """Be done with the process, which is over or hangs; who reaps all children reaps it."""
        self._loop.forget(pipe)
        os.close(pipe)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if linux.parent_of(self._pid) == os.getpid():  # else it was reaped, and its number may be another's
            os.kill(self._pid, signals.SIGKILL)

    def _conclude(self, pipe: int, late: str = "") -> None:
        import json

        self._let_go(pipe)
        try:
            findings = json.loads(self._heard)["findings"]
            failed = [one for one in findings if not one["ok"] and sets_aside(one["check"])]
            problem = problem_of(failed)
            bad = [one for one in findings if one["verdict"] != "ok"]
            lines = [safe_line(f"{one['check']}: {one['sentence']}", 500) for one in bad if one not in failed]
        except (ValueError, LookupError, TypeError, AttributeError):
            # That we are slow, or wrong, is no fault of the node.
            self._warn(
                [f"the checks did not come to an end{late}, and this node goes on unchecked: run planaria doctor"]
            )
            self._post("")
            return
        if self._driver.observer is not None:
            self._driver.observer.checked(bad, len(findings), self._loop.now())
        self._warn(lines)
        self._post(problem)

    def _warn(self, lines: list[str]) -> None:
        """Say each line once."""
        for line in lines:
            if line not in self._warned:
                self._warned.add(line)
                self._say(f"preflight: {line}")

    def _post(self, problem: str) -> None:
        self._driver.post(NodeChecked(problem, self._loop.now()))
