"""What is read about a process that hangs."""

from __future__ import annotations

import os

import pytest

from planaria.agent import proc

FLIGHT = {
    "entries": [
        {"profiling_name": "gloo:all_reduce", "collective_seq_id": 1, "retired": True, "state": "scheduled"},
        {"profiling_name": "gloo:barrier", "collective_seq_id": 2, "retired": False, "state": "scheduled"},
        {"profiling_name": "gloo:send", "collective_seq_id": 3, "retired": False, "state": "completed"},
    ],
    "pg_status": {"0": {"last_enqueued_collective": "2", "last_completed_collective": "1"}},
}


def test_the_collective_is_the_newest_that_is_not_over() -> None:
    assert proc.collective(FLIGHT) == ("gloo:barrier number 2", (("0", 2),))
    done = {**FLIGHT, "pg_status": {"0": {"last_enqueued_collective": "3", "last_completed_collective": "3"}}}
    assert proc.collective(done) == ("", (("0", 3),))


def test_what_is_not_what_it_should_be_says_nothing() -> None:
    for flight in (
        {},
        {"pg_status": 7},
        {"pg_status": {"0": None}},
        {"pg_status": {"0": {"last_enqueued_collective": "x"}}},
    ):
        assert proc.collective(flight) == ("", ())
    assert proc.collective({"pg_status": FLIGHT["pg_status"], "entries": [None, 3]}) == ("unknown", (("0", 2),))
    assert proc.as_object(b"[1]") == proc.as_object(b"{") == proc.as_object(b"") == {}


def test_a_process_is_described_and_one_that_is_gone_is_no_error() -> None:
    own = proc.process(os.getpid())
    assert "State:" in own
    assert f"\n{os.getpid()} " in own
    assert proc.state(os.getpid()) in "RS"
    assert proc.cpu_s(os.getpid()) is not None
    gone = 2**22 + 1
    assert (proc.state(gone), proc.cpu_s(gone), proc.wchan(gone)) == ("", None, "")
    assert "threads" in proc.process(gone)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("python train.py --lr 3 --epochs=5", "python train.py --lr 3 --epochs=5"),
        ("a --wandb-token=abc WANDB_API_KEY=abc", "a --wandb-token=*** WANDB_API_KEY=***"),
        ("a --password abc --lr 3 secrets.py", "a --password *** --lr 3 secrets.py"),
        ("a --key --lr 3", "a --key --lr 3"),
        ("a --data=s3://me:abc@host/x", "a --data=s3://***@host/x"),
    ],
)
def test_a_command_line_is_shown_without_its_secrets(words: str, shown: str) -> None:
    assert proc.command(words.replace(" ", "\0").encode() + b"\0") == shown


def test_the_host_is_described() -> None:
    text = proc.host("/nowhere")
    assert "--- loadavg" in text
    assert "MemAvailable" in text
    assert "\n/tmp " in text
