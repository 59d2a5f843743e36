"""The NumPy example under a real launcher: whatever is killed, it goes on at the same step and ends with the same weights."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest
from programs import hide_torch
from trained import EXAMPLES, Trained, iterations, refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("numpy")
pytestmark = pytest.mark.timeout(115)
WORDS = ("--epochs=2", "--samples=800", "--print-freq=1")
SLOW = "--step-seconds=0.15"  # for a run that is struck: it must not be over before we have looked
STEPS = 50
FINISHED = re.compile(rb"finished after step (\d+): .* weights (\w+)\n")


def trained(*words: str) -> Iterator[Trained]:
    found = Trained("numpy", *words)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def example() -> Iterator[Trained]:
    yield from trained(*WORDS)


@pytest.fixture
def slow() -> Iterator[Trained]:
    yield from trained(*WORDS, SLOW)


def result(out: bytes) -> str:
    (found,) = FINISHED.findall(out)
    assert int(found[0]) == STEPS
    return found[1].decode()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--print-freq=0", "a whole number from 1 on, got '0'"),
        ("--batch-size=0", "a whole number from 1 on, got '0'"),
        ("--samples=0", "a whole number from 1 on, got '0'"),
        ("--epochs=-1", "a whole number from 1 on, got '-1'"),
        ("--samples=1.5", "a whole number from 1 on, got '1.5'"),
        ("--step-seconds=nan", "a number from 0.0 on, got 'nan'"),
    ],
)
def test_a_number_that_cannot_be_is_refused_in_a_sentence(word: str, expected: str) -> None:
    assert refused("numpy", word).endswith(f"error: argument {word.partition('=')[0]}: expects {expected}\n")


def test_workers_that_are_killed_in_mid_epoch_go_on_at_the_same_step_to_the_same_weights(
    example: Trained, slow: Trained
) -> None:
    plain = result(example.run().out)
    job = slow.start("--max-restarts=3")
    for life, ranks in enumerate([(1,), (0,), (0, 1)]):
        slow.wait_blocks(2 * life + 2)
        reached = 10 * life + 7
        slow.wait_line(f"iteration: {reached},")
        slow.kill(job, *ranks)
    end = job.wait()
    assert end.status == 0, end.err
    began = iterations(end.err)
    assert [began[at] == began[at + 1] for at in range(0, 8, 2)] == [True] * 4, "all ranks at the same step"
    for life in range(3):
        assert began[2 * life + 2] >= 10 * life + 7, "no step that was committed is made again"
    assert result(end.out) == plain


def test_those_who_stood_by_go_on_at_the_same_step_to_the_same_weights(example: Trained) -> None:
    plain = result(example.run().out)
    job = example.start("--max-restarts=3", "--standbys=2", stays_at=["iteration: 7,"])
    example.wait_line("iteration: 7,")
    example.wait_standbys(job, 2)
    example.kill(job, 1)
    end = job.wait()
    assert end.status == 0, end.err
    assert "planaria: promoted 2 standbys\n" in end.err
    began = iterations(end.err)
    assert began[2] == began[3] >= 7, "no step that was committed is made again"
    assert result(end.out) == plain


def test_a_drain_stops_all_ranks_after_the_same_step_and_the_next_run_ends_with_the_same_weights(
    example: Trained, slow: Trained
) -> None:
    plain = result(example.run().out)
    flag = f"--snapshot-dir={slow.room.path('commits')}"
    job = slow.start(flag)
    slow.wait_line("iteration: 9,")
    job.signal(signal.SIGTERM)
    end = job.wait()
    assert end.status == 128 + signal.SIGTERM, end.err
    assert end.err.count("this rank has committed and stops: this node drains (SIGTERM)") == 2
    last = int(re.findall(rb"iteration: (\d+)", end.out)[-1])
    again = example.run(flag)
    assert iterations(again.err) == [last + 1] * 2
    assert result(again.out) == plain


def test_the_page_has_a_command_that_takes_less_than_a_minute() -> None:
    """A restart or two of somebody who kills it included."""
    page = (EXAMPLES / "README.md").read_text()
    ((workers, epochs, step_s),) = re.findall(
        r"^planaria run .*--nproc-per-node=(\d+) .* examples/numpy/main.py --epochs=(\d+) --step-seconds=(\S+)$",
        page,
        re.M,
    )
    steps = 2000 / (16 * int(workers)) * int(epochs)
    assert steps * float(step_s) < 40


def test_it_needs_no_torch(example: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", hide_torch(tmp_path / "without-torch"))
    result(example.run(world_size=1 + 1).out)
