from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planaria.base.loop import Loop
from planaria.process.lines import LineCutter, matching, prefixed
from planaria.process.sink import HIGH_WATER, ConsoleSink
from planaria.process.tee import TAIL_BYTES, Pace, Route, Tee, open_pipe, tail_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAMS = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b"b" * 7, b"\xff\x00", b""]), max_size=40).map(
    b"".join
)
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    stream = draw(STREAMS | st.binary(max_size=60))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    return stream, [stream[a:b] for a, b in itertools.pairwise(edges)]


def console_text(stream: bytes, prefix: bytes, longest: int = 1 << 20) -> bytes:
    """Say what the console shows, slowly and plainly."""
    plain = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = plain.split(b"\n")
    if not lines[-1]:
        lines.pop()
    pieces = [line[at : at + longest] for line in lines for at in range(0, len(line) or 1, longest)]
    return b"".join(prefix + piece + b"\n" for piece in pieces)


class Console:
    """A sink on a regular file: what was written is there after a turn."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        self.sink = ConsoleSink(loop, self.fd)

    def text(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def console(loop: Loop, tmp_path: Path) -> Iterator[Console]:
    console = Console(loop, tmp_path / "console")
    yield console
    console.sink.close()
    os.close(console.fd)


def open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def settle(loop: Loop) -> None:
    loop.run_once(0)
    loop.run_once(0)


@given(cut_streams(), st.integers(1, 9))
@QUIET
def test_the_same_stream_gives_the_same_lines_however_it_is_cut(cut: tuple[bytes, list[bytes]], longest: int) -> None:
    stream, chunks = cut
    cutter = LineCutter(longest)
    shown = b"".join(prefixed(b"[p]:", cutter.feed(chunk)) for chunk in chunks)
    shown += prefixed(b"[p]:", cutter.end())
    assert shown == console_text(stream, b"[p]:", longest)


@given(cut_streams())
@QUIET
def test_any_chunks_give_the_exact_log_and_the_exact_console(tmp_path: Path, cut: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = cut
    (tmp_path / "log").unlink(missing_ok=True)
    loop = Loop()
    console = Console(loop, tmp_path / "console")
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route(open_log(tmp_path / "log"), console.sink, b"[x0]:"))
    for chunk in chunks:
        os.write(write, chunk)
        settle(loop)
    os.close(write)
    tee.finish()
    settle(loop)
    assert console.text() == console_text(stream, b"[x0]:")
    assert (tmp_path / "log").read_bytes() == stream
    assert tee.tail() == stream[-TAIL_BYTES:]
    loop.close()
    os.close(console.fd)


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=5) | st.sampled_from([b"\n", b"\r", b"a\nb"])), max_size=30)
)
@QUIET
def test_two_workers_never_share_a_line(tmp_path: Path, writes: list[tuple[bool, bytes]]) -> None:
    loop = Loop()
    console = Console(loop, tmp_path / "console")
    pipes = [open_pipe(), open_pipe()]
    tees = [
        Tee(Pace(loop), read, Route(None, console.sink, b"<%d>" % number)) for number, (read, _) in enumerate(pipes)
    ]
    sent = [b"", b""]
    for which, data in writes:
        clean = data.replace(b"<", b"-")
        os.write(pipes[which][1], clean)
        sent[which] += clean
        settle(loop)
    for tee, (_, write) in zip(tees, pipes, strict=True):
        os.close(write)
        tee.finish()
    settle(loop)
    lines = console.text().split(b"\n")[:-1]
    for number in (0, 1):
        own = b"".join(line + b"\n" for line in lines if line.startswith(b"<%d>" % number))
        assert own == console_text(sent[number], b"<%d>" % number)
    assert all(line.startswith((b"<0>", b"<1>")) for line in lines)
    loop.close()
    os.close(console.fd)


def test_a_part_of_a_line_is_held_until_its_end_comes(loop: Loop, console: Console) -> None:
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route(None, console.sink, b"[w0]:"))
    os.write(write, b"one\ntw")
    settle(loop)
    assert console.text() == b"[w0]:one\n"
    os.write(write, b"o\n")
    settle(loop)
    assert console.text() == b"[w0]:one\n[w0]:two\n"
    os.close(write)
    tee.finish()


def test_a_progress_bar_is_shown_while_it_moves(loop: Loop, console: Console) -> None:
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route(None, console.sink, b"[w0]:"))
    os.write(write, b"10%\r")
    settle(loop)
    assert console.text() == b"[w0]:10%\n"
    os.write(write, b"\n20%\r30%")
    settle(loop)
    assert console.text() == b"[w0]:10%\n[w0]:20%\n"
    os.close(write)
    tee.finish()
    settle(loop)
    assert console.text() == b"[w0]:10%\n[w0]:20%\n[w0]:30%\n"


class Ticking:
    """One tee on a clock of its own."""

    def __init__(self, folder: Path, pipe_bytes: int = 1 << 20) -> None:
        self.now = 500.0
        self.loop = Loop(lambda: self.now)
        self.console = Console(self.loop, folder / "console")
        read, self.write = open_pipe(pipe_bytes)
        self.tee = Tee(Pace(self.loop), read, Route(None, self.console.sink, b""))

    def say(self, text: bytes) -> bool:
        """Write, turn once, and tell whether it was shown at once."""
        os.write(self.write, text)
        settle(self.loop)
        return self.console.text().endswith(text)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        settle(self.loop)
        settle(self.loop)

    def close(self) -> None:
        os.close(self.write)
        self.tee.finish()
        self.loop.close()
        os.close(self.console.fd)


@pytest.fixture
def ticking(tmp_path: Path) -> Iterator[Ticking]:
    ticking = Ticking(tmp_path)
    yield ticking
    ticking.close()


def test_many_small_writes_are_gathered_until_the_tick(ticking: Ticking) -> None:
    assert [ticking.say(b"%d\n" % number) for number in range(6)] == [True, True, False, False, False, False]
    ticking.pass_time(0.026)
    assert ticking.console.text() == b"0\n1\n2\n3\n4\n5\n"
    assert not ticking.say(b"again\n")
    ticking.pass_time(0.026)
    assert ticking.console.text().endswith(b"again\n")


def test_what_comes_rarely_is_shown_at_once_also_after_a_burst(ticking: Ticking) -> None:
    for number in range(3):
        ticking.say(b"%d\n" % number)
    for _ in range(10):
        ticking.pass_time(0.026)
    for number in range(3):
        assert ticking.say(b"rare %d\n" % number)
        ticking.pass_time(0.026)


def test_a_stream_that_would_fill_its_pipe_within_a_tick_is_not_held_back(tmp_path: Path) -> None:
    ticking = Ticking(tmp_path, 1 << 12)
    assert all(ticking.say(b"%08d" % number * 200 + b"\n") for number in range(20))
    ticking.pass_time(0.026)
    assert all(ticking.say(b"%08d" % number * 200 + b"\n") for number in range(20))
    ticking.close()


def test_the_end_of_the_stream_ends_the_line_before_finish(loop: Loop, console: Console) -> None:
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route(None, console.sink, b"[w0]:"))
    os.write(write, b"last words")
    os.close(write)
    settle(loop)
    settle(loop)
    assert console.text() == b"[w0]:last words\n"
    tee.finish()
    settle(loop)
    assert console.text() == b"[w0]:last words\n"


def test_a_line_of_100_mb_is_folded_and_held_in_little_memory() -> None:
    cutter = LineCutter()
    chunk = b"x" * (1 << 16)
    shown = pieces = 0
    for _ in range(1600):
        lines = cutter.feed(chunk)
        assert all(len(line) == 1 << 20 for line in lines[:-1].split(b"\n") if lines)
        shown += len(lines) - lines.count(b"\n")
        pieces += lines.count(b"\n")
        assert len(cutter._held) <= 1 << 20
    assert shown + len(cutter._held) == 1600 << 16
    assert pieces == 99
    assert cutter.end() == b"x" * (1 << 20) + b"\n"


def test_single_bytes_without_a_line_end_do_not_cost_a_copy_each() -> None:
    cutter = LineCutter()
    held = cutter._held
    for _ in range(300_000):
        cutter.feed(b"x")
    assert cutter._held is held
    assert len(cutter.end()) == 300_001


def test_a_line_of_exactly_the_longest_length_is_not_folded() -> None:
    for chunks in ([b"x" * 8 + b"\n"], [b"x" * 8, b"\n"], [b"x" * 8, b"\r", b"\n"]):
        cutter = LineCutter(8)
        assert b"".join(cutter.feed(chunk) for chunk in chunks) == b"xxxxxxxx\n"
    twice = LineCutter(4)
    assert twice.feed(b"x" * 8) + twice.feed(b"\n") == b"xxxx\nxxxx\n"


def test_lines_that_match_a_filter_are_copied_with_their_prefix(loop: Loop, console: Console, tmp_path: Path) -> None:
    read, write = open_pipe()
    filtered = open_log(tmp_path / "filtered")
    tee = Tee(Pace(loop), read, Route(None, console.sink, b"[w0]:", (b"loss", b"\xff"), filtered))
    os.write(write, b"step 1\nloss 3\nodd \xff byte\nnothing\nlo")
    settle(loop)
    os.write(write, b"ss 2")
    os.close(write)
    tee.finish()
    assert (tmp_path / "filtered").read_bytes() == b"[w0]:loss 3\n[w0]:odd \xff byte\n[w0]:loss 2\n"
    assert matching((b"",), b"a\n\nb\n") == b"a\n\nb\n"


def test_a_full_disk_is_said_once_and_the_console_goes_on(loop: Loop, console: Console) -> None:
    read, write = open_pipe()
    warnings: list[str] = []
    tee = Tee(Pace(loop), read, Route(os.open("/dev/full", os.O_WRONLY), console.sink, b""), warnings.append)
    for _ in range(3):
        os.write(write, b"line\n")
        settle(loop)
    os.close(write)
    tee.finish()
    settle(loop)
    assert console.text() == b"line\n" * 3
    assert warnings == ["cannot write /dev/full, going on without it: No space left on device"]


def test_a_slow_console_slows_the_worker_and_loses_nothing(loop: Loop, tmp_path: Path) -> None:
    shown, console_fd = os.pipe()
    os.set_blocking(shown, False)
    sink = ConsoleSink(loop, console_fd)
    script = "import sys\nfor n in range(200_000): sys.stdout.write(f'line {n} {n * n}\\n')"
    read, write = open_pipe()
    with subprocess.Popen([sys.executable, "-ISc", script], stdout=write) as worker:
        os.close(write)
        tee = Tee(Pace(loop), read, Route(open_log(tmp_path / "log"), sink, b"[w0]:"))
        while not sink.is_full or loop._watches.keys() & {read}:
            loop.run_once(1)
        assert sink.pending_bytes < HIGH_WATER + (2 << 20)
        assert worker.poll() is None
        got = bytearray()
        while not tee._at_end or sink.pending_bytes:
            loop.run_once(0.001)
            with contextlib.suppress(BlockingIOError):
                got += os.read(shown, 1 << 20)
        while len(got) < (tmp_path / "log").stat().st_size + 200_000 * 5:
            got += os.read(shown, 1 << 20)
    tee.finish()
    expected = b"".join(b"line %d %d\n" % (number, number * number) for number in range(200_000))
    assert (tmp_path / "log").read_bytes() == expected
    assert bytes(got) == console_text(expected, b"[w0]:")
    sink.close()
    os.close(shown)
    os.close(console_fd)


def test_finish_hands_everything_over_although_the_console_is_full(loop: Loop) -> None:
    shown, console_fd = os.pipe()
    os.set_blocking(shown, False)
    sink = ConsoleSink(loop, console_fd)
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route(None, sink, b"[w0]:"))
    other = b"x" * 63 + b"\n"
    sink.write(other * (3 * HIGH_WATER // 64))
    os.write(write, b"last\nwords")
    settle(loop)
    assert sink.is_full
    assert read not in loop._watches
    os.close(write)
    tee.finish()
    got = bytearray()
    while sink.pending_bytes or not got.endswith(b"words\n"):
        loop.run_once(0.001)
        with contextlib.suppress(BlockingIOError):
            got += os.read(shown, 1 << 20)
    assert bytes(got) == other * (3 * HIGH_WATER // 64) + b"[w0]:last\n[w0]:words\n"
    sink.close()
    os.close(shown)
    os.close(console_fd)


def test_a_stream_is_held_while_the_console_takes_nothing_and_no_longer() -> None:
    now = 100.0
    loop = Loop(lambda: now)
    shown, console_fd = os.pipe()
    sink = ConsoleSink(loop, console_fd)
    pipes = [open_pipe() for _ in range(2)]
    loud, mute = (Tee(Pace(loop), read, Route(None, sink, b"")) for read, _ in pipes)
    sink.write(b"x" * (2 * HIGH_WATER))
    settle(loop)
    assert not loud.is_held(now), "it has said nothing yet"
    os.write(pipes[0][1], b"step 7\n")
    settle(loop)
    assert (loud.is_held(now), mute.is_held(now)) == (True, False)
    began, now = now, now + 60.0
    assert loud.is_held(began)
    os.read(shown, 1 << 16)
    settle(loop)
    assert not loud.is_held(began), "a console that is slow is not held"
    assert loud.is_held(now)
    while sink.pending_bytes:
        os.read(shown, 1 << 16)
        loop.run_once(0)
    assert not loud.is_held(now)
    for tee, (_, write) in zip((loud, mute), pipes, strict=True):
        os.close(write)
        tee.finish()
    sink.close()
    os.close(shown)
    os.close(console_fd)
    loop.close()


def test_everyone_gets_a_turn_at_a_slow_console(loop: Loop) -> None:
    shown, console_fd = os.pipe()
    os.set_blocking(shown, False)
    sink = ConsoleSink(loop, console_fd)
    flood = b"y" * 99 + b"\n"
    pipes = [open_pipe(1 << 18) for _ in range(12)]
    tees = [Tee(Pace(loop), read, Route(None, sink, b"<%02d>" % number)) for number, (read, _) in enumerate(pipes)]
    seen: dict[bytes, int] = {}
    for _ in range(3000):
        for _, write in pipes:
            os.set_blocking(write, False)
            with contextlib.suppress(BlockingIOError):
                os.write(write, flood * 40)
        loop.run_once(0)
        try:
            text = os.read(shown, 1 << 20)
        except BlockingIOError:
            continue
        for number in range(12):
            seen[b"<%02d>" % number] = seen.get(b"<%02d>" % number, 0) + text.count(b"<%02d>" % number)
    assert min(seen.values()) * 4 > max(seen.values())
    for tee, (_, write) in zip(tees, pipes, strict=True):
        os.close(write)
        tee.finish()
    sink.close()
    os.close(shown)
    os.close(console_fd)


def test_finish_does_not_wait_for_a_grandchild_that_keeps_the_pipe(loop: Loop, console: Console) -> None:
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route(None, console.sink, b"[w0]:"))
    os.write(write, b"held by another process")
    tee.finish()
    tee.finish()
    settle(loop)
    assert console.text() == b"[w0]:held by another process\n"
    with pytest.raises(BrokenPipeError):
        os.write(write, b"nobody listens")
    os.close(write)


def test_finish_ends_although_a_grandchild_writes_without_pause(loop: Loop, console: Console) -> None:
    read, write = open_pipe(1 << 18)
    tee = Tee(Pace(loop), read, Route(None, console.sink, b""))
    read_once, reads = tee._read, []

    def read_while_it_writes() -> int:
        os.write(write, b"flood\n" * 1000)
        reads.append(read_once())
        return reads[-1]

    tee._read = read_while_it_writes  # type: ignore[method-assign]  # the grandchild is always faster
    tee.finish()
    assert sum(reads) >= fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    assert len(reads) < 1000
    os.close(write)


def test_no_descriptor_is_left_open(loop: Loop, console: Console, tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    read, write = open_pipe()
    route = Route(open_log(tmp_path / "log"), console.sink, b"", (b"x",), open_log(tmp_path / "filtered"))
    tee = Tee(Pace(loop), read, route)
    os.write(write, b"xyz\n")
    os.close(write)
    settle(loop)
    tee.finish()
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_tail_is_the_last_8_kib(loop: Loop) -> None:
    read, write = open_pipe()
    tee = Tee(Pace(loop), read, Route())
    sent = b""
    for number in range(3000):
        os.write(write, b"%d," % number)
        sent += b"%d," % number
        tee.catch_up()  # every write is a read of its own
        if number % 500 == 0:
            assert tee.tail() == sent[-TAIL_BYTES:]
    os.close(write)
    tee.finish()
    assert tee.tail() == sent[-TAIL_BYTES:]


def test_the_tail_of_a_file_is_its_end_and_a_missing_file_has_none(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    assert tail_of_file(str(path)) == b""
    assert tail_of_file(str(tmp_path)) == b""
    path.write_bytes(b"short")
    assert tail_of_file(str(path)) == b"short"
    path.write_bytes(b"x" * 10_000 + b"end")
    assert tail_of_file(str(path), 5) == b"xxend"


def test_a_pipe_is_larger_than_usual_and_only_our_end_does_not_block() -> None:
    read, write = open_pipe(1 << 18)
    assert fcntl.fcntl(read, fcntl.F_GETPIPE_SZ) >= 1 << 16
    assert not os.get_blocking(read)
    assert os.get_blocking(write)
    assert not os.get_inheritable(write)
    os.close(read)
    os.close(write)
