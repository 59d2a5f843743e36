"""What a commit and a restore need of a GPU: a stream beside the program's, events, registered memory, sums of blocks.

A thin driver: `flight.py` and `upload.py` decide what happens in which order, and their tests give them another one of these.
"""

from __future__ import annotations

import sys

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.worker.bounce import Bounce
from planaria.worker.driver import Driver, NoMemory
from planaria.worker.kernel import Blocks, Kernel
from planaria.worker.pins import PINS
from planaria.worker.vault import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

_MODULUS = 65521  # of Adler-32
_ROW, _ROWS = 256, BLOCK_BYTES // 256


class Cuda:
    """One GPU of this process."""

    def __init__(self, index: int) -> None:
        torch: Any = sys.modules["torch"]
        self.device = torch.device("cuda", index)
        self._cuda = torch.cuda
        self._stream = torch.cuda.Stream(self.device, priority=0)
        self._other_stream = torch.cuda.Stream(self.device, priority=0)
        self._kernel = Kernel(index)
        self._driver: Driver | None = None
        self._said: set[str] = set()
        try:
            self._driver = Driver(index)
        except (OSError, AttributeError) as problem:
            self._say("registers no memory", problem)
        self._copies_many = self._driver is not None
        self._bounce: Bounce | None = None

    def beside(self) -> AbstractContextManager[object]:
        """Return a context in which operations go to the stream beside the program's."""
        return self._cuda.stream(self._stream)  # type: ignore[no-any-return]  # torch is not known to the type checker here

    def aside(self) -> AbstractContextManager[object]:
        """Return a context in which operations go to a second stream beside, for sums that copies need not wait for."""
        return self._cuda.stream(self._other_stream)  # type: ignore[no-any-return]  # as above

    def here(self) -> AbstractContextManager[object]:
        """Return a context in which this device is the current one: every thread begins with the first."""
        return self._cuda.device(self.device)  # type: ignore[no-any-return]  # as above

    def mark(self) -> Any:
        """Return an event for all that has been asked of the current stream."""
        event = self._cuda.Event()
        event.record(self._cuda.current_stream(self.device))
        return event

    def wait_here(self, event: Any) -> None:
        """Have the current stream wait for an event; the program does not."""
        self._cuda.current_stream(self.device).wait_event(event)

    def wait(self, event: Any) -> None:
        """Wait, in this thread, for an event."""
        event.synchronize()

    def is_captured(self) -> bool:
        """Tell whether the current stream is being captured into a graph, whose replays call no hooks."""
        return bool(self._cuda.is_current_stream_capturing())

    def copy(self, target: Any, source: Any) -> None:
        """Copy one tensor into another of its form, on the current stream, without waiting when the memory is registered."""
        target.copy_(source, non_blocking=True)

    def copy_each(self, targets: list[Any], sources: list[Any]) -> None:
        """Copy tensors here into others of their forms here, on the current stream, by a few launches in all."""
        sys.modules["torch"]._foreach_copy_(targets, sources)

    def copy_many(self, targets: list[Any], sources: list[Any], *, is_registered: bool) -> None:
        """Copy contiguous tensors into others of their forms, one side here and one on the host.

        On the current stream, which is one beside the program's: the driver takes no default stream.
        """
        if is_registered and self._copies_many and self._copied(targets, sources):
            return
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)

    def _copied(self, targets: list[Any], sources: list[Any]) -> bool:
        assert self._driver is not None
        to, from_ = ([one.data_ptr() for one in some] for some in (targets, sources))
        sizes = [source.numel() * source.element_size() for source in sources]
        try:
            self._driver.copy(to, from_, sizes, self._cuda.current_stream(self.device).cuda_stream)
        except NoMemory:
            return False  # this time
        except OSError as problem:
            self._copies_many = False
            self._say("copies each tensor by itself", problem)
        return self._copies_many

    def _say(self, what: str, problem: Exception) -> None:
        if what not in self._said:
            self._said.add(what)
            say(f"the GPU {what}, which is slower: {problem} (said once)")

    def empty(self, count: int) -> Any:
        """Return new memory of so many bytes here."""
        torch: Any = sys.modules["torch"]
        return torch.empty(count, dtype=torch.uint8, device=self.device)

    def empty_on_host(self, count: int, dtype: str) -> Any:
        """Return new memory that the device can write to while the program runs."""
        torch: Any = sys.modules["torch"]
        return torch.empty(count, dtype=getattr(torch, dtype), pin_memory=True)

    def register(self, memory: memoryview) -> bool:
        """Have the driver pin memory, once in this process; tell whether it is. The first time costs some 0.2 s a GB."""
        if self._driver is None:
            return False
        try:
            PINS.add(memory, self._driver.register, self._driver.unregister)
        except OSError as problem:
            self._say("registers no memory", problem)
            return False
        return True

    def upload(self, pairs: list[tuple[Any, Any]]) -> None:
        """Copy host tensors into contiguous tensors here. On the current stream everything is there behind this."""
        pairs = [pair for pair in pairs if pair[1].numel()]
        ready = [pair for pair in pairs if PINS.has(pair[1].data_ptr())]
        pageable = [pair for pair in pairs if not PINS.has(pair[1].data_ptr())]
        if ready:
            begun = self.mark()
            with self.beside():
                self.wait_here(begun)
                self.copy_many([target for target, _ in ready], [source for _, source in ready], is_registered=True)
                done = self.mark()
            self.wait_here(done)
        if pageable:
            self.prepare()
            assert self._bounce is not None
            self._bounce.send(pageable)
            self._bounce = None  # a restore happens once in a life

    def prepare(self) -> None:
        """Make what the first restore needs before it is needed."""
        if self._bounce is None:
            with self.here():  # else memory is pinned for the first GPU, which costs some of it, in a thread of its own
                self._bounce = Bounce(self.device)

    def blocks(self, tensors: list[Any]) -> Blocks:
        """Return the blocks of tensors that are contiguous and begin at multiples of 16."""
        return Blocks(tensors)

    def sum_blocks(self, blocks: Blocks, tensors: list[Any]) -> None:
        """Compute the sums of all blocks, on the current stream."""
        try:
            self._kernel.launch(blocks, self._cuda.current_stream(self.device).cuda_stream)
        except OSError as problem:
            until = " until it has memory for their kernel" if isinstance(problem, NoMemory) else ""
            self._say(f"computes digests with torch's operations{until}", problem)
            torch: Any = sys.modules["torch"]
            torch.cat([block_sums(tensor) for tensor in tensors], out=blocks.sums)


def block_sums(tensor: Any) -> Any:
    """Return the Adler-32 of each block of a contiguous tensor, with torch's operations on its own device.

    Sums of rows and of columns of a block give the sum of `place * byte` without anything as large as the tensor beside it.
    """
    torch: Any = sys.modules["torch"]
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    whole = len(flat) // BLOCK_BYTES * BLOCK_BYTES
    found = []
    if whole:
        square = flat[:whole].view(-1, _ROWS, _ROW)
        rows, columns = square.sum(2, dtype=torch.int64), square.sum(1, dtype=torch.int64)
        placed = _ROW * (rows * _upto(_ROWS, flat)).sum(1) + (columns * _upto(_ROW, flat)).sum(1)
        found.append(_adler(BLOCK_BYTES, rows.sum(1), placed))
    if whole < len(flat):
        rest = flat[whole:].to(torch.int64)
        found.append(_adler(len(rest), rest.sum(), (rest * _upto(len(rest), flat)).sum()).reshape(1))
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int32, device=flat.device)


def _upto(count: int, like: Any) -> Any:
    return sys.modules["torch"].arange(count, device=like.device)


def _adler(length: int, total: Any, placed: Any) -> Any:
    second = (length + length * total - placed) % _MODULUS
    return ((second << 16) | (1 + total) % _MODULUS).to(sys.modules["torch"].int32)  # the same 32 bits
