"""A run that does nothing but commit, for campaigns that kill agents hundreds of times: without torch a life begins soon.

    python job.py --waits node,buddy --size 700000 [--mortal]

Every rank has something of its own, and all of them something shared, that follow from the step. What was restored is compared
byte by byte. Notes are those of `trainee.py`. It ends at the step that the file `stop` names; `--mortal`: see `mortal.py`.
"""

from notes import *  # noqa: F403  isort: skip
import argparse
import hashlib
import time

import mortal
from notes import NODE, RANK, ROOM, is_last, note, stamp

from planaria.worker import ElasticState


def content(step: int, whose: int, size: int) -> bytes:
    """Return bytes that only this step of this rank has."""
    seed = hashlib.sha256(f"{step} {whose}".encode()).digest()
    return seed * (size // len(seed)) if step else b""


class Shared:
    """What is equal on all ranks, as a model is: kept once for a node."""

    def __init__(self) -> None:
        self.value = b""

    def state_dict(self) -> dict[str, bytes]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, bytes]) -> None:
        self.value = state["value"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--waits", default="node")
    parser.add_argument("--size", type=int, default=700_000)
    parser.add_argument("--mortal", action="store_true")
    options = parser.parse_args()
    place = f"{ROOM}/mortal.{NODE}.{RANK}"
    if options.mortal:
        mortal.watch(f"{place}.begin", mortal.WORKER_PARTS)
    waits = options.waits.split(",")
    model = Shared()
    state = ElasticState(model=model, replicated=True, mine=b"", step=0)
    found = state.restore()
    world = found.world_size if found else 1
    whose = [RANK] if world > RANK else range(world)  # a rank that was not there begins as one that was
    assert state.mine in [content(state.step, one, options.size) for one in whose], f"not what step {state.step} had"
    assert model.value == content(state.step, -1, options.size), f"rank {RANK} has not the shared part"
    note("met", step=state.step, synced=found is not None)
    if options.mortal:
        mortal.watch(place, mortal.WORKER_PARTS)
    while not is_last(state.step):
        state.step += 1
        state.mine = content(state.step, RANK, options.size)
        model.value = content(state.step, -1, options.size)
        note("step", step=state.step)
        wait = waits[state.step % len(waits)]
        reached = state.commit(wait=None if wait == "none" else wait).reached
        if reached:
            note("kept", step=state.step, tier=reached)
        stamp()
        time.sleep(0.01)  # what a step would take: without it the job eats the cores its agents need
    note("ended", step=state.step)


main()
