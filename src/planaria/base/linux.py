"""Calls of the C library that Python lacks or gets wrong, and what `/proc` says about a process."""

from __future__ import annotations

import _ctypes  # what `ctypes` is made of: two plain C calls do not need its 3 ms of Python
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None: what is loaded already
_PRCTL = _ctypes.dlsym(_LIBC, "prctl")
_SYSCALL = _ctypes.dlsym(_LIBC, "syscall")
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_OTHER = 0
_RESET_ON_FORK = 1
_SLICE_NS = 100_000  # the shortest that the kernel grants
_SIGTIMEDWAIT = _ctypes.dlsym(_LIBC, "sigtimedwait")
_SIGNAL = _ctypes.dlsym(_LIBC, "signal")
_SIGNAL_SET_BYTES = 128
_NS = 1_000_000_000
_F_SETSIG = 10
_SIGKILL = 9
_SOL_SOCKET, _SO_PEERCRED = 1, 17
_OUT_OF_THE_WAY = 900  # of programs that close or reuse low descriptors


def _prctl(option: int, value: int) -> None:
    if _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0)) != 0:
        raise OSError(errno.EINVAL, f"prctl({option}, {value}) was refused")


def become_subreaper() -> None:
    """Adopt every orphaned descendant of this process from now on, however it detached itself."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_parent_death_signal(number: int) -> None:
    """Have the kernel send `number` to this process when the *thread* that forked it ends. Lost on a setuid exec.

    The parent may have died before this call: compare `os.getppid()` afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def end_with_writers(pipe: int) -> bool:
    """Have the kernel kill this process when the last writer of a pipe, which writes nothing, is gone; False when it is.

    Unlike the parent death signal this looks at a process, not at a thread, and works for one that is not the parent. The
    descriptor that it takes survives an exec; a program that closes it is not killed any more.
    """
    import fcntl
    import select

    # The owner of a descriptor's signals belongs to its opening, which other processes share: so open it once more.
    opened = os.open(f"/proc/self/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        own = fcntl.fcntl(opened, fcntl.F_DUPFD, _OUT_OF_THE_WAY)
    except OSError:  # over the limit of descriptors
        own = os.dup(opened)
        os.set_inheritable(own, True)
    os.close(opened)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, _F_SETSIG, _SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    gone = select.poll()
    gone.register(own, 0)
    return not gone.poll(0)


def wait_for_signal(numbers: Iterable[int], timeout_s: float) -> int | None:
    """Wait for one of these (blocked) signals; None when the time is over, or when this process was stopped and goes on.

    Python's own `sigtimedwait` answers with whatever lies in its memory when both happen at once.
    """
    wanted = sum(1 << (number - 1) for number in set(numbers)).to_bytes(_SIGNAL_SET_BYTES, "little")
    seconds, nanoseconds = divmod(int(timeout_s * _NS), _NS)
    limit = seconds.to_bytes(8, "little") + nanoseconds.to_bytes(8, "little")
    found: int = _ctypes.call_function(_SIGTIMEDWAIT, (wanted, None, limit))
    return found if found > 0 else None


def unhandle_signal(number: int) -> None:
    """Let a signal do again what it does by default. From any thread: `signal.signal` is for the main thread alone."""
    _ctypes.call_function(_SIGNAL, (number, None))


def read_file(path: str, limit_bytes: int = 1 << 20) -> bytes:
    """Return at most `limit_bytes` of a file, empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        chunks = []
        while limit_bytes > 0 and (chunk := os.read(descriptor, min(limit_bytes, 1 << 16))):
            chunks.append(chunk)
            limit_bytes -= len(chunk)
        return b"".join(chunks)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def peer_of(connection: socket) -> tuple[int, int]:
    """Return the pid and the user of the process at the other end of a UNIX socket: who connected, or who listens."""
    found = memoryview(connection.getsockopt(_SOL_SOCKET, _SO_PEERCRED, 12)).cast("i")  # pid, user and group
    return found[0], found[1]


def stat_fields(pid: int | str) -> list[bytes]:
    """Return what follows the name in `/proc/<pid>/stat`, the state first; nothing when there is no such process."""
    # The name stands in parentheses and may have some itself: the last one ends it.
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def parent_of(pid: int) -> int | None:
    """Return the parent's pid, or None when there is no such process."""
    fields = stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else None


def is_running(pid: int) -> bool:
    """Tell whether there is such a process and it has not ended; one that ended and was not reaped has."""
    fields = stat_fields(pid)
    return len(fields) > 1 and fields[0] not in (b"Z", b"X")


def catches(pid: int, number: int) -> bool:
    """Tell whether the process has a handler of its own for signal `number`."""
    for line in read_file(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def file_limit() -> tuple[int, int]:
    """Return how many descriptors this process may have open, and how many it may allow itself."""
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def set_file_limit(soft: int) -> None:
    """Allow this process so many open descriptors, at most what it may allow itself."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))


def set_title(title: str) -> None:
    """Show `title` as this process's command line in `ps`, as far as the old one was long. Never fails."""
    fields = stat_fields("self")
    try:
        start, end = int(fields[45]), int(fields[46])
        room = end - start - 1
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(memory, title.encode()[:room].ljust(room, b"\0") + b"\0", start)
        finally:
            os.close(memory)
    except (OSError, IndexError, ValueError):  # a sandbox may hide these files; a title is a courtesy
        return


def raise_priority(nice: int) -> None:
    """Let this process run before its busy neighbours, where we are allowed to (root, CAP_SYS_NICE); else do nothing.

    A process that was made to give way (`nice`) keeps doing so. Children do not inherit the short slices.

    With autogroups, every session competes as one: 64 busy workers would leave a session of its own 1/65 of the CPUs.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        with open("/proc/self/autogroup", "w") as group:
            group.write(str(nice))
    except OSError:
        return
    _ask_for_short_slices(nice)


def _ask_for_short_slices(nice: int) -> None:
    """Call `sched_setattr`: short turns come sooner (Linux 6.12+; elsewhere nothing changes).

    Only for one whose share is large enough: with too small a share they were measured to make it wait four times longer.
    """
    call = _SCHED_SETATTR.get(os.uname().machine)
    if call is None:
        return
    fields = ((48, 4), (_SCHED_OTHER, 4), (_RESET_ON_FORK, 8), (nice, 4), (0, 4), (_SLICE_NS, 8), (0, 8), (0, 8))
    request = b"".join(value.to_bytes(size, "little", signed=True) for value, size in fields)
    _ctypes.call_function(_SYSCALL, (call, 0, request, 0))
