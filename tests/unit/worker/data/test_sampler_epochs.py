"""How a sampler goes from one epoch to the next, and what it says when a loop does not."""

from __future__ import annotations

import pytest

from planaria.errors import UsageError
from planaria.worker.data import ElasticSampler


def at(epoch: int, taken: int) -> dict[str, object]:
    """Return the state of a sampler of five batches that stands in that epoch, after so many of them."""
    sampler = ElasticSampler(10, 2, rank=0, world_size=1)
    sampler.set_epoch(epoch)
    for _, _ in zip(range(taken), sampler.count(), strict=False):
        pass
    return sampler.state_dict()


def loaded(state: dict[str, object], rank: int = 0) -> ElasticSampler:
    sampler = ElasticSampler(10, 2, rank=rank, world_size=rank + 1)
    sampler.load_state_dict(state)
    return sampler


def test_a_second_loop_over_an_epoch_that_is_over_is_an_error_that_names_set_epoch() -> None:
    sampler = ElasticSampler(10, 2, rank=0, world_size=1)
    batches = sampler.count()
    assert len(list(batches)) == 5
    for _ in range(2):
        with pytest.raises(
            UsageError, match="the epoch is over, and a loop that begins now would get no batch"
        ) as said:
            list(batches)
        assert "sampler.set_epoch(epoch)" in said.value.hint
        assert "sampler.epochs(N)" in said.value.hint
    assert sampler.state_dict()["cursor"] == 10, "a loop that was refused changes nothing"
    sampler.set_epoch(1)
    assert len(list(batches)) == 5


def test_one_empty_loop_behind_a_load_is_right_and_a_second_one_is_not() -> None:
    sampler = loaded(at(3, taken=5))
    assert list(sampler.count()) == []
    with pytest.raises(UsageError, match="the epoch is over"):
        list(sampler.count())
    sampler.load_state_dict(at(3, taken=5))
    assert list(sampler.count()) == []


def test_a_loop_that_was_left_is_followed_by_one_over_the_rest_even_if_nothing_is_left() -> None:
    sampler = ElasticSampler(10, 2, rank=0, world_size=1)
    for _ in sampler.count():
        if not len(sampler):
            break
    assert list(sampler.count()) == []


def test_loops_over_epochs_never_hear_of_it() -> None:
    sampler = loaded(at(3, taken=5))
    assert [(epoch, len(list(sampler.count()))) for epoch in sampler.epochs(6)] == [(3, 0), (4, 5), (5, 5)]


def test_a_loop_from_epoch_0_behind_a_load_is_told_once_that_it_goes_back(capsys: pytest.CaptureFixture[str]) -> None:
    sampler = loaded(at(3, taken=2))
    for epoch in range(5):
        sampler.set_epoch(epoch)
        assert len(list(sampler.count())) == 5
    said = capsys.readouterr().err
    assert said.startswith(
        "planaria: set_epoch(0) goes back from epoch 3, where the sampler stood when its state was loaded"
    )
    assert "range(sampler.epoch, N)" in said
    assert said.count("\n") == 1


def test_going_on_or_back_on_purpose_later_and_other_ranks_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sampler = loaded(at(3, taken=2))
    for epoch in range(sampler.epoch, 5):
        sampler.set_epoch(epoch)
    sampler.set_epoch(0)
    assert sampler.epoch == 0
    loaded(at(3, taken=2), rank=1).set_epoch(0)
    fresh = ElasticSampler(10, 2, rank=0, world_size=1)
    fresh.set_epoch(4)
    fresh.set_epoch(0)
    assert capsys.readouterr().err == ""
