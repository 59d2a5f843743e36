"""Addresses as text and as the kernel wants them, and look-ups of names that do not hold up the loop."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import _thread
import os

from planaria.base import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop

    SocketAddress = tuple[str, int] | tuple[str, int, int, int]
    Target = tuple[int, SocketAddress]  # address family and address
    Then = Callable[["list[Target] | str"], object]

_PORTS = 1 << 16
_MAPPED = "::ffff:"
_LONGEST_NAME = 253  # RFC 1035
_REMEMBER_S = 5.0  # a leader asks an endpoint that is away many times a second; names do not change so fast
_REMEMBER_TROUBLE_S = 1.0  # a name that is not known yet, or any more
_MOST_KNOWN = 64
_IN_FLIGHT: dict[tuple[Loop, str, int], _LookUp] = {}
_KNOWN: dict[tuple[Loop, str, int], tuple[float, list[Target] | str]] = {}


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`. Raises ValueError, in words that fit after "ADDRESS: "."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        raise ValueError("expected HOST:PORT, found no port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError("only an IPv6 address goes into brackets")
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets, as in [::1]:29400")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) >= _PORTS:
        raise ValueError("the port is no number from 0 to 65535")
    if not host or len(host) > _LONGEST_NAME or any(char in " /[]@" or not char.isprintable() for char in host):
        raise ValueError("expected HOST:PORT, found no host name" if not host else "that is no host name")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address; an IPv4 address inside an IPv6 one is shown as itself."""
    if host.startswith(_MAPPED) and "." in host:
        host = host[len(_MAPPED) :]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def numeric(host: str, port: int) -> list[Target]:
    """Return where `host` is when it is an address in digits, and nothing when it is a name. Never blocks."""
    try:
        return _resolve(host, port, socket.AI_NUMERICHOST)
    except OSError:
        return []


def look_up_now(host: str, port: int) -> list[Target]:
    """Return where `host` is, waiting as long as that takes. Raises OSError."""
    return numeric(host, port) or _resolve(host, port, 0)


def look_up(loop: Loop, host: str, port: int, then: Then) -> None:
    """Find the addresses of a name without blocking; `then` gets them, or a sentence that says why there are none.

    Everybody who asks for a name while it is being looked up shares the answer, so a name server that does not answer
    holds one thread however often we ask. An answer is good for a few seconds, that there is none for one.
    """
    key = (loop, host, port)
    until, known = _KNOWN.get(key, (0.0, []))
    if loop.now() < until:
        loop.call_soon(lambda: then(known if isinstance(known, str) else list(known)))
        return
    _KNOWN.pop(key, None)
    if key not in _IN_FLIGHT:
        try:
            _IN_FLIGHT[key] = _LookUp(key)
        except (OSError, RuntimeError) as error:  # no descriptors, or no threads, left
            why = f"cannot look up {host}: {error}"
            loop.call_soon(lambda: then(why))
            return
    _IN_FLIGHT[key].waiting.append(then)


class _LookUp:
    """One call of `getaddrinfo` in a thread: it blocks, for many seconds if it likes, and nothing else can ask as it does.

    The thread ends with the answer. It never forks, so no worker is ever its child (a parent-death signal follows the
    thread that forked), and all signals are blocked in it from its first instruction: they stay with the main thread.
    """

    def __init__(self, key: tuple[Loop, str, int]) -> None:
        self._key = key
        self._answer: list[Target] | str = ""
        self.waiting: list[Then] = []
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        before = signals.block(signals.NUMBERS.values())  # a thread inherits the mask of its maker
        try:
            _thread.start_new_thread(self._ask, ())
        except RuntimeError:
            os.close(self._done)
            raise
        finally:
            signals.restore_mask(before)
        key[0].on_readable(self._done, self._finish)

    def _ask(self) -> None:
        """Run in the thread: one assignment, then one write that wakes the loop."""
        _, host, port = self._key
        try:
            self._answer = _interleaved(_resolve(host, port, 0))
        except OSError as error:
            self._answer = f"cannot look up {host}: {error.strerror or error}"
        except (ValueError, OverflowError) as error:
            self._answer = f"cannot look up {host}: {error}"
        os.eventfd_write(self._done, 1)

    def _finish(self) -> None:
        del _IN_FLIGHT[self._key]
        self._key[0].forget(self._done)
        os.close(self._done)
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        remember_s = _REMEMBER_TROUBLE_S if isinstance(self._answer, str) else _REMEMBER_S
        _KNOWN[self._key] = self._key[0].now() + remember_s, self._answer
        for then in self.waiting:
            then(self._answer)


def _resolve(host: str, port: int, flags: int) -> list[Target]:
    try:
        # As bytes: for text, getaddrinfo imports the IDNA tables even where every letter is ASCII (10 ms).
        name = host.encode("ascii" if host.isascii() else "idna")
    except UnicodeError as error:
        raise OSError(0, "that is no host name") from error
    found = socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM, 0, flags)
    targets = [(family, address) for family, _, _, _, address in found if family in (socket.AF_INET, socket.AF_INET6)]
    return list(dict.fromkeys(targets))  # type: ignore[arg-type]  # the address shape follows the family


def _interleaved(targets: list[Target]) -> list[Target]:
    """Keep the system's order, but let the two families take turns: a whole family may be unreachable (RFC 8305)."""
    if not targets:
        return []
    first = [target for target in targets if target[0] == targets[0][0]]
    other = [target for target in targets if target[0] != targets[0][0]]
    turns = [pair for pairs in zip(first, other, strict=False) for pair in pairs]
    return turns + first[len(other) :] + other[len(first) :]
