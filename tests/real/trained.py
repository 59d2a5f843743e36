"""Run an example that trains, watch its lines, and find its workers by rank."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from harness import Room, _read, children_of, is_alive, kill, wait_gone, wait_until
from standing import stands_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness import End, Launcher

EXAMPLES = Path(__file__).parents[2] / "examples"
SYNCED = re.compile(r"Rank (\d+): Model state synced from rank: (\d+)\n((?:\t[a-z_]+=\S+\n)+)")
LIMIT_S = 120.0  # what an example may take on cores that others are busy on; seconds on idle ones

# Python reads it before the example, which knows nothing of it: its steps are so short that they would all be over before a
# test on a busy machine has seen a line of theirs and done something about it.
STAYING = '''\
"""Rank 0 stays at one line of each life, until its agent says that the node drains; a life without a drain ends there."""
import os, sys

lines = os.environ["STAY_AT"].splitlines()
life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "-1"))
if os.environ.get("RANK") == "0" and 0 <= life < len(lines):
    import re, threading

    write, flush, said = sys.stdout.write, sys.stdout.flush, []

    def keep(text):
        said.append(text)
        return write(text)

    def stay():
        flush()
        if re.search(lines[life], "".join(said), re.MULTILINE):
            from planaria import worker

            never = threading.Event()
            while worker.drain_notice() is None:
                never.wait(0.01)  # training, until this life is asked to end
        said.clear()

    sys.stdout.write, sys.stdout.flush = keep, stay
'''


def refused(name: str, *words: str) -> str:
    """Return what an example says of words that it does not take, without a start of it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "main.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["main.py", *words]),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit, match=r"^2$"),
    ):
        example.arguments()
    return said.getvalue()


class Trained:
    """One example in a room of its own, started as often as a test likes."""

    def __init__(self, name: str, *words: str) -> None:
        self.room = Room()
        self._command = [str(EXAMPLES / name / "main.py"), *words]

    def start(self, *flags: str, world_size: int = 2, stays_at: Sequence[str] = ()) -> Launcher:
        """Start it. Rank 0 stays at the line that the pattern of its life matches; later lives stay nowhere."""
        words = ["--standalone", f"--nproc-per-node={world_size}", *flags, *self._command]
        environment = {"OMP_NUM_THREADS": "1"}
        if stays_at:
            folder = self.room.path("staying")
            os.makedirs(folder)
            self.room.write("staying/sitecustomize.py", STAYING)
            path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
            environment |= {"PYTHONPATH": path, "STAY_AT": "\n".join(stays_at)}
        return self.room.start_command(words, env=environment)

    def run(self, *flags: str, world_size: int = 2) -> End:
        end = self.start(*flags, world_size=world_size).wait(LIMIT_S)
        assert end.status == 0, end.err
        self.room.assert_deserted()
        return end

    def wait_line(self, pattern: str, count: int = 1) -> None:
        """Wait until so many lines of the job's output match."""
        found = re.compile(pattern.encode(), re.MULTILINE)
        wait_until(lambda: len(found.findall(self.room.read("out"))) >= count, f"{count} times {pattern!r}", LIMIT_S)

    def wait_blocks(self, count: int) -> None:
        wait_until(lambda: len(blocks(self.room.read("err").decode())) >= count, f"{count} ranks in sync", LIMIT_S)

    def wait_standbys(self, job: Launcher, count: int) -> None:
        """Wait until so many stand by."""
        wait_until(
            lambda: len([pid for pid in children_of(job.agent()) if stands_ready(pid)]) == count, "standbys", LIMIT_S
        )

    def workers(self, job: Launcher) -> dict[int, int]:
        """Return the pids of the workers that run now, by rank."""
        found = {}
        for pid in children_of(job.agent()):
            variables = _read(f"/proc/{pid}/environ").split(b"\0")
            ranks = [int(one[5:]) for one in variables if one.startswith(b"RANK=")]
            if ranks and is_alive(pid):
                found[ranks[0]] = pid
        return found

    def kill(self, job: Launcher, *ranks: int) -> None:
        """End workers by SIGKILL, and see them gone."""
        pids = [self.workers(job)[rank] for rank in ranks]
        for pid in pids:
            kill(pid, signal.SIGKILL)
        wait_gone(pids)

    def close(self) -> None:
        self.room.close()


def blocks(err: str) -> list[tuple[int, dict[str, str]]]:
    """Return what ranks said after their syncs, in order: the rank, and where it goes on."""
    return [(int(rank), dict(_fields(fields))) for rank, _, fields in SYNCED.findall(err)]


def _fields(lines: str) -> Iterator[Sequence[str]]:
    return (line.strip().split("=") for line in lines.splitlines())


def iterations(err: str) -> list[int]:
    """Return the steps at which ranks went on, in the order of their lives."""
    return [int(fields["iteration"]) for _, fields in blocks(err)]
