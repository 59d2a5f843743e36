"""What a one-node launch imports, seen from outside: `-X importtime` writes a line for every import of a process.

The launcher forks the agent, which inherits the option, so both write to the same stderr. Workers are a shell's `true`:
they import nothing. Modules that only a failure, a report or a dry run needs are loaded when that happens, and not before.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from programs import clean_environment

TIMEOUT_S = 100
PLANARIA = str(Path(__file__).parents[2] / "bin" / "planaria")
HEAVY = frozenset(
    {
        "asyncio",
        "ssl",
        "logging",
        "logging.config",
        "importlib.metadata",
        "concurrent.futures",
        "multiprocessing",
        "subprocess",
        "dataclasses",
        "inspect",
        "argparse",
        "typing",
        "enum",
        "re",
        "json",
        "socket",
        "signal",
        "selectors",
    }
    | {
        "torch",
        "numpy",
        "ctypes",
        "shutil",
        "tempfile",
        "pathlib",
        "threading",
        "traceback",
        "random",
        "hashlib",
        "uuid",
        "datetime",
        "collections",
        "contextlib",
        "functools",
        "string",
        "textwrap",
        "gettext",
        "locale",
    }
)


def imports(folder: Path, *command: str, status: int = 0, **variables: str) -> set[str]:
    """Return the modules that `planaria` with these words imports, in all its processes, beyond what Python itself does."""
    return set(imported(folder, *command, status=status, **variables))


def imported(folder: Path, *command: str, status: int = 0, **variables: str) -> list[str]:
    """Return the same in the order in which it happens."""
    argv = [sys.executable, "-X", "importtime", *command]
    done = subprocess.run(
        argv,
        cwd=folder,
        env=clean_environment("PYTHON", **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return [line.rpartition("|")[2].strip() for line in lines]


@pytest.fixture(scope="module")
def by_itself(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What the interpreter of this machine imports before any program: site-packages may have hooks of their own."""
    return imports(tmp_path_factory.mktemp("nothing"), "-c", "pass")


def run_words(*flags: str) -> tuple[str, ...]:
    return (PLANARIA, "run", "--nproc-per-node=2", *flags, "--no-python", "true")


COMMANDS = {
    "--version": (PLANARIA, "--version"),
    "run --help": (PLANARIA, "run", "--help"),
    "a run": run_words(),
    "a run with logs": run_words("--redirects=3", "--log-dir=logs"),
    "a run with tee": run_words("--tee=3", "--log-dir=logs"),
    "a run that may restart": run_words("--max-restarts=3", "--standalone"),
    "a dry run": run_words("--dry-run"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_heavy_is_imported(tmp_path: Path, by_itself: set[str], command: str) -> None:
    found = imports(tmp_path, *COMMANDS[command]) - by_itself
    assert found & HEAVY == set()
    assert {name for name in found if name.partition(".")[0] in HEAVY} == set()
    assert any(name.startswith("planaria") for name in found)


@pytest.mark.parametrize("module", ["planaria", "planaria.run"])
def test_nothing_heavy_is_imported_beyond_what_python_m_costs(tmp_path: Path, by_itself: set[str], module: str) -> None:
    words = run_words()[2:] if module == "planaria.run" else run_words()[1:]
    found = imports(tmp_path, "-m", module, *words) - imports(tmp_path, "-m", "__hello__") - by_itself
    assert found & HEAVY == set()


def test_the_agent_is_among_those_that_were_seen(tmp_path: Path, by_itself: set[str]) -> None:
    """`process.memory` is imported by the agent alone, after its workers have started: these lines are the agent's too."""
    assert "planaria.process.memory" in imports(tmp_path, *COMMANDS["a run"]) - by_itself
    assert "planaria.process.memory" not in imports(tmp_path, *COMMANDS["run --help"]) - by_itself


def test_nothing_of_the_watchdog_is_imported_before_it_is_asked_for(tmp_path: Path) -> None:
    rooms = ("planaria.agent.watchdog", "planaria.agent.scopes", "planaria.agent.fifo", "planaria.contract.timer")
    asked_for = imports(tmp_path, *COMMANDS["a run"], TORCHELASTIC_ENABLE_FILE_TIMER="1")
    assert set(rooms) <= asked_for
    assert not [name for name in asked_for if name.startswith("planaria.elastic")]
    assert not set(rooms) & imports(tmp_path, *COMMANDS["a run"])


def test_nothing_that_keeps_snapshots_is_imported_before_a_worker_asks(tmp_path: Path, by_itself: set[str]) -> None:
    """And nothing of the disk before there is a directory. `--snapshot-dir` alone asks for nothing."""
    (tmp_path / "main.py").write_text(
        "from planaria.worker import ElasticState\nElasticState(step=1).commit(wait='node')\n"
    )
    keepers = {"planaria.agent.keeper", "planaria.agent.slots", "planaria.contract.vault", "planaria.contract.commit"}
    disk = {"planaria.agent.disk", "planaria.archive.writer", "threading"}
    words = (PLANARIA, "run", "--snapshot-dir=commits")
    assert not (keepers | disk) & (imports(tmp_path, *words, "--no-python", "true") - by_itself)
    in_memory = imports(tmp_path, PLANARIA, "run", "main.py") - by_itself
    assert keepers <= in_memory
    assert not disk & in_memory
    assert keepers | disk <= imports(tmp_path, *words, "main.py")


def test_nothing_of_standbys_is_imported_before_they_are_asked_for(tmp_path: Path, by_itself: set[str]) -> None:
    rooms = {
        "planaria.agent.reserve",
        "planaria.process.standbys",
        "planaria.process.standby",
        "planaria.process.spares",
    }
    (tmp_path / "main.py").write_text("")
    words = (PLANARIA, "run", "--max-restarts=1", "main.py")
    assert not rooms & imports(tmp_path, *words)
    found = imports(tmp_path, *words[:2], "--standbys=auto", *words[2:]) - by_itself
    assert rooms <= found
    assert found & HEAVY == set()


WORKER_MAY = frozenset({"collections", "contextlib", "functools", "threading"})  # some 5 ms; torch imports them as well


@pytest.mark.parametrize("module", ["planaria.worker", "planaria.worker.agent_vault", "planaria.worker.data"])
def test_what_lives_in_a_training_process_is_imported_without_torch_and_numpy(tmp_path: Path, module: str) -> None:
    imports(tmp_path, "-c", f"import sys; sys.modules.update(torch=None, numpy=None); import {module}")


def test_the_import_of_a_worker_is_light(tmp_path: Path, by_itself: set[str]) -> None:
    """It is to take less than 30 ms, which a row in `bench/` measures; what is dear is seen here by its name."""
    found = imports(tmp_path, "-c", "import planaria.worker") - by_itself
    assert "planaria.worker.state" in found
    assert {name.partition(".")[0] for name in found} & HEAVY <= WORKER_MAY
    rooms = {"planaria", "planaria.base", "planaria.contract", "planaria.errors", "planaria.worker"}
    assert {".".join(name.split(".")[:2]) for name in found if name.startswith("planaria")} == rooms


def test_a_python_script_is_checked_without_heavy_imports(tmp_path: Path, by_itself: set[str]) -> None:
    """The option is the launcher's alone, not its workers': what is seen here is launcher and agent."""
    (tmp_path / "main.py").write_text("import json, logging\n")
    found = imports(tmp_path, PLANARIA, "run", "main.py") - by_itself
    assert found & HEAVY == set()
    assert "json" not in found


def test_a_failure_may_cost_json_and_no_more(tmp_path: Path, by_itself: set[str]) -> None:
    found = imports(tmp_path, PLANARIA, "run", "--max-restarts=1", "--no-python", "false", status=1) - by_itself
    dear = {"asyncio", "ssl", "logging", "subprocess", "dataclasses", "inspect", "argparse", "multiprocessing", "torch"}
    assert {name for name in found if name.partition(".")[0] in dear} == set()


def test_a_run_that_nobody_asked_to_watch_starts_its_workers_before_it_imports_what_watches(
    tmp_path: Path, by_itself: set[str]
) -> None:
    """`process.memory` comes right behind the first workers. What is looked for here is there when somebody does ask."""
    of_watchers = {"planaria.observe", "planaria.agent.observer", "planaria.agent.meters", "planaria.agent.phases"}
    of_watchers |= {"planaria.agent.journal", "planaria.agent.pace", "planaria.agent.pulse"}
    words = (PLANARIA, "run", "--max-restarts=1", "--no-python", "false")
    found = imported(tmp_path, *words, status=1)
    assert set(found[: found.index("planaria.process.memory")]) & of_watchers == set()
    for flag in ("--report-file=r.json", "--run-dir=runs"):
        watched = imported(tmp_path, *words[:2], flag, *words[2:], status=1)
        assert of_watchers <= set(watched[: watched.index("planaria.process.memory")])
        assert "logging" not in set(watched) - by_itself


def test_a_run_that_looks_at_runs_imports_no_agent_that_works(tmp_path: Path, by_itself: set[str]) -> None:
    found = imports(tmp_path, PLANARIA, "status", "--help") - by_itself
    assert not {"asyncio", "torch", "subprocess", "planaria.agent.driver", "planaria.agent.main"} & found
    assert not [name for name in imports(tmp_path, *COMMANDS["a run"]) if name.startswith("planaria.insight")]


def test_the_list_of_heavy_modules_is_seen_when_they_are_imported(tmp_path: Path, by_itself: set[str]) -> None:
    """The tests above can fail: the same look at a program that does import such modules finds them."""
    found = imports(tmp_path, "-c", "import asyncio, json, logging.config") - by_itself
    assert {"asyncio", "json", "logging.config", "enum", "re", "typing"} - by_itself <= found
