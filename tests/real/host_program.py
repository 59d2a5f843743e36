"""A program that brings the agent along, in a process of its own, which cannot import torch."""

import subprocess
import sys
import textwrap
from pathlib import Path

from harness import wait_until
from programs import clean_environment, end_marked, hide_torch, marked

PATIENCE_S = 60.0
SUPPORT = Path(__file__).parents[1] / "support"
MARK = "PLANARIA_TEST_MARK"

HEAD = """
import os, signal, subprocess, sys, threading, time
from planaria.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from planaria.elastic.multiprocessing.errors import ChildFailedError
from planaria.launcher import LaunchConfig, elastic_launch
from waiting import wait_until

RANK = int(os.environ.get("RANK", -1))
LIFE = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", -1))


def launch(function, *args, **more):
    config = dict(min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="r", max_restarts=1, monitor_interval=0.01)
    return elastic_launch(LaunchConfig(**{**config, **more}), function)(*args)


def wait_for(path):
    wait_until(lambda: os.path.exists(path), path, 100)


def wait_forever(folder):
    open(f"{folder}/up.{os.environ['RANK']}", "w").close()
    while True:
        signal.pause()
"""


class Program:
    """A program in a process of its own, which cannot import torch."""

    def __init__(self, folder: Path, body: str, **variables: str) -> None:
        self.folder = folder
        number = len(list(folder.glob("program*.py")))
        path = folder / f"program{number}.py"
        path.write_text(HEAD + textwrap.dedent(body))
        self.warnings = ""
        self.mark = f"{folder}/{number}/"
        variables = {"PYTHONPATH": f"{hide_torch(folder)}:{SUPPORT}", MARK: self.mark, **variables}
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            env=clean_environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        try:
            wait_until(lambda: not self.left(), "processes of the program are left")
        finally:
            end_marked(self.mark)

    def end(self, status: int = 0) -> str:
        """Wait for its end; return what it printed, and keep what it warned of."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        self.warnings = err
        assert self.process.returncode == status, f"{out}\n{err}"
        return out

    def left(self) -> list[int]:
        """Return the processes that carry our mark and live."""
        return marked(self.mark)
