"""The sampler behind torch's own DataLoader, with workers that load ahead and die, and torch's own DDP."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

if importlib.util.find_spec("torch") is None:
    pytest.skip("DataLoaders come with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 110

TRAIN = """
import json, os, random, signal, sys
import numpy, torch
from torch.utils.data import DataLoader, Dataset
from planaria.worker.data import ElasticSampler

class Noisy(Dataset):
    def __len__(self):
        return 150

    def __getitem__(self, index):
        return int(index), torch.tensor([random.random(), numpy.random.rand(), torch.rand(1).item()], dtype=torch.float64)

def main(method, workers, die):
    dataset = Noisy()
    torch.manual_seed(1)
    sampler = ElasticSampler(dataset, 6, seed=5, rank=0, world_size=1)
    taken = []
    if os.path.exists("state"):
        state = json.load(open("state"))
        taken = state["taken"]
        sampler.load_state_dict(state["sampler"])
        torch.set_rng_state(torch.tensor(state["random"], dtype=torch.uint8))
    loader = sampler.count(DataLoader(
        sampler.seeded(dataset), batch_sampler=sampler, num_workers=workers, prefetch_factor=3,
        multiprocessing_context=method, persistent_workers=True,
    ))
    number = 0
    for epoch in sampler.epochs(2):
        for indices, noise in loader:
            dropout = torch.rand(1).item()
            taken.append([epoch, indices.tolist(), noise.tolist(), dropout])
            if number == die:
                os.kill(os.getpid(), signal.SIGKILL)  # taken, trained on, not committed
            number += 1
            state = {"taken": taken, "sampler": sampler.state_dict(), "random": torch.get_rng_state().tolist()}
            with open("state.new", "w") as file:
                json.dump(state, file)
            os.replace("state.new", "state")

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


def live(folder: Path, script: str, *arguments: object) -> int:
    """Run a script to its end, and end what it leaves behind: workers see the death of their parent only after seconds."""
    with (folder / "stderr").open("wb") as stderr:
        words = [sys.executable, script, *map(str, arguments)]
        process = subprocess.Popen(words, cwd=folder, start_new_session=True, stderr=stderr)
    try:
        process.wait(TIMEOUT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode in (0, -signal.SIGKILL), (folder / "stderr").read_text()
    return process.returncode


def lives(folder: Path, method: str, workers: int, deaths: list[int]) -> list[Any]:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    for death in deaths:
        assert live(folder, "train.py", method, workers, death) == -signal.SIGKILL
    assert live(folder, "train.py", method, workers, -1) == 0
    return list(json.loads((folder / "state").read_text())["taken"])


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("method", "workers", "deaths"),
    [("fork", 4, [3, 0, 24]), ("spawn", 2, [30])],  # each spawned worker of each life imports torch anew
)
def test_a_loader_with_workers_that_dies_hands_out_what_it_would_have(
    tmp_path: Path, method: str, workers: int, deaths: list[int]
) -> None:
    """The same samples in the same batches, augmented by the same numbers; and the loop's own random numbers are the same."""
    calm = lives(tmp_path / "calm", "fork", 4, [])
    hard = lives(tmp_path / "hard", method, workers, deaths)
    assert hard == calm
    for epoch in range(2):
        assert sorted(index for number, indices, *_ in calm for index in indices if number == epoch) == list(range(150))
    noise = [tuple(values) for *_, noises, _ in calm for values in noises]
    assert len(set(noise)) == 300, "every sample is augmented differently in every epoch"


CHECKS = """
import os, random
import numpy, torch
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
from planaria.errors import UsageError
from planaria.worker.data import ElasticSampler

data = TensorDataset(torch.arange(70.).reshape(7, 10), torch.arange(7))

def sampler(rank, **options):
    return ElasticSampler(data, 2, **{"shuffle": False, "rank": rank, "world_size": 3, **options})

def check_a_rank_without_samples_gets_an_empty_batch_from_a_loader(workers):
    asked = sampler(2)
    loader = asked.count(DataLoader(data, batch_sampler=asked, num_workers=workers))
    assert [(x.shape, y.tolist(), loader.portion.weight) for x, y in loader] == [((2, 10), [4, 5], 1.0), ((0, 10), [], 0.0)]
    asked = sampler(2)
    whole = asked.count(DataLoader(data, batch_sampler=asked), empty=lambda batch: batch)
    assert [(len(x), whole.portion.weight) for x, _ in whole] == [(2, 1.0), (1, 0.0)]

def check_a_loader_that_makes_its_own_batches_is_counted(workers):
    for rank, batches in enumerate([[[0, 1], [6]], [[2, 3]], [[4, 5]]]):
        asked = sampler(rank)
        plain = DataLoader(data, sampler=asked.indices, batch_size=2, num_workers=workers)
        assert len(plain) == len(batches)
        loader, cursors = asked.count(plain), []
        for (_, y), batch in zip(loader, batches, strict=True):
            assert y.tolist() == batch
            cursors.append(asked.cursor)
        assert cursors == [6, 7][: len(batches)]
        assert asked.cursor == 7, "at the end all ranks stand at the end"

def check_batches_that_are_not_those_of_the_sampler_are_refused_before_the_first(workers):
    def refused(asked, **options):
        try:
            next(iter(asked.count(DataLoader(data, num_workers=workers, **options))))
        except UsageError as problem:
            return str(problem).partition(" (")[0]

    for rank in range(3):  # on all ranks, also those without samples in the last batch
        asked = sampler(rank)
        sizes = "the loader makes batches of 4, and the sampler counts batches of 2"
        assert refused(asked, sampler=asked.indices, batch_size=4) == sizes
        assert refused(asked, batch_sampler=BatchSampler(asked.indices, 4, False)) == sizes
        dropped = "the loader drops the last batch of an epoch, and the sampler counts it"
        assert refused(asked, sampler=asked.indices, batch_size=2, drop_last=True) == dropped
        twice = "the loader makes batches of the sampler's batches"
        assert refused(asked, sampler=asked, batch_size=2) == twice
        assert asked.state_dict()["cursor"] == 0
        for fine in (sampler(rank, tail="drop"), sampler(rank, tail="pad"), ElasticSampler(6, 2, rank=rank, world_size=3)):
            assert refused(fine, sampler=fine.indices, batch_size=2, drop_last=True) is None

def check_a_loop_keeps_its_own_random_numbers(workers):
    for options in ({}, {"generator": torch.Generator()}):
        asked = sampler(0)
        loader = asked.count(DataLoader(asked.seeded(data), batch_sampler=asked, num_workers=workers, **options))
        torch.manual_seed(3); numpy.random.seed(3); random.seed(3)
        expected = torch.rand(2).tolist(), numpy.random.rand(), random.random()
        torch.manual_seed(3); numpy.random.seed(3); random.seed(3)
        found = [torch.rand(1).item() for _ in loader]
        assert (found, numpy.random.rand(), random.random()) == expected

class Around:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader

def check_a_loop_around_a_wrapped_loader_keeps_its_own_random_numbers(workers):
    asked = sampler(0)
    inside = DataLoader(asked.seeded(data), batch_sampler=asked, num_workers=workers)
    loader = asked.count(Around(inside), loader=inside)
    assert asked.num_data_workers == workers
    torch.manual_seed(3)
    expected = torch.rand(2).tolist()
    torch.manual_seed(3)
    assert [torch.rand(1).item() for _ in loader] == expected

def check_processes_of_a_wrapped_loader_leave_the_group_of_their_rank(workers):
    asked = sampler(0)
    inside = DataLoader(data, batch_sampler=asked, num_workers=workers)
    os.environ["PLANARIA_CONTROL"] = "/nowhere"
    try:
        iter(asked.count(Around(inside), loader=inside)).__next__()
    finally:
        del os.environ["PLANARIA_CONTROL"]
    assert type(inside.worker_init_fn).__name__ == "Apart"

def check_a_batch_may_be_one_index_of_a_dataset_that_takes_many(workers):
    asked = sampler(1)
    loader = asked.count(DataLoader(data, sampler=asked, batch_size=None, num_workers=workers))
    assert [y.tolist() for _, y in loader] == [[2, 3], []]

def check_worlds_of_four_three_six_and_two_share_an_epoch(workers):
    many, state, taken = TensorDataset(torch.arange(203)), None, []
    for world_size, turns in ((4, 5), (3, 7), (6, 3), (2, -1)):
        samplers = [ElasticSampler(many, 4, rank=rank, world_size=world_size) for rank in range(world_size)]
        for asked in samplers:
            asked.load_state_dict(state or asked.state_dict())
        loaders = [asked.count(DataLoader(many, batch_sampler=asked, num_workers=workers)) for asked in samplers]
        for number, batches in enumerate(zip(*loaders, strict=True)):
            if number == turns:
                break  # taken, and lost with this world
            taken += [index for (batch,) in batches for index in batch.tolist()]
            states = [asked.state_dict() for asked in samplers]
            state = states[0]
            assert states == [state] * world_size
    assert sorted(taken) == list(range(203))

def check_a_seeded_index_is_a_number_for_numpy_and_torch(workers):
    asked = sampler(0)
    asked.seeded(data)
    (one, *_), *_ = asked.count()
    assert numpy.arange(9)[one] == torch.arange(9)[one] == torch.tensor([one])[0] == 0

if __name__ == "__main__":
    for name, check in list(globals().items()):
        for workers in (0, 2):
            if name.startswith("check_"):
                check(workers)
                print(name)
"""


def test_loaders_of_all_kinds_are_counted(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    done = subprocess.run(
        [sys.executable, "-W", "error", "checks.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2 * CHECKS.count("def check_")


DDP = """
import os, sys
import torch
from torch import nn
from torch.distributed import init_process_group, destroy_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from planaria.worker.data import ElasticSampler, Shuffled, accumulating, weighted
from planaria.worker.data.order import indices

init_process_group("gloo", init_method="file://" + os.path.abspath("meeting"), rank=int(os.environ["RANK"]), world_size=3)
torch.manual_seed(0)
x, y = torch.randn(19, 10, dtype=torch.float64), torch.randn(19, 1, dtype=torch.float64)
loss_of = nn.MSELoss()

def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])

def train(joined, **options):
    torch.manual_seed(1)
    alone = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1)).double())
    model.module.load_state_dict(alone.state_dict())
    sampler = ElasticSampler(19, 2, seed=2, **options)
    loader = sampler.count(DataLoader(TensorDataset(x, y), batch_sampler=sampler))
    sizes, start = [], 0
    with sampler.joined(model if joined else None) if joined else torch.enable_grad():
        for a, b in loader:
            sizes.append(len(a))
            with accumulating(model, loader.portion):
                weighted(loss_of(model(a), b), loader.portion).backward()
            if loader.portion.closes:
                whole = indices(Shuffled(19, seed=2), start, sampler.cursor)
                start = sampler.cursor
                alone.zero_grad()
                loss_of(alone(x[whole]), y[whole]).backward()
                torch.testing.assert_close(gradient(model), gradient(alone), rtol=1e-9, atol=1e-12)
                model.zero_grad()
    assert sampler.cursor == start or joined
    return sizes

print(train(False), train(False, global_batch=12), train(False, global_batch=8), train(True))
destroy_process_group()
"""


def test_the_gradient_of_an_uneven_or_accumulated_batch_is_that_of_the_whole(tmp_path: Path) -> None:
    """Of DDP's ranks, two of them without samples in the last batch, against one process that sees all samples of the step."""
    (tmp_path / "ddp.py").write_text(DDP)
    ranks = [
        subprocess.Popen(
            [sys.executable, "ddp.py"],
            cwd=tmp_path,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        told = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0, 0], told
    assert [out.strip() for out, _ in told] == [
        "[2, 2, 2, 1] [2, 2, 2, 1] [2, 1, 2, 1, 1] [2, 2, 2, 1]",
        "[2, 2, 2, 0] [2, 2, 2, 0] [2, 1, 2, 1, 1] [2, 2, 2]",
        "[2, 2, 2, 0] [2, 2, 2, 0] [2, 0, 2, 0, 1] [2, 2, 2]",
    ]
