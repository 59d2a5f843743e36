"""How many stand by as memory comes and goes; the processes are pretended. `tests/real/test_standbys.py` has real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from clocks import FakeLoop

from planaria.contract.standby import JOIN, PRELOAD, Report
from planaria.errors import SpawnFailed
from planaria.process import prints
from planaria.process import standbys as module
from planaria.process.spares import FIRST_BYTES, REPLACED, RESERVE_BYTES, RETRIES, Plan
from planaria.process.standbys import LOOK_S, PAUSE_S, Standbys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GB = 1 << 30


class FakeStandby:
    """A process that is ready when a test says so, and takes a gigabyte from then on until it has ended."""

    last = 0
    finds = Report()

    def __init__(self, local_rank: int, order: object, plan: Plan) -> None:
        FakeStandby.last += 1
        self.pid = FakeStandby.last
        self.local_rank, self.order, self.plan = local_rank, order, plan
        self.report: Report | None = None
        self.is_ending = False
        self.has_arrived = plan.mode != JOIN

    memory_bytes = GB
    has_joined = False

    @property
    def is_ready(self) -> bool:
        return self.report is not None

    def hear(self) -> bool:
        if not self.has_arrived:
            self.has_arrived = True
            return True
        self.report = self.finds if self.plan.load else Report()
        return False

    def last_words(self) -> str:
        return ""

    def fileno(self) -> int:
        return self.pid

    def hand_over_lifeline(self) -> None: ...

    def staleness(self) -> str:
        return ""

    def mismatch(self, _order: object) -> str:
        return ""

    def refusal(self, _order: object) -> str:
        return self.mismatch(_order)

    def lend(self, _memory: object) -> None: ...

    def end(self) -> None:
        self.is_ending = True

    def close(self) -> None: ...


class Timer:
    def __init__(self, timer: Any) -> None:
        self._timer = timer
        self.cancel = timer.cancel

    @property
    def is_pending(self) -> bool:
        return self._timer.callback is not None


class Machine(FakeLoop):
    """A loop, and the memory of a node."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free
        self.readers: dict[int, Callable[[], object]] = {}

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        return Timer(super().call_later(delay_s, callback))

    def on_readable(self, fd: int, callback: Callable[[], object]) -> None:
        self.readers[fd] = callback

    def forget(self, fd: int) -> None:
        self.readers.pop(fd, None)


class Rig:
    def __init__(self, free: int, asked: int | None = None, plan: Plan | None = None) -> None:
        self.machine = Machine(free)
        self.told: list[str] = []
        self.standbys = Standbys(
            self.machine,  # type: ignore[arg-type]
            asked,
            watch=lambda _pid, _lifeline: None,
            tell=self.told.append,
            free=lambda: self.machine.free,
        )
        self.plan = plan or Plan()
        self.keep()
        if plan is None:
            self.settle()

    def keep(self) -> None:
        self.standbys.keep(("order",) * 4, (self.plan,) * 4)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Have all get ready who can."""
        while self.machine.readers:
            (pid, hear), *_ = self.machine.readers.items()
            is_last_word = any(one.has_arrived for one in self.standbys._standing.values() if one.pid == pid)
            self.machine.free -= GB if is_last_word else 0
            hear()

    def bury(self) -> None:
        """Have those end who were told to."""
        for pid in [*self.standbys._ending]:
            self.machine.free += GB
            assert self.standbys.exited(pid, -9)
        self.settle()

    def wait(self, seconds: float) -> None:
        self.machine.run_until(self.machine.at + seconds)
        self.settle()

    def why(self, local_rank: int) -> str:
        """Take the standby of a local rank; return why there is none."""
        return self.standbys.take(local_rank, "order").why  # type: ignore[arg-type]

    @property
    def modes(self) -> list[str]:
        return [one.plan.mode for one in self.standbys._standing.values()]

    @property
    def count(self) -> int:
        return len(self.standbys.seen)


@pytest.fixture(autouse=True)
def _pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Standby", FakeStandby)


def test_the_first_one_waits_for_memory_too() -> None:
    rig = Rig(RESERVE_BYTES + FIRST_BYTES - 1)
    assert rig.count == 0
    assert [line.partition(":")[0] for line in rig.told] == ["0 of 4 standbys"]
    rig.machine.free += 8 * GB
    rig.wait(LOOK_S)
    assert rig.count == 4


def test_fewer_is_said_once_for_each_number_whatever_is_free_meanwhile() -> None:
    rig = Rig(3 * GB)
    assert rig.count == 2
    for _ in range(5):
        rig.machine.free += 1 << 20
        rig.wait(LOOK_S)
    assert [line.partition(":")[0] for line in rig.told] == ["2 of 4 standbys"]


def test_some_end_when_others_need_the_memory_and_do_not_come_and_go() -> None:
    rig = Rig(6 * GB)
    assert rig.count == 4
    rig.machine.free -= 2 * GB
    rig.wait(LOOK_S)
    assert (rig.count, len(rig.standbys.pids)) == (3, 4), "one is ending"
    rig.bury()
    rig.wait(10 * PAUSE_S)
    assert rig.count == 3
    assert [one.local_rank for one in rig.standbys.seen] == [0, 1, 2]
    rig.machine.free += 2 * GB
    rig.wait(LOOK_S)
    assert rig.count == 4


@pytest.mark.parametrize("asked", [None, 4])
def test_a_commit_without_room_gets_that_of_all_standbys(asked: int | None) -> None:
    rig, gone = Rig(6 * GB, asked), list[int]()
    assert rig.count == 4
    assert rig.standbys.make_room(lambda: gone.append(rig.machine.free))
    assert (rig.count, gone) == (0, []), "their memory is not free yet"
    assert rig.standbys.make_room(lambda: gone.append(rig.machine.free)), "another rank lacks some as well"
    rig.bury()
    assert gone == [6 * GB]
    assert rig.standbys.overview.why == rig.told[-1] == "standbys were ended: a commit needed their memory"
    rig.wait(PAUSE_S - LOOK_S)
    assert rig.count == 0, "the memory is there, but the other ranks have not committed yet"
    rig.machine.free = 3 * GB  # as what they were promised does not count as free
    rig.wait(2 * LOOK_S)
    assert rig.count == 2, "from now on memory decides, whatever was asked for"


def test_without_standbys_there_is_no_room_to_make() -> None:
    assert not Rig(0).standbys.make_room(pytest.fail)


def test_who_ends_with_the_job_makes_room_too() -> None:
    rig, gone = Rig(6 * GB), list[int]()
    rig.standbys.close()
    assert rig.standbys.make_room(lambda: gone.append(1))
    rig.bury()
    assert (gone, rig.count) == ([1], 0)


# One that runs the program, and one that only loads what it loads instead.


@pytest.fixture
def joining(tmp_path: Path) -> Plan:
    main = tmp_path / "main.py"
    main.write_text("")
    return Plan(JOIN, (("os", ""),), program=((str(main), prints.take(str(main))),), patience_s=100.0)


def test_one_that_is_much_later_than_the_worker_was_is_ended_and_the_program_is_run_no_more(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    assert rig.modes == [JOIN]
    began = rig.machine.at
    rig.machine.run_until(began + 100.0)
    assert (rig.modes, rig.told) == ([JOIN], [])
    rig.machine.run_until(began + 100.0 + LOOK_S)
    assert rig.modes == []
    why = "was ended: it has not come to join() after 100 s; standbys do not run the program any more"
    assert rig.told == [f"a standby of local rank 0 {why}, they only load what it loads"]
    rig.bury()
    assert rig.modes == [PRELOAD] * 4
    rig.keep()
    assert rig.modes == [PRELOAD] * 4, "the same plan replaces nobody"


def test_one_that_has_joined_may_take_its_time_to_load_the_rest(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    (hear,) = rig.machine.readers.values()
    hear()
    rig.machine.run_until(rig.machine.at + 1000.0)
    assert (rig.modes, rig.told) == ([JOIN], [])
    rig.settle()
    assert rig.modes == [JOIN] * 4


def test_a_program_that_came_to_its_end_without_join_is_not_run_again(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    (pid,) = rig.standbys.pids
    rig.standbys.exited(pid, 0)
    assert rig.modes == [PRELOAD]
    assert rig.told[0].startswith("a standby of local rank 0 has come to the end of the program without join(); ")


def test_a_program_in_which_too_many_have_died_is_not_run_again(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    for _ in range(RETRIES + 1):
        assert rig.modes == [JOIN]
        (pid,) = rig.standbys.pids
        rig.standbys.exited(pid, 1)
    rig.settle()
    assert rig.modes == [PRELOAD] * 4
    why = f"was the last of {RETRIES + 1} in a row that ended before they were ready"
    assert rig.told[-1].startswith(f"a standby of local rank 0 {why}; standbys do not run the program any more")


def test_standbys_that_were_ready_and_are_killed_have_not_died_in_the_program(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    rig.settle()
    for pid in [*rig.standbys.pids]:  # all at once, as by a kernel that is short of memory
        rig.standbys.exited(pid, -9)
    rig.settle()
    assert rig.modes == [JOIN] * 4


def test_a_program_that_has_changed_is_not_run_before_a_worker_has_joined_again(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    rig.settle()
    assert rig.modes == [JOIN] * 4
    ((file, _),) = joining.program
    with open(file, "w") as main:
        main.write("run()")
    rig.keep()
    rig.bury()
    assert rig.modes == [PRELOAD] * 4
    assert rig.told == [f"{file} has changed: standbys do not run the program before a worker has joined again"]
    rig.plan = Plan(JOIN, joining.load, program=((file, prints.take(file)),))
    rig.keep()
    rig.bury()
    assert rig.modes == [JOIN] * 4


def test_a_program_that_never_joined_is_run_again_when_it_is_another_one(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    (pid,) = rig.standbys.pids
    rig.standbys.exited(pid, 0)
    ((file, _),) = joining.program
    with open(file, "w") as main:
        main.write("run()")
    rig.plan = Plan(JOIN, joining.load, program=((file, prints.take(file)),))
    rig.keep()
    rig.bury()
    assert rig.modes == [JOIN] * 4


@pytest.mark.parametrize("mode", [JOIN, PRELOAD])
def test_one_that_is_never_fit_loads_nothing_in_the_end(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(FakeStandby, "finds", Report(reads=(("other", "RANK"),)))
    rig = Rig(9 * GB, plan=Plan(mode, (("os", ""),)))
    rig.settle()
    for _ in range(RETRIES + 1):
        assert (rig.modes, len(rig.standbys.pids)) == ([], 1)
        rig.bury()
    assert rig.modes == [mode] * 4
    assert {one.plan for one in rig.standbys._standing.values()} == {Plan(mode)}
    rig.keep()
    assert rig.modes == [mode] * 4
    assert rig.told == ["other is not loaded ahead: it reads RANK when it is imported"]


# Why a rank that has no standby starts cold; the words are in test_spares.py.


def test_ranks_that_fail_again_at_once_are_told_that_theirs_were_promoted() -> None:
    rig = Rig(9 * GB)
    assert [rig.why(rank) for rank in range(4)] == [""] * 4
    assert {rig.why(rank) for rank in range(4)} == {"there is no standby yet: the one before was promoted"}
    rig.keep()
    assert rig.why(0) == "it is not ready yet: the one before was promoted"
    rig.settle()
    assert rig.why(0) == ""


def test_ranks_whose_turn_has_not_come_are_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    assert rig.why(0) == "it is not ready yet"
    assert rig.why(3) == "there is no standby yet: they are started one after the other"


def test_ranks_beyond_the_number_that_was_asked_for_are_told_so_also_when_the_others_were_just_promoted() -> None:
    rig = Rig(9 * GB, 2)
    assert [rig.why(rank) for rank in (0, 1)] == [""] * 2
    assert {rig.why(rank) for rank in (2, 3)} == {"there is no standby: only 2 were asked for"}
    assert rig.why(0) == "there is no standby yet: the one before was promoted"


def test_ranks_for_which_memory_was_short_are_told_how_much_there_was() -> None:
    rig = Rig(3 * GB)
    assert [rig.why(rank) for rank in (0, 1)] == [""] * 2
    for rank in (2, 3):  # the first two of four are to get one: not the third any more
        assert rig.why(rank).startswith("there is no standby: 2 of 4 standbys: each takes 1024 MB, ")


def test_a_rank_whose_standby_gave_its_memory_up_is_told_so() -> None:
    rig = Rig(6 * GB)
    rig.machine.free = 0
    rig.wait(LOOK_S)
    assert rig.count < 4
    short = "3 of 4 standbys: each takes 1024 MB, 0 MB of memory are free, and 1024 MB are left alone"
    assert rig.why(3) == f"there is no standby: {short}"
    assert rig.standbys.overview.why == short
    rig.bury()
    rig.machine.free = 8 * GB
    rig.machine.run_until(rig.machine.at + PAUSE_S + LOOK_S)
    assert rig.why(3) == f"it is not ready yet: the one before was ended: {short}"


def test_ranks_whose_standbys_were_ended_for_a_commit_are_told_so_until_there_may_be_some_again(joining: Plan) -> None:
    rig = Rig(9 * GB)
    assert rig.why(1) == ""
    rig.standbys.make_room(lambda: None)
    rig.bury()
    rig.plan = joining  # another life, which has learned something else: the pause is still why
    rig.keep()
    ended = "standbys were ended: a commit needed their memory"
    assert {rig.why(rank) for rank in range(4)} == {f"there is no standby: {ended}"}
    assert rig.standbys.overview.why == ended
    rig.machine.run_until(rig.machine.at + PAUSE_S + LOOK_S)
    assert rig.why(0) == "it is not ready yet: the one before was ended: a commit needed its memory"
    assert rig.standbys.overview.why == ""


def test_ranks_that_were_asked_for_wait_their_turn_when_a_commit_came_before_anybody_was_ready(joining: Plan) -> None:
    rig = Rig(9 * GB, 4, plan=joining)
    rig.standbys.make_room(lambda: None)
    rig.bury()
    rig.machine.run_until(rig.machine.at + PAUSE_S + LOOK_S)
    assert rig.why(3) == "there is no standby yet: they are started one after the other"


def test_a_rank_whose_standby_has_died_is_told_how(monkeypatch: pytest.MonkeyPatch, joining: Plan) -> None:
    words = "ValueError: \x1b[2J" + 1000 * "n"
    monkeypatch.setattr(FakeStandby, "last_words", lambda _self: words)
    rig = Rig(9 * GB, plan=joining)
    (pid,) = rig.standbys.pids
    rig.standbys.exited(pid, 1)
    assert rig.why(0) == f"it is not ready yet: the one before ended: {words[:200]}", "whoever shows it makes it safe"
    (told,) = rig.told
    assert told.startswith("a standby of local rank 0 ended: ValueError: \\x1b[2Jnnn")
    assert len(told) < 1100


def test_a_rank_whose_standby_ran_to_its_end_is_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    (pid,) = rig.standbys.pids
    rig.standbys.exited(pid, 0)
    ended = "the one before ended: it has come to the end of the program without join()"
    assert rig.why(0) == f"it is not ready yet: {ended}"


def test_a_rank_whose_standby_was_late_is_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    rig.machine.run_until(rig.machine.at + joining.patience_s + LOOK_S)
    late = f"the one before was ended: it has not come to join() after {joining.patience_s:.0f} s"
    assert rig.why(0) == f"there is no standby yet: {late}"


def test_ranks_whose_standbys_were_given_up_are_told_so() -> None:
    rig = Rig(9 * GB, plan=Plan())
    for _ in range(RETRIES + 1):
        (pid,) = rig.standbys.pids
        rig.standbys.exited(pid, 1)
    assert rig.standbys.pids == frozenset()
    assert (
        rig.why(0)
        == "there is no standby: 4 standbys in a row were of no use: no more are started before the next life"
    )
    rig.standbys.keep(("order of the next life",) * 4, (rig.plan,) * 4)  # type: ignore[arg-type]
    assert rig.why(0) == "it is not ready yet: the one before ended: exit status 1"


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_rank_whose_standby_is_stale_is_told_so_whether_it_was_ready_or_not(
    monkeypatch: pytest.MonkeyPatch, joining: Plan, is_ready: bool
) -> None:
    rig = Rig(9 * GB, plan=joining)
    if is_ready:
        rig.settle()
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "main.py has changed")
    assert rig.why(0) == "main.py has changed"


def test_a_rank_whose_standby_could_not_be_started_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SpawnFailed("cannot fork a standby of local rank 0: Cannot allocate memory")

    rig = Rig(9 * GB)
    monkeypatch.setattr(module, "Standby", fail)
    assert [rig.why(rank) for rank in range(4)] == [""] * 4
    rig.keep()
    assert rig.why(0) == "there is no standby yet: cannot fork a standby of local rank 0: Cannot allocate memory"


def test_a_rank_whose_standby_was_replaced_is_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB)
    rig.plan = joining
    rig.keep()
    assert rig.why(0) == f"there is no standby yet: {REPLACED.why}"


def test_a_rank_whose_standby_has_another_environment_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "mismatch", lambda _self, _order: "the environment differs in A")
    rig.keep()
    assert rig.why(0) == "there is no standby yet: the one before was replaced: the environment differs in A"


@pytest.mark.parametrize("by", ["a look", "keep"])
def test_a_rank_whose_standby_has_gone_stale_is_told_the_same_until_the_next_is_ready(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "job.py has changed")
    if by == "keep":
        rig.keep()
    else:
        rig.machine.run_until(rig.machine.at + LOOK_S)
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "")
    assert rig.why(0) == "job.py has changed", "while it ends"
    for pid in [*rig.standbys._ending]:
        rig.standbys.exited(pid, -9)
    assert rig.why(0) == "job.py has changed", "while the next one is on its way"
    rig.settle()
    assert rig.why(0) == ""


def test_a_rank_whose_standby_was_refused_is_told_so_also_when_it_fails_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "mismatch", lambda _self, _order: "the variable HOME differs")
    assert rig.why(0) == "the variable HOME differs"
    assert rig.why(0) == "there is no standby yet: the one before was refused: the variable HOME differs"


def test_a_rank_whose_standby_is_found_stale_when_it_is_wanted_is_told_so_also_when_it_fails_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "job.py has changed")
    assert rig.why(0) == "job.py has changed"
    assert rig.why(0) == "job.py has changed", "a look in between would have said the same"


def test_a_rank_whose_standby_was_unfit_is_told_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeStandby, "finds", Report(reads=(("other", "RANK"),)))
    rig = Rig(9 * GB, plan=Plan(load=(("other", ""),)))
    rig.settle()
    unfit = "the one before was replaced: other is not loaded ahead: it reads RANK when it is imported"
    assert rig.why(0) == f"there is no standby yet: {unfit}"


def test_ranks_of_a_life_that_nobody_expected_are_told_so() -> None:
    """A restart that costs none, as for a port that was taken, may follow on the last one that is allowed."""
    rig = Rig(9 * GB)
    rig.standbys.close()
    assert rig.why(0) == "there is no standby: the life before was to be the last one, which has none"


def test_ranks_that_fail_before_their_life_has_taught_anything_are_told_so() -> None:
    standbys = Standbys(Machine(9 * GB), None, watch=pytest.fail, tell=pytest.fail)  # type: ignore[arg-type]
    why = standbys.take(0, "order").why  # type: ignore[arg-type]
    assert why == "there is no standby: the life before was too short to learn what it loads"
