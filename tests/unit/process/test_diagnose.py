from __future__ import annotations

import json

import pytest

from planaria.base.value import replace
from planaria.contract import error_file
from planaria.contract.failure import ENDED
from planaria.process.diagnose import TAIL_LINES, Evidence, diagnose

SEEN = Evidence(rank=5, local_rank=1, host="h", pid=77, status=1, started_at=10.0, at=12.5)


def record(**changes: object) -> bytes:
    fields = {"kind": "exception", "type": "E", "bases": ["E", "ValueError"], "message": "no", "traceback": "T"}
    return b"\x1e" + json.dumps({**fields, "where": "x.py:3", "at": 12.25, **changes}).encode() + b"\n"


def test_who_and_when_are_taken_over() -> None:
    found = diagnose(replace(SEEN, log_files=("/log",)))
    assert (found.rank, found.local_rank, found.host, found.pid, found.status) == (5, 1, "h", 77, 1)
    assert (found.at, found.age_s, found.log_files) == (12.5, 2.5, ("/log",))


@pytest.mark.parametrize(
    ("changes", "kind", "message", "killer"),
    [
        ({"status": 3}, "exit", "exit status 3", ""),
        ({"status": 127}, "exit", "exit status 127", ""),
        (
            {"status": 127, "black_box": b"cannot start /x: No such file\n"},
            "spawn",
            "cannot start /x: No such file",
            "",
        ),
        ({"status": 1, "black_box": b"cannot start /x: No such file\n"}, "exit", "exit status 1", ""),
        ({"status": -11}, "signal", "SIGSEGV (Segmentation fault)", ""),
        ({"status": -15}, "signal", "SIGTERM (Terminated)", ""),
        ({"status": -62}, "signal", "SIGRTMIN+28 (Real-time signal 28)", ""),
        ({"status": -9, "killed_by_us": True, "oom_kills": 1}, "signal", "SIGKILL (Killed)", "us"),
        (
            {"status": -9, "oom_kills": 1},
            "signal",
            "SIGKILL (Killed): the kernel's OOM killer, out of memory in its memory cgroup",
            "oom",
        ),
        (
            {"status": -9},
            "signal",
            "SIGKILL (Killed), not sent by planaria: another process, or the kernel",
            "other",
        ),
        ({"status": -6, "oom_kills": 3}, "signal", "SIGABRT (Aborted)", ""),
    ],
)
def test_the_status_alone_says_how_it_ended(changes: dict[str, object], kind: str, message: str, killer: str) -> None:
    found = diagnose(replace(SEEN, **changes))
    assert (found.kind, found.message, found.killer) == (kind, message, killer)


def test_an_exception_is_told_in_the_worker_s_own_words() -> None:
    found = diagnose(replace(SEEN, black_box=record(), error_file=b'{"message": "from torch"}'))
    assert (found.kind, found.type, found.bases) == ("exception", "E", ("E", "ValueError"))
    assert (found.message, found.traceback, found.where, found.at) == ("E: no", "T", "x.py:3", 12.25)


def test_an_exception_without_words_is_its_type() -> None:
    assert diagnose(replace(SEEN, black_box=record(message=""))).message == "E"


@pytest.mark.parametrize(
    ("status", "said", "message"),
    [(3, "3", "exit status 3"), (255, "-1", "exit status 255"), (1, "sorry", "exit: sorry"), (1, "1.0", "exit: 1.0")],
)
def test_a_deliberate_exit_is_told_as_such(status: int, said: str, message: str) -> None:
    found = diagnose(replace(SEEN, status=status, black_box=record(kind="exit", type="SystemExit", message=said)))
    assert (found.kind, found.message, found.type, found.bases) == ("exit", message, "", ())


def test_an_exception_is_not_forgotten_when_a_signal_ends_the_process_after_it() -> None:
    plain = diagnose(replace(SEEN, black_box=record()))
    found = diagnose(replace(SEEN, status=-11, black_box=record() + b"Fatal Python error\n"))
    assert (found.kind, found.type) == ("exception", plain.type)
    assert found.traceback == f"{plain.traceback}\nFatal Python error\n"
    assert found.message == f"{plain.message}, then SIGSEGV (Segmentation fault)"


def test_the_stack_of_a_worker_that_hung_after_an_exception_is_where_it_hung() -> None:
    found = diagnose(replace(SEEN, status=-9, killed_by_us=True, black_box=record() + b"  File x.py\n"))
    assert (found.kind, found.killer, found.traceback) == ("exception", "us", "  File x.py\n")


def test_a_worker_that_is_killed_after_its_program_had_ended_is_only_late() -> None:
    black_box = b"\x1eended\n  File x.py\n"
    found = diagnose(replace(SEEN, status=-9, killed_by_us=True, black_box=black_box))
    assert (found.type, found.killer, found.traceback) == (ENDED, "us", "  File x.py\n")
    assert diagnose(replace(SEEN, status=-9, black_box=black_box)).type == "", "somebody else's kill is no lateness"
    failed = diagnose(replace(SEEN, status=-9, killed_by_us=True, black_box=record() + black_box))
    assert failed.type == "E"


def test_a_keyboard_interrupt_that_dies_of_sigint_as_python_has_it_is_a_sigint() -> None:
    found = diagnose(replace(SEEN, status=-2, black_box=record(type="KeyboardInterrupt", message="")))
    assert (found.kind, found.message) == ("signal", "SIGINT (Interrupt)")


def test_torch_s_error_file_is_believed_without_a_record() -> None:
    data = error_file.write("E: from torch", "stack", status=1, wall_time_s=1)
    found = diagnose(replace(SEEN, error_file=data, error_file_path="/e.json"))
    assert (found.kind, found.message, found.traceback, found.error_file) == (
        "exit",
        "E: from torch",
        "stack",
        "/e.json",
    )


def test_an_error_file_of_a_signal_keeps_the_stack_the_fault_handler_left() -> None:
    found = diagnose(replace(SEEN, status=-6, error_file=b'{"message": "words"}', black_box=b"stack\n"))
    assert (found.kind, found.message, found.traceback) == ("signal", "words", "stack\n")


def test_a_broken_error_file_is_named_and_does_not_hide_the_rest() -> None:
    found = diagnose(replace(SEEN, error_file=b'{"mess', error_file_path="/e.json"))
    assert found.message.startswith("exit status 1; its error file is not whole JSON")
    assert diagnose(replace(SEEN, error_file=b"")).message == "exit status 1; its error file is empty"


def test_a_path_without_a_file_is_not_named() -> None:
    assert diagnose(replace(SEEN, error_file_path="/e.json")).error_file == ""


def test_the_last_lines_of_stderr_are_kept() -> None:
    tail = b"".join(b"line %d\n" % number for number in range(100)) + b"\xff half"
    lines = diagnose(replace(SEEN, stderr_tail=tail)).stderr_tail.split("\n")
    assert len(lines) == TAIL_LINES
    assert lines[-2:] == ["line 99", "\ufffd half"]
