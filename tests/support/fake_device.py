"""A device beside the program, made of the CPU: what is asked of it happens late, when somebody waits for it.

A copy reads its source when it happens, so a source that was changed too early shows.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from planaria.worker.device import block_sums
from planaria.worker.kernel import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 30


class FakeDevice:
    """Stands in for `planaria.worker.device.Cuda`. `gate` holds up whoever waits for an event in a thread."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.log: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.captures = False
        self.registers = True
        self._queue: list[Callable[[], object]] = []
        self._done = 0
        self._lock = threading.Lock()
        self._where = threading.local()

    @contextmanager
    def beside(self) -> Iterator[None]:
        self._where.beside = True
        try:
            yield
        finally:
            self._where.beside = False

    aside = beside

    @contextmanager
    def here(self) -> Iterator[None]:
        yield

    def mark(self) -> int:
        return len(self._queue)

    def wait_here(self, event: int) -> None:
        if getattr(self._where, "beside", False):
            self.log.append("wait beside")
            return
        self.log.append("the device waits")
        self._run(event)

    def wait(self, event: int) -> None:
        assert self.gate.wait(PATIENCE_S)
        self._run(event)
        self.log.append("waited")

    def _run(self, event: int) -> None:
        with self._lock, torch.no_grad():
            while self._done < event:
                self._queue[self._done]()
                self._queue[self._done] = dict  # nothing of it is held any longer
                self._done += 1

    def is_captured(self) -> bool:
        return self.captures

    def copy(self, target: Any, source: Any) -> None:
        self._do(lambda: target.copy_(source))

    def copy_each(self, targets: list[Any], sources: list[Any]) -> None:
        self.log.append(f"gather {len(targets)}")
        for target, source in zip(targets, sources, strict=True):
            self.copy(target, source)

    def copy_many(self, targets: list[Any], sources: list[Any], *, is_registered: bool) -> None:
        self.log.append(f"copy {len(targets)}" if is_registered else f"copy {len(targets)} slowly")
        for target, source in zip(targets, sources, strict=True):
            self.copy(target.view(-1), source.detach().view(-1))  # from address to address

    def _do(self, call: Callable[[], object]) -> None:
        if getattr(self._where, "beside", False):
            self._queue.append(call)
        else:
            call()

    def empty(self, count: int) -> Any:
        return torch.empty(count, dtype=torch.uint8)

    def empty_on_host(self, count: int, dtype: str) -> Any:
        return torch.empty(count, dtype=getattr(torch, dtype))

    def register(self, memory: memoryview) -> bool:
        self.log.append(f"register {len(memory)}")
        return self.registers

    def upload(self, pairs: list[tuple[Any, Any]]) -> None:
        self.log.append("upload")
        for target, source in pairs:
            target.copy_(source)

    def prepare(self) -> None:
        self.log.append("prepare")

    def blocks(self, tensors: list[Any]) -> Blocks:
        return Blocks(tensors)

    def sum_blocks(self, blocks: Blocks, tensors: list[Any]) -> None:
        self._do(lambda: torch.cat([block_sums(tensor) for tensor in tensors], out=blocks.sums))
