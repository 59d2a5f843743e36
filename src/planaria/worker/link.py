"""The worker's end of the control socket: report progress and scopes, hear that a stop or another world is coming.

Where there is no agent to talk to, everything here does nothing.
"""

from __future__ import annotations

import _socket as socket  # the `socket` module costs half of what all of ours does, and adds nothing we use
import _thread  # a lock does not need the `threading` module
import itertools
import os
import time

from planaria.contract.control import (
    INTEGER_LIMIT,
    LINE_LIMIT_BYTES,
    LONGEST_PHASE,
    Acquire,
    Drain,
    Finished,
    Phase,
    Progress,
    Release,
    Resize,
    Stored,
    decode,
    encode,
)
from planaria.worker.here import control, is_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from planaria.contract.commit import Stamp

_LONGEST_NAME = 1000  # of a scope; a line has a limit
_LEAST_BYTES = len('{"x": 1.0}')  # of a value in a line
_PATIENCE_S = 1.0  # with an agent that does not read
_PATIENCE_AGAIN_S = 0.05


class Link:
    """A connection to the agent, made at the first use. `find` names its socket.

    One that breaks is given up, until there is a word on a commit: an exit status may depend on that, so it is worth another
    one, which does not wait for long then.
    """

    def __init__(self, find: Callable[[], str | None]) -> None:
        self._find = find
        self._found: tuple[int, str | None] = 0, None
        self._pid = 0
        self._socket: socket.socket | None = None
        self._heard = b""
        self._drain: Drain | None = None
        self._resize: Resize | None = None
        self._scopes = itertools.count(1)
        self._phases: list[str] = []
        self._patience_s = _PATIENCE_S
        self._has_said_long = False
        self._late: dict[int, list[Callable[[], object]]] = {}  # by thread
        self._renew_lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        """Make a lock that nobody holds: in a forked child, the thread that held it may not exist."""
        self._lock = _thread.RLock()  # a signal handler may report while its thread does

    @property
    def _path(self) -> str | None:
        """Where this process's agent is: a function that a program forked as a worker is told so after the fork."""
        pid = os.getpid()
        if self._found[0] != pid:
            self._found = pid, self._find()
        return self._found[1]

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Send progress; never blocks for long and never raises: training goes on without an agent that listens."""
        if not self._path:
            return
        try:
            number = int(step)
        except Exception:  # noqa: BLE001  whatever its own __int__ raises: the report is lost, the training is not
            return
        if not -INTEGER_LIMIT <= number < INTEGER_LIMIT:  # the agent would take us for broken, and hang up
            return
        found = Progress(number, tuple(numbers(values).items()))
        line, told = encode(found), found
        if len(line) > LINE_LIMIT_BYTES:  # here, too
            told = _fitting(found)
            line = encode(told)
        self._send(line)
        if told is not found and not self._has_said_long:
            self._has_said_long = True
            _tell_of(len(found.values), len(told.values))

    def finish(self) -> None:
        """Tell the agent that no more steps come; as cheap and harmless as a report."""
        if self._path:
            self._send(encode(Finished()))

    def store(self, state: int, stamp: Stamp, *, is_done: bool) -> None:
        """Tell the agent of a commit that this rank writes by itself: that it is begun, or done; harmless as a report.

        `state` is the number of the state that it is of: of one folder the same in all processes.
        """
        if not self._path:
            return
        line = encode(Stored(state, stamp.run, stamp.generation, stamp.step, is_done))
        try:
            with self._lock:
                self._tell(self._peer(), line)
                if self._socket is None and self._pid == os.getpid():  # it broke, now or before
                    self._pid, self._patience_s = 0, _PATIENCE_AGAIN_S
                    self._tell(self._peer(), line)
        finally:
            self._catch_up()

    def enter_phase(self, name: str) -> None:
        """Tell the agent what this rank is at from now on; as cheap and harmless as a report.

        A rank is where its main thread is: what another one does beside it, such as writing a checkpoint, is not told.
        """
        if not _is_main_thread():
            return
        self._phases.append(name[:LONGEST_PHASE])
        if self._path:
            self._send(encode(Phase(self._phases[-1])))

    def leave_phase(self) -> None:
        """Tell it that this is over: the one around it goes on, or the steps do."""
        if not _is_main_thread() or not self._phases:
            return
        self._phases.pop()
        if self._path:
            self._send(encode(Phase(self._phases[-1] if self._phases else "")))

    def acquire(self, scope: str, after_s: float) -> int:
        """Tell the agent that a scope begins, and return its number; as cheap and harmless as a report."""
        number = next(self._scopes)
        if self._path:
            self._send(encode(Acquire(number, scope[:_LONGEST_NAME], after_s, time.monotonic())))
        return number

    def release(self, number: int) -> None:
        """Tell the agent that a scope has ended. One that it does not know of, as a forked child's parent's, is nothing."""
        if self._path:
            self._send(encode(Release(number)))

    def _send(self, line: bytes) -> None:
        """Send a line whole, whichever threads send at the same time.

        When that is not possible the connection goes, and with it every scope: nobody is ended for a release that was lost.
        """
        try:
            with self._lock:
                self._tell(self._peer(), line)
        finally:
            self._catch_up()

    def _tell(self, peer: socket.socket | None, line: bytes) -> None:
        try:
            if peer is not None:
                peer.sendall(line)
        except OSError:
            self._give_up()

    def drain(self) -> Drain | None:
        """Return the agent's notice of a stop, if it has sent one; does not wait."""
        self._listen()
        return self._drain

    def resize(self) -> Resize | None:
        """Return the agent's notice that the world is about to change, if it has sent one; does not wait."""
        self._listen()
        return self._resize

    @property
    def is_connected(self) -> bool:
        """Tell whether there is an agent that would tell us."""
        try:
            with self._lock:
                return self._peer() is not None
        finally:
            self._catch_up()

    def _listen(self) -> None:
        try:
            with self._lock:  # whoever defers signals listens in a thread of its own
                self._hear(self._peer())
        finally:
            self._catch_up()

    def _hear(self, peer: socket.socket | None) -> None:
        try:
            # A socket with a timeout waits in recv, MSG_DONTWAIT or not; its descriptor does not.
            while peer is not None and (chunk := os.read(peer.fileno(), LINE_LIMIT_BYTES)):
                *lines, self._heard = (self._heard + chunk).split(b"\n")
                for message in map(decode, lines):
                    if isinstance(message, Drain):
                        self._drain = message
                    elif isinstance(message, Resize):
                        self._resize = message
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._give_up()

    def once_whole(self, call: Callable[[], object]) -> None:
        """Make a signal handler's call now, or right after what the signal has interrupted in here.

        A handler that asked between the reading of a notice and its understanding would be told that there is none.
        """
        if self._is_inside:
            self._late.setdefault(_thread.get_ident(), []).append(call)
        else:
            call()

    @property
    def _is_inside(self) -> bool:
        """Tell whether this thread holds the lock. A lock of our own in Python would itself be interrupted half taken."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001  as threading.Condition asks

    def _catch_up(self) -> None:
        if not self._late or self._is_inside:
            return
        late = self._late.pop(_thread.get_ident(), [])
        try:
            while late:
                late.pop(0)()
        finally:  # the others, where one raised, have to be done too
            if late:
                self._late.setdefault(_thread.get_ident(), []).extend(late)

    def _peer(self) -> socket.socket | None:
        """Return the connection of this process; a forked child makes its own."""
        path = self._path
        if path and self._pid != os.getpid() and not is_waiting():
            self._pid, self._socket, self._heard = os.getpid(), None, b""
            try:
                found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            except OSError:  # the program has no descriptor left: its own trouble, and not for a report to tell
                return None
            found.settimeout(self._patience_s)
            try:
                found.connect(path)
                self._socket = found
            except OSError:
                found.close()
        return self._socket

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_main_thread() -> bool:
    return _thread.get_native_id() == os.getpid()


def _fitting(report: Progress) -> Progress:
    """Leave out what is too much for a line."""
    import json

    room, told = LINE_LIMIT_BYTES - len(encode(Progress(report.step))), []
    for name, value in report.values:
        size = len(json.dumps({name: value}))  # its braces are as long as the comma and the space between two
        if size <= room:
            room -= size
            told.append((name, value))
        if room < _LEAST_BYTES:
            break
    return Progress(report.step, tuple(told))


def _tell_of(found: int, told: int) -> None:
    from contextlib import suppress

    from planaria.worker.vault import say

    with suppress(Exception):  # whatever stands for stderr may raise: the report is told, and training goes on
        say(f"a report of {found} values is too long: {told} of them are told (said once)")


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Make Python numbers of whatever counts as one, such as a tensor or an array with a single element.

    What is none is left out: the report lacks it, the training does not.
    """
    found = {}
    for name, value in values.items():
        try:
            found[str(name)] = float(value.detach() if hasattr(value, "detach") else value)
        except Exception:  # noqa: BLE001, S112  complex and meta tensors raise RuntimeError, a class of the user's own anything
            continue
    return found


LINK = Link(control)
"""This process's own link."""
