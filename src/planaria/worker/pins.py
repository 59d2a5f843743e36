"""Memory that is registered with a GPU's driver: once in a process, however many states use it, and only while somebody does.

What is registered must be let go before it is unmapped: else other memory that is mapped there later cannot be registered.
So it is held here, and let go when nobody else holds it any more.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OURS = 2  # references to what only we hold: the table's, and the one that is counted with


class Pins:
    """What is registered, by address. `register` and `unregister` are the driver's, and raise OSError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # sealing threads of several states, and a standby's main thread
        self._owners: dict[int, object] = {}
        self._sizes: dict[int, int] = {}
        self._unregister: dict[int, Callable[[int], object]] = {}

    def add(
        self, memory: memoryview, register: Callable[[int, int], object], unregister: Callable[[int], object]
    ) -> None:
        """Register memory, unless it is.

        Raises:
            OSError: The driver refuses.
        """
        address, size = address_of(memory), len(memory)
        with self._lock:
            if self._sizes.get(address, 0) >= size:
                return
            self._let_go()
            register(address, size)
            self._owners[address], self._sizes[address] = memory.obj, size
            self._unregister[address] = unregister

    def has(self, address: int) -> bool:
        """Tell whether memory at an address is registered."""
        return any(start <= address < start + size for start, size in self._sizes.copy().items())

    def _let_go(self) -> None:
        for address in [*self._owners]:
            if sys.getrefcount(self._owners[address]) <= _OURS:
                del self._sizes[address]
                with suppress(OSError):  # there is nothing to be done about it
                    self._unregister.pop(address)(address)
                del self._owners[address]  # unmaps it: last


def address_of(memory: memoryview) -> int:
    """Return where memory that can be written begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


PINS = Pins()
"""This process's own."""
