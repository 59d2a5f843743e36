"""Signals by number and name, without importing `signal` (it pulls in `enum`: 6 ms of a 70 ms launch)."""

from __future__ import annotations

from planaria.base.linux import wait_for_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable
else:
    import _signal

SIG_DFL = _signal.SIG_DFL
SIG_IGN = _signal.SIG_IGN
SIGCHLD = int(_signal.SIGCHLD)
SIGCONT = int(_signal.SIGCONT)
SIGHUP = int(_signal.SIGHUP)
SIGINT = int(_signal.SIGINT)
SIGKILL = int(_signal.SIGKILL)
SIGPIPE = int(_signal.SIGPIPE)
SIGQUIT = int(_signal.SIGQUIT)
SIGTERM = int(_signal.SIGTERM)
SIGXFSZ = int(_signal.SIGXFSZ)

handler_of = _signal.getsignal
set_handler = _signal.signal
set_wakeup_fd = _signal.set_wakeup_fd

NUMBERS: dict[str, int] = {
    name: int(getattr(_signal, name))
    for name in dir(_signal)
    if name.startswith("SIG") and not name.startswith(("SIG_", "SIGRT")) and name not in ("SIGCLD", "SIGPOLL", "SIGIOT")
}
_NAMES: dict[int, str] = {number: name for name, number in NUMBERS.items()}


def name_of(number: int) -> str:
    """Return `SIGTERM` for 15, and `SIGRTMIN+3` or the bare number where there is no fixed name."""
    if number in _NAMES:
        return _NAMES[number]
    first, last = int(_signal.SIGRTMIN), int(_signal.SIGRTMAX)
    return f"SIGRTMIN+{number - first}" if first <= number <= last else f"signal {number}"


def meaning_of(number: int) -> str:
    """Return the kernel's few words for a signal, such as "Segmentation fault"."""
    is_one = 0 < number < int(_signal.NSIG)
    return (_signal.strsignal(number) if is_one else None) or "unknown signal"


def is_ignored(number: int) -> bool:
    """Tell whether this process ignores a signal, as `nohup` makes its command ignore SIGHUP."""
    return handler_of(number) == SIG_IGN


def is_unhandled(number: int) -> bool:
    """Tell whether a signal does here what it does in every fresh interpreter, where SIGINT raises KeyboardInterrupt."""
    return handler_of(number) in (SIG_DFL, _signal.default_int_handler)


def block(numbers: Iterable[int]) -> set[int]:
    """Block these signals in the calling thread; return what was blocked before."""
    return {int(number) for number in _signal.pthread_sigmask(_signal.SIG_BLOCK, list(numbers))}


def restore_mask(numbers: Iterable[int]) -> None:
    """Make exactly these signals blocked again."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, list(numbers))


def wait_for_any(numbers: Iterable[int], timeout_s: float | None = None) -> int | None:
    """Wait for one of these (blocked) signals; return its number, or None when `timeout_s` passed first.

    A process that is stopped and goes on meanwhile may get None too early: look at a clock.
    """
    if timeout_s is None:
        return _signal.sigwaitinfo(list(numbers)).si_signo
    return wait_for_signal(numbers, timeout_s)
