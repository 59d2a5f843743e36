"""One short temporary folder for everything a test session starts, gone with it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder() -> Iterator[None]:
    """Point TMPDIR at a folder of our own: kept log folders go with it, and a scratch folder left behind is seen."""
    folder = Path(tempfile.mkdtemp(prefix="pt-"))
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    yield
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    left = [path.name for path in folder.glob("planaria-*")]
    shutil.rmtree(folder)
    assert not left, f"runs left their private folders behind: {left}"
