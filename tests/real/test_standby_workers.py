"""Workers with standbys: what a promoted one leaves, and what makes a cold start."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import pytest
from standing import all_ready, looping, turn_until

from planaria.contract.env import Round
from planaria.process.children import Children
from planaria.process.logs import RunLogs
from planaria.process.model import STDERR, STDOUT, Command, LogSettings, StreamMask
from planaria.process.sink import ConsoleSink
from planaria.process.spares import Lesson, make_plans
from planaria.process.standbys import Standbys
from planaria.process.workers import Console, Workers, WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from planaria.base.loop import Loop

TEE = StreamMask(STDOUT | STDERR)


class Node:
    """Workers with standbys, on a loop of their own; what the workers said is in a file."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        (folder / "scratch").mkdir()
        self.loop = loop
        self.folder = folder
        self.said = os.memfd_create("console")
        self.told: list[str] = []
        self.ends: dict[int, object] = {}
        sink = ConsoleSink(loop, self.said)
        logs = RunLogs(LogSettings(str(folder / "logs"), tee=TEE), "run", str(folder / "scratch"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = Command("script", "main.py", ("${local_rank}",), sys.executable)
        settings = WorkerSettings(command, environment, control="", host="here", file_limit=2048)
        self.workers = Workers(loop, settings, logs, Console(sink, sink, self.told.append))
        self.children = Children(loop, self._on_exit)
        self.standbys = Standbys(loop, 2, watch=self._watch, tell=self.told.append)
        self.workers.standbys = self.standbys

    def _watch(self, pid: int, lifeline: int | None) -> None:
        self.children.add(pid, lifeline=lifeline)

    def _on_exit(self, pid: int, status: int) -> None:
        if not self.standbys.exited(pid, status):
            end = self.workers.exited(pid, status)
            if end is not None:
                self.ends[end.local_rank] = end.failure

    def live(self, number: int, *, keep: bool = True) -> list[int]:
        """Run one life to its end; return the pids of its workers."""
        self.ends = {}
        life = Round(number, "run", "trainer", 0, 1, 10, 2, 10, 2, 2, f"host{number}", 1, number, 3)
        self.workers.begin(life, self.children.add)
        pids = [one.pid for one in self.workers.seen]
        turn_until(self.loop, lambda: len(self.ends) == 2)
        if keep:
            plans = make_plans(Lesson(self.workers.learned), (str(self.folder),), 2)
            self.standbys.keep(self.workers.orders(), plans)
            turn_until(self.loop, lambda: all_ready(self.standbys, 2))
        self.children.bury()
        self.workers.end()
        self.loop.run_once(0.0)
        return pids

    def close(self) -> None:
        self.standbys.close()
        turn_until(self.loop, lambda: not self.standbys.pids)
        self.children.bury()
        os.close(self.said)


FAILING = """\
import json, os, sys
print(os.environ["RANK"], os.environ["MASTER_ADDR"], os.environ["TORCHELASTIC_RESTART_COUNT"], sys.argv[1])
if sys.argv[1] == "1":
    raise ValueError(os.path.exists(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])))
print("in modules", "decimal" in sys.modules, file=sys.stderr)
import decimal
"""


def test_a_promoted_worker_leaves_the_same_evidence_as_a_cold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planaria.process.standbys.LOOK_S", 3600.0)  # a look between lives would start the next ones
    (tmp_path / "main.py").write_text(FAILING)
    with looping() as loop, contextlib.chdir(tmp_path):
        node = Node(loop, tmp_path)
        try:
            first = node.live(0)
            assert set(node.workers.cold) == {0, 1}  # why is told to nobody: a first life is no restart
            cold = node.ends[1]
            waiting = [one.pid for one in node.standbys.seen]
            assert node.live(1, keep=False) == waiting
            assert set(waiting).isdisjoint(first)
            assert node.workers.cold == {}
            warm = node.ends[1]
            assert node.ends[0] is None
            different = {"pid", "at", "age_s", "error_file", "log_files"}
            for field in type(cold)._fields:  # type: ignore[attr-defined]
                assert field in different or getattr(warm, field) == getattr(cold, field), field
            assert sorted(os.pread(node.said, 1 << 16, 0).decode().splitlines()) == sorted(
                line
                for life in (0, 1)
                for line in (
                    f"[trainer0]:10 host{life} {life} 0",
                    f"[trainer1]:11 host{life} {life} 1",
                    f"[trainer0]:in modules {bool(life)}",
                    *(f"[trainer1]:{line}" for line in getattr(cold, "traceback").splitlines()),  # noqa: B009
                )
            )
            node.live(2, keep=False)
            assert node.workers.cold == dict.fromkeys((0, 1), "there is no standby yet: the one before was promoted")
            assert node.told == []
        finally:
            node.close()


def test_a_difference_makes_a_cold_start_that_is_explained(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import json\n")
    with looping() as loop, contextlib.chdir(tmp_path):
        node = Node(loop, tmp_path)
        try:
            node.live(0)
            waiting = {one.pid for one in node.standbys.seen}
            (tmp_path / "main.py").write_text("import json, csv\n")
            assert waiting.isdisjoint(node.live(1, keep=False))
            assert set(node.workers.cold.values()) == {f"{tmp_path}/main.py has changed"}
        finally:
            node.close()
