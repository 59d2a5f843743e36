"""The image example under `planaria run`: flags of torchelastic's examples, kills in mid-epoch, drains, a checkpoint file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from trained import EXAMPLES, LIMIT_S, Trained, blocks, iterations, refused

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
SMALL = ("--batch-size=8", "--samples=152", "--width=4", "--image-size=8", "--print-freq=1")
STEPS_PER_EPOCH = 10  # 9 of 16 samples and one of 8
FINISHED = re.compile(rb"finished after step (\d+): weights (\w+)\n")
LINE = re.compile(
    r"Epoch: \[\d+\]\[ *\d+/\d+\]\tTime +\d+\.\d{3} \( *\d+\.\d{3}\)\tData +\d+\.\d{3} \( *\d+\.\d{3}\)"
    r"\tLoss \d\.\d{4}e[+-]\d\d \(\d\.\d{4}e[+-]\d\d\)\tAcc@1 +\d+\.\d\d \( *\d+\.\d\d\)\tAcc@5 +\d+\.\d\d \( *\d+\.\d\d\)"
)


def result(out: bytes) -> tuple[int, bytes]:
    ((steps, weights),) = FINISHED.findall(out)
    return int(steps), weights


@pytest.mark.parametrize(
    ("flag", "word"),
    [("-p/--print-freq/--print_freq", "--print-freq=0"), ("-b/--batch-size/--batch_size", "-b0"), ("--lr", "--lr=-1")],
)
def test_a_number_that_cannot_be_is_refused_in_a_sentence(flag: str, word: str) -> None:
    assert f"error: argument {flag}: expects a " in refused("imagenet", word)


def test_ranks_that_are_killed_in_mid_epoch_go_on_at_the_same_step_to_the_same_weights() -> None:
    example = Trained("imagenet", "--epochs=2", *SMALL)
    try:
        plain = example.run()
        lines = [line for line in plain.out.decode().splitlines() if line.startswith("Epoch: ")]
        assert len(lines) == 2 * STEPS_PER_EPOCH
        assert all(map(LINE.fullmatch, lines)), lines
        kills = {r"Epoch: \[0\]\[ 4/10\]": (1,), r"Epoch: \[1\]\[ 3/10\]": (0, 1)}
        job = example.start("--max-restarts=2", stays_at=list(kills))
        for life, (line, ranks) in enumerate(kills.items()):
            example.wait_blocks(2 * life + 2)
            example.wait_line(line)
            example.kill(job, *ranks)
        end = job.wait(LIMIT_S)
        assert end.status == 0, end.err
        began = iterations(end.err)
        assert began[2] == began[3] >= 4
        assert began[4] == began[5] >= 13
        second = blocks(end.err)[2][1]
        assert second["epoch"] == "0/2"
        assert int(second["data_start_index"]) == 16 * began[2]
        assert result(end.out) == result(plain.out) == (2 * STEPS_PER_EPOCH, result(plain.out)[1])
        example.room.assert_deserted()
    finally:
        example.close()


def test_a_drain_with_loader_processes_stops_all_ranks_after_the_same_step() -> None:
    example = Trained("imagenet", "--epochs=4", "--workers=1", *SMALL)
    try:
        line = r"Epoch: \[1\]\[ 2/10\]"
        job = example.start(f"--snapshot-dir={example.room.path('commits')}", stays_at=[line])
        example.wait_line(line)
        job.signal(signal.SIGTERM)
        end = job.wait(LIMIT_S)
        assert end.status == 128 + signal.SIGTERM, end.err
        assert end.err.count("this rank has committed and stops: this node drains (SIGTERM)") == 2, end.err
        assert "Traceback" not in end.err
        epoch, batch = re.findall(r"Epoch: \[(\d+)\]\[ *(\d+)/", end.out.decode())[-1]
        job = example.start(f"--snapshot-dir={example.room.path('commits')}")
        example.wait_blocks(2)
        job.signal(signal.SIGTERM)
        again = job.wait(LIMIT_S)
        assert iterations(again.err)[:2] == [int(epoch) * STEPS_PER_EPOCH + int(batch) + 1] * 2
        assert blocks(again.err)[0][1]["num_data_workers"] == "1"
    finally:
        example.close()


def test_a_checkpoint_file_has_the_last_whole_epoch_and_another_run_begins_there(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pth.tar"
    words = ("--model_arch", "resnet50", *SMALL, f"--checkpoint-file={file}", "--samples=32")
    short = Trained("imagenet", "--epochs=1", *words)
    try:
        short.run(world_size=1)
    finally:
        short.close()
    saved = torch.load(file, weights_only=True)
    assert (saved["arch"], saved["epoch"], saved["step"]) == ("resnet50", 1, 4)
    longer = Trained("imagenet", "--epochs=2", *words)
    try:
        end = longer.run(world_size=1)
    finally:
        longer.close()
    assert iterations(end.err) == [4]
    assert result(end.out)[0] == 8
    assert [name.name for name in tmp_path.iterdir()] == ["checkpoint.pth.tar"]


def test_means_are_those_of_all_steps_however_few_are_printed() -> None:
    means = []
    for every in (1, 100):
        example = Trained("imagenet", "--epochs=1", *SMALL, "--samples=40", f"--print-freq={every}")
        try:
            lines = [line for line in example.run(world_size=1).out.decode().splitlines() if line.startswith("Epoch: ")]
        finally:
            example.close()
        assert len(lines) == (5 if every == 1 else 2)
        means.append([re.findall(r"\((.*?)\)", field) for field in lines[-1].split("\t")[3:]])
    assert means[0] == means[1]


def by_hand(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    argv = [sys.executable, str(EXAMPLES / "imagenet/main.py"), *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_folder_that_is_none_and_one_without_images_are_refused_in_a_sentence(tmp_path: Path) -> None:
    ended = by_hand("--input_path", str(tmp_path / "nothing"))
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"DATA expects a folder of images, and {tmp_path / 'nothing'} is none\n")
    ended = by_hand(str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"{tmp_path} has no images")


@pytest.mark.parametrize("top", ["", "train"])
def test_a_folder_of_images_is_trained_on_with_or_without_a_folder_train_in_it(tmp_path: Path, top: str) -> None:
    for label, colour in enumerate(("red", "green", "blue")):
        for number in range(4):
            file = tmp_path / top / f"class-{label}" / "images" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9 + number, 12), colour).save(file)
    (tmp_path / top / "class-0" / "boxes.txt").write_text("no image")
    words = ("--input_path", str(tmp_path), "--batch-size=2", "--width=4", "--image-size=8", "--print-freq=1")
    example = Trained("imagenet", "--epochs=2", *words)
    try:
        end = example.run()
    finally:
        example.close()
    assert f"Loading data from: {tmp_path}" in end.err
    assert result(end.out)[0] == 2 * 3, "12 images in steps of 4"
    assert len(re.findall(rb"^Epoch: \[\d\]\[[012]/3\]", end.out, re.MULTILINE)) == 2 * 3


def test_without_a_launcher_it_says_how_to_start_it() -> None:
    ended = by_hand()
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("start me with: planaria run --standalone --nproc-per-node=2")
