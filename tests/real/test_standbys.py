"""Standbys are learned, kept, taken, refused and replaced, with real processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from typing import TYPE_CHECKING

import pytest
from standing import Job, all_ready, end, looping, ready, turn_until

from planaria.base.value import replace
from planaria.contract import blackbox
from planaria.errors import SpawnFailed
from planaria.process import standbys as module
from planaria.process.children import Children
from planaria.process.spares import Plan, make_plan
from planaria.process.standby import Standby
from planaria.process.standbys import Standbys, StandbysSeen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planaria.base.loop import Loop

PLENTY = 1 << 40


def program(folder: Path, text: str = "import json\n", **variables: str) -> Job:
    (folder / "main.py").write_text(text)
    return Job(folder, "script", "main.py", **variables)


def library(folder: Path, **texts: str) -> str:
    """Make installed modules; return what goes into PYTHONPATH."""
    found = folder / "lib" / "site-packages"
    found.mkdir(parents=True)
    for name, text in texts.items():
        (found / f"{name}.py").write_text(text)
    return str(found)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return program(tmp_path)


# Learning.


def test_a_worker_that_is_killed_has_said_what_it_loaded(tmp_path: Path) -> None:
    path = library(tmp_path, heavy="import json.tool")
    one = program(
        tmp_path, "import heavy, os, signal\nopen(os.devnull)\nos.kill(os.getpid(), signal.SIGKILL)\n", PYTHONPATH=path
    )
    ended = one.cold()
    assert ended.status == -signal.SIGKILL
    assert {"heavy", "json.tool", "argparse"} <= set(dict(ended.learned.files))


def test_a_worker_that_ends_well_has_said_all_it_loaded_and_a_forked_child_adds_nothing(tmp_path: Path) -> None:
    ended = program(
        tmp_path,
        "import os, sys\nif os.fork() == 0:\n    import colorsys\n    sys.exit()\nos.wait()\nimport csv\n",
    ).cold()
    names = set(dict(ended.learned.files))
    assert "csv" in names
    assert "colorsys" not in names


def test_without_the_word_nothing_is_written_down(tmp_path: Path) -> None:
    one = program(tmp_path)
    argv = tuple(word for word in one.order().argv if word != "learn")
    one.order = lambda box=-1: replace(Job.order(one, box), argv=argv)  # type: ignore[method-assign, assignment]
    assert one.cold().learned == blackbox.Learned()


def test_a_module_that_looks_like_one_and_raises_when_asked_is_left_alone(tmp_path: Path) -> None:
    ended = program(
        tmp_path,
        "import sys, types\nclass Odd(types.ModuleType):\n    def __getattribute__(self, name): raise SystemExit(9)\n"
        "sys.modules['odd'] = Odd('odd')\nsys.modules['none'] = None\nsys.modules['number'] = 3\nimport csv\nprint('fine')\n",
    ).cold()
    assert ended[:3] == (0, "fine\n", "")
    assert "csv" in dict(ended.learned.files)


# Loading ahead.


def test_an_import_that_fails_is_told_and_harms_nobody(tmp_path: Path) -> None:
    path = library(tmp_path, leaving="raise SystemExit(3)", failing="1 / 0", good="import csv")
    one = program(tmp_path, "import good, sys\nprint('csv' in sys.modules)\n", PYTHONPATH=path)
    names = ("leaving", "failing", "gone", "good")
    plan = Plan(load=tuple((name, f"{path}/{name}.py") for name in names))
    reports = []
    promoted = one.promoted(plan, before=lambda standby: reports.append(standby.report))
    assert promoted[:3] == (0, "True\n", "")
    assert dict(reports[0].failed) == {
        "leaving": "SystemExit: 3",
        "failing": "ZeroDivisionError: division by zero",
        "gone": "not found",
    }
    assert not reports[0].unfit


def test_what_reads_a_rank_starts_a_device_or_draws_random_numbers_when_imported_is_found_out(tmp_path: Path) -> None:
    texts = {
        "early": "import random\n",  # as a program does that seeds it before it imports the rest
        "reader": "import os\ntry:\n    RANK = int(os.environ.get('RANK', 0))\nexcept Exception:\n    RANK = 0\n",
        "copier": "import os\nKEPT = os.environ.copy()\n",
        "starter": "import sys, types\ncuda = types.ModuleType('torch.cuda')\ncuda._initialized = True\n"
        "sys.modules['torch.cuda'] = cuda\n",
        "drawer": "import random\nrandom.random()\n",
    }
    path = library(tmp_path, **texts)
    standby = program(tmp_path, PYTHONPATH=path).standby(
        Plan(load=tuple((name, f"{path}/{name}.py") for name in texts))
    )
    try:
        assert ready(standby)
        assert standby.report is not None
        assert standby.report.reads == (("reader", "RANK"), ("copier", "the whole environment"))
        assert (standby.report.device, standby.report.draws) == (("starter",), ("drawer",))
        assert standby.report.unfit == {"reader", "copier", "starter", "drawer"}
    finally:
        end(standby)


def test_a_program_that_finds_its_modules_elsewhere_gets_nothing_loaded_ahead(tmp_path: Path) -> None:
    """The program puts a folder of its own in front: its `shared` is not the installed one, which `heavy` would load."""
    path = library(tmp_path, heavy="import shared", shared="WHERE = 'installed'\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "shared.py").write_text("WHERE = 'mine'\n")
    one = program(
        tmp_path,
        "import sys\nsys.path.insert(0, sys.path[0] + '/mine')\nimport heavy, shared\nprint(shared.WHERE)\n",
        PYTHONPATH=path,
    )
    cold = one.cold()
    plan = make_plan(cold.learned, (str(tmp_path),))
    assert dict(plan.own) == {"shared": f"{tmp_path}/mine/shared.py"}
    with kept(one, plan) as (standbys, told, loop):
        turn_until(loop, lambda: any(one.is_ready for one in standbys.seen) and len(told) > 0)
        assert told == [
            f"nothing is loaded ahead: shared was {tmp_path}/mine/shared.py, now it is {path}/shared.py",
        ]
    assert one.promoted(replace(plan, load=())).stdout == cold.stdout == "mine\n"


# Refusing.


def test_a_difference_in_the_environment_is_a_refusal_that_names_it_and_not_its_value(job: Job) -> None:
    standby = job.standby(Plan())
    try:
        assert standby.refusal(job.order()) == "it is not ready yet"
        assert ready(standby)
        with contextlib.chdir(job.folder):
            assert standby.staleness() == standby.refusal(job.order()) == ""
            changed = replace(job.order(), environment={**job.environment, "RANK": "7", "TOKEN": "s3cret"})
            assert standby.refusal(changed) == "the environment differs in TOKEN"
            assert standby.refusal(replace(job.order(), cpus=frozenset({0}))) == "the binding to CPUs differs"
            before = os.umask(0o3)
            try:
                assert standby.staleness() == "the umask differs"
            finally:
                os.umask(before)
        assert standby.staleness() == "the current folder differs"
    finally:
        end(standby)


def test_a_script_that_was_edited_makes_a_standby_stale(job: Job) -> None:
    standby = job.standby(Plan())
    try:
        assert ready(standby)
        with contextlib.chdir(job.folder):
            (job.folder / "main.py").write_text("import csv\nprint()\n")
            assert standby.staleness() == f"{job.folder}/main.py has changed"
    finally:
        end(standby)


def test_a_standby_that_died_is_refused_and_cannot_be_promoted(job: Job) -> None:
    standby = job.standby(Plan())
    assert ready(standby)
    os.kill(standby.pid, signal.SIGKILL)
    os.waitid(os.P_PID, standby.pid, os.WEXITED | os.WNOWAIT)
    with contextlib.chdir(job.folder):
        assert standby.refusal(job.order()) == "it has died"
    assert not standby.promote(job.order(0))
    os.waitpid(standby.pid, 0)


def test_a_standby_ends_when_its_agent_lets_go_of_it(job: Job) -> None:
    standby = job.standby(Plan())
    assert ready(standby)
    standby.close()
    assert os.waitstatus_to_exitcode(os.waitpid(standby.pid, 0)[1]) == 0


def test_a_standby_knows_how_much_memory_it_takes(job: Job) -> None:
    standby = job.standby(Plan())
    try:
        assert ready(standby)
        assert 1 << 20 < standby.memory_bytes < 1 << 28
    finally:
        end(standby)


def test_no_descriptor_stays_open(job: Job) -> None:
    before = os.listdir("/proc/self/fd")
    assert job.promoted().status == 0
    standby = job.standby(Plan())
    assert ready(standby)
    end(standby)
    assert os.listdir("/proc/self/fd") == before


# Keeping.


@contextlib.contextmanager
def kept(
    job: Job, plan: Plan, *, count: int = 1, asked: int | None = None, free: int = PLENTY
) -> Iterator[tuple[Standbys, list[str], Loop]]:
    """Keep standbys of a job, in its folder; nobody is left afterwards."""
    told: list[str] = []
    with looping() as loop, contextlib.chdir(job.folder):
        children = Children(loop, lambda pid, status: standbys.exited(pid, status))  # noqa: PLW0108  it is made below
        standbys = Standbys(
            loop,
            asked,
            watch=lambda pid, lifeline: children.add(pid, lifeline=lifeline),
            tell=told.append,
            free=lambda: free,
        )
        standbys.keep((job.order(),) * count, (plan,) * count)
        try:
            yield standbys, told, loop
        finally:
            standbys.close()
            turn_until(loop, lambda: not standbys.pids)
            children.bury()


def test_one_stands_by_for_each_local_rank(job: Job) -> None:
    with kept(job, Plan(), count=3) as (standbys, told, loop):
        assert len(standbys.seen) == 1  # one at a time
        turn_until(loop, lambda: all_ready(standbys, 3))
        assert [one.local_rank for one in standbys.seen] == [0, 1, 2]
        assert told == []


def test_fewer_stand_by_when_memory_is_short_and_that_is_said(job: Job) -> None:
    with kept(job, Plan(), count=3, free=0) as (standbys, told, _):
        assert told[0].startswith("0 of 3 standbys: the first one may take ")
        assert standbys.overview == StandbysSeen((), told[0])


def test_a_standby_that_dies_is_replaced(job: Job) -> None:
    with kept(job, Plan()) as (standbys, told, loop):
        turn_until(loop, lambda: all_ready(standbys, 1))
        first = standbys.seen[0].pid
        os.kill(first, signal.SIGKILL)
        turn_until(loop, lambda: all_ready(standbys, 1) and standbys.seen[0].pid != first)
        assert told == ["a standby of local rank 0 ended: SIGKILL"]


def test_a_standby_that_goes_stale_is_replaced(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    with kept(job, Plan()) as (standbys, _, loop):
        turn_until(loop, lambda: all_ready(standbys, 1))
        first = standbys.seen[0].pid
        (job.folder / "main.py").write_text("import csv\nprint(1)\n")
        turn_until(loop, lambda: [one.pid for one in standbys.seen] != [first])
        why = f"{os.path.realpath(job.folder / 'main.py')} has changed"
        assert standbys.take(0, job.order()).why == why, "also while the next one is on its way"
        turn_until(loop, lambda: all_ready(standbys, 1) and standbys.seen[0].pid != first)
        taken = standbys.take(0, job.order()).standby
        assert taken is not None
        end(taken)


def test_another_environment_or_other_modules_replace_the_standbys(job: Job) -> None:
    with kept(job, Plan()) as (standbys, _, loop):
        turn_until(loop, lambda: all_ready(standbys, 1))
        first = standbys.seen[0].pid
        standbys.keep((job.order(),), (Plan(),))
        assert standbys.seen[0].pid == first
        changed = replace(job.order(), environment={**job.environment, "NEW": "1"})
        standbys.keep((changed,), (Plan(),))
        turn_until(loop, lambda: all_ready(standbys, 1))
        second = standbys.seen[0].pid
        standbys.keep((changed,), (Plan(load=(("json", ""),)),))
        turn_until(loop, lambda: all_ready(standbys, 1))
        assert len({first, second, standbys.seen[0].pid}) == 3


def test_one_that_is_on_its_way_is_left_to_get_ready(job: Job) -> None:
    with kept(job, Plan()) as (standbys, _, loop):
        first = standbys.seen
        assert not first[0].is_ready
        standbys.keep((job.order(),), (Plan(),))
        assert standbys.seen == first
        turn_until(loop, lambda: all_ready(standbys, 1))
        assert standbys.seen[0].pid == first[0].pid


def test_standbys_that_always_die_in_the_program_run_it_no_more(tmp_path: Path) -> None:
    with kept(program(tmp_path, "raise ValueError('never')\n"), Plan("join")) as (standbys, told, loop):
        turn_until(loop, lambda: all_ready(standbys, 1))
        no_more = "standbys do not run the program any more, they only load what it loads"
        assert told == [
            "a standby of local rank 0 ended: ValueError: never",
            f"a standby of local rank 0 was the last of 4 in a row that ended before they were ready; {no_more}",
        ]


def test_standbys_that_always_die_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos._exit(7)\n")
    job = program(tmp_path, "pass\n", PYTHONPATH=str(tmp_path))
    with kept(job, Plan(load=(("deadly", str(tmp_path / "deadly.py")),))) as (standbys, told, loop):
        turn_until(loop, lambda: len(told) > 1)
        assert told == [
            "a standby of local rank 0 ended: exit status 7",
            "4 standbys in a row were of no use: no more are started before the next life",
        ]
        assert standbys.overview == StandbysSeen((), told[1])


def test_one_that_is_taken_is_the_callers_and_one_that_is_refused_is_replaced(job: Job) -> None:
    with kept(job, Plan()) as (standbys, _, loop):
        assert standbys.take(0, job.order()).why == "it is not ready yet"
        turn_until(loop, lambda: all_ready(standbys, 1))
        other = replace(job.order(), argv=(*job.order().argv, "--more"))
        assert standbys.take(0, other).why == "the command line differs"
        turn_until(loop, lambda: all_ready(standbys, 1))
        taken = standbys.take(0, job.order()).standby
        assert isinstance(taken, Standby)
        assert taken.pid not in standbys.pids
        assert standbys.take(0, job.order()).why == "there is no standby yet: the one before was promoted"
        end(taken)


def test_modules_that_must_not_be_loaded_ahead_are_left_out_the_next_time(tmp_path: Path) -> None:
    path = library(tmp_path, reader="import os\nos.environ.get('RANK')\n", good="")
    one = program(tmp_path, PYTHONPATH=path)
    plan = Plan(load=(("reader", f"{path}/reader.py"), ("good", f"{path}/good.py")))
    with kept(one, plan) as (standbys, told, loop):
        turn_until(loop, lambda: len(told) > 0 and all_ready(standbys, 1))
        assert told == ["reader is not loaded ahead: it reads RANK when it is imported"]
        first = standbys.seen[0].pid
        standbys.keep((one.order(),), (plan,))  # the next life loaded it again, and it is as unfit as before
        assert standbys.seen[0].pid == first
        taken = standbys.take(0, one.order()).standby
        assert taken is not None
        assert taken.plan == Plan(load=(("good", f"{path}/good.py"),))
        end(taken)


# Without room.


@pytest.mark.parametrize("count", range(4))
def test_out_of_descriptors_no_standby_is_made_and_nothing_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    order = program(tmp_path).order()
    real, left = os.memfd_create, iter(range(count))

    def create(name: str, flags: int) -> int:
        if next(left, None) is None:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(name, flags)

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "memfd_create", create)
    with pytest.raises(SpawnFailed, match="Too many open files"):
        Standby(1, order, Plan())
    assert len(os.listdir("/proc/self/fd")) == len(before)
