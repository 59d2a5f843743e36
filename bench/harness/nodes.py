"""Several nodes of one job on this machine: start them, strike one of them, and see when the next world has begun."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from harness.children import Child, say
from harness.model import MeasurementError
from harness.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from harness.model import Launcher, Settings

LIMIT_S = 30.0
_LOOK_S = 0.25  # how often exits are looked for; lines are waited for, so that this is in no number but an exit's
_LISTENING = "0A"


class NoWorldError(MeasurementError):
    """The world that was waited for did not begin; the text says what the nodes did instead."""


@dataclass(frozen=True, slots=True)
class Word:
    """One line of a worker."""

    word: str
    rank: int
    size: int
    restarts: int
    pid: int
    moment_ns: int


@dataclass(frozen=True, slots=True)
class World:
    """Every rank's line of one world, and how many workers had begun in vain since then."""

    words: tuple[Word, ...]
    in_vain: int

    @property
    def first_ns(self) -> int:
        return min(word.moment_ns for word in self.words)

    @property
    def last_ns(self) -> int:
        return max(word.moment_ns for word in self.words)

    @property
    def pids(self) -> list[int]:
        return [word.pid for word in self.words]

    @property
    def restarts(self) -> list[int]:
        return [word.restarts for word in self.words]


class Nodes:
    """A job whose nodes are launchers on this machine; node 0 has the endpoint. Leaving the `with` kills them all."""

    def __init__(
        self,
        launcher: Launcher,
        settings: Settings,
        nnodes: str,
        script: str,
        *,
        flags: tuple[str, ...] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.port = free_port()
        rendezvous = ("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=bench")
        path = os.path.join(settings.scripts, script)
        self._argv = (*launcher.command, f"--nnodes={nnodes}", "--nproc-per-node=1", *rendezvous, *flags, path)
        self._scratch = settings.scratch
        self._variables = variables
        self._stack = ExitStack()
        self._nodes: list[Child] = []
        self._open: list[Child] = []
        self._struck: set[Child] = set()
        self._words: list[Word] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            say(f"  the nodes' last words:{self._last_words()}")
        self._stack.close()

    def start(self) -> int:
        """Start one more node and return the moment just before."""
        scratch = os.path.join(self._scratch, f"node-{len(self._nodes)}")
        os.makedirs(scratch, exist_ok=True)
        node = self._stack.enter_context(Child(self._argv, scratch, variables=self._variables))
        self._nodes.append(node)
        self._open.append(node)
        return node.started_ns

    def start_world(self, count: int, word: str = "begin", limit_s: float = LIMIT_S) -> World:
        """Start `count` nodes, the others once node 0 listens at the endpoint, and wait for their world."""
        began_ns = self.start()
        self._wait_until_listening()
        for _ in range(count - 1):
            self.start()
        try:
            return self.wait_for_world(count, began_ns, word, limit_s)
        except NoWorldError as problem:
            raise MeasurementError(f"the first world: {problem}") from None

    def strike(self, index: int, number: signal.Signals) -> int:
        """Kill or stop a whole node, launcher, agent and workers, at one moment, and return it.

        All are stopped before the first is killed: nobody sees the death of another and acts on it.
        """
        node = self._nodes[index]
        self._struck.add(node)
        pids = [node.pid, *descendants(node.pid)]
        moment = time.monotonic_ns()
        for each in dict.fromkeys((signal.SIGSTOP, number)):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, each)
        return moment

    def wait_for_world(self, size: int, since_ns: int, word: str = "begin", limit_s: float = LIMIT_S) -> World:
        """Return the first world of `size` in which every rank has said `word` since then.

        Raises:
            NoWorldError: It took too long, or all nodes that were not struck have exited.
        """
        deadline = time.monotonic() + limit_s
        while True:
            said = [one for one in self._words if one.word == word and one.moment_ns > since_ns]
            world = {one.rank: one for one in said if one.size == size}
            if len(world) == size:
                return World(tuple(world[rank] for rank in sorted(world)), len(said) - size)
            self._listen(since_ns, deadline, limit_s)

    def _listen(self, since_ns: int, deadline: float, limit_s: float) -> None:
        statuses = [node.exit_status() for node in self._nodes if node not in self._struck]
        for node in select.select(self._open, [], [], _LOOK_S)[0]:
            lines = node.lines_nowait()
            if lines is None:
                self._open.remove(node)
            self._words += map(_word, lines or ())
        if None not in statuses and not any(node not in self._struck for node in self._open):
            after_s = (time.monotonic_ns() - since_ns) / 1e9
            raise NoWorldError(f"every node left exited within {after_s:.1f} s, statuses {_listed(statuses)}")
        if time.monotonic() > deadline:
            exited = [status for status in statuses if status is not None]
            ends = f"exited: {_listed(exited)}" if exited else "all nodes left still run"
            workers = {one.pid: one for one in self._words if one.moment_ns > since_ns}
            raise NoWorldError(f"no new world within {limit_s:.0f} s, {len(workers)} workers begun, {ends}")

    def _last_words(self) -> str:
        return "".join(f" [{number}]{node.last_words()}" for number, node in enumerate(self._nodes))

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_listening(self.port):
            if time.monotonic() > deadline:
                raise MeasurementError("nobody listens at the endpoint")
            time.sleep(0.005)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Tell whether somebody listens at the port, without a connection that somebody would have to explain."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            for line in file:
                _, local, _, state = line.split()[:4]
                if state == _LISTENING and local.endswith(f":{port:04X}"):
                    return True
    return False


def _word(line: bytes) -> Word:
    try:
        word, *numbers = line.decode().split()
        rank, size, restarts, pid, moment_ns = map(int, numbers)
    except ValueError:
        raise MeasurementError(f"a worker said {line!r}") from None
    return Word(word, rank, size, restarts, pid, moment_ns)


def _listed(statuses: Sequence[int | None]) -> str:
    return ", ".join(map(str, statuses))
