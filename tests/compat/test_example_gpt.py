"""The GPT example with FSDP2 under `planaria run`: kills in mid-epoch, a drain, and a world of another size."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from trained import LIMIT_S, Trained, iterations, refused

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
SMALL = ("--width=16", "--depth=1", "--length=8", "--batch-size=4", "--print-freq=1")
FINISHED = re.compile(rb"finished after step (\d+): weights (\w+)\n")


def result(out: bytes) -> tuple[int, bytes]:
    ((steps, weights),) = FINISHED.findall(out)
    return int(steps), weights


@pytest.mark.parametrize("flag", ["--print-freq", "--batch-size", "--commit-every", "--steps"])
def test_a_number_that_cannot_be_is_refused_in_a_sentence(flag: str) -> None:
    said = refused("gpt", f"{flag}=0")
    assert said.endswith(f"error: argument {flag}: expects a whole number from 1 on, got '0'\n")


def test_ranks_that_are_killed_go_on_from_the_last_commit_to_the_same_weights(tmp_path: Path) -> None:
    plain = Trained("gpt", "--steps=12", "--commit-every=4", f"--commits={tmp_path / 'plain'}", *SMALL)
    killed = Trained("gpt", "--steps=12", "--commit-every=4", f"--commits={tmp_path / 'killed'}", *SMALL)
    try:
        wanted = result(plain.run().out)
        job = killed.start("--max-restarts=1", stays_at=["iteration: 8,"])
        killed.wait_line("iteration: 8,")  # the commit after step 4 is on disk: that after step 8 has waited for it
        killed.kill(job, 1)
        end = job.wait(LIMIT_S)
        assert end.status == 0, end.err
        assert iterations(end.err)[2:] in ([4, 4], [8, 8])
        assert result(end.out) == wanted == (12, wanted[1])
        killed.room.assert_deserted()
    finally:
        plain.close()
        killed.close()


def test_as_it_comes_it_goes_on_at_the_step_of_the_kill_or_the_one_before(tmp_path: Path) -> None:
    example = Trained("gpt", "--steps=12", f"--commits={tmp_path / 'commits'}", *SMALL)
    try:
        job = example.start("--max-restarts=1", stays_at=["iteration: 8,"])
        example.wait_line("iteration: 8,")
        example.kill(job, 0, 1)
        end = job.wait(LIMIT_S)
        assert end.status == 0, end.err
        assert iterations(end.err)[2:] in ([7, 7], [8, 8])
    finally:
        example.close()


def test_a_drain_stops_all_ranks_after_the_same_step_and_one_rank_alone_goes_on_there(tmp_path: Path) -> None:
    example = Trained("gpt", "--steps=200", "--commit-every=100", f"--commits={tmp_path / 'commits'}", *SMALL)
    try:
        job = example.start(stays_at=["iteration: 5,"])
        example.wait_line("iteration: 5,")
        job.signal(signal.SIGTERM)
        end = job.wait(LIMIT_S)
        assert end.status == 128 + signal.SIGTERM, end.err
        assert end.err.count("this rank has committed and stops: this node drains (SIGTERM)") == 2
        last = int(re.findall(rb"iteration: (\d+)", end.out)[-1])
        job = example.start(world_size=1)
        example.wait_blocks(1)
        job.signal(signal.SIGTERM)
        assert iterations(job.wait(LIMIT_S).err) == [last + 1]
    finally:
        example.close()
