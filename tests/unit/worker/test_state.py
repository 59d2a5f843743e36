"""The elastic state with plain values and objects; NumPy and torch have pages of their own: test_state_numpy.py beside this
one, and tests/compat/test_state_torch.py."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planaria.contract import snapshot as snapshots
from planaria.contract.commit import MOST_WAIT_S, Origin, checked_wait
from planaria.errors import StateRefused
from planaria.worker import capture, exchange
from planaria.worker.state import ElasticState
from planaria.worker.vault import Loaded, LocalVault


class Sampler:
    """Anything with a state that is a dict."""

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, found: dict[str, int]) -> None:
        self.position = found["position"]


def test_values_are_attributes_and_come_back() -> None:
    vault = LocalVault()
    state = ElasticState(
        vault=vault, sampler=Sampler(7), step=3, best=math.inf, seen=Counter("abc"), names=[("a", b"b")]
    )
    assert state.commit(wait="node").reached == "node"
    state.step += 1
    state.best = 0.5
    state.names.append(("c", b"d"))
    state.sampler.position = 9
    other = ElasticState(vault=vault, sampler=(sampler := Sampler()), step=0, best=None, seen=None, names=[])
    stamp = other.restore()
    assert stamp
    assert (stamp.step, stamp.generation) == (3, 1)
    assert (other.step, other.best, other.seen, other.names) == (3, math.inf, Counter("abc"), [("a", b"b")])
    assert other.sampler is sampler
    assert sampler.position == 7


class Awaited(LocalVault):
    """Notes what is waited for, and has it reach what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reaches: str | None = "node"
        self.waits: list[tuple[int, str]] = []

    def wait(self, stamp: Any, tier: Any, timeout_s: float) -> Any:
        assert timeout_s > 0
        self.waits.append((stamp.generation, tier))
        return self.reaches


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_the_last_commit_can_be_waited_for(size: int, capfd: pytest.CaptureFixture[str]) -> None:
    vault = Awaited()
    state = ElasticState(vault=vault, text="x" * size, step=0)
    assert state.settle()
    assert vault.waits == []
    state.commit()
    state.commit()
    assert state.settle()
    assert vault.waits == [(2, "node")]
    other = ElasticState(vault=vault, text="", step=0)
    other.restore()
    assert other.text == "x" * size, "it is sealed"
    assert other.settle(), "what was restored is there already"
    assert vault.waits == [(2, "node")]
    vault.reaches = None
    other.commit()
    assert not other.settle()
    assert "has not reached node, only nothing" in capfd.readouterr().err


class Choosy(Sampler):
    """Refuses positions above a limit, when half of the work is done."""

    def __init__(self, position: int, limit: int) -> None:
        super().__init__(position)
        self.limit = limit

    def load_state_dict(self, found: dict[str, int]) -> None:
        super().load_state_dict(found)
        if self.position > self.limit:
            raise LookupError(f"{self.position} is too far")


@pytest.mark.parametrize("names", [("first", "last"), ("last", "first")])
def test_when_a_part_refuses_what_it_is_given_nothing_has_been_changed(names: tuple[str, str]) -> None:
    numpy = pytest.importorskip("numpy")
    vault = LocalVault()
    kept: dict[str, Any] = {"first": Sampler(7), "last": Choosy(7, 9)}
    ElasticState(
        vault=vault, own=random.Random(1), table=numpy.ones(3), step=3, **{name: kept[name] for name in names}
    ).commit()
    here: dict[str, Any] = {"first": Sampler(2), "last": Choosy(2, 5)}
    generator, table = random.Random(2), numpy.zeros(3)
    before = generator.getstate()
    state = ElasticState(vault=vault, own=generator, table=table, step=1, **{name: here[name] for name in names})
    with pytest.raises(StateRefused, match="last does not take what the snapshot has: 7 is too far"):
        state.restore()
    assert (here["first"].position, here["last"].position, state.step) == (2, 2, 1)
    assert table.tolist() == [0, 0, 0]
    assert generator.getstate() == before


def test_what_another_rank_keeps_for_all_has_no_generator_of_this_rank() -> None:
    stamp = Origin().stamp(1, 1)
    memory = exchange.pack({"own": random.Random(1), "step": 4}, stamp)
    found = snapshots.read(memory)
    assert found is not None
    assert capture.saved_parts(memory, found).keys() == {"step"}
    vault = LocalVault()
    ElasticState(vault=vault, own=random.Random(1), step=4).commit()
    kept = vault.load()
    assert kept is not None

    class Shared(LocalVault):
        def load(self, *, is_damaged: bool = False) -> Loaded:
            assert not is_damaged
            return Loaded(None, kept.own)

    state = ElasticState(vault=Shared(), own=random.Random(2), step=0)
    state.restore()
    assert (state.step, state.own.getstate()) == (4, random.Random(2).getstate())


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_torn_message_of_another_rank_is_a_sentence(monkeypatch: pytest.MonkeyPatch, is_sealed: bool) -> None:
    sent = exchange.pack({"step": 4}, Origin().stamp(1, 4))
    if is_sealed:
        sent[-1] ^= 1
    else:
        snapshots.unseal(sent)
    monkeypatch.setattr(exchange, "group", lambda: exchange.Group(1, 2, "cpu"))
    monkeypatch.setattr(exchange, "agree", lambda _group, _stamp, generation: (0, None, generation))
    monkeypatch.setattr(exchange, "broadcast", lambda _group, _source, _sent: sent)
    state = ElasticState(vault=LocalVault(), step=1)
    with pytest.raises(StateRefused, match="what another rank sent is no whole snapshot"):
        state.sync()
    assert state.step == 1


def test_a_name_that_was_not_given_is_not_a_value() -> None:
    state = ElasticState(epoch=0)
    with pytest.raises(AttributeError, match="no value 'epochs'; it was made with epoch"):
        print(state.epochs)
    with pytest.raises(AttributeError, match=r"name it when the state is made, epochs=\.\.\."):
        state.epochs = 1


@pytest.mark.parametrize("name", ["commit", "restore", "sync", "rng", "stamp"])
def test_names_of_our_own_are_refused(name: str) -> None:
    with pytest.raises(StateRefused, match=f"cannot have a value called '{name}'"):
        ElasticState(**{name: 1})


def test_without_a_step_commits_are_counted_and_the_count_goes_on_after_a_restore() -> None:
    vault = LocalVault()
    state = ElasticState(vault=vault, x=1)
    assert [state.commit().stamp.step for _ in range(3)] == [1, 2, 3]
    other = ElasticState(vault=vault, x=0)
    other.restore()
    assert other.commit().stamp.generation == 4


@pytest.mark.parametrize("step", [-1, 1.5, "3", True, 2**63])
def test_a_step_that_is_no_number_of_a_step_is_refused(step: object) -> None:
    with pytest.raises(StateRefused, match="step is the number of a step"):
        ElasticState(step=step).commit()


def test_a_value_that_cannot_be_kept_is_refused_by_its_path_and_the_commit_before_counts() -> None:
    vault = LocalVault()
    state = ElasticState(vault=vault, step=1, extra={"hooks": []})
    state.commit()
    state.step = 2
    state.extra["hooks"].append(print)
    with pytest.raises(StateRefused, match=r"^extra\['hooks'\]\[0\] cannot be kept: it is a builtins.builtin_function"):
        state.commit()
    state.extra = {}
    assert state.restore().step == 1  # type: ignore[union-attr]
    assert state.extra == {"hooks": []}


def test_an_unknown_tier_is_refused_as_one_commit() -> None:
    state = ElasticState()
    with pytest.raises(StateRefused, match="takes one of node, buddy, disk, or None, not 'disc'"):
        state.commit(wait="disc")  # type: ignore[arg-type]
    assert state.commit().stamp.generation == 2


@pytest.mark.parametrize("timeout_s", [-1.0, math.nan, -math.inf, None, "60", True])
def test_what_is_no_time_to_wait_is_refused_as_one_commit_and_the_next_one_is_made(
    timeout_s: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank's deadline may have passed by a moment, and the others' not: their next commits belong together."""
    skipped: list[int] = []
    monkeypatch.setattr(LocalVault, "skipped", lambda _vault, generation: skipped.append(generation))
    state = ElasticState(step=4)
    for wait in (lambda: state.commit(wait="node", timeout_s=timeout_s), lambda: state.settle(timeout_s)):
        with pytest.raises(StateRefused, match=f"^timeout_s takes a number of seconds, from 0 on, not {timeout_s!r}"):
            wait()
    assert state.commit(wait="node").stamp.generation == 2
    assert skipped == [1]


@pytest.mark.parametrize("timeout_s", [math.inf, 10**400, 1e300])
def test_who_would_wait_for_ever_waits_as_long_as_sockets_can(timeout_s: float, tmp_path: Path) -> None:
    state = ElasticState(step=4, vault=LocalVault(directory=str(tmp_path)))
    assert state.commit(wait="disk", timeout_s=timeout_s).reached == "disk"
    assert state.settle(timeout_s)
    assert checked_wait(timeout_s) == MOST_WAIT_S < (1 << 31) / 1000
    assert checked_wait(0) == 0.0


def test_a_tier_that_is_not_there_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    state = ElasticState(step=4)
    for _ in range(3):
        assert state.commit(wait="buddy").reached == "node"
    assert capfd.readouterr().err == (
        "planaria: commit 1 (step 4, round 0, rank 0 of 1) has not reached buddy, only node; training goes on (said once)\n"
    )


def test_without_a_commit_restore_changes_nothing() -> None:
    state = ElasticState(x=[1])
    assert state.restore() is None
    assert state.sync().stamp is None
    assert state.x == [1]


def test_python_s_random_numbers_go_on_where_they_were() -> None:
    state = ElasticState(own=random.Random(5))
    state.commit()
    wanted = [random.random(), random.gauss(), state.own.random()]
    assert state.restore()
    assert [random.random(), random.gauss(), state.own.random()] == wanted


def test_the_snapshot_is_of_the_moment_of_the_commit() -> None:
    vault = LocalVault()
    state = ElasticState(vault=vault, log=[1])
    state.commit()
    state.log.append(2)
    state.restore()
    assert state.log == [1]


def test_a_part_that_is_something_else_now_is_refused_and_nothing_is_changed() -> None:
    vault = LocalVault()
    ElasticState(vault=vault, a=1, sampler=Sampler(7)).commit()
    state = ElasticState(vault=vault, a=5, sampler={"position": 1})
    with pytest.raises(StateRefused, match="sampler is a value here and was a stateful when"):
        state.restore()
    assert state.a == 5


def test_what_the_snapshot_lacks_stays_and_what_the_program_lacks_goes_and_both_are_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    vault = LocalVault()
    ElasticState(vault=vault, a=1, gone=2, lost=3).commit()
    state = ElasticState(vault=vault, a=0, new=3)
    assert state.restore()
    assert (state.a, state.new) == (1, 3)
    assert capfd.readouterr().err == (
        "planaria: the snapshot has no new: left as they are\n"
        "planaria: the snapshot has gone, lost, which this program does not name: they are not used, and the next commit "
        "is without them\n"
    )


def test_a_snapshot_of_somebody_else_is_refused() -> None:
    layout = snapshots.arrange([], b"n")
    memory = memoryview(bytearray(layout.size_bytes))
    snapshots.seal(memory, layout, Origin().stamp(1, 1))
    found = snapshots.read(memory)
    assert found

    class Strange(LocalVault):
        def load(self, *, is_damaged: bool = False) -> Loaded:
            assert not is_damaged
            return Loaded((memory, found))

    with pytest.raises(StateRefused, match=r"commit 1 .* cannot be read: the snapshot is not one of an elastic state"):
        ElasticState(vault=Strange(), a=1).restore()


class Shared(LocalVault):
    """Two workers of a node: the second keeps only what is its own."""

    def __init__(self, leader: LocalVault) -> None:
        super().__init__(Origin(rank=1, world_size=2, keeps_shared=False))
        self.leader = leader

    def load(self) -> Loaded:
        own, shared = super().load(), self.leader.load()
        assert own
        assert shared
        return Loaded(own.own, shared.own)


def test_what_all_ranks_share_is_kept_once_and_their_own_is_their_own() -> None:
    leader = LocalVault(Origin(rank=0, world_size=2))
    follower = Shared(leader)
    first = ElasticState(vault=leader, replicated=True, model=Sampler(5), cursor=1)
    second = ElasticState(vault=follower, replicated=True, model=Sampler(6), cursor=2)
    random.seed(1)
    first.commit()
    random.seed(2)
    wanted = random.random()
    random.seed(2)
    second.commit()
    random.seed(3)
    own = follower.load().own
    assert own
    assert b"position" not in own[1].values
    second.model.position, second.cursor = 0, 0
    assert second.restore().rank == 1  # type: ignore[union-attr]
    assert (second.model.position, second.cursor) == (5, 2)
    assert random.random() == wanted


def test_a_rank_without_a_snapshot_of_its_own_keeps_its_own_random_numbers() -> None:
    vault = LocalVault()
    ElasticState(vault=vault, x=1).commit()

    class New(LocalVault):
        def load(self) -> Loaded:
            found = vault.load()
            assert found
            return Loaded(None, found.own)

    state = ElasticState(vault=New(), x=0)
    random.seed(8)
    wanted = random.random()
    random.seed(8)
    assert state.restore()
    assert state.x == 1
    assert random.random() == wanted


def test_what_goes_wrong_while_sealing_is_said_and_raised_by_the_next_commit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    state = ElasticState(big=b"x" * (2 << 20), n=0)

    def fail(*_args: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "seal", fail)
        assert state.commit().reached is None
        with pytest.raises(MemoryError):
            state.commit()
        assert "was not sealed: MemoryError" in capfd.readouterr().err  # also when no commit follows
    assert state.commit(wait="node").reached == "node"


@pytest.mark.parametrize("go_back", [ElasticState.restore, ElasticState.sync])
def test_what_went_wrong_while_sealing_is_no_trouble_of_who_goes_back(
    monkeypatch: pytest.MonkeyPatch, go_back: Callable[[ElasticState], object]
) -> None:
    """It would be raised on this rank only, while all others go back."""
    state = ElasticState(big=b"x" * (2 << 20), step=1)
    state.commit(wait="node")
    state.step = 2

    def fail(*_args: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "seal", fail)
        state.commit()
        go_back(state)
    assert state.step == 1
    assert state.commit(wait="node").reached == "node"


def test_what_goes_wrong_while_a_small_commit_is_sealed_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ElasticState(n=0)

    def fail(*_args: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "seal", fail)
        with pytest.raises(MemoryError):
            state.commit()
    assert state.commit(wait="node").reached == "node"


def test_the_last_commit_of_a_program_is_sealed_before_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys, planaria.worker.state as s; from planaria.worker.vault import LocalVault;"
        "sealed = LocalVault.sealed;"
        "LocalVault.sealed = lambda vault, stamp: print(stamp.generation, flush=True) or sealed(vault, stamp);"
        "state = s.ElasticState(vault=LocalVault(), big=b'x' * (8 << 20)); state.commit(); state.commit()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "1\n2\n"


def test_memory_that_does_not_suffice_is_refused_before_anything_is_copied() -> None:
    state = ElasticState(vault=LocalVault(free_bytes=lambda: 3_000_000), big=b"x" * 2_000_000)
    with pytest.raises(StateRefused, match=r"a snapshot of 2.0. MB does not fit: it takes 4.0. MB .* 3.00 MB are free"):
        state.commit()
    state.big = b""
    assert state.commit(wait="node").reached == "node"


def test_importing_the_state_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, time; sys.modules['torch'] = sys.modules['numpy'] = None; import planaria.worker.state as s;"
        "state = s.ElasticState(a=1); state.commit(wait='node'); state.a = 2; state.restore(); print(state.a)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "1\n"
