"""Ranks that commit and begin together, over a process group of torch, for campaigns that kill them. A crew's job (`crew.py`).

    python job.py sharded --waits none,disk [--mortal]

`sharded`: a model that `fully_shard` has split, in a `ShardedState`. `synced`: a model that is whole, of which only rank 0
finds its commits, so that `sync()` sends them to all others, in every life.

All content follows from the step; what was restored is compared. Notes are those of `trainee.py`. It ends at the step that the
file `stop` names; `--mortal`: see `mortal.py`. Standbys come to where the rank is needed, with torch imported.
"""

import argparse
import time

import mortal
import torch
import torch.distributed as dist
import torch.distributed.checkpoint  # what the first commit would import
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from planaria import worker
from planaria.contract.commit import Origin
from planaria.worker import ElasticState, LocalVault, ShardedState

if __name__ == "__main__":  # what follows asks for the rank when it is loaded
    worker.join()

from notes import NODE, RANK, ROOM, WORLD, is_last, note, stamp

MINE = 3000  # numbers that a rank has for itself
FOLDER = f"{ROOM}/commits"


def made(kind: str) -> ElasticState:
    """Return the state of this rank, with parameters that no other rank has, if they are whole."""
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Linear(50, 30), nn.Linear(30, 20))
    if kind == "sharded":
        fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
        return ShardedState(FOLDER, model=model, step=0, mine=[])
    place = Origin(rank=RANK, world_size=1)  # each by itself: what a rank commits is whole without the others
    vault = LocalVault(place) if RANK else LocalVault(place, directory=FOLDER)
    return ElasticState(vault=vault, model=model, step=0, mine=[])


def fill(state: ElasticState, kind: str) -> None:
    """Make all of the state what it is at this step."""
    state.mine = [state.step + whose(kind)] * MINE
    with torch.no_grad():
        for number, parameter in enumerate(state.model.parameters()):
            (parameter.to_local() if kind == "sharded" else parameter).fill_(state.step + number / 8)


def whose(kind: str) -> int:
    """Return whose own numbers this rank has: what rank 0 sends is rank 0's."""
    return RANK if kind == "sharded" else 0


def check(state: ElasticState, kind: str) -> None:
    """See that everything is of one step, and that step's."""
    assert state.mine == [state.step + whose(kind)] * MINE, f"not what step {state.step} had: {state.mine[:3]}"
    for number, parameter in enumerate(state.model.parameters()):
        whole = parameter.full_tensor() if kind == "sharded" else parameter
        assert (whole == state.step + number / 8).all(), f"parameter {number} is not that of step {state.step}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[*mortal.COLLECTIVE_PARTS])
    parser.add_argument("--waits", default="disk")
    parser.add_argument("--mortal", action="store_true")
    options = parser.parse_args()
    parts = mortal.COLLECTIVE_PARTS[options.kind]
    place = f"{ROOM}/mortal.{NODE}.{RANK}"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    state = made(options.kind)
    if options.mortal:
        mortal.watch(f"{place}.begin", parts)
    found = state.sync()
    if found.stamp is None:  # a first start
        fill(state, options.kind)
    check(state, options.kind)
    note("met", step=state.step, synced=found.stamp is not None)
    if options.mortal:
        mortal.watch(place, parts)
    waits = options.waits.split(",")
    while not is_last(state.step):
        state.step += 1
        fill(state, options.kind)
        note("step", step=state.step)
        wait = waits[state.step % len(waits)]
        reached = state.commit(wait=None if wait == "none" else wait).reached
        if reached == "disk" and (options.kind == "sharded" or RANK == 0):
            note("kept", step=state.step, tier=reached)
        stamp()
        dist.barrier()  # as the collectives of a step would: a rank that is alone does not go on
        time.sleep(0.01)  # what a step would take: without it the job eats the cores its agent needs
    note("ended", step=state.step)
    dist.destroy_process_group()


main()
