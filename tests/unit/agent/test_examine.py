"""The process that looks at workers that hang, in this one: workers that are gone, and tools that are scripts."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from planaria.agent import examine as room
from planaria.agent.examine import Examiner
from planaria.agent.examiner import Found, Request, _found
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


def request(folder: Path, box: int, *, trace: bool) -> dict[str, Any]:
    known = Examined(0, 0, GONE, "step", 7, 3.0, 0.1)
    asked = Request(str(folder), "n", "heading", [(known, box, False)], {}, is_alone=True, resume=False, trace=trace)
    return json.loads(asked.as_json())


def test_the_verdict_is_told_before_a_file_is_written_or_a_tool_is_run(
    box: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def hear(*_: object) -> tuple[str, bool]:
        heard.append(capsys.readouterr().out)
        return "", False

    monkeypatch.setattr(Examiner, "_save", hear)
    monkeypatch.setattr(room, "_tool", hear)
    Examiner(request(tmp_path / "new", box, trace=True)).run()
    found = _found(heard[0].encode())
    assert (found.ranks, found.is_kept) == ((0,), True)
    assert found.sentence.startswith("rank 0 (pid ")
    assert set(heard[1:]) == {""}


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
