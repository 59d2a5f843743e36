"""Train on a device made of the CPU and commit into two inherited memory files, life after life: python flying.py FD FD PLACE.

For each line on stdin a child is forked, so that torch is imported once: it restores what it finds, makes `STEPS` steps with
a commit each, and ends. A line has a point at which the child dies (`mortal.py`), or nothing. It tells

    restored STEP DIGEST    what it went on from
    step STEP DIGEST        before each commit
    kept STEP               behind one that was waited for
    over STATUS             what became of the child

Everything follows from the step, random numbers included: they are in the state.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import traceback

import mortal
import torch
from fake_device import FakeDevice
from on_device import make, tensors, train

from planaria.worker import arrays, runway
from planaria.worker.vault import LocalVault

STEPS = 5  # from the third commit on the structure is taken on trust, and commits need no memory before they fly
RESTORING, COMMITTING = "begin", "fly"


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def live(slots: list[memoryview], place: str) -> None:
    """Be a worker."""
    device = FakeDevice()
    arrays.DEVICES = ("cpu",)
    runway.open_cuda = lambda _index: device  # type: ignore[assignment, return-value]  # it stands in for one
    mortal.watch(f"{place}.{RESTORING}", mortal.DEVICE_PARTS)
    state = make(LocalVault(slots=slots), average=torch.zeros(3000))

    def digest() -> str:
        content = b"".join(part.detach().numpy().tobytes() for part in (*tensors(state), state.average))
        return hashlib.sha256(content + torch.get_rng_state().numpy().tobytes()).hexdigest()[:16]

    if state.restore() is None:
        torch.manual_seed(7)
    mortal.watch(f"{place}.{COMMITTING}", mortal.DEVICE_PARTS)
    tell("restored", state.step, digest())
    for count in range(1, STEPS + 1):
        train(state)
        state.average.mul_(0.9).add_(state.step)  # belongs to no optimizer: it is copied within the device first
        tell("step", state.step, digest())
        wait = "node" if count % 2 == 0 else None
        if state.commit(wait=wait).reached:
            tell("kept", state.step)
    state.settle()
    tell("kept", state.step)


def warm_up() -> None:
    """Import what the first optimizer imports, which takes seconds."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    torch.optim.AdamW([parameter], foreach=False).step()


def main() -> None:
    torch.set_num_threads(1)
    warm_up()
    slots = [memoryview(mmap.mmap(int(fd), 0)) for fd in sys.argv[1:3]]
    place = sys.argv[3]
    for line in sys.stdin:
        kind, _, point = line.strip().partition(" ")
        if point:
            mortal.give(f"{place}.{kind}", point, 0)
        child = os.fork()
        if not child:
            status = 1
            try:
                live(slots, place)
                status = 0
            except BaseException:  # noqa: BLE001  # whoever reads the log wants it, and nobody goes on behind it
                traceback.print_exc()
            os._exit(status)
        _, status = os.waitpid(child, 0)
        if point:
            mortal.take_back(f"{place}.{kind}")
        tell("over", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
