"""Bring a snapshot's tensors back where they were. What goes to a GPU is sent together, and verified there.

The host needs half a second to digest 1.6 GB, the device half a millisecond. So tensors are written before they are known to be
whole; if they are not, `finish` says so, and the caller restores something else over them or says that the state is torn.
"""

from __future__ import annotations

import sys

from planaria.contract import snapshot as snapshots
from planaria.contract.snapshot import BLOCKS, HEADER_BYTES
from planaria.worker import arrays
from planaria.worker.claims import Claims
from planaria.worker.flight import Sums

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from planaria.contract.snapshot import Snapshot, Tensor
    from planaria.worker.device import Cuda
    from planaria.worker.vault import Loaded


class Damaged(Exception):
    """What was restored is not what had been committed, and the state is torn."""


class Upload:
    """One restore. `copy` takes note of what goes to the device, `flush` sends it, `finish` sees that all of it was whole.

    `claims` are the tensors of the program that it writes to.
    """

    def __init__(self, device: Cuda | None, loaded: Loaded) -> None:
        self._device = device
        found = [one for one in (loaded.shared, loaded.own) if one is not None]
        self._sources: list[tuple[memoryview, Snapshot, bytes]] = [
            (memory, snapshot, bytes(memory[:HEADER_BYTES])) for memory, snapshot in found
        ]
        self.rows: dict[int, Tensor] = {}
        self.claims = Claims()
        self._waiting: list[tuple[Any, Any]] = []
        self._sent: list[tuple[Any, Tensor]] = []

    @property
    def gpu(self) -> Any:
        """Return the GPU of the state, which is not the current one in a thread that nobody told; None without one."""
        return self._device.device if self._device is not None else None

    def write(self, target: Any, source: Any) -> Any:
        """Return `target` with what the snapshot has, or a copy of that: the target may be another's."""
        return arrays.write_into(target, source, self.copy, self.claims)

    def write_claimed(self, target: Any, source: Any) -> Any:
        """Do the same with a target that was claimed before."""
        return arrays.write_into(target, source, self.copy)

    def copy(self, target: Any, source: Any) -> None:
        """Copy a tensor of the snapshot into one of the program, at the latest when `flush` is called."""
        if self._device is None or target.device != self._device.device:
            arrays.copy_now(target, source)
        else:
            self._waiting.append((target, source))

    def flush(self) -> None:
        """Send what waits. For the current stream it is there, and so for whatever the program does next."""
        if not self._waiting or self._device is None:
            return
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            straight = [pair for pair in self._waiting if pair[0].is_contiguous()]
            for target, source in self._waiting:
                if not target.is_contiguous():
                    target.copy_(source)
            self._device.upload(straight)
        for target, source in straight:
            row = self.rows.get(source.data_ptr())
            if row is not None and row.digest_kind == BLOCKS and target.data_ptr() % 16 == 0:
                self._sent.append((target, row))
        self._waiting = []

    def finish(self) -> None:
        """Verify: on the device what was sent there, here the rest.

        Raises:
            Damaged: A tensor is not whole, or the snapshot was overwritten meanwhile.
        """
        self.flush()
        try:
            self._verify()
        except ValueError as problem:
            raise Damaged(str(problem)) from problem

    def _verify(self) -> None:
        verified = self._verify_on_device()
        for memory, snapshot, header in self._sources:
            for tensor in snapshot.tensors:
                if tensor.digest_kind == BLOCKS and id(tensor) not in verified:
                    snapshots.verify_tensor(memory, tensor)
            if memory[:HEADER_BYTES] != header:
                raise ValueError("the snapshot was overwritten while it was read")

    def _verify_on_device(self) -> set[int]:
        if not self._sent or self._device is None:
            return set()
        sums = Sums(self._device, [(number, row) for number, (_, row) in enumerate(self._sent)])
        with self._device.here():
            sums.ask([target for target, _ in self._sent])
            sums.bring()
            self._device.wait(self._device.mark())
        for number, digest in sums.digests().items():
            if digest != self._sent[number][1].digest:
                raise ValueError(f"{self._sent[number][1].name} is damaged")
        return {id(row) for _, row in self._sent}
