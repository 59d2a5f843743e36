from __future__ import annotations

import fcntl
import os
import resource
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.agent import fifo
from planaria.agent.fifo import LineReader, TimerPipe, make_fifo
from planaria.base.loop import Loop
from planaria.contract.timer import LINE_LIMIT_BYTES
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


HIGH = 2000  # above what select() takes


class Rig:
    """A pipe on a loop whose clock stands still until it is moved."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.loop = Loop(lambda: self.now)
        self.lines: list[bytes] = []
        self.complaints: list[str] = []
        self.pipe = TimerPipe(self.loop, str(path), "THE_NAME", self.lines.append, self.complaints.append)

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.loop.run_once(0)

    def write(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path / "pipe")
    yield found
    found.pipe.close()
    found.loop.close()


def test_the_pipe_is_ours_alone_and_gone_afterwards(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        rig = Rig(tmp_path / "pipe")
    finally:
        os.umask(before)
    found = rig.path.stat()
    assert (stat.S_ISFIFO(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)
    rig.pipe.close()
    rig.loop.close()
    assert not rig.path.exists()


def test_lines_of_many_writers_arrive_whole_and_in_order(rig: Rig) -> None:
    for number in range(100):
        rig.write(b"%d\n" % number)
    rig.turn()
    assert rig.lines == [b"%d" % number for number in range(100)]


def test_a_client_can_always_open_it_and_what_is_written_waits(rig: Rig) -> None:
    rig.write(b"early\n")
    rig.turn()
    rig.write(b"late\n")
    rig.pipe.read_all()
    assert rig.lines == [b"early", b"late"]
    assert rig.complaints == []


def fill(rig: Rig) -> int:
    descriptor = os.open(rig.path, os.O_WRONLY | os.O_NONBLOCK)
    count = 0
    try:
        while True:
            try:
                os.write(descriptor, b"x" * 99 + b"\n")
            except BlockingIOError:
                return count
            count += 1
    finally:
        os.close(descriptor)


def test_a_full_pipe_is_complained_of_and_nothing_in_it_is_lost(rig: Rig) -> None:
    count = fill(rig)
    rig.turn()
    assert (len(rig.lines), rig.complaints) == (
        count,
        [f"watchdog: {rig.path} was full, so a worker may have failed to write to it"],
    )


def test_a_full_pipe_is_emptied_before_anybody_complains(rig: Rig) -> None:
    count = fill(rig)
    taken: list[int] = []
    rig.pipe._complain = lambda _: taken.append(len(rig.lines))
    rig.turn()
    assert taken == [count]


def test_the_pipe_holds_a_megabyte_where_this_user_may_have_one(rig: Rig) -> None:
    reader, writer = os.pipe()
    descriptor = os.open(rig.path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        wanted = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
    except PermissionError:
        wanted = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)  # this user has too many large pipes already
    try:
        assert fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) == wanted
    finally:
        for one in (reader, writer, descriptor):
            os.close(one)


def test_a_deleted_pipe_is_made_again_and_that_is_said_once(rig: Rig) -> None:
    rig.path.unlink()
    rig.turn(0.3)
    rig.turn(0.3)
    rig.write(b"again\n")
    rig.turn()
    assert rig.lines == [b"again"]
    assert rig.complaints == [f"watchdog: {rig.path} was deleted; it was made again"]


def test_a_client_that_had_opened_the_deleted_pipe_is_still_heard(rig: Rig) -> None:
    descriptor = os.open(rig.path, os.O_WRONLY | os.O_NONBLOCK)
    rig.path.unlink()
    rig.turn(0.3)
    os.write(descriptor, b"from before\n")
    os.close(descriptor)
    rig.turn(0.3)
    assert rig.lines == [b"from before"]


def test_a_pipe_whose_name_somebody_else_took_is_said_and_read_on(rig: Rig) -> None:
    descriptor = os.open(rig.path, os.O_WRONLY | os.O_NONBLOCK)
    rig.path.unlink()
    rig.path.write_text("mine")
    rig.turn(0.3)
    os.write(descriptor, b"still\n")
    os.close(descriptor)
    rig.turn()
    assert rig.lines == [b"still"]
    assert rig.complaints == [f"watchdog: {rig.path} is not our pipe any more, so no new scope is heard of there"]
    rig.pipe.close()
    assert rig.path.read_text() == "mine"
    rig.path.unlink()
    rig.pipe = TimerPipe(rig.loop, str(rig.path), "X", rig.lines.append, rig.complaints.append)


def test_a_pipe_whose_folder_is_gone_is_said_and_nothing_else_happens(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    rig = Rig(folder / "pipe")
    rig.path.unlink()
    folder.rmdir()
    rig.turn(0.3)
    assert len(rig.complaints) == 1
    assert "cannot be made again" in rig.complaints[0]
    rig.pipe.close()
    rig.loop.close()


def test_a_file_of_that_name_is_left_alone_and_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(
        UsageError, match=r"THE_NAME expects the path of a pipe to be made, got '.*/file', where there is a file"
    ):
        make_fifo(str(tmp_path / "file"), "THE_NAME")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_pipe_that_another_run_reads_is_left_alone(rig: Rig) -> None:
    with pytest.raises(UsageError, match="a pipe that another process reads"):
        make_fifo(str(rig.path), "THE_NAME")
    rig.write(b"still ours\n")
    rig.turn()
    assert rig.lines == [b"still ours"]


def test_a_stale_pipe_that_nobody_reads_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o644)
    os.close(make_fifo(str(tmp_path / "pipe"), "THE_NAME"))
    assert stat.S_IMODE((tmp_path / "pipe").stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="something else"):
        make_fifo(str(tmp_path / "link"), "THE_NAME")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        make_fifo(str(tmp_path / "nowhere" / "pipe"), "THE_NAME")


# Pipes that workers delete as fast as they can, and descriptors beyond the thousandth.


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
    rig.turn(0.3)
    rig.turn(0.3)
    assert rig.pipe._descriptor == before
    os.write(client, b"still heard\n")
    os.close(client)
    monkeypatch.undo()
    rig.turn(0.3)
    rig.turn(0.3)
    rig.write(b"again\n")
    rig.turn(0.3)
    assert rig.lines == [b"still heard", b"again"]
    assert len(set(rig.complaints)) == 2
    assert "cannot be made again" in rig.complaints[0]
    assert rig.complaints[-1].endswith("it was made again")


def test_a_pipe_that_could_be_made_and_not_opened_is_made_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(_path: str) -> int:
        raise OSError(24, "Too many open files")

    rig.path.unlink()
    monkeypatch.setattr(fifo, "_open_fifo", no_descriptor)
    rig.turn(0.3)
    assert rig.path.exists()
    monkeypatch.undo()
    rig.turn(0.3)
    rig.write(b"again\n")
    rig.turn(0.3)
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
    rig.turn(0.3)
    assert (rig.lines, rig.complaints) == ([b"high"], [])


# Lines.


@given(st.lists(st.binary(min_size=1, max_size=50).filter(lambda line: b"\n" not in line)), st.integers(1, 60))
def test_lines_do_not_depend_on_how_they_are_cut(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    reader, found = LineReader(), []
    for start in range(0, len(data), size):
        found += reader.feed(data[start : start + size])
    assert found == lines


def test_what_never_ends_comes_in_pieces_too_long_for_a_line_and_is_no_burden() -> None:
    reader = LineReader()
    found = [line for _ in range(100) for line in reader.feed(b"x" * 1000)]
    assert b"".join(found) == b"x" * 100_000
    assert {len(line) for line in found} == {LINE_LIMIT_BYTES // 1000 * 1000 + 1000}
    assert reader.feed(b"\n{}\n") == [b"{}"]
