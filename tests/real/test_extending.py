"""The examples of bringing the agent along and of extending it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import wait_until
from programs import clean_environment, end_marked, hide_torch, install_example, marked

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
PATIENCE_S = 100


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
    ran = run("examples/embed.py", PYTHONPATH=hide_torch(tmp_path))
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


REMOTE = """
import os, signal, sys
here, folder, end, deaf = sys.argv[1:]
sys.path.insert(0, here)
from remote_agent import RemoteAgent
from planaria.elastic.agent.server.api import WorkerSpec
from planaria.elastic.multiprocessing import SignalException
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler

worker = f"{deaf} echo $$ > {folder}/draft; mv {folder}/draft {folder}/pid; while :; do sleep 0.1; done"
handler = get_rendezvous_handler(RendezvousParameters("c10d", "localhost:0", "remote", 1, 1))
spec = WorkerSpec("trainer", 1, handler, entrypoint="sh", args=("-c", worker), monitor_interval=0.02)
agent = RemoteAgent(spec, hosts=["alpha"], shell=[here + "/pretend_ssh"], shutdown_timeout=1)
group = agent.get_worker_group()
agent._initialize_workers(group)
while not os.path.exists(folder + "/pid"):
    assert agent._monitor_workers(group).state.value == "HEALTHY"
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
agent._shutdown(timeout=30)  # for the line to end: the grace is the other end's
handler.shutdown()
"""


@pytest.mark.parametrize("deaf", [False, True], ids=["willing", "deaf"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_remote_workers_end_when_the_line_to_them_does(tmp_path, end, deaf):
    """Ask for what the example cannot show: workers that are stopped or whose agent was killed, and listen or do not."""
    try:
        trap = "trap '' TERM;" if deaf else ""
        ran = run("-c", REMOTE, str(ROOT / "examples" / "extending"), str(tmp_path), end, trap)
        assert ran.returncode == (0 if end == "stopped" else -signal.SIGKILL), ran.stderr
        pid = int((tmp_path / "pid").read_text())
        if end == "stopped":
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        wait_until(lambda: not marked(str(tmp_path)), "a remote worker is left")
    finally:
        end_marked(str(tmp_path))


@pytest.fixture
def site(tmp_path):
    """Return a folder that has the plugin installed, as far as Python can tell."""
    return install_example(tmp_path / "site")


NODE = """
import os, sys
from folder_plugin.logs import FlatLogs
from planaria.launcher import LaunchConfig, elastic_launch
from waiting import wait_until

def work(folder):
    rank = os.environ["RANK"]
    if rank == "1" and not os.path.exists(folder + "/failed"):
        open(folder + "/failed", "w").close()
        raise RuntimeError("once")
    if rank == "1":
        open(folder + "/again", "w").close()
    wait_until(lambda: os.path.exists(folder + "/again"), "rank 1")  # nobody is done while another has to start again
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
            env=clean_environment(PYTHONPATH=f"{site}:{SUPPORT}"),
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
    ran = run(*words, cwd=tmp_path, PYTHONPATH=site, OMP_NUM_THREADS="1")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "logs" / "rank1.log").read_text() == "hello from 1\n"
