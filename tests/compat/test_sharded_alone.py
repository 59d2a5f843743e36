"""`ShardedState` in one process, without a process group: what it refuses, and what a disk may do to it."""

from __future__ import annotations

import importlib
import os
import shutil
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from planaria.agent.hearsay import Hearsay
from planaria.base.value import replace
from planaria.contract.control import Stored
from planaria.contract.env import Round
from planaria.errors import StateRefused
from planaria.worker import ShardedState, bundle, saving, sharded
from planaria.worker.bundle import Bundles
from planaria.worker.data import ElasticSampler
from planaria.worker.storage import Place, Writer
from planaria.worker.vault import LocalVault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planaria.contract.commit import Stamp

TIMEOUT_S = 60.0
torch: Any = pytest.importorskip("torch")

# torch tells whoever saves without a process group that it takes that for the intent.
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")]


def made(directory: str | Bundles, width: int = 4, **values: Any) -> ShardedState:
    torch.manual_seed(len(values) + 5)
    model = torch.nn.Linear(3, width)
    return ShardedState(
        directory, model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1), step=0, **values
    )


def train(state: ShardedState) -> None:
    state.model(torch.ones(2, 3)).sum().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.step += 1


def test_everything_comes_back_and_what_was_changed_after_a_commit_does_not(tmp_path: Path) -> None:
    state = made(str(tmp_path), note={"seen": [1]}, extra=torch.arange(3))
    train(state)
    kept = [parameter.detach().clone() for parameter in state.model.parameters()]
    drawn = torch.get_rng_state()
    assert state.commit(wait="node").reached == "disk"
    train(state)
    torch.rand(7)
    other = made(str(tmp_path), note={}, extra=torch.zeros(3, dtype=torch.int64))
    stamp = other.sync().stamp
    assert stamp is not None
    assert (stamp.step, other.step, other.note, other.extra.tolist()) == (1, 1, {"seen": [1]}, [0, 1, 2])
    assert all(torch.equal(one, two) for one, two in zip(other.model.parameters(), kept, strict=True))
    assert torch.equal(torch.get_rng_state(), drawn)
    train(other)
    for one, two in zip(state.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(state.optimizer.state[one]["exp_avg_sq"], other.optimizer.state[two]["exp_avg_sq"])


def test_a_value_that_shares_a_parameter_s_memory_does_not_write_over_it(tmp_path: Path) -> None:
    state = made(str(tmp_path), best=None)
    state.best = torch.full_like(state.model.weight, 3.0).detach()
    kept = state.model.weight.detach().clone()
    state.commit(wait="disk")
    state.best = state.model.weight.detach()
    assert state.restore()
    assert torch.equal(state.model.weight, kept)
    assert state.best.tolist() == torch.full_like(kept, 3.0).tolist()


def test_a_commit_before_the_first_step_leaves_the_optimizer_as_it_is(tmp_path: Path) -> None:
    state = made(str(tmp_path))
    state.commit(wait="disk")
    assert not state.optimizer.state
    other = made(str(tmp_path))
    assert other.restore() is not None
    assert not other.optimizer.state


def test_without_a_commit_there_is_nothing_to_restore(tmp_path: Path) -> None:
    assert made(str(tmp_path / "nothing")).sync().stamp is None


def test_a_commit_of_another_program_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    state = made(str(tmp_path))
    train(state)
    state.commit(wait="disk")
    other = made(str(tmp_path), width=5)
    before = other.model.weight.detach().clone()
    with pytest.raises(StateRefused, match=r"model/weight is float32 \[5, 3\] here and float32 \[4, 3\] in commit-"):
        other.restore()
    assert torch.equal(other.model.weight, before)
    bare = ShardedState(str(tmp_path), model=torch.nn.Linear(3, 4, bias=False), step=0)
    with pytest.raises(
        StateRefused, match=r"model/bias is only in the commit|optimizer/bias/\w+ is only in the commit"
    ):
        bare.restore()


def test_a_sampler_of_other_data_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    state = made(str(tmp_path), sampler=ElasticSampler(100, 4))
    train(state)
    state.commit(wait="disk")
    other = made(str(tmp_path), sampler=ElasticSampler(90, 4))
    with torch.no_grad():
        other.model.weight.zero_()
    with pytest.raises(StateRefused, match=r"sampler does not take what the snapshot has: .* another order of data"):
        other.restore()
    assert not other.model.weight.any()
    assert other.step == 0


def test_after_a_damaged_commit_the_next_one_is_written_and_both_whole_ones_stay(tmp_path: Path) -> None:
    state = made(str(tmp_path))
    for _ in range(2):
        train(state)
        state.commit(wait="disk")
    damaged, *_ = state._bundles.commits()
    (tmp_path / damaged / "rank-00000.tensors").write_bytes(b"")
    other = made(str(tmp_path))
    assert other.restore().step == 1
    train(other)
    train(other)
    assert other.commit(wait="disk").reached == "disk"
    again = made(str(tmp_path))
    assert again.restore().step == 3
    (tmp_path / again._bundles.commits()[0] / "manifest.json").unlink()
    assert made(str(tmp_path)).restore().step == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"optimizer": True}, "a ShardedState with an optimizer expects its model too"),
        ({"model": 3}, "model expects a torch module, got a int"),
        ({"model": True, "vault": LocalVault()}, "an ElasticState cannot have a value called 'vault'"),
        ({"model": True, "replicated": True}, "an ElasticState cannot have a value called 'replicated'"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_state_is_made(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    model = torch.nn.Linear(3, 3)
    real = {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}
    with pytest.raises(StateRefused, match=f"^{says}"):
        ShardedState(
            str(tmp_path), **{name: real.get(name) if value is True else value for name, value in given.items()}
        )


@pytest.mark.parametrize("below", ["", "below"])
def test_where_the_folder_should_be_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], below: str) -> None:
    path = tmp_path / "file"
    path.touch()
    state = made(str(path / below))
    assert state.sync().stamp is None
    check_trouble(state, path.unlink, str(path), capsys)


def test_a_program_that_has_not_gone_back_to_what_there_is_hears_of_it_when_it_makes_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commit(*, restores: bool = False) -> str:
        monkeypatch.setattr(sharded, "_KNOWN", set())
        if restores:
            made(str(tmp_path)).restore()
        made(str(tmp_path)).commit(wait="disk")
        return capsys.readouterr().err

    line = "planaria: this program commits and has not restored what its folder has, which is there"
    assert [commit(), commit(restores=True)] == ["", ""]
    assert commit().startswith(line)
    with monkeypatch.context() as broken:
        fail(broken, "begin")
        assert line not in commit(), "nothing takes the place of anything"
    assert commit().startswith(line)


def test_a_commit_that_is_there_is_on_disk_though_the_ranks_lost_each_other_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dcp = importlib.import_module("torch.distributed.checkpoint")
    save = dcp.save

    def torn(*args: object, **options: object) -> None:
        save(*args, **options)
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(dcp, "save", torn)
    state = made(str(tmp_path))
    assert state.commit(wait="disk").reached == "disk"

    def not_synced(_path: str) -> None:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as broken:
        broken.setattr(Bundles, "_prune", lambda *_: broken.setattr(bundle, "_sync_folder", not_synced))
        assert state.commit(wait="disk").reached is None, "it may go again"
    assert "commit 2 (step 0, round 0, rank 0 of 1) is not on disk: Connection closed" in capsys.readouterr().err

    def lost(*_args: object, **_options: object) -> None:
        saving = vars(state)["_saving"]
        vars(saving).update(_is_shared=True, _stamp=replace(saving._stamp, rank=next(ranks)))  # as with a process group
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(dcp, "save", lost)
    ranks = iter((0, 1))
    for says in ("is not on disk: Connection closed by peer", "may not be on disk: ranks were lost while"):
        vars(vars(state)["_saving"])["_has_failed"] = False
        assert state.commit(wait="disk").reached is None
        assert says in capsys.readouterr().err


def test_the_size_of_a_commit_has_its_tensors_in_it(tmp_path: Path) -> None:
    small, large = (made(str(tmp_path / str(width)), width=width) for width in (4, 400))
    assert large.commit(wait="disk").size_bytes - small.commit(wait="disk").size_bytes == 396 * (3 + 1) * 4


def check_trouble(
    state: ShardedState, mend: Callable[[], object], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that two commits which come to nothing are told once, and that the one after the end of the trouble counts."""
    for _ in range(2):
        train(state)
        assert state.commit(wait="disk").reached is None
    mend()
    train(state)
    assert state.commit(wait="disk").reached == "disk"
    said = capsys.readouterr().err
    assert said.count("is not on disk") == 1
    assert why in said
    assert "commits are written again" in said


def test_a_disk_in_trouble_is_told_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trouble = {"listed"}

    def fail(point: str) -> None:
        if point in trouble:
            raise OSError(28, os.strerror(28))

    check_trouble(made(Bundles(str(tmp_path), at=fail)), trouble.clear, "No space left on device", capsys)
    assert made(str(tmp_path)).restore().step == 3


def test_a_writer_of_an_older_life_that_wakes_late_cannot_publish(tmp_path: Path) -> None:
    asleep, woken = threading.Event(), threading.Event()

    def sleep(point: str) -> None:
        if point == "listed" and state.step == 2:
            asleep.set()
            assert woken.wait(TIMEOUT_S)

    state = made(Bundles(str(tmp_path), at=sleep))
    train(state)
    state.commit(wait="disk")
    train(state)
    state.commit()
    assert asleep.wait(TIMEOUT_S)
    later = made(str(tmp_path))
    assert later.restore().step == 1
    woken.set()
    with pytest.raises(
        StateRefused, match=r"no commit of this life counts any more: life 2 has begun in .*, and this is life 1"
    ):
        state.settle()
    with pytest.raises(StateRefused, match="no commit of this life counts any more"):
        state.commit(wait="disk")
    train(later)
    stamp = later.commit(wait="disk").stamp
    assert (stamp.run, stamp.generation, stamp.step) == (2, 2, 2)
    assert [name for name in sorted(os.listdir(tmp_path)) if name.startswith(".")] == [".life-0000000002"]
    again = made(str(tmp_path))
    assert again.restore().order == stamp.order
    assert torch.equal(again.model.weight, later.model.weight)


def test_a_folder_that_cannot_be_written_to_is_read_and_commits_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = made(str(tmp_path))
    train(state)
    state.commit(wait="disk")
    begin = Bundles.begin

    def fail(_bundles: Bundles) -> int:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(Bundles, "begin", fail)
    other = made(str(tmp_path))
    assert other.restore().step == 1
    check_trouble(other, lambda: monkeypatch.setattr(Bundles, "begin", begin), "Read-only file system", capsys)
    assert made(str(tmp_path)).restore().step == 4


@pytest.fixture
def hearsay(monkeypatch: pytest.MonkeyPatch) -> Hearsay:
    """What an agent makes of what is said from now on."""
    found = Hearsay()
    found.begin(Round(3, "job7", "default", 0, 1, 1, 1, 1, 1, 0, "10.0.0.1", 4711, 0, 3, ""))

    def store(state: int, stamp: Stamp, *, is_done: bool) -> None:
        found.hear(0, Stored(state, stamp.run, stamp.generation, stamp.step, is_done))

    monkeypatch.setattr(saving, "LINK", SimpleNamespace(store=store))
    return found


@pytest.mark.parametrize("folder", ["cannot be written to", "is a copy without marks"])
def test_a_commit_that_is_lost_is_not_taken_for_older_than_what_was_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hearsay: Hearsay, folder: str
) -> None:
    for _ in range(3):
        state = made(str(tmp_path))
        state.restore()
        state.commit(wait="disk")
    if folder == "cannot be written to":
        fail(monkeypatch, "begin")
    else:
        for mark in tmp_path.glob(".life-*"):
            mark.rmdir()
    state = made(f"{tmp_path}/../{tmp_path.name}")
    assert state.restore().generation == 3
    assert hearsay.is_whole
    fail(monkeypatch, "finish")
    state.commit()
    assert not state.settle() or folder == "cannot be written to"
    assert not hearsay.is_whole
    monkeypatch.undo()
    assert hearsay.newest["disk"].generation == 3


def fail(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have this call of every folder fail."""

    def refuse(*_: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(Bundles, name, refuse)


def test_states_of_one_folder_are_one_to_the_agent_and_those_of_a_copy_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hearsay: Hearsay
) -> None:
    first = made(str(tmp_path / "one"))
    first.commit(wait="disk")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with monkeypatch.context() as broken:
        fail(broken, "finish")
        first.commit(wait="disk")
    made(str(tmp_path / "two")).restore()
    assert not hearsay.is_whole, "the second commit of the one was lost"
    again = made(str(tmp_path / "one"))
    again.restore()
    again.commit(wait="disk")
    assert hearsay.is_whole


def test_a_disk_that_is_slower_than_commits_come_is_told_once_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    told = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        told.set()

    def be_slow(point: str) -> None:
        if point == "listed" and not told.is_set():
            assert told.wait(TIMEOUT_S)

    monkeypatch.setattr(saving, "SLOW_S", 0.01)
    monkeypatch.setattr(saving, "say", say)
    state = made(Bundles(str(tmp_path), at=be_slow))
    for _ in range(2):
        train(state)
        state.commit()
    assert len(said) == 1
    assert (
        "commit 1 (step 1, round 0, rank 0 of 1) is still being written after 0 s, and training waits for it" in said[0]
    )
    waited: list[float | None] = []

    class Slow:
        """A commit that takes its time, again."""

        def done(self) -> bool:
            return False

        def exception(self, timeout_s: float | None = None) -> None:
            waited.append(timeout_s)
            if timeout_s is not None:
                raise TimeoutError

    assert state.settle()
    vars(vars(state)["_saving"])["_future"] = Slow()
    train(state)
    state.commit(wait="disk")
    assert waited == [0.01, None]
    assert len(said) == 1


def test_what_cannot_be_kept_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    state = made(str(tmp_path), hook=print)
    with pytest.raises(StateRefused, match="hook"):
        state.commit()
    assert not [name for name in os.listdir(tmp_path) if "commit" in name]


def test_parts_of_different_commits_are_never_made_one(tmp_path: Path) -> None:
    """Ranks agree before they write; if they did not, this would notice."""
    bundles = Bundles(str(tmp_path))
    life = bundles.begin()
    results = []
    for rank, step in ((0, 2), (1, 3)):
        writer = Writer(bundles, Place(2, step, rank, 2, life), memoryview(b"values"))
        writer.set_up_storage_writer()
        results.append(writer.write_data(SimpleNamespace(items=[]), None).value())
        if rank == 0:
            coordinator = writer
    with pytest.raises(ValueError, match=r"rank-00001\.tensors is of step 3, and this commit of step 2"):
        coordinator.finish(SimpleNamespace(state_dict_metadata={}), results)
    assert bundles.commits() == []


def test_what_is_no_time_to_wait_is_refused(tmp_path: Path) -> None:
    state = made(str(tmp_path))
    for wait in (lambda: state.commit(wait="disk", timeout_s=-1.0), lambda: state.settle(-1.0)):
        with pytest.raises(StateRefused, match=r"timeout_s takes a number of seconds, from 0 on, not -1\.0"):
            wait()
    assert state.commit(wait="disk", timeout_s=float("inf")).reached == "disk"


def test_what_is_no_time_to_wait_is_told_to_the_other_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised before they meet, it would leave them waiting for this rank."""
    state, told = made(str(tmp_path)), list[Any]()
    agree = ShardedState._agree

    def listen(state: ShardedState, here: Any, stamp: Any, problem: Exception | None) -> None:
        told.append((stamp, problem))
        agree(state, here, stamp, problem)

    monkeypatch.setattr(ShardedState, "_agree", listen)
    with pytest.raises(StateRefused, match="timeout_s takes a number") as refused:
        state.commit(timeout_s=-1.0)
    assert told == [(None, refused.value)]
