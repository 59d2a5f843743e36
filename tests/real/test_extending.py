"""The examples of bringing the agent along and of extending it."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "extending" / "plugin"
PATIENCE_S = 100


def clean_environment(**variables):
    dropped = ("PET_", "TORCHELASTIC_", "RANK", "LOGLEVEL")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | variables


def run(*words, cwd=ROOT, **variables):
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_the_embedding_example_gets_everybodys_value_though_a_worker_died(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('hidden by a test', name='torch')\n")
    ran = run("examples/embed.py", PYTHONPATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "rank 2: I die by SIGKILL, without a word to anybody",
        "rank 0 returned +9.257554",
        "rank 1 returned -6.440313",
        "rank 2 returned +5.789672",
        "rank 3 returned -5.465332",
        "pi is about 3.1416",
    ]
    (warning,) = ran.stderr.splitlines()
    assert warning.startswith("[default_role] rank 2 ")
    assert warning.endswith("starting all workers again (restart 1 of 1)")


def test_the_remote_agent_starts_its_workers_through_the_shell_and_again_when_one_fails():
    ran = run("examples/extending/remote_agent.py")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    needed = {"rank 1 on beta, life 0", "rank 0 on alpha, life 1", "rank 1 on beta, life 1"}
    assert needed <= set(lines[:-1]) <= needed | {"rank 0 on alpha, life 0"}  # who may be stopped before it says a word
    assert lines[-1] == "SUCCEEDED"


def import_example(name):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, ROOT / "examples" / "extending" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("stubborn", [False, True])
def test_remote_workers_end_when_the_line_to_them_does(tmp_path, stubborn):
    """Ask for what the example cannot show: a worker that is deaf, and one whose agent was killed."""
    example = import_example("remote_agent")
    deaf = "trap '' TERM; " if stubborn else ""
    worker = f"{deaf}echo $$ > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid; while :; do sleep 0.1; done"
    from planaria.elastic.agent.server.api import WorkerSpec, WorkerState
    from planaria.elastic.rendezvous import RendezvousParameters
    from planaria.elastic.rendezvous.registry import get_rendezvous_handler

    handler = get_rendezvous_handler(RendezvousParameters("c10d", "localhost:0", "remote", 1, 1))
    spec = WorkerSpec("trainer", 1, handler, entrypoint="sh", args=("-c", worker))
    shell = [str(ROOT / "examples" / "extending" / "pretend_ssh")]
    agent = example.RemoteAgent(spec, hosts=["alpha"], shell=shell, shutdown_timeout=1)
    group = agent.get_worker_group()
    agent._initialize_workers(group)
    deadline = time.monotonic() + PATIENCE_S
    while not (tmp_path / "pid").exists():
        assert agent._monitor_workers(group).state == WorkerState.HEALTHY
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    agent._shutdown(timeout=1)
    handler.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


@pytest.fixture
def site(tmp_path):
    """Return a folder that has the plugin installed, as far as Python can tell."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site"
    info = folder / f"planaria_folder_plugin-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (folder / "folder_plugin").symlink_to(PLUGIN / "folder_plugin")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


NODE = """
import os, sys, time
from folder_plugin.logs import FlatLogs
from planaria.launcher import LaunchConfig, elastic_launch

def work(folder):
    rank = os.environ["RANK"]
    if rank == "1" and not os.path.exists(folder + "/failed"):
        open(folder + "/failed", "w").close()
        raise RuntimeError("once")
    if rank == "1":
        open(folder + "/again", "w").close()
    while not os.path.exists(folder + "/again"):  # so nobody is done while another has to start again
        time.sleep(0.01)
    return rank + " of " + os.environ["WORLD_SIZE"]

if __name__ == "__main__":
    folder = sys.argv[1]
    config = LaunchConfig(2, 2, 2, FlatLogs(folder + "/logs"), "r", rdzv_backend="folder", rdzv_endpoint=folder, max_restarts=2)
    print(elastic_launch(config, work)(folder))
"""


def test_two_nodes_meet_through_a_backend_and_log_by_a_plan_of_another_package(site, tmp_path):
    script = tmp_path / "node.py"
    script.write_text(NODE)
    nodes = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            env=clean_environment(PYTHONPATH=str(site)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        told = [node.communicate(timeout=PATIENCE_S) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.communicate()
    assert [node.returncode for node in nodes] == [0, 0], told
    found = sorted(out for out, _ in told)
    assert found == ["{0: '0 of 4', 1: '1 of 4'}\n", "{2: '2 of 4', 3: '3 of 4'}\n"]
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").glob("rank*.log")}
    assert sorted(logs) == [f"rank{rank}.log" for rank in range(4)]
    assert "RuntimeError: once" in logs["rank1.log"]


def test_the_launcher_logs_by_the_plan_of_another_package(site, tmp_path):
    (tmp_path / "hello.py").write_text("import os; print('hello from', os.environ['RANK'])\n")
    words = (
        "-m",
        "planaria",
        "run",
        "--standalone",
        "--nproc-per-node=2",
        "--logs-specs=flat",
        "--log-dir=logs",
        "hello.py",
    )
    ran = run(*words, cwd=tmp_path, PYTHONPATH=str(site), OMP_NUM_THREADS="1")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "logs" / "rank1.log").read_text() == "hello from 1\n"
