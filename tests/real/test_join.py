"""`planaria.worker.join()`: a standby runs the program up to there; a cold start passes as if it were not there."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from standing import LOCAL_RANK, PATIENCE_S, RANKS, Job, died, end, ready
from ways import PROBE

from planaria.base.value import replace
from planaria.contract.control import Progress, decode
from planaria.contract.standby import JOIN, PRELOAD
from planaria.process import prints
from planaria.process.spares import Lesson, Plan, make_plans

if TYPE_CHECKING:
    from pathlib import Path

    from standing import Ended

JOINING = Plan(JOIN)


def job(folder: Path, text: str, **variables: str) -> Job:
    (folder / "main.py").write_text(text)
    return Job(folder, "script", "main.py", "a", **variables)


def assert_alike(one: Job) -> Ended:
    cold, promoted = one.cold(), one.promoted(JOINING)
    assert promoted[:3] == cold[:3]
    return cold


def test_a_program_says_the_same_whether_it_waited_or_not(tmp_path: Path) -> None:
    ended = assert_alike(
        job(
            tmp_path,
            "import os, sys\nfrom planaria import worker\nprint('before', os.environ['LOCAL_RANK'])\n"
            "print('before', file=sys.stderr)\nworker.join()\nworker.join()\n"
            "print('after', os.environ['RANK'], os.environ['MASTER_ADDR'], len(os.environ))\nraise ValueError('no')\n",
        )
    )
    assert ended.stdout.startswith("before 1\nafter 3 node-a ")
    assert ended.stderr.startswith("before\nTraceback (most recent call last):\n")


@pytest.mark.parametrize(
    "how", ["sys.stderr = None", "sys.stderr.close()", "os.close(2)", "os.close(2); sys.stderr = None"]
)
def test_a_program_that_has_given_up_its_stderr_is_promoted_as_any_other(tmp_path: Path, how: str) -> None:
    text = f"import os, sys\nfrom planaria import worker\nprint('before')\n{how}\nworker.join()\nprint('after')\n"
    assert assert_alike(job(tmp_path, text))[:3] == (0, "before\nafter\n", "")


@pytest.mark.parametrize("ahead", [False, True], ids=["plain", "with the rest loaded ahead"])
def test_a_program_is_the_same_whether_it_waited_or_not(tmp_path: Path, ahead: bool) -> None:
    text = PROBE.replace('"""A docstring."""', '"""A docstring."""\nimport planaria.worker\nplanaria.worker.join()')
    one = job(tmp_path, text, PROBE_OUT=str(tmp_path / "out.json"))

    def found(ended: Ended) -> dict[str, Any]:
        assert ended[:3] == (0, "done\nlast registered\nfirst registered\n", "")
        seen: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
        (tmp_path / "out.json").unlink()
        return seen

    first = one.cold()
    cold = found(first)
    promoted = found(one.promoted(loading(first, tmp_path) if ahead else JOINING))
    assert cold.pop("cmdline") != promoted.pop("cmdline")
    assert cold.pop("importers")
    assert promoted.pop("importers")
    if ahead:
        early, late = (set(one.pop("modules")) for one in (promoted, cold))
        assert late < early, "what is imported after join() is there when it returns"
    assert promoted == cold


def loading(ended: Ended, folder: Path) -> Plan:
    """Return what a standby does after a life that joined: it runs the program, and loads there what that loads later."""
    plan = make_plans(Lesson(ended.learned), (str(folder),), LOCAL_RANK + 1)[LOCAL_RANK]
    assert plan.mode == JOIN
    return plan


def test_a_cold_start_says_that_its_program_joins_and_one_without_join_does_not(tmp_path: Path) -> None:
    ended = job(tmp_path, "from planaria import worker\nworker.join()\n").cold()
    (join,) = ended.learned.joins
    assert join.local_rank == LOCAL_RANK
    assert join.main == f"{tmp_path}/main.py"
    assert 0 < join.after_s < PATIENCE_S
    plans = make_plans(Lesson(ended.learned), (str(tmp_path),), 2)
    assert [plan.mode for plan in plans] == [PRELOAD, JOIN], "it is the second that has joined"
    again = job(tmp_path, "from planaria import worker\nworker.join()\n").promoted(JOINING)
    assert [replace(one, after_s=0.0) for one in again.learned.joins] == [replace(join, after_s=0.0)]
    assert not job(tmp_path, "from planaria import worker\n").cold().learned.joins


def test_outside_of_a_run_join_does_nothing(tmp_path: Path) -> None:
    words = "from planaria import worker; print(worker.join())"
    assert subprocess.check_output([sys.executable, "-c", words], text=True) == "None\n"


READS = {
    "os.environ[]": "os.environ['RANK']",
    "os.environ.get": "os.environ.get('WORLD_SIZE', '1')",
    "os.getenv": "os.getenv('MASTER_ADDR')",
    "in": "'MASTER_PORT' in os.environ",
    "setdefault": "os.environ.setdefault('MASTER_ADDR', 'localhost')",
    "setting": "os.environ['RANK'] = '0'",
    "pop": "os.environ.pop('RANK', None)",
    "deleting": "del os.environ['RANK']",
    "a copy": "os.environ.copy()['RANK']",
    "get of a copy": "os.environ.copy().get('RANK', 0)",
    "a copy of a copy": "'RANK' in os.environ.copy().copy()",
    "pop of a copy": "os.environ.copy().pop('RANK', None)",
    "setdefault of a copy": "os.environ.copy().setdefault('RANK', '0')",
    "a copy with more": "(os.environ | {'A': '1'})['RANK']",
    "a copy over others": "({'RANK': '9'} | os.environ)['RANK']",
    "bytes": "os.environb[b'RANK']",
    "os.getenvb": "os.getenvb(b'RANK')",
    "the restart count": "os.environ.get('TORCHELASTIC_RESTART_COUNT')",
}


@pytest.mark.parametrize("is_caught", [False, True], ids=["", "caught"])
@pytest.mark.parametrize("read", READS)
def test_reading_a_rank_before_join_is_an_error_that_says_so_and_comes_again_at_join_if_it_was_caught(
    tmp_path: Path, read: str, is_caught: bool
) -> None:
    """A cold start would have got another answer, and the program would keep its own as whatever rank it becomes."""
    tried = f"try:\n    {READS[read]}\nexcept Exception:\n    pass\n" if is_caught else f"{READS[read]}\n"
    one = job(tmp_path, f"import os\nfrom planaria import worker\n{tried}worker.join()\n")
    standby = one.standby(JOINING)
    assert died(standby) == 1
    words = standby.last_words()
    standby.close()
    assert words.startswith("RuntimeError: ")
    where = f" ({tmp_path}/main.py, line 4, went on without)" if is_caught else ""
    tried = {"setting": "set in", "deleting": "deleted from"}.get(read, "read from")
    assert f" was {tried} the environment{where} before planaria.worker.join(): this process is a standby" in words
    assert any(name in words for name in RANKS)
    assert one.cold().status == 0


def test_a_library_that_the_program_imports_before_join_must_not_swallow_its_early_read_either(tmp_path: Path) -> None:
    _, path = library(
        tmp_path, probing="import os\ntry:\n    RANK = os.environ['RANK']\nexcept Exception:\n    RANK = 0\n"
    )
    text = "import probing\nfrom planaria import worker\nworker.join()\n"
    standby = job(tmp_path, text, PYTHONPATH=path).standby(JOINING)
    assert died(standby) == 1
    words = standby.last_words()
    standby.close()
    assert words.startswith(
        f"RuntimeError: RANK was read from the environment ({path}/probing.py, line 3, went on without)"
    )


def test_reading_all_else_before_join_is_fine(tmp_path: Path) -> None:
    ended = assert_alike(
        job(
            tmp_path,
            "import os, subprocess\nfrom planaria import worker\n"
            "print(os.environ['LOCAL_RANK'], os.environ.get('NOWHERE'), 'LOCAL_RANK' in os.environ)\n"
            "print(os.environ.copy()['LOCAL_RANK'], sorted(os.environ.copy()) == sorted(os.environ))\n"
            "os.environ['MINE'] = 'x'\nkept = os.environ.copy()\n"
            "print(subprocess.check_output(['sh', '-c', 'echo $MINE$LOCAL_RANK'], env=kept))\n"
            "worker.join()\nprint(os.environ['MINE'], os.environ.copy()['RANK'], type(os.environ))\n",
        )
    )
    assert "x 3 <class 'os._Environ'>" in ended.stdout


# What is taken before join() and read after it: also by children, by whoever unpickles it, and in what was made of it.
COPIES = """\
import copy, os, pickle, subprocess
from planaria import worker
kept, raw, own, bare, empty = (one.copy() for one in (os.environ, os.environb, *[os.environ] * 3))
more, again, deep = kept | {"A": "1"}, copy.copy(kept), copy.deepcopy(kept)
over, raw_over, late = {"RANK": "9", "A": "1"} | os.environ, {b"A": b"1"} | os.environb, {"RANK": "9"} | kept
own["RANK"], own["MINE"] = "77", "x"
del bare["RANK"]
bare = bare.copy()
empty.clear()
worker.join()
print(kept["RANK"], kept.get("MASTER_ADDR"), "WORLD_SIZE" in kept, kept == dict(os.environ), raw == dict(os.environb))
print(own["RANK"], own["MINE"], own["WORLD_SIZE"], "RANK" in bare, bare["WORLD_SIZE"], empty)
print(more["RANK"], again["RANK"], deep["RANK"], (kept | {"B": "2"})["RANK"], kept.copy() == kept)
print(over["RANK"], over["A"], over["MASTER_ADDR"], raw_over[b"RANK"], late["RANK"], ({"RANK": "9"} | kept)["RANK"])
print({"A": "1", **os.environ} == over, ({"RANK": "9"} | own)["RANK"], ({"RANK": "9"} | bare)["RANK"])
print(type(pickle.loads(pickle.dumps(kept))), pickle.loads(pickle.dumps(kept))["RANK"], kept.pop("RANK"), "RANK" in kept)
for env in (again, own, bare):
    print(subprocess.check_output(["sh", "-c", "echo $RANK $MASTER_ADDR $MINE"], env=env))
"""


def test_copies_of_the_environment_that_were_taken_before_join_know_the_rank_after_it(tmp_path: Path) -> None:
    ended = assert_alike(job(tmp_path, COPIES))
    assert ended.stdout.startswith("3 node-a True True True\n77 x 8 False 8 {}\n"), ended.stderr


def test_a_program_that_ends_before_join_is_a_standby_that_died(tmp_path: Path) -> None:
    standby = job(tmp_path, "import sys\nsys.exit('nothing to do')\n").standby(JOINING)
    assert died(standby) == 1
    assert standby.last_words() == "SystemExit: nothing to do"
    standby.close()


def test_a_forked_child_of_a_standby_must_not_join(tmp_path: Path) -> None:
    one = job(
        tmp_path,
        "import os\nfrom planaria import worker\npid = os.fork()\nif pid == 0:\n    try:\n        worker.join()\n"
        "    except RuntimeError as error:\n        print(error, flush=True)\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "worker.join()\nprint('joined')\n",
    )
    promoted = one.promoted(JOINING)
    assert promoted.stdout.startswith("a forked child went on before planaria.worker.join(): ")
    assert promoted.stdout.endswith("\njoined\n")


def test_progress_reported_before_join_does_not_cost_the_link_to_the_agent(tmp_path: Path) -> None:
    one = job(
        tmp_path,
        "from planaria import worker\nworker.report_progress(1)\nworker.join()\nworker.report_progress(2)\n",
        PLANARIA_CONTROL=str(tmp_path / "c"),
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "c"))
        listener.listen()
        listener.settimeout(20)
        assert one.promoted(JOINING).status == 0
        peer, _ = listener.accept()
        with peer:
            assert decode(peer.recv(1000)) == Progress(2)


PLACES = {"script": ("main.py", "main.py"), "module": ("main", "main.py"), "path": ("main", "main/__main__.py")}


@pytest.mark.parametrize("edited", ["mine.py", "main"])
@pytest.mark.parametrize("kind", PLACES)
def test_a_program_of_which_a_file_was_edited_makes_its_standby_stale(tmp_path: Path, kind: str, edited: str) -> None:
    target, main = PLACES[kind]
    (tmp_path / "main").mkdir()
    (tmp_path / "mine.py").write_text("VALUE = 1\n")
    (tmp_path / main).write_text("import mine\nfrom planaria import worker\nworker.join()\n")
    one = Job(tmp_path, kind, target, PYTHONPATH=str(tmp_path))
    standby = one.standby(JOINING)
    try:
        assert ready(standby)
        with contextlib.chdir(tmp_path):
            assert standby.staleness() == standby.refusal(one.order()) == ""
            file = tmp_path / (main if edited == "main" else edited)
            file.write_text(f"{file.read_text()}more = 1\n")
            assert standby.staleness() == f"{file} has changed"
    finally:
        end(standby)


def test_what_is_edited_while_a_standby_is_on_its_way_makes_it_stale_too(tmp_path: Path) -> None:
    """It may have read the file by then, and may be busy for minutes with what comes before `join()`."""
    mine = tmp_path / "mine.py"
    mine.write_text("VALUE = 1\n")
    one = job(tmp_path, "import mine\nfrom planaria import worker\nworker.join()\n")
    plan = Plan(JOIN, program=((str(mine), prints.take(str(mine))),))
    mine.write_text("VALUE = 22\n")
    standby = one.standby(plan)
    try:
        assert ready(standby)
        with contextlib.chdir(tmp_path):
            assert standby.staleness() == f"{mine} has changed"
    finally:
        end(standby)


# What the program imports after join(), a standby has imported when it waits there.


def library(folder: Path, **texts: str) -> tuple[Plan, str]:
    """Make installed modules; return the plan to load them in join(), and what goes into PYTHONPATH."""
    found = folder / "lib" / "site-packages"
    found.mkdir(parents=True)
    for name, text in texts.items():
        (found / f"{name}.py").write_text(text)
    return Plan(JOIN, tuple((name, f"{found}/{name}.py") for name in texts)), str(found)


def test_what_is_imported_after_join_is_loaded_ahead_in_a_program_that_joins(tmp_path: Path) -> None:
    _, path = library(tmp_path, heavy="import csv\nprint('loaded')\n")
    (tmp_path / "mine.py").write_text("print('mine')\n")
    text = "import sys\nfrom planaria import worker\nprint('built')\nworker.join()\nprint('joined')\n"
    one = job(
        tmp_path, f"{text}ahead = {{'heavy', 'csv', 'mine'}} & {{*sys.modules}}\nimport heavy, mine\n", PYTHONPATH=path
    )
    cold = one.cold()
    assert cold.stdout == "built\njoined\nloaded\nmine\n"
    plan = loading(cold, tmp_path)
    assert "heavy" in dict(plan.load)
    assert dict(plan.own) == {"mine": f"{tmp_path}/mine.py"}
    (tmp_path / "main.py").write_text(f"{text}print(sorted({{'heavy', 'csv', 'mine'}} & {{*sys.modules}}))\n")
    assert one.promoted(plan)[:3] == (0, "built\nloaded\njoined\n['csv', 'heavy']\n", "")


def test_what_reads_a_rank_starts_a_device_or_draws_random_numbers_is_not_loaded_in_join(tmp_path: Path) -> None:
    plan, path = library(
        tmp_path,
        reader="import os\ntry:\n    os.environ['RANK']\nexcept RuntimeError:\n    pass\n",
        starter="import torch.cuda\ntorch.cuda._initialized = True\n",
        after="",
        drawer="import random\nrandom.random()\n",
        last="",
    )
    _pretend_torch(tmp_path / "lib" / "site-packages")
    one = job(tmp_path, "import random, torch.cuda\nfrom planaria import worker\nworker.join()\n", PYTHONPATH=path)
    standby = one.standby(plan)
    try:
        assert ready(standby)
        assert standby.report is not None
        assert standby.report.unfit == {"reader", "starter", "drawer"}
        assert (standby.report.device, standby.report.draws) == (("starter",), ("drawer",))
    finally:
        end(standby)


def test_what_the_program_itself_has_done_before_join_is_its_own(tmp_path: Path) -> None:
    """It has started a device, drawn random numbers, and found a module elsewhere than the life before."""
    plan, path = library(tmp_path, late="import json\n", shared="WHERE = 'installed'\n")
    _pretend_torch(tmp_path / "lib" / "site-packages")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "shared.py").write_text("WHERE = 'mine'\n")
    (tmp_path / "json.py").write_text("")
    one = job(
        tmp_path,
        "import sys\nsys.path.insert(0, sys.path[0] + '/mine')\nimport random, shared, torch.cuda, json\n"
        "torch.cuda._initialized = True\nrandom.seed(1)\nfrom planaria import worker\nworker.join()\nimport late\n"
        "print(shared.WHERE, random.random(), json.__file__)\n",
        PYTHONPATH=path,
    )
    cold = one.cold()
    reports = []
    promoted = one.promoted(plan, before=lambda standby: reports.append(standby.report))
    assert promoted[:3] == cold[:3]
    assert cold.stdout.startswith("mine 0.13")
    assert cold.stdout.endswith(f"{tmp_path}/json.py\n")
    assert not reports[0].unfit


def _pretend_torch(folder: Path) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("")
    (folder / "torch" / "cuda.py").write_text("_initialized = False\n")


GROUP = """\
import torch.distributed as dist
from torch.distributed import init_process_group
from planaria import worker
def start():
    init_process_group('gloo', init_method='file://{folder}/meet', rank=0, world_size=1)
{early}
worker.join()
start()
print(init_process_group is dist.distributed_c10d.init_process_group is dist.init_process_group)
print(init_process_group.__module__, hasattr(dist.distributed_c10d.__loader__, 'exec_module'))
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_a_process_group_before_join_is_an_error_that_says_so_and_after_it_is_fine(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    standby = job(tmp_path, GROUP.format(folder=tmp_path, early="start()")).standby(JOINING)
    assert died(standby) == 1
    words = standby.last_words()
    standby.close()
    assert words.startswith("RuntimeError: a process group was started before planaria.worker.join(): ")
    caught = "try:\n    start()\nexcept RuntimeError:\n    pass"
    standby = job(tmp_path, GROUP.format(folder=tmp_path, early=caught)).standby(JOINING)
    assert died(standby) == 1
    words = standby.last_words()
    standby.close()
    assert words.startswith(
        f"RuntimeError: a process group was started by {tmp_path}/main.py, line 5 ({tmp_path}/main.py, line 7, went on "
        "without) before "
    )
    ended = assert_alike(job(tmp_path, GROUP.format(folder=tmp_path, early="")))
    assert ended.stdout == "True\ntorch.distributed.distributed_c10d True\n"
