from __future__ import annotations

import re

import pytest

from planaria.contract.commit import Origin
from planaria.worker import ElasticState, synced
from planaria.worker.data import ElasticSampler
from planaria.worker.vault import LocalVault


class Loader:
    num_workers = 4


@pytest.fixture
def _new_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synced, "_has_been_told", False)


@pytest.mark.usefixtures("_new_life")
def test_a_sync_is_told_in_the_words_of_torchelastic_once_a_life(capsys: pytest.CaptureFixture[str]) -> None:
    sampler = ElasticSampler(96, batch_size=32, rank=0, world_size=1)
    sampler.epochs(10)
    sampler.count(Loader())  # type: ignore[arg-type]  # all that is asked of it
    state = ElasticState(sampler=sampler, step=0, vault=LocalVault())
    state.sync()
    state.sync()
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"\[INFO\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} planaria: Rank 0: Model state synced from rank: 0\n"
        r"\tbatch_size=32\n\tnum_data_workers=4\n\tdata_start_index=0\n\titeration=0\n\tepoch=0/10\n",
        told,
    )


@pytest.mark.usefixtures("_new_life")
def test_a_sync_is_no_error_where_nobody_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    state = ElasticState(step=3, vault=LocalVault())
    state.sync()
    assert synced._has_been_told


def test_a_sync_in_mid_epoch_tells_where_it_goes_on() -> None:
    sampler = ElasticSampler(96, batch_size=8, rank=0, world_size=1)
    sampler.set_epoch(2)
    for _, _ in zip(range(3), sampler.count(), strict=False):
        pass
    state = ElasticState(sampler=sampler, step=27, vault=LocalVault())
    assert synced.block(state, 1, 0) == (
        "Rank 1: Model state synced from rank: 0\n"
        "\tbatch_size=8\n\tnum_data_workers=0\n\tdata_start_index=24\n\titeration=27\n\tepoch=2\n"
    )


def test_what_a_state_does_not_know_has_no_line() -> None:
    state = ElasticState(epoch=3, vault=LocalVault())
    assert synced.block(state, 0, 5) == "Rank 0: Model state synced from rank: 5\n\tepoch=3\n"


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (1, "what ranks 1 to 2 had is not used"),
        (2, "what rank 2 had is not used"),
        (3, ""),
        (4, "for rank 3 there is what rank 0 had"),
        (7, "for ranks 3 to 6 there is what rank 0 had"),
    ],
)
def test_models_of_each_rank_s_own_in_a_world_of_another_size_are_told_of_by_rank_0(
    now: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = LocalVault(Origin(world_size=3))
    ElasticState(vault=memory, model=[1.0], replicated=False).commit()
    for rank in range(min(now, 2)):
        again = LocalVault(Origin(rank=rank, world_size=now), slots=memory._slots)
        assert ElasticState(vault=again, model=[0.0], replicated=False).restore()
    told = capsys.readouterr().err
    who = "the snapshot is of 3 ranks, each with a model of its own (replicated=False)"
    assert told == (f"planaria: {who}, and this world has {now}: {says}\n" if says else "")


def test_nothing_is_told_of_where_nobody_said_whose_the_models_are(capsys: pytest.CaptureFixture[str]) -> None:
    memory = LocalVault(Origin(world_size=3))
    ElasticState(vault=memory, model=[1.0]).commit()
    for state in (ElasticState(vault=memory, model=[0.0]), ElasticState(vault=memory, replicated=False)):
        memory.origin = Origin(world_size=2)
        assert state.restore()
    assert "ranks" not in capsys.readouterr().err
