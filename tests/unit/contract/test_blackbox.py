from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract import blackbox
from planaria.process.command import BOOTSTRAP

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = {"kind": "exception", "type": "E", "bases": ["E"], "message": "m", "traceback": "t", "where": "w:1", "at": 1.5}


def record(**changes: object) -> bytes:
    return b"\x1e" + json.dumps({**WHOLE, **changes}).encode() + b"\n"


def test_the_signal_that_asks_for_stacks_is_the_same_in_the_worker() -> None:
    with open(BOOTSTRAP, "rb") as file:
        assigned = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Assign)]
    values = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in assigned}
    assert values["LIFELINE"] == str(blackbox.LIFELINE)
    assert values["DUMP_STACKS"] == str(blackbox.DUMP_STACKS) == str(int(signal.SIGRTMAX) - 2)


def test_an_empty_box_says_nothing() -> None:
    assert blackbox.read(b"") == blackbox.BlackBox()


def test_a_record_is_found_among_stacks() -> None:
    found = blackbox.read(b"Fatal Python error\n" + record() + b"more\n")
    assert found.ending == blackbox.Ending("exception", "E", ("E",), "m", "t", "w:1", 1.5)
    assert found.text == "Fatal Python error\nmore\n"


def test_the_last_whole_record_counts() -> None:
    found = blackbox.read(record(message="first") + record(message="second") + record(message="torn")[:-9])
    assert found.ending is not None
    assert found.ending.message == "second"


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[1]", b"7", b"[" * 100_000, b'{"kind": 1}', b"\xff", json.dumps({**WHOLE, "at": []}).encode()],
)
def test_what_is_not_a_record_is_left_out(line: bytes) -> None:
    assert blackbox.read(b"\x1e" + line + b"\nrest") == blackbox.BlackBox(None, "rest")


@given(st.binary() | st.lists(st.sampled_from([b"\x1e", b"\n", b"{", record(), b"text", b"\0"])).map(b"".join))
def test_no_content_is_an_error(data: bytes) -> None:
    assert isinstance(blackbox.read(data), blackbox.BlackBox)


SIGN = b'\x1e{"started":35020.5}\n'


def test_a_sign_of_life_is_read_from_the_beginning() -> None:
    assert blackbox.started_at(SIGN) == 35020.5
    assert blackbox.started_at((SIGN + record())[: blackbox.SIGN_BYTES]) == 35020.5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        SIGN[:-1],
        SIGN[1:],
        b"text" + SIGN,
        record(),
        b'\x1e{"started":}\n',
        b'\x1e{"started":nan}\n',
        b'\x1e{"started":inf}\n',
        b'\x1e{"started":-1.0}\n',
        b'\x1e{"started":"x"}\n',
        b'\x1e{"started":\xff}\n',
    ],
)
def test_what_is_no_sign_of_life_is_none(data: bytes) -> None:
    assert blackbox.started_at(data) is None


def test_a_sign_of_life_is_no_ending_and_no_text() -> None:
    assert blackbox.read(SIGN + b"cannot start x\n") == blackbox.BlackBox(None, "cannot start x\n")
    assert blackbox.read(SIGN + record()).ending == blackbox.read(record()).ending


def test_a_worker_that_only_gave_a_sign_is_read_without_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that a signal ended leaves nothing else, and a restart should not wait for an import."""

    def refuse(_text: bytes) -> None:
        raise AssertionError("json was used")

    monkeypatch.setattr(json, "loads", refuse)
    assert blackbox.read(SIGN) == blackbox.BlackBox()


def test_the_start_up_file_gives_its_sign_in_this_form(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')")
    box = os.memfd_create("box")
    before = time.monotonic()
    command = [sys.executable, BOOTSTRAP, str(box), "script", str(tmp_path / "a.py")]
    done = subprocess.run(command, pass_fds=[box], capture_output=True, check=True, timeout=60)
    found = blackbox.started_at(os.pread(box, blackbox.SIGN_BYTES, 0))
    os.close(box)
    assert done.stdout == b"ran\n"
    assert found is not None
    assert before < found < time.monotonic()


def test_a_worker_that_may_write_no_files_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')")
    box = os.memfd_create("box")
    words = f"ulimit -f 0; exec {sys.executable} {BOOTSTRAP} {box} script {tmp_path}/a.py | cat"
    done = subprocess.run(["sh", "-c", words], pass_fds=[box], capture_output=True, check=True, timeout=60)
    assert os.fstat(box).st_size == 0
    os.close(box)
    assert done.stdout == b"ran\n", done.stderr
