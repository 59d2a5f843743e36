"""A promoted standby cannot tell that it is no cold start: the same probe is run both ways, and compared point by point.

What differs on purpose is in `KNOWN`, with the reason, and nothing else. The standby has loaded all that the probe loads.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from standing import RANKS, Job, died
from ways import PROBE

from planaria.contract import blackbox
from planaria.process.spares import Plan, make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from standing import Ended

KNOWN = {
    "modules": "the preloads are there already, and `_socket`, by which the order came",
    "importers": "the import system has looked at the folders that the preloads came from",
    "filters": "filters that a preload sets when it is imported are set already; after the import they are equal",
    "cmdline": "/proc/PID/cmdline is the kernel's memory of the real command line",
}
POINTS = {
    "__main__": ["names", "doc", "name", "package", "is_main", "builtins", "cached"],
    "__file__": ["file", "loader", "loader_path", "loader_name"],
    "__spec__": ["spec"],
    "sys.argv": ["argv", "orig_argv", "executable"],
    "sys.path[0]": ["path", "prefix"],
    "cwd": ["cwd"],
    "umask": ["umask"],
    "signal handlers": ["handlers", "mask", "ignored_by_c", "caught_by_c", "wakeup"],
    "descriptors": ["fds"],
    "stdio": ["stdio", "same_stdio"],
    "hash state": ["hash"],
    "pickled classes of __main__": ["pickled", "pickle"],
    "pools of multiprocessing": ["spawned", "forked"],
    "source": ["source", "source_file", "module_of", "code"],
    "threads": ["threads"],
    "garbage collection": ["gc"],
    "hooks": ["excepthook", "displayhook", "tracing", "faulthandler", "frame_below_main", "last"],
    "flags": ["flags", "warnoptions", "xoptions", "debug", "recursion", "switch"],
    "limits": ["nice", "scheduler", "slice", "rlimit", "environ_of_ours"],
}


def plan_after(ended: Ended, folder: Path) -> Plan:
    plan = make_plan(ended.learned, (str(folder),))
    assert len(plan.load) > 20, "a standby that loads nothing proves nothing"
    return plan


def both(job: Job) -> tuple[Ended, Ended]:
    cold = job.cold()
    return cold, job.promoted(plan_after(cold, job.folder))


def assert_alike(job: Job) -> Ended:
    """Run a program both ways; its status and all it wrote must be equal."""
    cold, promoted = both(job)
    assert promoted[:3] == cold[:3]
    return cold


@pytest.fixture(scope="module", params=["script", "module"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], ...]:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "probe.py").write_text(PROBE)
    target = "package.probe" if request.param == "module" else "package/probe.py"
    job = Job(folder, request.param, target, "a", "--b=c d", PROBE_OUT=str(folder / "out.json"))
    found: list[dict[str, Any]] = []
    run = job.cold
    for _ in range(2):
        ended = run()
        assert ended[:3] == (0, "done\nlast registered\nfirst registered\n", "")
        found.append(json.loads((folder / "out.json").read_text()))
        (folder / "out.json").unlink()
        run = functools.partial(job.promoted, plan_after(ended, folder))
    return tuple(found)


@pytest.mark.parametrize("point", POINTS)
def test_a_promoted_standby_equals_a_cold_start_in(seen: tuple[dict[str, Any], ...], point: str) -> None:
    cold, promoted = ({field: one[field] for field in POINTS[point]} for one in seen)
    assert promoted == cold


def test_every_field_of_the_probe_is_compared_or_known_to_differ(seen: tuple[dict[str, Any], ...]) -> None:
    assert {field for fields in POINTS.values() for field in fields} | set(KNOWN) == set(seen[0]) == set(seen[1])


def test_the_modules_of_a_promoted_standby_are_those_of_a_cold_start_and_the_preloads(
    seen: tuple[dict[str, Any], ...],
) -> None:
    cold, promoted = (set(one["modules"]) for one in seen)
    assert cold < promoted
    assert {"_socket", "json", "inspect"} <= promoted - cold


def test_the_environment_is_whole_also_for_c_and_for_programs(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import ctypes, os, subprocess\n"
        "print(sorted(os.environ.items()), type(os.environ), sorted(os.environ.copy()) == sorted(dict(os.environ)))\n"
        "getenv = ctypes.CDLL(None).getenv\ngetenv.restype = ctypes.c_char_p\nprint(getenv(b'RANK'))\n"
        "print(sorted(subprocess.check_output(['env']).split(b'\\n')))\n"
    )
    cold = assert_alike(Job(tmp_path, "script", "main.py"))
    assert all(repr((name, value)) in cold.stdout for name, value in RANKS.items())
    assert "b'3'" in cold.stdout


def test_what_is_read_when_a_library_is_loaded_is_there_before(tmp_path: Path) -> None:
    """OMP_NUM_THREADS is read once, when the library is loaded."""
    np = pytest.importorskip("numpy")
    assert np
    (tmp_path / "main.py").write_text(
        "import numpy, os\nnumpy.ones((300, 300)) @ numpy.ones((300, 300))\nprint(len(os.listdir('/proc/self/task')))\n"
    )
    assert assert_alike(Job(tmp_path, "script", "main.py", OPENBLAS_NUM_THREADS="1")).stdout == "1\n"


@pytest.mark.parametrize("name", ["json", "csv", "colorsys", "random", "queue", "selectors"])
def test_a_users_module_wins_over_one_that_is_loaded_ahead(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("OURS = True\n")
    (tmp_path / "main.py").write_text(f"import logging, multiprocessing\nimport {name}\nprint({name}.OURS)\n")
    assert assert_alike(Job(tmp_path, "script", "main.py"))[:3] == (0, "True\n", "")


def test_a_users_module_with_the_one_name_that_a_standby_needs_keeps_it_from_standing_by(tmp_path: Path) -> None:
    (tmp_path / "_socket.py").write_text("OURS = True\n")
    (tmp_path / "main.py").write_text("import _socket\nprint(_socket.OURS)\n")
    job = Job(tmp_path, "script", "main.py")
    if "_socket" in sys.builtin_module_names:  # where it is built in, nobody can take its name
        assert_alike(job)
        return
    standby = job.standby(Plan())
    assert died(standby) == 1
    assert "AttributeError: module '_socket' has no attribute 'socket'" in standby.last_words()
    standby.close()
    assert job.cold().stdout == "True\n"


def test_streams_have_the_kind_of_those_that_a_cold_start_gets(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import sys\nfor stream in (sys.stdin, sys.stdout, sys.stderr):\n"
        "    print(stream, type(stream.buffer).__name__, stream.seekable(), stream.fileno(), stream.isatty())\n"
        "try:\n    sys.stdout.tell()\nexcept OSError as error:\n    print(type(error), error)\n"
        "print('half', end='')\nsys.stderr.write('\\udcff'); sys.stdout.buffer.write(b'\\xff\\n')\n"
    )
    assert_alike(Job(tmp_path, "script", "main.py", PYTHONIOENCODING="latin-1:backslashreplace"))


def test_what_a_preload_says_is_said_by_the_worker(tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "chatty.py").write_text("import sys, warnings\nprint('loaded')\nwarnings.warn('old')\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "main.py").write_text("import chatty\nprint('first line')\n")
    job = Job(tmp_path / "job", "script", "main.py", PYTHONPATH=str(library))
    cold = assert_alike(job)
    assert cold.stdout == "loaded\nfirst line\n"
    assert "UserWarning: old" in cold.stderr


def test_filters_of_warnings_are_equal_after_the_imports(tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "silent.py").write_text("import warnings\nwarnings.filterwarnings('ignore', 'pst')\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "main.py").write_text(
        "import silent, warnings\nwarnings.simplefilter('once')\nprint(warnings.filters)\nwarnings.warn('pst')\n"
    )
    cold = assert_alike(
        Job(tmp_path / "job", "script", "main.py", PYTHONPATH=str(library), PYTHONWARNINGS="error::FutureWarning")
    )
    assert "pst" in cold.stderr


def test_random_numbers_with_a_seed_are_equal_and_without_one_are_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import random, sys, uuid\nprint(random.random(), uuid.uuid4(), hash('x'), file=sys.stderr)\n"
        "random.seed(5)\nprint(random.random())\n"
    )
    job = Job(tmp_path, "script", "main.py", PYTHONHASHSEED="random")
    cold, promoted = both(job)
    again = job.promoted(plan_after(cold, tmp_path))
    assert cold.stdout == promoted.stdout == again.stdout
    states = [set(one.stderr.split()) for one in (cold, promoted, again)]
    assert len(set.union(*states)) == 9


def test_a_fork_server_is_that_of_a_cold_start(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import multiprocessing, os\ndef where(number):\n    return number, os.environ['RANK'], os.getcwd()\n"
        "if __name__ == '__main__':\n    with multiprocessing.get_context('forkserver').Pool(1) as pool:\n"
        "        print(pool.map(where, [2, 3]))\n"
    )
    cold = assert_alike(Job(tmp_path, "script", "main.py"))
    assert cold.stdout == f"[(2, '3', '{tmp_path}'), (3, '3', '{tmp_path}')]\n"


def test_functions_called_at_the_end_are_called_in_the_same_order(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import atexit, logging, threading, concurrent.futures, weakref\n"
        "class Kept: ...\nkept = Kept()\nweakref.finalize(kept, print, 'finalized')\n"
        "atexit.register(print, 'first')\natexit.register(print, 'last')\n"
        "ending = threading.Event()\nthreading._register_atexit(ending.set)\nthreading._register_atexit(print, 'threads')\n"
        "threading.Thread(target=lambda: ending.wait() and print('thread')).start()\nraise SystemExit(3)\n"
    )
    cold = assert_alike(Job(tmp_path, "script", "main.py"))
    assert cold.stdout == "threads\nthread\nlast\nfirst\nfinalized\n"


ENDINGS = {
    "an exception": "def f():\n    raise ValueError('no')\nf()",
    "a chained exception": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error",
    "exit 3": "import sys; print('x', end=''); sys.exit(3)",
    "exit with words": "import sys; sys.exit('not today')",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a hook": "import sys\nsys.excepthook = lambda *given: print('mine', given[2].tb_lineno, bool(given[2].tb_next))\n1 / 0",
    "a syntax error": "import broken",
    "an abort": "import os; os.abort()",
    "a pipe that nobody reads": "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')",
}


@pytest.mark.parametrize("kind", ["script", "module", "path"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_promoted_standby_ends_as_a_cold_start_does(tmp_path: Path, ending: str, kind: str) -> None:
    (tmp_path / "main.py").write_text(f"import json\n{ENDINGS[ending]}\n")
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    cold = assert_alike(Job(tmp_path, kind, "main" if kind == "module" else "main.py", "a"))
    assert cold.status != 0


def test_an_error_of_a_promoted_standby_is_in_the_black_box_of_its_worker(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import json\nraise ValueError('no')\n")
    cold, promoted = (blackbox.read(one.box) for one in both(Job(tmp_path, "script", "main.py")))
    assert promoted.ending is not None
    assert cold.ending is not None
    assert (promoted.ending.traceback, promoted.ending.where) == (cold.ending.traceback, cold.ending.where)
    assert promoted.text == cold.text == ""


def test_programs_that_a_promoted_standby_starts_inherit_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os, json\nos.execvp('ls', ['ls', '/proc/self/fd'])\n")
    assert_alike(Job(tmp_path, "script", "main.py"))


@pytest.mark.torch
def test_torch_is_the_same_after_a_promotion(tmp_path: Path) -> None:
    """RNG, threads, DataLoader workers started by spawn that unpickle a dataset of `__main__`, and no device started."""
    pytest.importorskip("torch")
    (tmp_path / "main.py").write_text(
        "import os, sys, warnings\nimport torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Squares(Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index): return index * index + int(os.environ['RANK'])\n"
        "if __name__ == '__main__':\n"
        "    print(torch.initial_seed(), file=sys.stderr)\n"
        "    torch.manual_seed(5)\n"
        "    print(torch.rand(2), torch.get_num_threads(), torch.cuda.is_initialized())\n"
        "    loader = DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context='spawn')\n"
        "    print([batch.tolist() for batch in loader])\n"
        "    print([str(one) for one in warnings.filters])\n"
    )
    job = Job(tmp_path, "script", "main.py")
    cold = job.cold()
    plan = plan_after(cold, tmp_path)
    assert "torch" in dict(plan.load)
    reports = []
    promoted = job.promoted(plan, before=lambda standby: reports.append(standby.report))
    assert promoted[:2] == cold[:2]
    assert promoted.stderr.strip().isdigit()
    assert promoted.stderr != cold.stderr, "a seed of its own, as every process has"
    assert "[[3, 4], [7, 12]]" in cold.stdout
    assert (reports[0].unfit, reports[0].device) == (frozenset(), ())
