"""Bring pageable memory onto a GPU at the speed of its bus: several threads copy into pinned memory, and from there.

Registering the memory would pin all of it first, which takes longer than the copy; a plain copy goes through one small buffer
of the driver's, by one thread.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from ctypes import memmove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

THREADS = 8  # a core copies some 8 GB/s, the bus takes 55
CHUNK_BYTES = 8 << 20
_BUFFERS = 2  # one is filled while the other is sent


class Bounce:
    """Pinned memory for `send`, made ahead: pinning takes longer than sending."""

    def __init__(self, device: Any) -> None:
        torch: Any = sys.modules["torch"]
        self._device = device
        self._pinned = torch.empty((THREADS, _BUFFERS, CHUNK_BYTES), dtype=torch.uint8, pin_memory=True)

    def send(self, pairs: list[tuple[Any, Any]]) -> None:
        """Copy host tensors into contiguous tensors on the device; on the current stream everything is there behind this."""
        torch: Any = sys.modules["torch"]
        jobs: deque[tuple[Any, int]] = deque()
        for target, source in pairs:
            flat, address = target.detach().reshape(-1).view(torch.uint8), source.data_ptr()
            jobs.extend((flat[at : at + CHUNK_BYTES], address + at) for at in range(0, len(flat), CHUNK_BYTES))
        current = torch.cuda.current_stream(self._device)
        begin = current.record_event()
        done: list[Any] = []
        problems: list[Exception] = []
        # Threads, because one core is slower than the bus; copying and sending let go of the interpreter's lock.
        threads = [
            threading.Thread(target=self._run, args=(buffers, jobs, begin, done, problems)) for buffers in self._pinned
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        for event in done:
            current.wait_event(event)

    def _run(
        self, buffers: Any, jobs: deque[tuple[Any, int]], begin: Any, done: list[Any], problems: list[Exception]
    ) -> None:
        torch: Any = sys.modules["torch"]
        try:
            with torch.cuda.device(self._device), torch.no_grad():
                stream = torch.cuda.Stream(self._device)
                stream.wait_event(begin)
                sent: list[Any] = [None] * _BUFFERS
                turn = 0
                with torch.cuda.stream(stream):
                    while jobs:
                        try:
                            target, address = jobs.popleft()
                        except IndexError:  # another thread was faster
                            break
                        if sent[turn] is not None:
                            sent[turn].synchronize()
                        memmove(buffers[turn].data_ptr(), address, len(target))
                        target.copy_(buffers[turn][: len(target)], non_blocking=True)
                        sent[turn] = stream.record_event()
                        turn = (turn + 1) % _BUFFERS
                done.append(stream.record_event())
        except Exception as problem:  # noqa: BLE001  raised by the thread that waits for this one
            problems.append(problem)
