from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.errors import UsageError
from planaria.worker.data import ElasticSampler, ShardedData, ShardOrder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

lengths = st.lists(st.integers(0, 30), min_size=1, max_size=12)
forms = st.fixed_dictionaries(
    {
        "lanes": st.integers(1, 9),
        "chunk": st.integers(1, 9),
        "block": st.none() | st.integers(1, 9),
        "shuffle": st.booleans(),
    }
)


class Files:
    """Shards that can be read from front to back only, and know what it cost."""

    def __init__(self, lengths: list[int], **options: Any) -> None:
        self.lengths = lengths
        self.opened: list[tuple[int, int]] = []
        self.read = 0
        self.open_now = 0
        self.data = ShardedData(lengths, self.open, **options)

    def open(self, shard: int, row: int) -> Iterator[tuple[int, int]]:
        self.opened.append((shard, row))
        return islice(self.rows(shard), row, None)

    def rows(self, shard: int) -> Iterator[tuple[int, int]]:
        self.open_now += 1
        try:
            for row in range(self.lengths[shard]):
                self.read += 1
                yield shard, row
        finally:
            self.open_now -= 1


@settings(max_examples=150)
@given(lengths=lengths, form=forms, epoch=st.integers(0, 3))
def test_every_row_stands_at_exactly_one_position(lengths: list[int], form: dict[str, Any], epoch: int) -> None:
    order = ShardOrder(lengths, seed=1, **form)
    found = order.part(epoch, 0, order.samples)
    assert sorted(found) == list(range(sum(lengths)))


@settings(max_examples=100)
@given(lengths=lengths, form=forms, cuts=st.lists(st.integers(0, 360), max_size=5))
def test_parts_are_parts_of_the_same_order(lengths: list[int], form: dict[str, Any], cuts: list[int]) -> None:
    order = ShardOrder(lengths, seed=1, **form)
    edges = sorted({0, order.samples, *(cut for cut in cuts if cut <= order.samples)})
    cut = [row for first, last in pairwise(edges) for row in order.part(2, first, last)]
    assert cut == ShardOrder(lengths, seed=1, **form).part(2, 0, order.samples)


@settings(max_examples=60)
@given(lengths=lengths, form=forms, worlds=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), max_size=4))
def test_every_row_is_read_once_per_epoch_in_whatever_worlds(
    lengths: list[int], form: dict[str, Any], worlds: list[tuple[int, int]]
) -> None:
    state, taken = None, []
    for world_size, turns in [*worlds, (2, -1)]:
        samplers = [
            ElasticSampler(ShardOrder(lengths, seed=1, **form), 3, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        readers = [Files(lengths).data for _ in samplers]
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(state)
        for number, batches in enumerate(zip(*(sampler.count() for sampler in samplers), strict=True)):
            if number == turns:
                break
            taken += [row for batch, reader in zip(batches, readers, strict=True) for row in reader.__getitems__(batch)]
            state = samplers[0].state_dict()
    assert Counter(taken) == Counter((shard, row) for shard, length in enumerate(lengths) for row in range(length))


def test_shards_are_shuffled_anew_in_each_epoch_and_rows_stay_in_order() -> None:
    order = ShardOrder([10] * 20, seed=3)
    epochs = [order.part(epoch, 0, 200) for epoch in range(3)]
    for rows in epochs:
        shards = [row // 10 for row in rows[::10]]
        assert rows == [shard * 10 + row for shard in shards for row in range(10)]
    assert len({tuple(rows) for rows in epochs}) == 3


def test_blocks_shuffle_within_shards() -> None:
    order = ShardOrder([100], seed=3, block=10)
    rows = order.part(0, 0, 100)
    assert rows != sorted(rows)
    assert all(row % 10 == place % 10 for place, row in enumerate(rows))


def test_lanes_take_turns() -> None:
    assert ShardOrder([4, 4, 3], shuffle=False, lanes=3, chunk=2).part(0, 0, 11) == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10]


def test_a_lane_for_each_worker_is_read_from_front_to_back() -> None:
    """Two ranks with two loader workers each: nobody reads a row it does not need, but for what shards share."""
    files_of = []
    order = ShardOrder([64] * 8, shuffle=False, lanes=4, chunk=8)
    for rank in range(2):
        sampler = ElasticSampler(order, 8, rank=rank, world_size=2)
        workers = [Files([64] * 8), Files([64] * 8)]
        for number, batch in enumerate(sampler.count()):
            workers[number % 2].data.__getitems__(batch)
        files_of += workers
    assert [files.read for files in files_of] == [128] * 4
    assert [len(files.opened) for files in files_of] == [2] * 4


def test_a_row_a_little_ahead_is_reached_by_reading_and_any_other_by_opening() -> None:
    files = Files([100], skip=10)
    assert [files.data[row] for row in (5, 6, 16, 28, 3)] == [(0, 5), (0, 6), (0, 16), (0, 28), (0, 3)]
    assert files.opened == [(0, 5), (0, 28), (0, 3)]


def test_only_so_many_shards_stay_open_and_the_oldest_is_closed() -> None:
    files = Files([10] * 6, keep=3)
    for index in (0, 10, 20, 1, 30):
        files.data[index]
    assert files.open_now == 3
    files.data[11]
    assert files.opened == [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1)]
    files.data.close()
    assert files.open_now == 0


def test_a_shard_that_is_shorter_than_was_said_is_named() -> None:
    data = ShardedData([3, 5], lambda _, row: range(row, 4))
    assert data[3 + 3] == 3
    with pytest.raises(UsageError, match="shard 1 ended at row 4, and 5 were said to be in it"):
        data[3 + 4]
    with pytest.raises(IndexError):
        data[8]


def one_shard(_: int, row: int) -> Iterator[int]:
    yield from range(row, 10)


def test_a_reader_is_not_taken_along_into_another_process() -> None:
    data = ShardedData([10], one_shard)
    assert data[0] == 0
    copy = pickle.loads(pickle.dumps(data))
    assert (copy[1], data[1], len(copy)) == (1, 1, 10)


FORKED = """
import os, sys
from planaria.worker.data import ShardedData

def open_shard(_, row):
    with open(sys.argv[1], "rb", buffering=0) as file:
        file.seek(row)
        while byte := file.read(1):
            yield byte[0]

data = ShardedData([10], open_shard)
assert data[0] == 0
if (child := os.fork()) == 0:
    os._exit(0 if [data[row] for row in (1, 2, 3)] == [1, 2, 3] else 1)
assert os.waitpid(child, 0)[1] == 0
assert [data[row] for row in (1, 2, 3)] == [1, 2, 3]
"""


def test_a_forked_child_opens_its_own_shards(tmp_path: Path) -> None:
    """Parent and child would otherwise move one descriptor under each other's feet."""
    (tmp_path / "rows").write_bytes(bytes(range(10)))
    subprocess.run([sys.executable, "-c", FORKED, tmp_path / "rows"], check=True, timeout=60)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"lanes": 0}, "lanes expects"),
        ({"chunk": -1}, "chunk expects"),
        ({"block": 0}, "block expects"),
        ({"lengths": [1, -1]}, "lengths expects"),
    ],
)
def test_a_wrong_number_is_named(form: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ShardOrder(**{"lengths": [1]} | form)


def test_a_state_of_other_shards_is_refused_and_an_order_keeps_its_own_seed() -> None:
    state = ElasticSampler(ShardOrder([3, 5]), 2, rank=0, world_size=1).state_dict()
    with pytest.raises(UsageError, match=r"another order of data: it has \{'shards'"):
        ElasticSampler(ShardOrder([5, 3]), 2, rank=0, world_size=1).load_state_dict(state)
    with pytest.raises(UsageError, match="an order has its own seed"):
        ElasticSampler(ShardOrder([5, 3]), 2, seed=1, rank=0, world_size=1)
