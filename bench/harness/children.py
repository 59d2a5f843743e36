"""Start one program of a measurement, read its lines with the moment they arrived, and end it whatever happens."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from harness.model import Launcher, MeasurementError
from harness.processes import descendants, end_all_descendants, wait_for_ends

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

LIMIT_S = 60.0  # torchrun needs 2-6 s to begin on two busy cores; ten times that is a hang
_READ_BYTES = 1 << 20
_FOREIGN = ("PYTHON", "PET_", "TORCHELASTIC_", "TORCH_ELASTIC_", "MASTER_", "PLANARIA_")
_RANKS = {"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"}


def clean_environment(environ: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return the environment of every child.

    Without PYTHON* (PYTHONDONTWRITEBYTECODE would make every start compile again) and without what launchers read;
    temporary folders go where they are removed.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN) and name not in _RANKS}
    return kept | {"TMPDIR": scratch}


def find_launchers(wanted: list[str], python: str) -> list[Launcher]:
    """Return how to start each launcher: `NAME=COMMAND` as it says, a known name by the script beside `python` or `python -m`.

    Raises:
        ValueError: One is neither known nor a command, or not to be found.
    """
    found: dict[str, Launcher] = {}
    for text in wanted:
        name, is_given, command = text.partition("=")
        launcher = _given(name, command) if is_given else _known(name, python)
        if found.setdefault(launcher.name, launcher) is not launcher:
            raise ValueError(f"{name} is given twice")
    return list(found.values())


_KNOWN = {"planaria": ("planaria", ("run",)), "torchrun": ("torch.distributed.run", ())}


def _known(name: str, python: str) -> Launcher:
    if name not in _KNOWN:
        raise ValueError(f"{name} is not known; expected {', '.join(_KNOWN)} or NAME=COMMAND")
    module, rest = _KNOWN[name]
    script = os.path.join(os.path.dirname(python), name)
    if os.access(script, os.X_OK):
        return Launcher(name, (script, *rest), " ".join((f"<venv>/bin/{name}", *rest)))
    return Launcher(name, (python, "-m", module, *rest), " ".join(("<venv>/bin/python -m", module, *rest)))


def _given(name: str, command: str) -> Launcher:
    """Return a launcher that takes torchrun's flags. A report shows its program without the folder it is in."""
    words = shlex.split(command)
    if not name or name in _KNOWN or name.startswith("floor") or not words:
        raise ValueError(f"'{name}={command}' is no NAME=COMMAND with a name of its own")
    program = shutil.which(words[0])
    if program is None:
        raise ValueError(f"{words[0]} of {name} is not to be found")
    return Launcher(name, (program, *words[1:]), shlex.join([os.path.basename(words[0]), *words[1:]]))


class Child:
    """A program under measurement, in its own session. Leaving the `with` kills it and all it started.

    Two that live at the same time need a scratch folder each. `variables` come on top of the clean environment.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        scratch: str,
        *,
        read_stdout: bool = True,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._errors = os.path.join(scratch, "stderr")
        environment = {**clean_environment(os.environ, scratch), **variables}
        with open(self._errors, "wb") as errors:
            self.started_ns = time.monotonic_ns()
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if read_stdout else subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                bufsize=0,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.leftovers = 0
        self._partial = b""
        self._lines: deque[tuple[int, bytes]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self.leftovers = end_all_descendants()

    def fileno(self) -> int:
        """Return the descriptor of its stdout, so that several children can be waited for together."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def exit_status(self) -> int | None:
        """Return how it exited; None while it runs."""
        return self._process.poll()

    def read_chunk(self, limit_s: float) -> tuple[int, bytes] | None:
        """Return what stdout holds and when it was there; empty at the end, None when the time was up."""
        descriptor = self.fileno()
        if not select.select([descriptor], [], [], max(limit_s, 0))[0]:
            return None
        now = time.monotonic_ns()
        return now, os.read(descriptor, _READ_BYTES)

    def next_line(self, limit_s: float = LIMIT_S) -> tuple[int, bytes]:
        """Return the moment of arrival and the next whole line.

        Raises:
            MeasurementError: There was none in time, or stdout ended.
        """
        deadline = time.monotonic() + limit_s
        while not self._lines:
            chunk = self.read_chunk(deadline - time.monotonic())
            if chunk is None or not chunk[1]:
                raise MeasurementError(f"no line {'in time' if chunk is None else 'any more'}{self.last_words()}")
            self._lines.extend((chunk[0], line) for line in self._whole_lines(chunk[1]))
        return self._lines.popleft()

    def lines_nowait(self) -> list[bytes] | None:
        """Return the whole lines that are there; None at the end of stdout. Not to be mixed with `next_line`."""
        chunk = self.read_chunk(0)
        if chunk is None:
            return []
        return self._whole_lines(chunk[1]) if chunk[1] else None

    def _whole_lines(self, data: bytes) -> list[bytes]:
        *whole, self._partial = (self._partial + data).split(b"\n")
        return whole

    def wait(self, limit_s: float = LIMIT_S) -> tuple[int, int]:
        """Return the moment of the exit and the exit status.

        Raises:
            MeasurementError: It did not exit in time.
        """
        ended = wait_for_ends([self.pid], limit_s)
        if self.pid not in ended:
            raise MeasurementError(f"no exit within {limit_s:.0f} s{self.last_words()}")
        return ended[self.pid], self._process.wait()

    def expect_success(self) -> int:
        """Return the moment of the exit, which must be a good one."""
        moment, status = self.wait()
        if status != 0:
            raise MeasurementError(f"exit status {status}{self.last_words()}")
        return moment

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the program alone and return the moment just before."""
        now = time.monotonic_ns()
        self._process.send_signal(number)
        return now

    def launcher_pids(self, worker_pids: list[int]) -> list[int]:
        """Return the launcher's own processes: the one started and those below it that are not of a worker's tree."""
        of_workers = {pid for worker in worker_pids for pid in (worker, *descendants(worker))}
        return [self.pid, *(pid for pid in descendants(self.pid) if pid not in of_workers)]

    def last_words(self) -> str:
        with open(self._errors, "rb") as file:
            tail = file.read()[-300:].decode("utf-8", "replace").strip()
        return f"; stderr ends: {tail}" if tail else ""


def say(text: str) -> None:
    """Show progress: on stderr, so that stdout is the report's."""
    print(text, file=sys.stderr, flush=True)
