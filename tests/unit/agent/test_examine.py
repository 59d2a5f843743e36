"""The process that looks at workers that hang, in this one: workers that are gone, and tools that are scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from waiting import PATIENCE_S

from planaria.agent import examine as room
from planaria.agent.charge import WRITING_S
from planaria.agent.examine import FOLDER_S, Examiner, Shelf, Subject
from planaria.agent.examiner import WITHIN_S, Found, Request, _found
from planaria.agent.suspects import Examined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GONE = 2**22 + 1


@pytest.fixture
def box() -> Iterator[int]:
    found = os.memfd_create("box")
    yield found
    os.close(found)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the disk of a machine that others keep busy its time."""
    monkeypatch.setattr(room, "FOLDER_S", PATIENCE_S)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Have only these tools installed, each a script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


def request(folder: Path, box: int, *, trace: bool, witness: bool = False) -> dict[str, Any]:
    known = Examined(0, 0, GONE, "step", 7, 3.0, 0.1)
    asked = Request(str(folder), "n", "heading", [(known, box, witness)], {}, is_alone=True, resume=False, trace=trace)
    return json.loads(asked.as_json())


def test_the_verdict_is_told_before_a_file_is_written_or_a_tool_is_run(
    box: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    one_at_a_time = threading.Lock()

    def hear(*_: object) -> tuple[str, bool]:
        with one_at_a_time:
            heard.append(capsys.readouterr().out)
        return "", False

    monkeypatch.setattr(Examiner, "_save", hear)
    monkeypatch.setattr(room, "_tool", hear)
    Examiner(request(tmp_path / "new", box, trace=True)).run()
    found = _found(heard[0].encode())
    assert (found.ranks, found.is_kept) == ((0,), True)
    assert found.sentence.startswith("rank 0 (pid ")
    assert set(heard[1:]) == {""}


@pytest.fixture
def hung_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have no folder made before this is set."""
    answers, make = threading.Event(), os.makedirs

    def hang(*args: Any, **kwargs: Any) -> None:
        answers.wait()
        make(*args, **kwargs)

    monkeypatch.setattr(os, "makedirs", hang)
    monkeypatch.setattr(room, "FOLDER_S", 0.0)
    yield answers
    answers.set()


def test_a_disk_that_hangs_costs_the_evidence_and_not_the_verdict(
    box: int, tmp_path: Path, hung_disk: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    Examiner(request(tmp_path / "new", box, trace=True, witness=True)).run()
    found = _found(capsys.readouterr().out.encode())
    assert (found.ranks, found.is_kept) == ((0,), False)
    assert "evidence in" not in found.sentence
    assert (hung_disk.is_set(), list(tmp_path.iterdir())) == (False, [])


def test_stacks_are_asked_for_before_the_disk_is_touched(
    box: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(Subject, "ask", lambda *_, **__: order.append("stacks"))
    monkeypatch.setattr(room, "Shelf", lambda *_: order.append("disk") or Shelf(str(tmp_path), []))
    Examiner(request(tmp_path, box, trace=False)).run()
    assert order == ["stacks", "disk"]


def test_without_a_thread_evidence_is_written_all_the_same(
    box: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    Examiner(request(tmp_path / "new", box, trace=False, witness=True)).run()
    assert (tmp_path / "new/summary.txt").exists()


def test_what_workers_say_of_their_collectives_is_read_when_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    shelf = Shelf(str(folder), ["rank0", "rank1"])
    assert shelf.is_kept(time.monotonic() + PATIENCE_S)
    for name in ("rank0", "rank1"):
        (folder / f".{name}").write_text(f'{{"of": "{name}"}}')
        (folder / f".{name}").rename(folder / f"{name}.collectives.json")
    assert shelf.flights(time.monotonic() + PATIENCE_S) == {name: {"of": name} for name in ("rank0", "rank1")}
    assert Shelf(str(folder), ["rank2"]).flights(time.monotonic()) == {}


def test_the_end_of_its_output_is_its_end_although_a_thread_hangs(tmp_path: Path) -> None:
    """A thread that never comes back from a disk keeps the descriptors of its process."""
    program = (
        "import os, sys, threading; from planaria.agent import examine\n"
        "class Hung:\n"
        "    def __init__(self, _): pass\n"
        "    def run(self): threading.Thread(target=lambda: os.read(int(sys.argv[2]), 1)).start()\n"
        "examine.Examiner = Hung\nexamine.main()"
    )
    asked = tmp_path / "asked"
    asked.write_text("{}")
    never, held = os.pipe()
    with open(asked) as file:
        argv = [sys.executable, "-c", program, str(file.fileno()), str(never)]
        examiner = subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=(file.fileno(), never))
    assert examiner.stdout is not None
    assert examiner.stdout.read() == b""
    assert examiner.poll() is None, "its thread waits yet"
    os.close(held)
    assert examiner.wait() == 0
    examiner.stdout.close()
    os.close(never)


class Kin:
    """A worker whose children answer, or do not: each has a turn in which it is asked."""

    def __init__(self, pid: int, *children: int) -> None:
        self.pid = pid
        self.below = list(children)
        self.children: dict[int, str] = {}
        self.size = 0
        self.written: list[int] = []

    def text(self, since: int) -> str:
        return str(self.written[since:])


def test_children_are_asked_with_those_of_all_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [Kin(1, 10, 11), Kin(2, 20), Kin(3), Kin(4, 40)]
    parents = {child: rank for rank in ranks for child in rank.below}
    waits: list[list[tuple[int, int]]] = []

    def ask(pid: int) -> bool:
        if pid == 40:  # in an uninterruptible wait
            return False
        parents[pid].written.append(pid)
        parents[pid].size += 1
        return True

    monkeypatch.setattr(room, "descendants_of", lambda pid: ranks[pid - 1].below)
    monkeypatch.setattr(room, "_asks_child", ask)
    monkeypatch.setattr(room, "_wait_quiet", lambda asked, _: waits.append([(one.pid, size) for one, size in asked]))
    room._ask_children(ranks)  # type: ignore[arg-type]
    assert waits == [[(1, 0), (2, 0)], [(1, 1)]]
    assert [rank.children for rank in ranks] == [{10: "[10]", 11: "[11]"}, {20: "[20]"}, {}, {40: "[]"}]


def test_the_gpus_are_looked_at_while_another_tool_is_slow(
    box: int, tmp_path: Path, install: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("TOOL_S", "ALL_TOOLS_S"):
        monkeypatch.setattr(room, limit, PATIENCE_S)
    gpu = tmp_path / "new/gpu.txt"
    install("nvidia-smi", "echo GPUs")
    install("gdb", f"until [ -s {gpu} ]; do :; done; echo stack")
    Examiner(request(gpu.parent, box, trace=True)).run()
    assert (gpu.read_text(), (gpu.parent / "rank0.native.txt").read_text()) == ("GPUs\n", "stack\n")


def test_the_tools_have_less_time_than_what_is_to_be_ended_waits_for() -> None:
    looking_s = max(room.DUMP_S + room.MOST_CHILDREN * room.CHILD_DUMP_S, FOLDER_S) + room.COLLECTIVES_S
    tools_s = max(room.ALL_TOOLS_S, room.TOOL_S) + room.KILLED_S
    assert tools_s < WRITING_S < WITHIN_S
    assert looking_s + tools_s < WITHIN_S


def test_an_answer_that_breaks_off_still_says_whether_there_is_a_folder() -> None:
    assert _found(b"") == _found(b'{"kept": false}\n') == _found(b"[1]\n") == Found()
    assert _found(b'{"kept": true}\n{"ranks": [1], "wai') == Found(is_kept=True)


def test_tools_that_stop_a_process_are_run_only_where_that_is_allowed(
    box: int, tmp_path: Path, install: Callable[[str, str], None]
) -> None:
    install("gdb", 'echo "stack of $*"')
    for trace in (True, False):
        folder = tmp_path / str(trace)
        Examiner(request(folder, box, trace=trace)).run()
        assert (folder / "rank0.native.txt").exists() is trace
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_a_tool_that_refuses_is_followed_by_the_next_one(install: Callable[[str, str], None]) -> None:
    install("py-spy", 'case "$*" in *--nonblocking*) exit 2;; esac; echo "permission denied"; exit 1')
    soon = time.monotonic() + 100
    assert room._native(GONE, soon) == "permission denied\n"
    install("gdb", "echo frames")
    assert room._native(GONE, soon) == "frames\n"
    install("py-spy", 'case "$*" in *--nonblocking*) exit 2;; esac; echo "all frames"')
    assert room._native(GONE, soon) == "all frames\n"
    assert room._native(GONE, 0.0) == ""


def test_a_tool_that_takes_too_long_is_given_up(install: Callable[[str, str], None]) -> None:
    install("nvidia-smi", "read line < /dev/zero")
    assert room._tool(("nvidia-smi",), 0.05) == ("nvidia-smi took longer than 0 s\n", False)
