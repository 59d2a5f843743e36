"""Start a program as a worker, and hold what belongs to it."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from planaria.contract.env import for_workers
from planaria.elastic.multiprocessing.start import new_worker, order_for
from planaria.process.running import Running

__all__ = ["SubprocessHandler"]


class Child:
    """The running program, with what people ask a `subprocess.Popen`. It stays a zombie until nobody asks any more."""

    def __init__(self, running: Running, args: tuple[str, ...]) -> None:
        self._running = running
        self.args = args
        self.pid = running.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal, of one that has ended; else None."""
        if self.returncode is None and self._running.status is not None:
            self.returncode = self._running.status  # its context knows, and may have reaped it
        if self.returncode is None:
            try:
                seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # reaped by whoever waits for all children of this process
                return self.returncode
            if seen is not None:
                self.returncode = seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        if self.poll() is None:
            pidfd = os.pidfd_open(self.pid)
            try:
                ended = select.poll()
                ended.register(pidfd, select.POLLIN)
                if not ended.poll(None if timeout is None else timeout * 1000) and timeout is not None:
                    raise subprocess.TimeoutExpired(self.args, timeout)
            finally:
                os.close(pidfd)
        return self.poll()

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program alone."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class SubprocessHandler:
    """One program: a session of its own, output where it was told to go. It dies with this process.

    Raises:
        FileNotFoundError: There is no such program.
        PermissionError: It cannot be executed.
    """

    def __init__(  # noqa: PLR0917  torch's signature
        self,
        entrypoint: str,
        args: tuple[Any, ...],
        env: dict[str, str],
        stdout: str | None,
        stderr: str | None,
        local_rank_id: int,
        numa_options: Any,
    ) -> None:
        argv = (entrypoint, *map(str, args))
        if numa_options is not None:
            argv = _bound(argv, local_rank_id, numa_options)
        self.local_rank_id = local_rank_id
        environment = {**for_workers(os.environ), **{name: str(value) for name, value in env.items()}}
        check_program(argv[0], environment)
        self.running = new_worker(local_rank_id, environment, stdout or "", stderr or "", time.monotonic())
        self.running.start(order_for(self.running, argv, environment))
        self.proc = Child(self.running, argv)

    def close(self, death_sig: signal.Signals | None = None) -> None:
        """Send a signal, SIGTERM unless told otherwise, to the program and its process group."""
        self.running.signal(death_sig or signal.SIGTERM)


def check_program(program: str, environment: Mapping[str, str]) -> None:
    """Raise what `subprocess` would: a program that is not there is the caller's mistake, not a worker's failure.

    Raises:
        FileNotFoundError: There is no such program.
        PermissionError: It cannot be executed.
    """
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        code = errno.EACCES if os.path.exists(program) and "/" in program else errno.ENOENT
        raise OSError(code, os.strerror(code), program)


def _bound(argv: tuple[str, ...], local_rank: int, numa_options: Any) -> tuple[str, ...]:
    """Have the package that the options come from (`torch.numa.binding`) bind the program to its part of the machine."""
    import importlib

    package = importlib.import_module(type(numa_options).__module__)
    return tuple(
        package._maybe_wrap_command_args_with_numa_binding(argv, gpu_index=local_rank, numa_options=numa_options)  # noqa: SLF001
    )
