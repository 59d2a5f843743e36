from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import tty
from typing import TYPE_CHECKING

import pytest

from planaria.base.loop import Loop
from planaria.process import sink as sink_module
from planaria.process.sink import HIGH_WATER, LOW_WATER, ConsoleSink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINES = b"".join(b"line %06d of some training job\n" % number for number in range(20_000))


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    for fd in (read, write):
        with contextlib.suppress(OSError):
            os.close(fd)


def take(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def read_all(loop: Loop, fd: int, size: int) -> bytes:
    """Turn the loop and read until `size` bytes came; pytest-timeout ends it when they never do."""
    got = bytearray()
    while len(got) < size:
        loop.run_once(0.001)
        got += take(fd)
    return bytes(got)


def blocked(*_args: object) -> None:
    """Stand in for the private copy where the kernel refuses one."""


@pytest.fixture(params=["private copy", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polling":
        monkeypatch.setattr(sink_module, "_private_copy", blocked)
    return str(request.param)


def test_a_blocked_reader_does_not_block_the_loop_and_gets_everything_in_the_end(
    loop: Loop, pipe: tuple[int, int], way: str
) -> None:
    read, write = pipe
    sink = ConsoleSink(loop, write)
    fired: list[int] = []
    sink.write(LINES)
    loop.call_later(0.01, lambda: fired.append(1))
    loop.call_later(0.01, loop.stop)
    loop.run()
    assert fired == [1]
    assert 0 < sink.pending_bytes < len(LINES)
    assert read_all(loop, read, len(LINES)) == LINES
    assert sink.pending_bytes == 0
    assert os.get_blocking(write)
    sink.close()


def test_a_socket_is_written_like_a_pipe(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    sink = ConsoleSink(loop, ours.fileno())
    sink.write(LINES)
    loop.run_once(0)
    loop.run_once(0)
    assert sink.pending_bytes > 0
    assert read_all(loop, theirs.fileno(), len(LINES)) == LINES
    assert os.get_blocking(ours.fileno())
    ours.close()
    theirs.close()


def test_a_held_terminal_does_not_block_the_loop(loop: Loop) -> None:
    master, slave = os.openpty()
    os.set_blocking(master, False)
    tty.setraw(slave)
    sink = ConsoleSink(loop, slave)
    sink.write(LINES)
    fired: list[int] = []
    loop.call_later(0.01, lambda: fired.append(1))
    loop.call_later(0.01, loop.stop)
    loop.run()
    assert fired == [1]
    assert sink.pending_bytes > 0
    assert read_all(loop, master, len(LINES)) == LINES
    assert os.get_blocking(slave)
    sink.close()
    os.close(master)
    os.close(slave)


def test_a_regular_file_is_written_directly_at_the_shared_offset(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb", buffering=0) as file:
        file.write(b"before\n")
        sink = ConsoleSink(loop, file.fileno())
        sink.write(LINES)
        loop.run_once(0)
        assert sink.pending_bytes == 0
        file.write(b"after\n")
    assert path.read_bytes() == b"before\n" + LINES + b"after\n"


def test_dev_null_takes_everything(loop: Loop) -> None:
    with open("/dev/null", "wb") as null:
        sink = ConsoleSink(loop, null.fileno())
        sink.write(LINES)
        loop.run_once(0)
        assert sink.pending_bytes == 0


def test_pieces_end_at_line_ends_so_that_other_writers_do_not_cut_lines(
    loop: Loop, pipe: tuple[int, int], way: str
) -> None:
    read, write = pipe
    sink = ConsoleSink(loop, write)
    sink.write(LINES)
    got = bytearray()
    while b"line 019999" not in got:
        loop.run_once(0)
        got += take(read)
        try:
            os.set_blocking(write, False)
            os.write(write, b"another process\n")
        except BlockingIOError:
            pass
    got += take(read)
    lines = bytes(got).splitlines(keepends=True)
    assert b"".join(line for line in lines if line != b"another process\n") == LINES
    sink.close()


def test_what_was_not_read_yet_is_bounded_by_back_pressure(loop: Loop, pipe: tuple[int, int]) -> None:
    read, write = pipe
    sink = ConsoleSink(loop, write)
    resumed: list[int] = []
    sink.write(bytes(HIGH_WATER - 1))
    full = [sink.is_full]
    sink.write(bytes(fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) + 1))
    loop.run_once(0)
    full.append(sink.is_full)
    assert full == [False, True]
    sink.on_drained(lambda: resumed.append(sink.pending_bytes))
    sink.on_drained(lambda: resumed.append(-1))
    while not resumed:
        take(read)
        loop.run_once(0.001)
    assert 0 < resumed[0] < LOW_WATER
    assert resumed[1:] == [-1]
    sink.close()


@pytest.mark.parametrize("sizes", [1, 5000, 3 << 20])
def test_when_the_reader_goes_the_sink_dies_once_and_drops_the_rest(
    loop: Loop, pipe: tuple[int, int], sizes: int, way: str
) -> None:
    read, write = pipe
    reasons: list[int | None] = []
    resumed: list[int] = []
    sink = ConsoleSink(loop, write, lambda exc: reasons.append(exc.errno))
    sink.write(bytes(3 << 20))
    loop.run_once(0)
    sink.on_drained(lambda: resumed.append(1))
    os.close(read)
    loop.run_once(5)
    assert reasons == [errno.EPIPE]
    assert resumed == [1]
    assert sink.is_dead
    sink.write(bytes(sizes))
    assert sink.pending_bytes == 0
    assert not sink.is_full
    loop.run_once(0)
    assert reasons == [errno.EPIPE]
    assert sink.flush(loop.now() + 5) is False
    sink.close()


def test_a_terminal_that_hung_up_is_reported(loop: Loop) -> None:
    master, slave = os.openpty()
    reasons: list[int | None] = []
    sink = ConsoleSink(loop, slave, lambda exc: reasons.append(exc.errno))
    os.close(master)
    sink.write(b"nobody sees this\n")
    loop.run_once(0)
    assert reasons == [errno.EIO]
    sink.close()
    os.close(slave)


def test_a_launcher_without_stdout_is_no_reason_to_fail(loop: Loop, pipe: tuple[int, int]) -> None:
    _, write = pipe
    os.close(write)
    reasons: list[int | None] = []
    sink = ConsoleSink(loop, write, lambda exc: reasons.append(exc.errno))
    sink.write(b"lost\n")
    loop.run_once(0)
    assert reasons == [errno.EBADF]


def test_a_full_disk_is_reported(loop: Loop) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        reasons: list[int | None] = []
        sink = ConsoleSink(loop, full.fileno(), lambda exc: reasons.append(exc.errno))
        sink.write(b"lost\n")
        loop.run_once(0)
    assert reasons == [errno.ENOSPC]


def test_flush_waits_for_a_slow_reader(loop: Loop, way: str) -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        size = 0
        while data := os.read(read, 4096):
            size += len(data)
        os._exit(0 if size == len(LINES) else 1)
    os.close(read)
    sink = ConsoleSink(loop, write)
    sink.write(LINES)
    assert sink.flush(loop.now() + 60)
    assert sink.pending_bytes == 0
    sink.close()
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0


def test_flush_gives_up_at_the_deadline(loop: Loop, pipe: tuple[int, int], way: str) -> None:
    sink = ConsoleSink(loop, pipe[1])
    sink.write(LINES)
    assert not sink.flush(loop.now() + 0.05)
    assert sink.pending_bytes > 0
    sink.close()


def test_flush_writes_what_can_be_written_even_after_the_deadline(loop: Loop, pipe: tuple[int, int], way: str) -> None:
    sink = ConsoleSink(loop, pipe[1])
    sink.write(b"last words\n")
    assert sink.flush(loop.now() - 1)
    assert take(pipe[0]) == b"last words\n"
    sink.close()


def test_after_close_nothing_is_left_behind(loop: Loop, pipe: tuple[int, int], way: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    sink = ConsoleSink(loop, pipe[1])
    sink.write(LINES)
    loop.run_once(0)
    sink.close()
    loop.run_once(0)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_named_pipe_nobody_reads_yet_is_left_to_polling(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    write = os.open(path, os.O_WRONLY)
    os.close(both)
    sink = ConsoleSink(loop, write)
    assert sink._own_fd is None
    os.close(write)
