"""Both servers with real processes: who hangs is ended, who does not is not, and never the server itself."""

from __future__ import annotations

import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from waiting import wait_until

from planaria.elastic import timer
from planaria.elastic.timer.api import TimerRequest
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 60
CROWD = 1100  # open files: above what select() takes
# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Watched:
    """A server whose events can be waited for."""

    def __init__(self, path: Path) -> None:
        self.events: list[tuple[str, str | None]] = []
        self._changed = threading.Condition()
        self.server = timer.FileTimerServer(str(path), "run", max_interval=0.05, log_event=self._log)

    def _log(self, name: str, request: timer.FileTimerRequest | None) -> None:
        with self._changed:
            self.events.append((name, request.scope_id if request else None))
            self._changed.notify_all()

    def wait_for(self, name: str, scope: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: (name, scope) in self.events, TIMEOUT_S), self.events


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path / "pipe")
    found.server.start()
    yield found
    found.server.stop()
    assert not (tmp_path / "pipe").exists()


CLIENT = """
import sys
from planaria.elastic import timer
timer.configure(timer.FileTimerClient(sys.argv[1], signal=int(sys.argv[2])))
with timer.expires(after=1000, scope="outer"):
    for number in range(100):
        with timer.expires(after=1000, scope="inner"):
            pass
with timer.expires(after=0.05, scope="stuck"):
    print("inside", flush=True)
    sys.stdin.read()
"""


def run_client(path: Path, number: int) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", CLIENT, str(path), str(number)], **pipes)


def test_a_process_that_hangs_in_a_scope_gets_the_signal_it_asked_for(watched: Watched, tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with run_client(tmp_path / "pipe", number) as client:
            assert client.wait(TIMEOUT_S) == -number
        watched.wait_for("kill worker process", "stuck")


def test_a_process_that_asks_for_no_signal_is_only_told_of(watched: Watched, tmp_path: Path) -> None:
    with run_client(tmp_path / "pipe", 0) as client:
        watched.wait_for("timer expired", "stuck")
        assert client.stdin is not None
        client.stdin.close()
        assert client.wait(TIMEOUT_S) == 0
    assert ("kill worker process", "stuck") not in watched.events


def test_the_server_never_ends_its_own_process(watched: Watched, tmp_path: Path) -> None:
    client = timer.FileTimerClient(str(tmp_path / "pipe"))
    client.acquire("mine", time.time() + 0.01)
    watched.wait_for("timer expired", "mine")
    assert ("kill worker process", "mine") not in watched.events


def test_garbage_in_the_pipe_does_not_stop_the_server(watched: Watched, tmp_path: Path) -> None:
    with open(tmp_path / "pipe", "wb") as pipe:
        pipe.write(b'garbage\n{"pid": 1}\n')
    timer.FileTimerClient(str(tmp_path / "pipe")).acquire("mine", time.time())
    watched.wait_for("timer expired", "mine")


def test_run_once_deals_with_what_is_there_and_stops(tmp_path: Path) -> None:
    server = timer.FileTimerServer(str(tmp_path / "pipe"), "run", max_interval=1000)
    client = timer.FileTimerClient(str(tmp_path / "pipe"))
    for _ in range(10):
        client.acquire("a", time.time() + 1000)
    client.release("b")
    server.start()
    server.run_once()
    assert (server._timers.request_count, len(server._timers)) == (11, 1)
    assert not (tmp_path / "pipe").exists()


def test_timers_are_kept_by_process_and_scope(tmp_path: Path) -> None:
    server = timer.FileTimerServer(str(tmp_path / "pipe"), "run")
    now = time.time()
    ours = os.getpid()
    later = timer.FileTimerRequest(ours, "later", now + 50, 9)
    requests = [timer.FileTimerRequest(ours, "now", now - 1, 9), later, timer.FileTimerRequest(1, "other", now - 5, 9)]
    server.register_timers(requests)
    assert server.get_expired_timers(now) == {ours: requests[:1], 1: requests[2:]}
    assert server.get_expired_timers(now + 60)[ours] == requests[:2]
    server.register_timers([timer.FileTimerRequest(ours, "now", -1)])
    assert ours not in server.get_expired_timers(now)
    server.clear_timers({ours})
    assert ours not in server.get_expired_timers(now + 60)
    server.stop()


def test_the_time_that_is_left_is_taken_when_a_request_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = timer.FileTimerServer(str(tmp_path / "pipe"), "run")
    now = time.time()
    server.register_timers([timer.FileTimerRequest(os.getpid(), "a", now + 50, 9)])
    monkeypatch.setattr(time, "time", lambda: now + 3600)  # somebody sets the clock
    assert server.get_expired_timers(time.time()) == {}
    server.stop()


def test_a_file_of_that_name_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UsageError, match="file_path expects the path of a pipe"):
        timer.FileTimerServer(str(tmp_path / "file"), "run")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_client_without_a_server_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    client = timer.FileTimerClient(str(tmp_path / "nobody"))
    with pytest.raises(BrokenPipeError, match=r"^Could not send the FileTimerRequest because FileTimerServer is not"):
        client.acquire("a", 1.0)


def test_a_request_that_is_too_long_says_so(watched: Watched, tmp_path: Path) -> None:
    client = timer.FileTimerClient(str(tmp_path / "pipe"))
    with pytest.raises(RuntimeError, match=f"^FileTimerRequest larger than {select.PIPE_BUF} bytes is not supported: "):
        client.acquire("x" * 5000, 1.0)


def fill(path: Path) -> None:
    """Write to a pipe until nothing more goes in."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(descriptor, b"\n" * 4096)
    os.close(descriptor)


def test_a_client_waits_for_room_in_a_full_pipe(tmp_path: Path) -> None:
    server = timer.FileTimerServer(str(tmp_path / "pipe"), "run", max_interval=0.05)
    fill(tmp_path / "pipe")
    writer = threading.Thread(target=timer.FileTimerClient(str(tmp_path / "pipe")).acquire, args=("a", 1e10))
    writer.start()
    server.start()
    writer.join(TIMEOUT_S)
    server.run_once()
    assert len(server._timers) == 1


def test_a_pipe_that_somebody_deletes_is_made_again_and_said(
    watched: Watched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pipe").unlink()
    wait_until((tmp_path / "pipe").exists, "a pipe that was made again")
    timer.FileTimerClient(str(tmp_path / "pipe")).acquire("mine", time.time())
    watched.wait_for("timer expired", "mine")
    assert f"watchdog: {tmp_path / 'pipe'} was deleted; it was made again" in caplog.messages


def test_a_pipe_that_ran_full_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = timer.FileTimerServer(str(tmp_path / "pipe"), "run")
    fill(tmp_path / "pipe")
    server.start()
    server.run_once()
    assert [line for line in caplog.messages if "was full, so a worker may have failed to write to it" in line]


@pytest.fixture
def crowded() -> Iterator[None]:
    """All numbers that `select` would take are in use."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < CROWD + 100:
        pytest.skip(f"this user may have {before[1]} open files at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], CROWD + 100), before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    try:
        while taken[-1] < CROWD:
            taken.append(os.dup(taken[0]))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("crowded")
def test_more_than_a_thousand_open_files_disturb_neither_server_nor_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = timer.FileTimerServer(str(tmp_path / "pipe"), "run")
    fill(tmp_path / "pipe")
    writer = threading.Thread(target=timer.FileTimerClient(str(tmp_path / "pipe")).acquire, args=("a", 1e10))
    writer.start()
    server.start()
    writer.join(TIMEOUT_S)
    server.run_once()
    assert len(server._timers) == 1
    assert "Error running watchdog" not in caplog.text


def test_a_request_is_written_as_torch_writes_it() -> None:
    text = timer.FileTimerRequest(7, "a", 2.5, 9).to_json()
    assert text == '{"version": 1, "pid": 7, "scope_id": "a", "expiration_time": 2.5, "signal": 9}'


def hang(requests: Any) -> None:
    timer.configure(timer.LocalTimerClient(requests))
    with timer.expires(after=1000, scope="fine"):
        pass
    with timer.expires(after=0.05, scope="stuck"):
        signal.pause()


def test_a_process_that_shares_a_queue_is_killed_when_it_hangs() -> None:
    context = multiprocessing.get_context("fork")  # spawn would have to find this file by its name
    requests = context.Queue()
    server = timer.LocalTimerServer(requests, max_interval=0.05)
    worker = context.Process(target=hang, args=(requests,))
    worker.start()
    server.start()
    try:
        worker.join(TIMEOUT_S)
        assert worker.exitcode == -signal.SIGKILL
    finally:
        worker.kill()
        worker.join()
        server.stop()
        requests.close()


def test_the_local_server_keeps_timers_by_process_and_never_ends_its_own() -> None:
    server = timer.LocalTimerServer(multiprocessing.get_context("spawn").Queue(), max_interval=0.01)
    now = time.time()
    request = TimerRequest(os.getpid(), "a", now - 1)
    server.register_timers([request, TimerRequest(1, "b", now + 100)])
    assert server.get_expired_timers(now) == {os.getpid(): [request]}
    assert server._reap_worker(os.getpid()) is True
    server.clear_timers({os.getpid()})
    assert server.get_expired_timers(now) == {}
