"""Namespaces of their own for servers of tests: processes, mounts and a network, as root.

An `Enclosure` is begun by a script, the first process in there. The kernel ends all others together when that one ends: when
the enclosure is closed, or when whoever began it is gone, however that happened. Its folder and the control groups named
after the folder go with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Self

from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE_S = 100.0  # for one command: less than a test may take
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED = ("unshare", "nsenter", "bash", "ip")

# Whoever waits for it is not in the test's session: neither Ctrl-C nor a SIGKILL to the test keeps it from cleaning up.
OUTER = """\
folder=$1 group=${1##*/}
$NETWORK unshare --mount --pid --fork bash -c "$INIT" init "$@"
for try in 1 2 3 4 5 6 7 8 9 10; do
  left=$(find /sys/fs/cgroup -depth -type d -path "*/$group*" 2>/dev/null) || :
  [ -n "$left" ] || break
  rmdir $left 2>/dev/null || sleep 0.1  # a group is busy for a moment after its last process
done
rm -rf "$folder"
"""


class Enclosure:
    """`script` begins with the folder as its first word, then come `words`. It shall end when its standard input does."""

    def __init__(self, folder: str, script: str, *words: str, namespace: str = "") -> None:
        """Have a network of its own, or that of a host of `hosts.Network` where one is named."""
        self.folder = folder
        network = f"nsenter --net=/run/netns/{namespace}" if namespace else "unshare --net"
        self._init = 0
        self._outer = subprocess.Popen(
            ["sh", "-c", OUTER, "outer", folder, *words],
            env={"PATH": PATH, "INIT": script, "NETWORK": network},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has_ended(self) -> bool:
        """Tell whether nothing of it is left."""
        return self._outer.poll() is not None

    def first_process(self) -> int:
        """Return the pid of the first process in there, as it is called out here. The script must have begun."""
        if not self._init:
            self._init = only_child(only_child(self._outer.pid))
        return self._init

    def command(self, mounts_of: int = 0) -> list[str]:
        """Return the words before a command that shall run in there, with the mounts of a process there or of the first."""
        first = self.first_process()
        mounts = f"/proc/{mounts_of or first}/ns/mnt"
        return ["nsenter", f"--target={first}", "--net", "--pid", f"--mount={mounts}"]

    def close(self) -> None:
        """End everything in there, and wait until it is gone."""
        assert self._outer.stdin is not None
        self._outer.stdin.close()
        try:
            self._outer.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.kill(self.first_process(), signal.SIGKILL)  # the kernel ends the others with it
            self._outer.wait(PATIENCE_S)


class Inmate:
    """A program in an enclosure, with its output in a file."""

    def __init__(
        self, prefix: Sequence[str], words: Sequence[str], log: str, env: Mapping[str, str], fds: Sequence[int] = ()
    ):
        self._log = log
        with open(log, "ab") as file:
            self._door = subprocess.Popen(
                [*prefix, *words],
                env={"PATH": PATH, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=fds,
                start_new_session=True,
            )
        try:
            self.pid: int = wait_until(self._child, f"{words[0]} is started")
            self._handle = os.pidfd_open(self.pid)  # a pid may be somebody else's by the time it is used
        except BaseException:
            self._door.kill()
            self._door.wait(PATIENCE_S)
            raise

    def _child(self) -> int:
        """Return its pid out here: what came through the door is the door's only child."""
        assert self._door.poll() is None, f"it ended at once: {self.log()}"
        found = children(self._door.pid)
        return found[0] if found else 0

    def has_ended(self) -> bool:
        """Tell whether it has."""
        return self._door.poll() is not None

    def log(self) -> str:
        """Return the last things it said."""
        with contextlib.suppress(FileNotFoundError), open(self._log, errors="replace") as file:
            return file.read()[-2000:]
        return ""

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, if that has not happened yet, and wait until it is gone."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)
            os.close(self._handle)
            self._handle = -1
        self._door.wait(PATIENCE_S)


def children(pid: int) -> list[int]:
    """Return the processes that one has begun."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def only_child(pid: int) -> int:
    """Return the one process that another has begun."""
    (child,) = children(pid)
    return child
