"""The same surroundings for every test session, however it was started."""

import os
import shutil
import signal
import sys
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


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """Undo what `nohup` and background jobs of a shell leave ignored: children inherit it, and tests send those signals."""
    for number, usual in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="module", autouse=True)
def _helpers_of_multiprocessing() -> Iterator[None]:
    """End the helper processes that function workers make `multiprocessing` start: they are children that nobody asked for."""
    yield
    for module, helper in (("forkserver", "_forkserver"), ("resource_tracker", "_resource_tracker")):
        loaded = sys.modules.get(f"multiprocessing.{module}")
        if loaded is not None:
            getattr(loaded, helper)._stop()
