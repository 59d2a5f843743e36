"""The GPU's own driver library, for what torch has no good way: registering memory, and many copies in one call.

A registration that the runtime refuses leaves an error behind, which the program's next operation would raise. The driver's
own call does not. And a call of the driver takes 150 copies while the interpreter's lock is free; torch's take 5 us each.
"""

from __future__ import annotations

import ctypes
from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OUT_OF_MEMORY = 2
_PORTABLE = 1  # for all contexts of this process
_IN_STREAM_ORDER = 1  # when sources are read


class NoMemory(OSError):
    """There is no memory for it now, the GPU's or the host's. Later there may be."""


class Driver:
    """The driver, for one GPU and the context that torch uses.

    Raises:
        OSError: There is no such library here.
    """

    def __init__(self, index: int) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._index = index
        self._context: ctypes.c_void_p | None = None
        self._library.cuMemHostRegister_v2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        self._library.cuMemHostUnregister.argtypes = (ctypes.c_void_p,)
        self._copy = getattr(self._library, "cuMemcpyBatchAsync_v2", None)  # since version 13 of the driver
        if self._copy is not None:
            arrays = (ctypes.c_void_p,) * 3
            self._copy.argtypes = (*arrays, ctypes.c_size_t, *arrays[:2], ctypes.c_size_t, ctypes.c_void_p)

    def _enter(self) -> None:
        """Have this thread use torch's context: a new thread has none."""
        current = ctypes.c_void_p()
        check(self._library.cuCtxGetCurrent(ctypes.byref(current)))
        if current.value:
            return
        if self._context is None:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            check(self._library.cuDeviceGet(ctypes.byref(device), self._index))
            check(self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
            self._context = context
        check(self._library.cuCtxSetCurrent(self._context))

    def register(self, address: int, size_bytes: int) -> None:
        """Pin memory, so that the device copies to and from it while programs run. Some 0.2 s a GB.

        Raises:
            OSError: The driver refuses.
        """
        self._enter()
        check(self._library.cuMemHostRegister_v2(address, size_bytes, _PORTABLE))

    def unregister(self, address: int) -> None:
        """Let go of memory that was registered.

        Raises:
            OSError: The driver refuses.
        """
        self._enter()
        check(self._library.cuMemHostUnregister(address))

    def copy(self, targets: Sequence[int], sources: Sequence[int], sizes: Sequence[int], stream: int) -> None:
        """Copy many times, from address to address, on a stream that is not the default one. Host memory is registered.

        Raises:
            OSError: The driver refuses, or is too old.
        """
        if self._copy is None:
            raise OSError("the GPU's driver is older than version 13")
        if not sizes:
            return
        self._enter()
        # The order of access, where each side is (two numbers; only managed memory has a choice), flags.
        how, first = (ctypes.c_uint32 * 6)(_IN_STREAM_ORDER, 0, 0, 0, 0, 0), ctypes.c_size_t(0)
        arrays = [array("Q", numbers) for numbers in (targets, sources, sizes)]  # ctypes' own take ten times as long
        check(
            self._copy(
                *(one.buffer_info()[0] for one in arrays), len(sizes), ctypes.byref(how), ctypes.byref(first), 1, stream
            )
        )


def check(status: int) -> None:
    """See that a call was taken.

    Raises:
        NoMemory: It was not, for want of memory.
        OSError: It was not, for whatever else.
    """
    if status:
        kind = NoMemory if status == _OUT_OF_MEMORY else OSError
        raise kind(f"the GPU's driver refused with status {status}")
