"""One worker that was started ahead of its life: start it, hear that it is ready, make it the worker."""

from __future__ import annotations

import _socket
import os

from planaria.base import linux
from planaria.base.files import write_all
from planaria.base.value import Value, replace
from planaria.contract import blackbox
from planaria.contract.env import RANK_VARIABLES
from planaria.contract.standby import JOIN, JOINED, MEMORY, MOST_MEMORIES, READY, Report, encode, read_report
from planaria.errors import SpawnFailed
from planaria.process import prints
from planaria.process.command import BOOTSTRAP, LEARN
from planaria.process.running import signal_group
from planaria.process.spares import refusal, standby_environment
from planaria.process.spawn import spawn_on_lifeline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.contract.standby import Triple
    from planaria.process.spares import Plan
    from planaria.process.spawn import Start

_REPORT_BYTES = 4 << 20
_TAIL_BYTES = 2000
MOST_CHARACTERS = 200  # of the last words of one that died, in the reason for a cold start
_WORD_BYTES = 64
_SIGKILL = 9


class Surroundings(Value):
    """What a process takes from its parent without being told."""

    folder: str
    umask: int


def here() -> Surroundings:
    """Return where a worker that is started now finds itself."""
    umask = os.umask(0o77)
    os.umask(umask)
    return Surroundings(os.getcwd(), umask)


class Standby:
    """A process that stands by for one local rank.

    `order` is the cold start it saves, as `Workers` would have ordered it; of its variables, those of a round may be missing
    or old. It must go through the start-up file, with `learn`.

    Raises:
        SpawnFailed: The system is out of processes, memory or descriptors.
    """

    def __init__(self, local_rank: int, order: Start, plan: Plan) -> None:
        self.local_rank = local_rank
        self.order = order
        self.plan = plan
        self.report: Report | None = None
        self.has_arrived = plan.mode != JOIN
        self._around = here()
        script = _script_of(order.argv)
        self._prints = {script: prints.take(script)}
        if plan.mode == JOIN:  # what it reads now, it has read when it is ready: an edit in between is one
            self._prints.update(plan.program)
        self._lent: frozenset[int] = frozenset()
        self._lifeline: int | None = None
        self._files: list[int] = []
        try:
            for name in ("standby", "papers", "stdout", "stderr"):
                self._files.append(os.memfd_create(f"planaria-{name}", os.MFD_CLOEXEC))
            self._black_box, self._papers, *self._said = self._files
            write_all(self._papers, encode(plan.papers()))
            self._channel, theirs = _socketpair()
        except OSError as problem:
            self._close_files()
            raise self._failed(problem) from problem
        try:
            self.pid, self._lifeline = spawn_on_lifeline(self._start(theirs))
        except OSError as problem:
            self.close()
            raise self._failed(problem) from problem
        finally:
            os.close(theirs)

    def _failed(self, problem: OSError) -> SpawnFailed:
        return SpawnFailed(f"cannot fork a standby of local rank {self.local_rank}: {problem.strerror}")

    def _start(self, channel: int) -> Start:
        argv = list(self.order.argv)
        argv[argv.index(BOOTSTRAP) + 2] = f"standby:{channel}:{self._papers}"
        return replace(
            self.order,
            argv=tuple(argv),
            environment=standby_environment(self.order.environment),
            black_box_fd=self._black_box,
            stdout_fd=self._said[0],
            stderr_fd=self._said[1],
            kept_fds=(*self.order.kept_fds, channel, self._papers),
        )

    def hand_over_lifeline(self) -> int | None:
        """Give what tells of its end to whoever waits for children; None when that was done before."""
        lifeline, self._lifeline = self._lifeline, None
        return lifeline

    def fileno(self) -> int:
        """Return what becomes readable when it is ready, or gone."""
        return self._channel.fileno()

    def hear(self) -> bool:
        """Take what it says; tell whether there will be more. Without a word it is gone, or about to be."""
        try:
            said = self._channel.recv(_WORD_BYTES, _socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        if said == JOINED:
            self.has_arrived = True
        elif said == READY:
            self.report = read_report(os.pread(self._papers, _REPORT_BYTES, 0))
            for file in self.report.watched:
                self._prints.setdefault(file, prints.take(file))
        return said == JOINED

    @property
    def has_joined(self) -> bool:
        """Tell whether it waits inside of the program, with all that this has made."""
        return self.is_ready and self.plan.mode == JOIN

    @property
    def is_ready(self) -> bool:
        """Tell whether it waits to be promoted."""
        return self.report is not None

    @property
    def memory_bytes(self) -> int:
        """Return what it takes of the node's memory: its own pages, and its share of those that others use too."""
        for line in linux.read_file(f"/proc/{self.pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
        pages = linux.read_file(f"/proc/{self.pid}/statm").split()
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0

    def staleness(self) -> str:
        """Say what has changed since it was started, of what it has read; empty: nothing."""
        now = here()
        if now.folder != self._around.folder:
            return "the current folder differs"
        if now.umask != self._around.umask:
            return "the umask differs"
        changed = prints.first_changed(self._prints.items())
        return f"{changed} has changed" if changed else ""

    def refusal(self, cold: Start) -> str:
        """Say why it cannot stand in for this start, although it is not stale; empty when it can."""
        if self.report is None:
            return "it is not ready yet"
        if not linux.is_running(self.pid):
            words = self.last_words()[:MOST_CHARACTERS]
            return f"it has died: {words}" if words else "it has died"
        return self.mismatch(cold)

    def mismatch(self, cold: Start) -> str:
        """Say why it will never stand in for this start, ready or not, stale or not; empty when it may."""
        return refusal(self.order, cold)

    def lend(self, memory: Mapping[int, int]) -> None:
        """Have it map what it will write its commits into as the worker: descriptors, by a number that is never used again.

        What it has mapped before and is not among them it lets go. Nobody depends on it: without, the worker maps it itself.
        """
        kept = self._lent & memory.keys()
        new = [number for number in memory if number not in kept][:MOST_MEMORIES]
        if not new and kept == self._lent:
            return
        told = [(MEMORY, str(number), "") for number in kept] + [(MEMORY, str(number), "new") for number in new]
        if self._send([(MEMORY, "", ""), *told], [memory[number] for number in new]):
            self._lent = kept.union(new)

    def promote(self, cold: Start) -> bool:
        """Make it the worker of this start, its streams and black box; False when it is gone.

        The caller has asked for a `refusal` before. From now on the process is the caller's, and nothing of it is held here.
        """
        variables = [("set", name, value) for name, value in cold.environment.items() if name in RANK_VARIABLES]
        descriptors = (
            1 if cold.stdout_fd is None else cold.stdout_fd,
            2 if cold.stderr_fd is None else cold.stderr_fd,
            cold.black_box_fd,
        )
        is_sent = self._send(variables, descriptors)
        if not is_sent:
            self.end()
        self.close()
        return is_sent

    def _send(self, told: list[Triple], descriptors: Sequence[int]) -> bool:
        """Send a packet; False when it is gone, or does not read."""
        rights = b"".join(fd.to_bytes(4, "little") for fd in descriptors)
        try:
            self._channel.sendmsg(
                [encode(told)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)], _socket.MSG_DONTWAIT
            )
        except (OSError, ValueError):
            return False
        return True

    def last_words(self) -> str:
        """Return how it ended, as far as it said: its own error, or the last line it wrote to stderr."""
        found = blackbox.read(os.pread(self._black_box, blackbox.LIMIT_BYTES, 0))
        if found.ending is not None:
            return f"{found.ending.type}: {found.ending.message}"
        end = os.fstat(self._said[1]).st_size
        tail = os.pread(self._said[1], _TAIL_BYTES, max(end - _TAIL_BYTES, 0)).decode("utf-8", "replace").strip()
        return tail.rpartition("\n")[2] or found.text.strip()

    def end(self) -> None:
        """Kill it, and what it has started. Its parent reaps it as any child."""
        signal_group(self.pid, _SIGKILL)

    def close(self) -> None:
        """Let go of what is held for it: it is promoted, or dead."""
        self._channel.close()
        lifeline = self.hand_over_lifeline()
        if lifeline is not None:
            os.close(lifeline)
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in self._files:
            os.close(descriptor)


def _socketpair() -> tuple[_socket.socket, int]:
    """Return our end of a channel, and the number of the other: packets, since descriptors belong to one each."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    return ours, theirs.detach()


def _script_of(argv: tuple[str, ...]) -> str:
    """Return the file that is run, or nothing for a module: that is found when it is imported."""
    at = argv.index(LEARN, argv.index(BOOTSTRAP))
    return "" if argv[at + 1] == "module" else prints.main_of(argv[at + 2])
