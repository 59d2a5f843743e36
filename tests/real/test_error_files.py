"""Error files, broken and whole, and where they and the logs are afterwards."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness import Room


TWO = ("--nproc-per-node=2",)
BROKEN_ERROR_FILES = {
    "truncated": ("open(path, 'wb').write(b'{\"message\": {\"mess')", "is not whole JSON"),
    "empty": ("open(path, 'wb').close()", "is empty"),
    "binary": ("open(path, 'wb').write(bytes(range(256)) * 8)", "is not whole JSON"),
    "huge": ("open(path, 'wb').write(b'[' + b'1,' * (25 << 20))", "is not whole JSON (longer than 1 MiB)"),
    "deep": ("open(path, 'wb').write(b'[' * 500000)", "is not whole JSON"),
    "a list": ("open(path, 'wb').write(b'[1, 2]')", 'has no field "message"'),
    "a directory": ("os.mkdir(path)", "is empty"),
    "a FIFO": ("os.mkfifo(path)", "is empty"),
    "endless": ("os.symlink('/dev/zero', path)", "is not whole JSON"),
}


@pytest.mark.parametrize("kind", BROKEN_ERROR_FILES)
@pytest.mark.parametrize("log_dir", [False, True])
def test_a_broken_error_file_is_mentioned_and_harms_nobody(room: Room, kind: str, log_dir: bool) -> None:
    action, told = BROKEN_ERROR_FILES[kind]
    script = f"path = os.environ['TORCHELASTIC_ERROR_FILE']\n{action}\nos._exit(6)"
    end = room.run(["--log-dir", room.path("logs")] if log_dir else [], script)
    end.assert_cause(0, f"exit status 6; its error file {told}")
    assert end.status == 1


def test_an_error_file_is_named_only_if_it_is_still_there(room: Room) -> None:
    script = "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{\"message\": \"told\"}')\nos._exit(6)"
    kept = room.run(["--log-dir", room.path("logs")], script)
    assert os.path.isfile(kept.assert_cause(0, "told")["error_file"])
    assert "  error file: " in kept.err
    gone = room.run([], script)
    assert gone.assert_cause(0, "told")["error_file"] == ""
    assert "error file" not in gone.err


def test_control_characters_of_a_message_do_not_reach_the_screen(room: Room) -> None:
    end = room.run(["-r", "3"], r"raise RuntimeError('\x1b[2J\x07\r\u202eevil\x9b\nplanaria: all is well')")
    cause = end.assert_cause(0, "RuntimeError")
    assert cause["message"] == "RuntimeError: \x1b[2J\x07\r\u202eevil\x9b\nplanaria: all is well"
    assert r"\x1b[2J\x07\x0d\u202eevil\x9b\nplanaria: all is well" in end.err
    assert not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(end.err)
    assert not any(line.startswith("planaria: all is well") for line in end.err.splitlines())


def test_the_launchers_own_error_file_gets_the_first_cause_in_torchs_format(room: Room) -> None:
    mine = room.path("mine.json")
    script = "if RANK == 1: raise RuntimeError('boom')\nwait_forever()"
    end = room.run(TWO, script, env={"TORCHELASTIC_ERROR_FILE": mine})
    cause = end.assert_cause(1, "RuntimeError: boom")
    message = json.loads(room.read("mine.json"))["message"]
    assert message["message"] == "RuntimeError: boom"
    assert message["errorCode"] == 1
    assert message["extraInfo"]["py_callstack"] == cause["traceback"]
    assert message["extraInfo"]["timestamp"].isdecimal()


def test_logs_and_error_files_of_old_attempts_are_still_there_after_restarts(room: Room) -> None:
    script = """
print('out of', RANK, 'in life', LIFE)
open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{"message": "life %d"}' % LIFE)
if RANK == 0: wait_at('all')
if RANK == 0: os._exit(1)
tell('written')
wait_forever()
"""
    room.make_gate("all")
    launcher = room.start([*TWO, "--max-restarts=2", "-r", "3", "--log-dir", room.path("logs")], script)
    for _ in range(3):
        room.hear("written")
        room.open_gate("all")
    assert launcher.wait().status == 1
    for life in range(3):
        for rank in (0, 1):
            assert room.worker_log(life, rank, "stdout.log") == b"out of %d in life %d\n" % (rank, life)
            assert json.loads(room.worker_log(life, rank, "error.json")) == {"message": f"life {life}"}
