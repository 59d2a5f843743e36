from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import Ahead, Job, Life

from planaria.errors import UsageError
from planaria.worker.data import ElasticSampler, Shuffled
from planaria.worker.data.order import indices

lives = st.lists(st.builds(Life, st.integers(1, 6), st.integers(0, 25), st.integers(1, 4)), max_size=6)
whole = st.none() | st.integers(1, 40)


def lone(samples: int = 100, batch_size: int = 10, **options: Any) -> ElasticSampler:
    return ElasticSampler(samples, batch_size, **{"rank": 0, "world_size": 1} | options)


def run(job: Job, deaths: list[Life], *, last: int = 2) -> list[int]:
    """Live through all deaths and then to the end; return all samples in the order in which the world took them."""
    for death in deaths:
        if job.live(death):
            break
    else:
        assert job.live(Life(last, -1))
    return [index for taken in job.kept for batch in taken.batches for index in batch]


@settings(max_examples=150)
@given(
    samples=st.integers(1, 150),
    batch=st.integers(1, 5),
    whole=whole,
    ahead=st.integers(0, 9),
    deaths=lives,
    last=st.integers(1, 6),
)
def test_every_sample_comes_once_per_epoch_whatever_dies_when_in_which_worlds(
    samples: int, batch: int, whole: int | None, ahead: int, deaths: list[Life], last: int
) -> None:
    job = Job(samples, epochs=2, ahead=ahead, batch_size=batch, global_batch=whole, seed=3)
    found = run(job, deaths, last=last)
    assert Counter(found[:samples]) == Counter(range(samples))
    assert Counter(found[samples:]) == Counter(range(samples))
    assert found == indices(Shuffled(samples, seed=3), 0, 2 * samples), "the order knows no world"


@pytest.mark.parametrize("ahead", [0, 8])
def test_worlds_of_four_three_six_and_two_share_an_epoch(ahead: int) -> None:
    job = Job(1003, epochs=1, ahead=ahead, batch_size=5)
    assert not job.live(Life(4, 11))
    assert not job.live(Life(3, 17))
    assert not job.live(Life(6, 9))
    assert job.live(Life(2, -1))
    found = [index for taken in job.kept for batch in taken.batches for index in batch]
    assert Counter(found) == Counter(range(1003))
    assert [len(taken.batches) for taken in job.kept][::13] != [2] * 5, "all of these worlds took part"
    assert [len(batch) for batch in job.kept[-1].batches] != [5, 5], "the last batch is uneven"


@settings(max_examples=50)
@given(
    samples=st.integers(1, 120),
    batch=st.integers(1, 5),
    ahead=st.integers(0, 9),
    turns=st.lists(st.integers(0, 20), max_size=6),
    tail=st.sampled_from(["exact", "pad", "drop"]),
)
def test_a_run_with_kills_takes_the_batches_of_the_run_without(
    samples: int, batch: int, ahead: int, turns: list[int], tail: str
) -> None:
    calm = Job(samples, epochs=3, ahead=0, batch_size=batch, tail=tail)
    hard = Job(samples, epochs=3, ahead=ahead, batch_size=batch, tail=tail)
    run(calm, [], last=3)
    run(hard, [Life(3, count) for count in turns], last=3)
    assert hard.kept == calm.kept


@settings(max_examples=100)
@given(samples=st.integers(1, 100), batch=st.integers(1, 5), whole=whole, deaths=lives)
def test_what_an_epoch_drops_opens_the_next(samples: int, batch: int, whole: int | None, deaths: list[Life]) -> None:
    job = Job(samples, epochs=4, batch_size=batch, global_batch=whole, tail="drop")
    found = run(job, deaths)
    assert found == indices(Shuffled(samples), 0, len(found)), "no sample is lost or repeated"
    assert len(found) > 4 * samples - max(whole or 0, 6 * batch, 2 * batch)
    sizes = {len(part) for taken in job.kept for part in taken.batches}
    assert whole is not None or sizes <= {batch}, "all batches are full"


@settings(max_examples=100)
@given(samples=st.integers(1, 100), batch=st.integers(1, 5), deaths=lives)
def test_padding_fills_every_batch_with_the_epochs_own_samples(samples: int, batch: int, deaths: list[Life]) -> None:
    job = Job(samples, epochs=2, batch_size=batch, tail="pad")
    run(job, deaths)
    assert all(len(part) == batch for taken in job.kept for part in taken.batches)
    for epoch in range(2):
        taken = [index for turn in job.kept if turn.epoch == epoch for part in turn.batches for index in part]
        order = indices(Shuffled(samples), epoch * samples, (epoch + 1) * samples)
        assert taken[:samples] == order
        assert taken[samples:] == (order * len(taken))[: len(taken) - samples]


def test_repeats_are_marked() -> None:
    sampler = lone(10, 4, tail="pad")
    marks = [sampler.portion.repeats for _ in sampler.count()]  # type: ignore[union-attr]
    assert marks == [0, 0, 2]


def test_the_place_is_what_the_loop_took_and_not_what_was_loaded_ahead() -> None:
    sampler = lone()
    loader = iter(sampler.count(Ahead(sampler, 7)))
    assert sampler.cursor == 0
    for taken in (10, 20, 30):
        next(loader)
        assert (sampler.cursor, len(sampler)) == (taken, 10 - taken // 10)
    resumed = lone()
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed.count()) == list(lone().count())[3:]


def test_a_step_that_was_taken_in_part_is_not_in_the_state() -> None:
    """Its gradients are not in the weights: after a restart it is taken again, whole."""
    sampler = lone(100, 10, global_batch=40)
    loader = iter(sampler.count())
    first = [next(loader) for _ in range(6)]
    assert (sampler.cursor, sampler.steps, len(sampler)) == (40, 1, 4)
    resumed = lone(100, 10, global_batch=40)
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed.count())[:2] == first[4:]
    assert next(iter(sampler.count())) not in first, "without a restart the loop goes on with the turns that are left"


def test_the_state_is_safe_data() -> None:
    sampler = lone(seed=2**70)
    next(iter(sampler.count()))
    assert json.loads(json.dumps(sampler.state_dict())) == sampler.state_dict()
    assert sampler.state_dict() == {
        "version": 1, "epoch": 0, "cursor": 10, "steps": 1, "order": {"samples": 100, "seed": 2**70, "shuffle": True},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "this is no state of a sampler, version 1"),
        ({"cursor": -1}, "the sampler's state is damaged: cursor expects a whole number from 0 on, got -1"),
        ({"epoch": True}, "the sampler's state is damaged: epoch expects a whole number from 0 on, got True"),
        ({"steps": "3"}, "the sampler's state is damaged: steps expects a whole number from 0 on, got '3'"),
        ({"cursor": 101}, "the sampler's state is damaged: cursor 101 lies behind the end of epoch 0"),
        (
            {"order": {"samples": 99, "seed": 0, "shuffle": True}},
            r"another order of data: it has {'samples': 99}, here it is {'samples': 100}",
        ),
        ({"order": None}, "another order of data"),
    ],
)
def test_a_state_that_is_damaged_or_of_other_data_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        lone().load_state_dict(lone().state_dict() | change)


def test_old_habits_go_on_working_and_a_resumed_epoch_is_not_begun_again() -> None:
    sampler = lone()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for number, _ in enumerate(sampler.count()):
            if epoch == 2 and number == 3:
                break
    resumed = lone()
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(2)
    assert (resumed.epoch, resumed.data_start_index, len(resumed), resumed.steps, resumed.steps_left) == (
        2,
        40,
        6,
        4,
        6,
    )
    resumed.set_epoch(5)
    assert (resumed.epoch, resumed.data_start_index, len(resumed)) == (5, 0, 10)
    with pytest.raises(UsageError, match="epoch expects a whole number from 0, got -1"):
        resumed.set_epoch(-1)


def test_a_commit_at_the_last_batch_of_an_epoch_leaves_nothing_of_it() -> None:
    sampler = lone()
    for _ in sampler.count():
        state = sampler.state_dict()
    resumed = lone()
    resumed.load_state_dict(state)
    assert (resumed.epoch, len(resumed), list(resumed.count())) == (0, 0, [])


def test_rank_and_world_size_are_the_environments_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert len(ElasticSampler(100, 5)) == 5
    assert len(ElasticSampler(100, 5, rank=0, world_size=2)) == 10
    with pytest.raises(UsageError, match="rank and world_size belong together"):
        ElasticSampler(100, 5, world_size=2)


def test_a_dataset_will_do_for_its_size_and_an_empty_one_has_no_batches() -> None:
    assert len(ElasticSampler(["a", "b", "c"], 2, rank=0, world_size=1)) == 2
    for tail in ("exact", "pad", "drop"):
        assert list(lone(0, 4, tail=tail).count()) == []
    with pytest.raises(UsageError, match="data expects a dataset with a length, or a number of samples, got -1"):
        lone(-1)


def test_without_shuffling_samples_come_as_they_are() -> None:
    assert list(lone(7, 3, shuffle=False).count()) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_rank_without_samples_gets_an_empty_batch() -> None:
    taken = []
    for rank in range(3):
        sampler = ElasticSampler(7, 2, shuffle=False, rank=rank, world_size=3)
        taken.append([(batch, sampler.portion.weight) for batch in sampler.count()])  # type: ignore[union-attr]
    assert taken == [[([0, 1], 1.0), ([6], 3.0)], [([2, 3], 1.0), ([], 0.0)], [([4, 5], 1.0), ([], 0.0)]]


def test_another_world_may_come_without_another_process() -> None:
    sampler = ElasticSampler(100, 10, shuffle=False, rank=1, world_size=2)
    loader = iter(sampler.count())
    assert next(loader) == list(range(10, 20))
    sampler.resize(0, 4)
    assert next(iter(sampler.count())) == list(range(20, 30))
    with pytest.raises(UsageError, match="older than the sampler's bookmark"):
        next(loader)


def test_another_world_takes_a_step_anew_that_was_taken_in_part() -> None:
    sampler = ElasticSampler(100, 10, shuffle=False, global_batch=40, rank=0, world_size=2)
    next(iter(sampler.count()))
    sampler.resize(0, 1)
    assert (len(sampler), next(iter(sampler.count()))) == (10, list(range(10)))


def test_batches_that_nobody_counts_are_not_lost_in_silence() -> None:
    sampler = lone()
    next(iter(Ahead(sampler, 3)))
    with pytest.raises(UsageError, match=r"nobody counts .*sampler.count\(loader\)"):
        sampler.state_dict()
    next(iter(sampler.count()))
    assert sampler.state_dict()["cursor"] == 10
    list(sampler)  # somebody looks ahead while the loop runs: it counts on
    assert sampler.state_dict()["cursor"] == 10


def test_a_loader_of_another_sampler_is_noticed() -> None:
    sampler = lone()
    with pytest.raises(UsageError, match="did not give out"):
        list(sampler.count([[1], [2]]))


def test_a_loader_that_drops_batches_is_noticed() -> None:
    sampler = lone()

    class Dropping:
        def __iter__(self) -> Any:
            return iter(list(sampler)[:-2])

    with pytest.raises(UsageError, match="had not handed out 2 of the sampler's batches"):
        list(sampler.count(Dropping()))


def test_a_generator_that_is_over_after_its_first_epoch_is_noticed() -> None:
    sampler = lone()
    loader = sampler.count(batch for batch in sampler)
    epochs = sampler.epochs(2)
    assert next(epochs) == 0
    assert len(list(loader)) == 10
    assert next(epochs) == 1
    with pytest.raises(UsageError, match="ended 10 batches before the end of the epoch"):
        list(loader)
    assert sampler.data_start_index == 0


def test_a_loader_that_ends_before_its_sampler_is_noticed() -> None:
    sampler = lone()
    with pytest.raises(UsageError, match="ended 7 batches before the end of the epoch"):
        list(sampler.count(islice(sampler, 3)))


def test_a_loop_that_ends_after_the_sampler_was_moved_leaves_it_there() -> None:
    sampler = ElasticSampler(7, 2, rank=1, world_size=3, shuffle=False)  # its second batch is empty

    def pairs() -> Any:
        samples = iter(sampler.indices)
        yield from zip(samples, samples, strict=False)

    loader = iter(sampler.count(pairs()))
    assert next(loader) == (2, 3)
    sampler.set_epoch(5)
    assert next(loader, None) is None
    assert (sampler.epoch, sampler.data_start_index) == (5, 0)


def test_a_loader_without_an_order_is_refused() -> None:
    class Loader:
        in_order = False

        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(UsageError, match="in_order=False"):
        lone().count(Loader())
    with pytest.raises(UsageError, match="in_order=False"):
        lone().count([], loader=Loader())


def test_a_counted_loader_has_the_loaders_attributes() -> None:
    sampler = lone()
    loader = sampler.count(Ahead(sampler, 3))
    assert (loader.ahead, len(loader), loader.portion) == (3, 10, None)
    next(iter(loader))
    assert loader.portion is sampler.portion is not None


def test_single_indices_are_those_of_the_batches() -> None:
    sampler = ElasticSampler(100, 8, rank=1, world_size=3, seed=4)
    batches = list(ElasticSampler(100, 8, rank=1, world_size=3, seed=4).count())
    assert list(sampler.indices) == [index for batch in batches for index in batch]
    assert len(sampler.indices) == 33


def test_single_indices_are_refused_where_batches_would_not_be_full() -> None:
    with pytest.raises(UsageError, match="multiple of world size times batch_size, 24, got 40"):
        _ = ElasticSampler(100, 8, rank=1, world_size=3, global_batch=40).indices


def test_single_indices_are_refused_in_a_world_where_batches_would_not_be_full_any_more() -> None:
    sampler = ElasticSampler(64, 2, rank=0, world_size=2, global_batch=8)
    single = sampler.indices
    sampler.resize(0, 3)
    with pytest.raises(UsageError, match="a loader that makes its own batches needs a global_batch that is a multiple"):
        next(iter(single))


class Model:
    """DDP, as far as `joined` knows it."""

    def __init__(self) -> None:
        self.joins: list[bool] = []

    def join(self, divide_by_initial_world_size: bool) -> Model:
        self.joins.append(divide_by_initial_world_size)
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def test_a_joined_loop_has_no_empty_batch_and_ends_where_all_end() -> None:
    model = Model()
    samplers = [ElasticSampler(7, 2, shuffle=False, rank=rank, world_size=3) for rank in range(3)]
    taken = []
    for sampler in samplers:
        with sampler.joined(model):
            taken.append(list(sampler.count(Ahead(sampler, 2))))
    assert taken == [[[0, 1], [6]], [[2, 3]], [[4, 5]]]
    assert model.joins == [True] * 3
    assert [sampler.state_dict()["cursor"] for sampler in samplers] == [7] * 3


def test_a_joined_loop_costs_nothing_where_no_rank_runs_out() -> None:
    model = Model()
    sampler = ElasticSampler(9, 2, rank=0, world_size=3)
    with sampler.joined(model):
        assert len(list(sampler.count())) == 2
    assert model.joins == []
    with (
        pytest.raises(UsageError, match="multiple of"),
        ElasticSampler(50, 2, rank=0, world_size=3, global_batch=13).joined(model),
    ):
        pass
