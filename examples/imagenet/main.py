"""Train a residual network on images. Kill whatever you like: it goes on at the same step.

    planaria run --standalone --nproc-per-node=2 --max-restarts=100 examples/imagenet/main.py --arch=resnet18 --epochs=2

Without a folder the images are generated, and the models are small ones of the same build, so that a laptop has something to
show within seconds. With a folder, DATA/train/CLASS/... or DATA/CLASS/..., its images are read by Pillow; `--width=64` has the
usual number of channels.

The newest step is in the agent's memory, and on disk with `planaria run --snapshot-dir=...`. `--checkpoint-file` has the end of
the last epoch besides, in a file that `torch.load` reads.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from planaria import worker
from planaria.worker import ElasticState
from planaria.worker.data import ElasticSampler, weighted

if TYPE_CHECKING:
    from collections.abc import Callable

ARCHITECTURES = {  # blocks of each stage, and whether they are bottlenecks
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}
ENDINGS = {".jpeg", ".jpg", ".png", ".bmp", ".webp"}
log = logging.getLogger("main")


class Block(nn.Module):
    """A residual block: two convolutions, or three with a bottleneck."""

    def __init__(self, before: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        after = width * 4 if bottleneck else width
        sizes = [(before, width, 1), (width, width, 3), (width, after, 1)] if bottleneck else [(before, width, 3)]
        sizes += [] if bottleneck else [(width, after, 3)]
        wide = next(at for at, (_, _, kernel) in enumerate(sizes) if kernel == 3)
        layers: list[nn.Module] = []
        for at, (inside, outside, kernel) in enumerate(sizes):
            layers += [_convolution(inside, outside, kernel, stride if at == wide else 1), nn.BatchNorm2d(outside)]
            layers += [nn.ReLU(inplace=True)] if at + 1 < len(sizes) else []
        self.body = nn.Sequential(*layers)
        same = before == after and stride == 1
        short = nn.Sequential(_convolution(before, after, 1, stride), nn.BatchNorm2d(after))
        self.short = nn.Identity() if same else short

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add what the block found to what it got."""
        return torch.relu(self.body(images) + self.short(images))


def _convolution(before: int, after: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)


def residual_network(arch: str, width: int, classes: int) -> nn.Module:
    """Build one of ARCHITECTURES; `width` is the channels of its first stage."""
    blocks, bottleneck = ARCHITECTURES[arch]
    layers: list[nn.Module] = [_convolution(3, width, 3, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    channels = width
    for stage, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if stage and number == 0 else 1
            layers.append(Block(channels, width << stage, stride, bottleneck=bottleneck))
            channels = (width << stage) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Generated(Dataset):  # type: ignore[type-arg]
    """Images that need no download: each class has a pattern of its own, each image its own noise."""

    def __init__(self, samples: int, size: int, classes: int = 10) -> None:
        self.classes = classes
        self._samples, self._size = samples, size
        self._patterns = torch.randn(classes, 3, 4, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = int(index) % self.classes
        pattern = nn.functional.interpolate(self._patterns[label][None], size=(self._size, self._size))[0]
        return flipped(pattern + torch.randn(3, self._size, self._size)), label  # seeded by sampler.seeded


class Folder(Dataset):  # type: ignore[type-arg]
    """The images below a folder, one folder for each class."""

    def __init__(self, path: Path, size: int) -> None:
        try:
            from PIL import Image
        except ModuleNotFoundError:
            sys.exit("reading a folder of images needs Pillow: pip install pillow; without DATA, images are generated")
        self._image, self._size = Image, size
        top = path / "train" if (path / "train").is_dir() else path
        folders = sorted(one for one in top.iterdir() if one.is_dir())
        self.classes = len(folders)
        self._images = [
            (file, label)
            for label, folder in enumerate(folders)
            for file in sorted(folder.rglob("*"))
            if file.suffix.lower() in ENDINGS
        ]
        if not self._images:
            sys.exit(f"{top} has no images: DATA expects a folder with one folder of images for each class")

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file, label = self._images[index]
        with self._image.open(file) as image:
            small = image.convert("RGB").resize((self._size, self._size))
            flat = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
        return flipped(flat.view(self._size, self._size, 3).permute(2, 0, 1) / 127.5 - 1.0), label


def flipped(image: torch.Tensor) -> torch.Tensor:
    """Mirror every other image."""
    return image.flip(2) if torch.rand(()) < 0.5 else image


class Meter:
    """A number and its mean, as a line of the log shows them."""

    def __init__(self, name: str, form: str) -> None:
        self._name, self._form = name, form
        self._last: float | torch.Tensor = 0.0
        self._sum: float | torch.Tensor = 0.0
        self._count = 0

    def add(self, value: float | torch.Tensor, count: int = 1) -> None:
        """Take in a value that stands for so many. One that lies on a GPU stays there, and nobody waits for it."""
        self._last = value
        self._sum += value * count
        self._count += count

    def __str__(self) -> str:
        mean = float(self._sum) / max(self._count, 1)
        return f"{self._name} {float(self._last):{self._form}} ({mean:{self._form}})"


class Meters:
    """What the line of an epoch is made of: since this process began, or the epoch."""

    def __init__(self) -> None:
        self.time, self.data = Meter("Time", "6.3f"), Meter("Data", "6.3f")
        self.loss, self.top1, self.top5 = Meter("Loss", ".4e"), Meter("Acc@1", "6.2f"), Meter("Acc@5", "6.2f")

    def line(self, epoch: int, batch: int, batches: int) -> str:
        """Return the line in the form that torchelastic's operator reads."""
        place = f"Epoch: [{epoch}][{batch:{len(str(batches))}d}/{batches}]"
        return "\t".join([place, *map(str, (self.time, self.data, self.loss, self.top1, self.top5))])


def accuracy(scores: torch.Tensor, labels: torch.Tensor, best: int) -> torch.Tensor:
    """Return in how many of a hundred cases the label is among the best."""
    found = scores.topk(min(best, scores.shape[1]), 1).indices == labels[:, None]
    return 100.0 * found.any(1).float().mean()


def at_least(least: float) -> Callable[[str], float]:
    """Return how to read a number that is not lower, a whole one where `least` is: argparse says in a sentence if it is not."""
    wanted = f"a {'whole ' if isinstance(least, int) else ''}number from {least} on"

    def number(text: str) -> float:
        try:
            found = type(least)(text)
        except ValueError:
            found = -1
        if not least <= found < float("inf"):
            raise argparse.ArgumentTypeError(f"expects {wanted}, got {text!r}")
        return found

    return number


def arguments() -> argparse.Namespace:
    """Read the command line. Names with two spellings are those of torchelastic's examples."""
    parser = argparse.ArgumentParser(description="train a residual network on images")
    parser.add_argument("data", metavar="DATA", nargs="?", help="a folder of images; without it they are generated")
    parser.add_argument("--input_path", "--input-path", dest="input_path", metavar="DATA", help="the same")
    parser.add_argument("-a", "--arch", "--model_arch", "--model-arch", choices=ARCHITECTURES, default="resnet18")
    parser.add_argument("--epochs", type=at_least(0), default=2)
    parser.add_argument(
        "-b", "--batch-size", "--batch_size", type=at_least(1), default=32, help="images of a rank in a step"
    )
    parser.add_argument("-p", "--print-freq", "--print_freq", type=at_least(1), default=10)
    parser.add_argument("-j", "--workers", type=at_least(0), default=0, help="processes that load data, for each rank")
    parser.add_argument("--checkpoint-file", "--checkpoint_file", type=Path, help="written after every epoch")
    parser.add_argument("--lr", type=at_least(0.0), default=0.05)
    parser.add_argument("--width", type=at_least(1), default=8, help="channels of the first stage")
    parser.add_argument("--image-size", type=at_least(1), default=16)
    parser.add_argument("--samples", type=at_least(1), default=2000, help="how many images to generate")
    args = parser.parse_args()
    args.data = args.data or args.input_path
    if args.data is not None and not Path(args.data).is_dir():
        parser.error(f"DATA expects a folder of images, and {args.data} is none")
    return args


def save(path: Path, content: dict[str, object]) -> None:
    """Replace a file by a whole new one: a crash leaves the old one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    torch.save(content, draft)
    draft.replace(path)


class Training:
    """One rank's part of the training."""

    def __init__(self, args: argparse.Namespace, dataset: Generated | Folder, model: nn.Module) -> None:
        self.args = args
        self.device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu")
        self.is_first = dist.get_rank() == 0
        self.speaks = os.environ["LOCAL_RANK"] == "0"
        on_gpu = self.device.type == "cuda"
        self.model = DistributedDataParallel(model.to(self.device), device_ids=[self.device] if on_gpu else None)
        self.optimizer = torch.optim.SGD(self.model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(args.epochs, 1))
        self.sampler = ElasticSampler(dataset, args.batch_size, seed=7)
        self.loader = self.sampler.count(
            DataLoader(
                self.sampler.seeded(dataset),
                batch_sampler=self.sampler,
                num_workers=args.workers,
                persistent_workers=args.workers > 0,
                pin_memory=on_gpu,
            )
        )
        self.parts = {"optimizer": self.optimizer, "scheduler": self.scheduler, "sampler": self.sampler}
        self.state = ElasticState(model=self.model, **self.parts, step=0)
        epochs = self.sampler.epochs(args.epochs)
        self.batches = (batch for epoch in epochs for batch in self.begin_epoch(epoch))
        self.meters = Meters()
        self.ended = time.monotonic()

    def begin_epoch(self, epoch: int) -> object:
        """Start new means, and return the loader."""
        self.meters, self.ended = Meters(), time.monotonic()
        log.debug("epoch %d", epoch)
        return self.loader

    def load(self) -> None:
        """Begin where the checkpoint file ends. Only rank 0 reads it; a sync hands its state to the others."""
        if not self.is_first or self.args.checkpoint_file is None or not self.args.checkpoint_file.exists():
            return
        saved = torch.load(self.args.checkpoint_file, map_location=self.device, weights_only=True)
        if saved["arch"] != self.args.arch:
            sys.exit(f"{self.args.checkpoint_file} is a checkpoint of {saved['arch']}, not of {self.args.arch}")
        self.model.module.load_state_dict(saved["model"])
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])
        self.state.step = saved["step"]
        log.info("Loaded %s: epoch %d, step %d", self.args.checkpoint_file, saved["epoch"], saved["step"])

    def step(self, state: ElasticState) -> torch.Tensor:
        """Train on one batch."""
        images, labels = next(self.batches)
        loaded = time.monotonic()
        images, labels = images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        scores = self.model(images)
        loss = weighted(nn.functional.cross_entropy(scores, labels), self.loader.portion)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        batch, batches = self.sampler.steps - 1, self.sampler.steps + self.sampler.steps_left
        self.meters.data.add(loaded - self.ended)
        self.meters.time.add(time.monotonic() - self.ended)
        if self.speaks and len(labels):
            self.meters.loss.add(loss.detach(), len(labels))
            self.meters.top1.add(accuracy(scores, labels, 1), len(labels))
            self.meters.top5.add(accuracy(scores, labels, 5), len(labels))
        if self.speaks and len(labels) and (batch % self.args.print_freq == 0 or batch + 1 == batches):
            print(self.meters.line(self.sampler.epoch, batch, batches), flush=True)
        if batch + 1 == batches:
            self.end_epoch(state.step + 1)
        self.ended = time.monotonic()
        return loss.detach()

    def end_epoch(self, step: int) -> None:
        """Change the learning rate; have the checkpoint file written by one rank."""
        self.scheduler.step()
        if self.is_first and self.args.checkpoint_file is not None:
            parts = {name: part.state_dict() for name, part in self.parts.items()}
            place = {"arch": self.args.arch, "epoch": self.sampler.epoch + 1, "step": step}
            save(self.args.checkpoint_file, {**place, "model": self.model.module.state_dict(), **parts})


def main() -> None:
    """Train; rank 0 tells how it ended."""
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s] %(asctime)s %(module)s: %(message)s")
    args = arguments()
    torch.manual_seed(1)

    worker.join()  # a standby has come to here before it is needed; what it had read of the folder by then would be old
    log.info("Loading data from: %s", args.data or "a generator")
    size = args.image_size
    dataset = Folder(Path(args.data), size) if args.data else Generated(args.samples, size)
    log.info("Loading model: %s", args.arch)
    model = residual_network(args.arch, args.width, dataset.classes)
    if "RANK" not in os.environ:
        sys.exit("start me with: planaria run --standalone --nproc-per-node=2 --max-restarts=100 " + sys.argv[0])
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    training = Training(args, dataset, model)
    log.info("Rank [%d] running on %s", dist.get_rank(), training.device)
    training.load()
    worker.train_loop(training.state, training.step)
    if training.is_first:
        content = b"".join(value.cpu().numpy().tobytes() for value in training.model.module.state_dict().values())
        print(
            f"finished after step {training.state.step}: weights {hashlib.sha256(content).hexdigest()[:16]}", flush=True
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
