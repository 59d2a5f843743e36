"""`planaria.worker.join()`: a standby runs the program up to there; a cold start passes as if it were not there."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from standing import RANKS, Job, died, end, ready
from ways import PROBE

from planaria.contract.control import Progress, decode
from planaria.contract.standby import JOIN
from planaria.process.spares import Plan, make_plan

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


def test_a_program_is_the_same_whether_it_waited_or_not(tmp_path: Path) -> None:
    text = PROBE.replace('"""A docstring."""', '"""A docstring."""\nimport planaria.worker\nplanaria.worker.join()')
    one = job(tmp_path, text, PROBE_OUT=str(tmp_path / "out.json"))
    seen = []
    for run in (one.cold, lambda: one.promoted(JOINING)):
        assert run()[:3] == (0, "done\nlast registered\nfirst registered\n", "")
        seen.append(json.loads((tmp_path / "out.json").read_text()))
        (tmp_path / "out.json").unlink()
    cold, promoted = seen
    assert cold.pop("cmdline") != promoted.pop("cmdline")
    assert cold.pop("importers")
    assert promoted.pop("importers")
    assert promoted == cold


def test_a_cold_start_says_that_its_program_joins_and_one_without_join_does_not(tmp_path: Path) -> None:
    ended = job(tmp_path, "from planaria import worker\nworker.join()\n").cold()
    assert ended.learned.joins
    assert make_plan(ended.learned, (str(tmp_path),)) == JOINING
    again = job(tmp_path, "from planaria import worker\nworker.join()\n").promoted(JOINING)
    assert again.learned.joins
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
    "a copy": "os.environ.copy()['RANK']",
    "get of a copy": "os.environ.copy().get('RANK', 0)",
    "a copy of a copy": "'RANK' in os.environ.copy().copy()",
    "pop of a copy": "os.environ.copy().pop('RANK', None)",
    "setdefault of a copy": "os.environ.copy().setdefault('RANK', '0')",
    "a copy with more": "(os.environ | {'A': '1'})['RANK']",
    "bytes": "os.environb[b'RANK']",
    "os.getenvb": "os.getenvb(b'RANK')",
    "the restart count": "os.environ.get('TORCHELASTIC_RESTART_COUNT')",
}


@pytest.mark.parametrize("read", READS)
def test_reading_a_rank_before_join_is_an_error_that_says_so(tmp_path: Path, read: str) -> None:
    one = job(tmp_path, f"import os\nfrom planaria import worker\n{READS[read]}\nworker.join()\n")
    standby = one.standby(JOINING)
    assert died(standby) == 1
    words = standby.last_words()
    standby.close()
    assert words.startswith("RuntimeError: ")
    assert " was read from the environment before planaria.worker.join(): this process is a standby" in words
    assert any(name in words for name in RANKS)
    assert one.cold().status == 0


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
own["RANK"], own["MINE"] = "77", "x"
del bare["RANK"]
bare = bare.copy()
empty.clear()
worker.join()
print(kept["RANK"], kept.get("MASTER_ADDR"), "WORLD_SIZE" in kept, kept == dict(os.environ), raw == dict(os.environb))
print(own["RANK"], own["MINE"], own["WORLD_SIZE"], "RANK" in bare, bare["WORLD_SIZE"], empty)
print(more["RANK"], again["RANK"], deep["RANK"], (kept | {"B": "2"})["RANK"], kept.copy() == kept)
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


def test_a_user_module_that_was_imported_before_join_and_then_edited_makes_a_standby_stale(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("VALUE = 1\n")
    one = job(tmp_path, "import mine\nfrom planaria import worker\nworker.join()\n")
    standby = one.standby(JOINING)
    try:
        assert ready(standby)
        (tmp_path / "mine.py").write_text("VALUE = 22\n")
        with contextlib.chdir(tmp_path):
            assert standby.refusal(one.order()) == f"{tmp_path}/mine.py has changed"
    finally:
        end(standby)


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
    ended = assert_alike(job(tmp_path, GROUP.format(folder=tmp_path, early="")))
    assert ended.stdout == "True\ntorch.distributed.distributed_c10d True\n"
