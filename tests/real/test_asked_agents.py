"""Agents that are subclasses of SimpleElasticAgent and use nothing of our handlers but their methods."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from ports import free_ports
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Agent = subprocess.Popen[str]
    Start = Callable[[], Agent]

AGENT = str(Path(__file__).parents[1] / "support" / "asked_agent.py")
PATIENCE_S = 60.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    agents: list[Agent] = []
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"

    def begin() -> Agent:
        words = [sys.executable, AGENT, "c10d", endpoint, "2", "3", str(tmp_path)]
        agents.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return agents[-1]

    for name in ("begun", "finish"):
        os.mkfifo(tmp_path / name)
    with open_gate(tmp_path, "begun"):
        yield begin
        (tmp_path / "begun").unlink()
    with open_gate(tmp_path):  # a worker whose agent was killed goes by this, and one that comes later by its end
        (tmp_path / "finish").unlink()
        for agent in agents:
            agent.kill()
            agent.communicate()


def wait_for(folder: Path, *lines: str) -> None:
    """Wait until these are the newest lines that workers wrote, in any order."""
    log = folder / "log"
    log.touch()
    wait_until(lambda: sorted(log.read_text().splitlines()[-len(lines) :]) == sorted(lines), str(lines), PATIENCE_S)


def open_gate(folder: Path, name: str = "finish") -> IO[bytes]:
    """Let workers that open this FIFO pass, those that wait and those that will, for as long as this is open."""
    return open(os.open(folder / name, os.O_RDWR), "rb", buffering=0)


def end_well(folder: Path, *agents: Agent) -> None:
    with open_gate(folder):
        for agent in agents:
            out, err = agent.communicate(timeout=PATIENCE_S)
            assert (agent.returncode, out) == (0, "SUCCEEDED\n"), err


def test_a_failure_on_one_node_restarts_the_workers_of_all_and_costs_only_that_node(
    start: Start, tmp_path: Path
) -> None:
    agents = [start(), start()]
    wait_for(tmp_path, "0 2 0", "1 2 1")
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["0 2 0", "0 2 0", "1 2 0", "1 2 1"]
    end_well(tmp_path, *agents)


def test_a_node_joins_one_is_lost_and_the_others_end_well(start: Start, tmp_path: Path) -> None:
    agents = [start(), start()]
    wait_for(tmp_path, "0 2 0", "1 2 1")
    agents.append(start())
    wait_for(tmp_path, "0 3 0", "1 3 1", "2 3 0")
    agents[2].send_signal(signal.SIGKILL)
    wait_for(tmp_path, "0 2 0", "1 2 1")
    end_well(tmp_path, *agents[:2])
