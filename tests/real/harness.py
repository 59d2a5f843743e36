"""Run the launcher for real and see everything it leaves behind.

A `Room` is a private folder with a short path. Launcher, agent and workers run in it, their scripts lie in it, and even a
detached grandchild has its path in its command line: so whatever of a job still lives is found by looking for that path.
Scripts talk to the test through FIFOs (`from told import tell, wait_at`), so nothing in here guesses how long things take.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LAUNCHER = (sys.executable, "-m", "planaria", "run")

TOLD = '''\
"""What a test's worker says to its test, and the detached children it may have."""
import os, signal, sys

ROOM = os.path.dirname(os.path.abspath(__file__))
RANK = int(os.environ["RANK"])
LIFE = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def tell(text):
    """Say one line to the test."""
    fd = os.open(ROOM + "/told", os.O_WRONLY)
    os.write(fd, (text + "\\n").encode())
    os.close(fd)


def wait_at(gate):
    """Wait until the test opens a gate for one more process."""
    fd = os.open(ROOM + "/gate." + gate, os.O_RDONLY)
    os.read(fd, 1)
    os.close(fd)


def wait_forever():
    while True:
        signal.pause()


def hold(name):
    """Keep a FIFO from ending for as long as this process lives; waits for who waits for its end."""
    return os.open(ROOM + "/gate." + name, os.O_WRONLY)


def wait_end(name):
    """Wait until whoever holds a FIFO is dead."""
    fd = os.open(ROOM + "/gate." + name, os.O_RDONLY)
    while os.read(fd, 1):
        pass
    os.close(fd)


def launcher():
    """Return the pid of the launcher, which is this worker's grandparent."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def sleeper(*, detached, stdout=False, deaf=False, name="sleeper"):
    """Start a process that sleeps for an hour; return its pid. `detached`: nothing of us can be seen in it but argv."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        pid = int(os.read(read_end, 32))
        os.close(read_end)
        if detached:
            os.wait()
        return pid
    if detached:
        os.setsid()
        if os.fork():
            os._exit(0)
    if deaf:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    os.write(write_end, str(os.getpid()).encode())
    if detached:
        os.chdir("/")
        os.closerange(3, 4096)
        for fd in (0, 1, 2) if not stdout else ():
            os.close(fd)
    os.execve("/bin/sleep", [f"{ROOM}/{name}", "3600"], {})
'''


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def state_of(pid: int) -> str:
    """Return the process's one-letter state, empty when it is gone and reaped."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].strip()[:1].decode()


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_gone(pids: Iterable[int], timeout_s: float = PATIENCE_S) -> None:
    """Wait until none of these processes lives; a zombie does not."""
    pids = list(pids)
    wait_until(lambda: not any(map(is_alive, pids)), f"processes {pids} gone", timeout_s)


class End(NamedTuple):
    """How a launcher ended: its status as the shell sees it, and all it said."""

    status: int
    out: bytes
    err: str
    report: dict[str, Any]

    def assert_cause(self, rank: int, text: str) -> dict[str, Any]:
        """Check that screen and report file name the same first cause; return it as in the report."""
        screen = [line for line in self.err.splitlines() if line.startswith("planaria: job failed: ")]
        assert len(screen) == 1, self.err
        assert screen[0].startswith(f"planaria: job failed: rank {rank} "), self.err
        assert text in screen[0], self.err
        cause = self.report["first_cause"]
        assert cause["rank"] == rank
        assert text in cause["message"]
        assert self.report["outcome"] == "failed"
        assert self.report["exit_status"] == self.status
        assert cause == self.report["lives"][-1]["failures"][0]
        return cause


class Launcher:
    """A launcher that runs. Its output goes to files unless the caller has other plans."""

    def __init__(self, room: Room, process: subprocess.Popen[bytes]) -> None:
        self._room = room
        self.process = process
        self.pid = process.pid

    def agent(self) -> int:
        """Return the agent's pid: the launcher's only child."""
        return wait_until(lambda: children_of(self.pid), "an agent")[0]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> End:
        """Wait for the end; a launcher that ended by a signal has the shell's status for it."""
        out, err = self.process.communicate(timeout=timeout_s)
        status = self.process.returncode
        report = json.loads(_read(self._room.path("report.json")) or b"{}")
        out = _read(self._room.path("out")) if out is None else out
        err = _read(self._room.path("err")) if err is None else err
        return End(128 - status if status < 0 else status, out, err.decode("utf-8", "backslashreplace"), report)


class Room:
    """The private folder of one test."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="pl", dir="/tmp")
        self.tmp = self.path("tmp")
        os.mkdir(self.tmp)
        self.write("told.py", TOLD)
        os.mkfifo(self.path("told"))
        self._told_fd = os.open(self.path("told"), os.O_RDWR | os.O_NONBLOCK)
        self._told = b""
        self._gates: dict[str, int] = {}
        self._launchers: list[Launcher] = []
        self.is_littered = False
        """Launcher and agent were killed together: nobody was left who could remove their scratch folder."""

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def write(self, name: str, text: str | bytes, mode: int = 0o644) -> str:
        with open(self.path(name), "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def read(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def worker_log(self, attempt: int, local_rank: int, name: str) -> bytes:
        (run,) = os.listdir(self.path("logs"))
        return self.read(f"logs/{run}/attempt_{attempt}/{local_rank}/{name}")

    def start(
        self,
        flags: Sequence[str],
        script: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        **popen: Any,
    ) -> Launcher:
        """Start a launcher on a script given as text. `before` is a command that runs the launcher by exec."""
        target = self.write("worker.py", "from told import *\n" + script)
        return self.start_command([*flags, target, *args], env=env, before=before, **popen)

    def start_command(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        **popen: Any,
    ) -> Launcher:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "OMP_"))}
        argv = [*before, *LAUNCHER, "--report-file", self.path("report.json"), *command]
        with open(self.path("out"), "wb") as out, open(self.path("err"), "wb") as err:
            settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **popen}
            environment = {**inherited, "TMPDIR": self.tmp, **(env or {})}
            process = subprocess.Popen(argv, cwd=self.root, env=environment, **settings)
        launcher = Launcher(self, process)
        self._launchers.append(launcher)
        return launcher

    def run(self, flags: Sequence[str], script: str, *args: str, **settings: Any) -> End:
        """Run a job to its end, its output in pipes; nothing of it may be left the moment the launcher is gone."""
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        end = self.start(flags, script, *args, **settings).wait()
        self.assert_deserted(timeout_s=0)
        return end

    def hear(self, line: str, count: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Wait until workers have said `line` so often. Lines may come in any order."""
        self.hear_many([line] * count, timeout_s)

    def hear_many(self, lines: Iterable[str], timeout_s: float = PATIENCE_S) -> None:
        for line in lines:
            self._take(lambda told, line=line: told == line, timeout_s, line)

    def hear_value(self, name: str, timeout_s: float = PATIENCE_S) -> int:
        """Wait for a line `name <number>` and return the number."""
        return int(self._take(lambda told: told.startswith(f"{name} "), timeout_s, name).split()[1])

    def heard(self) -> list[str]:
        """Return the lines that were said and not waited for."""
        self._listen(0)
        return self._told.decode().splitlines()

    def _take(self, wanted: Callable[[str], bool], timeout_s: float, what: str) -> str:
        deadline = time.monotonic() + timeout_s
        while True:
            lines = self._told.decode().splitlines(keepends=True)
            for at, line in enumerate(lines):
                if line.endswith("\n") and wanted(line[:-1]):
                    del lines[at]
                    self._told = "".join(lines).encode()
                    return line[:-1]
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"no worker said {what!r}; said: {lines}; stderr: {_read(self.path('err'))!r}"
            self._listen(left_s)

    def _listen(self, timeout_s: float) -> None:
        if select.select([self._told_fd], [], [], timeout_s)[0]:
            self._told += os.read(self._told_fd, 1 << 16)

    def make_gate(self, name: str) -> None:
        """Make a gate at which workers can wait."""
        os.mkfifo(self.path(f"gate.{name}"))
        self._gates[name] = os.open(self.path(f"gate.{name}"), os.O_RDWR)

    def open_gate(self, name: str, count: int = 1) -> None:
        os.write(self._gates[name], b"x" * count)

    def make_fifo(self, name: str) -> None:
        """Make a FIFO that only workers open (`hold`, `wait_end`), so that it ends with them."""
        os.mkfifo(self.path(f"gate.{name}"))

    def leftovers(self) -> dict[int, str]:
        """Return every living process of this room's jobs, by its command line, file names in it or working directory."""
        found = {}
        mark = self.root.encode()
        for name in os.listdir("/proc"):
            if not name.isdecimal() or int(name) == os.getpid():
                continue
            command = _read(f"/proc/{name}/cmdline")
            try:
                home = os.readlink(f"/proc/{name}/cwd")
            except OSError:
                home = ""
            if (mark in command or home == self.root) and is_alive(int(name)):
                found[int(name)] = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
        return found

    def wait_deserted(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until no process of this room's jobs lives and no scratch folder is left."""
        wait_until(lambda: not self.leftovers() and not self.scratch_folders(), "a deserted room", timeout_s)

    def assert_deserted(self, timeout_s: float = 0) -> None:
        if timeout_s:
            self.wait_deserted(timeout_s)
        assert self.leftovers() == {}
        assert self.scratch_folders() == []

    def scratch_folders(self) -> list[str]:
        """Return the private folders of agents, none of which may outlive its job."""
        if self.is_littered:
            return []
        return [name for name in os.listdir(self.tmp) if name.startswith("planaria-")]

    def close(self) -> None:
        """End by pid whatever a failed test left, and remove the folder."""
        for launcher in self._launchers:
            if launcher.process.poll() is None:
                launcher.process.kill()
        while left := self.leftovers():
            for pid in left:
                kill(pid)
        for launcher in self._launchers:
            launcher.process.communicate(timeout=PATIENCE_S)
        for fd in (self._told_fd, *self._gates.values()):
            os.close(fd)
        shutil.rmtree(self.root)


_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)

# A shell with job control, cut to what a test needs: one foreground job; what it does is told like a worker's words.
_SHELL = """\
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
room = sys.argv[1]
def tell(text):
    fd = os.open(room + "/told", os.O_WRONLY); os.write(fd, (text + "\\n").encode()); os.close(fd)
def wait_at(gate):
    fd = os.open(room + "/gate." + gate, os.O_RDONLY); os.read(fd, 1); os.close(fd)
job = subprocess.Popen(sys.argv[2:], process_group=0)
os.tcsetpgrp(0, job.pid)
tell(f"launcher {job.pid}")
while True:
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    os.tcsetpgrp(0, os.getpgrp())
    tell(f"stopped {os.WSTOPSIG(status)}")
    wait_at("fg")
    os.tcsetpgrp(0, job.pid)
    os.kill(job.pid, signal.SIGCONT)
"""


class Terminal:
    """A pseudo terminal with a launcher in its foreground; `shell`: below a small shell with job control."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.master, self._slave = os.openpty()
        attributes = termios.tcgetattr(self._slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
        self.shown = b""

    def start(self, flags: Sequence[str], script: str, *, shell: bool = False, **settings: Any) -> Launcher:
        before = [sys.executable, "-c", _TAKE_TERMINAL]
        if shell:
            before += [sys.executable, "-c", _SHELL, self._room.root]
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), self._slave)
        streams.update({name: settings.pop(name) for name in list(settings) if name in streams})
        launcher = self._room.start(flags, script, before=before, start_new_session=True, **streams, **settings)
        os.close(self._slave)
        self._slave = -1
        fcntl.fcntl(self.master, fcntl.F_SETFL, os.O_NONBLOCK)
        return launcher

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def read(self) -> bytes:
        """Return all that was shown so far."""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while chunk := os.read(self.master, 1 << 16):
                self.shown += chunk
        return self.shown

    def close(self) -> None:
        for fd in (self.master, self._slave):
            if fd >= 0:
                os.close(fd)
