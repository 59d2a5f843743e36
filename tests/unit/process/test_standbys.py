"""How many stand by as memory comes and goes; the processes are pretended. `tests/real/test_standbys.py` has real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pretended_standbys import GB, FakeStandby, Rig, joining_plan

from planaria.contract.standby import JOIN, PRELOAD, Report
from planaria.process import prints
from planaria.process import standbys as module
from planaria.process.spares import FIRST_BYTES, RESERVE_BYTES, RETRIES, Plan
from planaria.process.standbys import LOOK_S, PAUSE_S

if TYPE_CHECKING:
    from pathlib import Path


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
    return joining_plan(tmp_path)


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
