"""A pipe that workers delete as fast as they can, and descriptors beyond the thousandth: nothing dies of either."""

from __future__ import annotations

import fcntl
import os
import resource
import stat
from typing import TYPE_CHECKING

import pytest

from planaria.agent import fifo
from planaria.agent.fifo import TimerPipe, make_fifo
from planaria.base.loop import Loop
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HIGH = 2000  # above what select() takes


class Rig:
    """A pipe on a loop whose clock is moved by hand."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.loop = Loop(lambda: self.now)
        self.lines: list[bytes] = []
        self.complaints: list[str] = []
        self.pipe = TimerPipe(self.loop, str(path), "THE_NAME", self.lines.append, self.complaints.append)

    def look(self) -> None:
        self.now += 0.3
        self.loop.run_once(0)

    def write(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, data)
        os.close(descriptor)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path / "pipe")
    yield found
    found.pipe.close()
    found.loop.close()


def test_a_pipe_that_is_deleted_before_it_can_be_opened_is_made_again_at_the_next_look(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = os.mkfifo

    def deleted_at_once(path: str, mode: int) -> None:
        honest(path, mode)
        os.unlink(path)

    before = rig.pipe._descriptor
    client = os.open(rig.path, os.O_WRONLY | os.O_NONBLOCK)
    rig.path.unlink()
    monkeypatch.setattr(fifo.os, "mkfifo", deleted_at_once)
    rig.look()
    rig.look()
    assert rig.pipe._descriptor == before
    os.write(client, b"still heard\n")
    os.close(client)
    monkeypatch.undo()
    rig.look()
    rig.look()
    rig.write(b"again\n")
    rig.look()
    assert rig.lines == [b"still heard", b"again"]
    assert len(set(rig.complaints)) == 2
    assert "cannot be made again" in rig.complaints[0]
    assert rig.complaints[-1].endswith("it was made again")


def test_a_pipe_that_could_be_made_and_not_opened_is_made_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(_path: str) -> int:
        raise OSError(24, "Too many open files")

    rig.path.unlink()
    monkeypatch.setattr(fifo, "_open_fifo", no_descriptor)
    rig.look()
    assert rig.path.exists()
    monkeypatch.undo()
    rig.look()
    rig.write(b"again\n")
    rig.look()
    assert rig.lines == [b"again"]


def test_what_somebody_put_in_the_place_of_a_new_pipe_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipe"
    monkeypatch.setattr(fifo.os, "mkfifo", lambda *_: path.write_text("mine"))
    path_mode = 0o644
    with pytest.raises(UsageError, match="where there is a file already"):
        make_fifo(str(path), "THE_NAME")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode) & path_mode) == ("mine", path_mode)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] <= HIGH:
        pytest.skip("this user may not have so many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], HIGH + 10), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
def test_a_descriptor_beyond_the_thousandth_is_read_like_others(rig: Rig) -> None:
    low = rig.pipe._descriptor
    rig.loop.forget(low)
    rig.pipe._use(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH))
    os.close(low)
    assert rig.pipe._descriptor >= HIGH
    rig.write(b"high\n")
    rig.look()
    assert (rig.lines, rig.complaints) == ([b"high"], [])
