"""The examples of docs/data.md run as they stand, on small data."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("the examples use torch", allow_module_level=True)

pytestmark = pytest.mark.torch
PAGE = Path(__file__).parents[2] / "docs" / "data.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)

BEFORE = """
import contextlib, json, os
import numpy, torch
from torch.utils.data import TensorDataset

os.environ.update(RANK="0", WORLD_SIZE="1")
dataset = TensorDataset(torch.randn(70, 4), torch.randint(0, 3, (70,)))
saved, states, device = None, [], "cpu"
criterion, model = torch.nn.CrossEntropyLoss(), torch.nn.Linear(4, 3)
model.no_sync = contextlib.nullcontext
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
save = lambda *_, sampler: states.append(json.dumps(sampler))
paths, lengths = ["a", "b", "c"], [40, 0, 30]
read_records = lambda path: (path + str(row) for row in range(40))
decode = lambda record: (record, torch.rand(1).item())
rows = numpy.arange(70.0)
gradient_of = lambda part: part.mean()
"""
# What holds after each example.
AFTER = [
    "assert len(states) == 90 * 3 and len(set(states)) == 270",
    "sampler.set_epoch(90)\nassert sum(len(images) for images, _ in loader) == 70",
    "assert (sampler.steps, len(sampler), sampler.cursor) == (1, 0, 70)",
    "read = [record for records, _ in loader for record in records]\nassert len(set(read)) == 70",
    "assert sampler.epoch == 10",
]


def test_every_example_has_something_that_holds_after_it() -> None:
    assert len(BLOCKS) == len(AFTER)


def test_the_examples_run(tmp_path: Path) -> None:
    script = BEFORE + "\n".join(f"{block}\n{after}" for block, after in zip(BLOCKS, AFTER, strict=True))
    (tmp_path / "page.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
