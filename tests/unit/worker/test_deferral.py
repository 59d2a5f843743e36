"""Which signals of a training loop wait until its step is over, and what is said where that is too late."""

from __future__ import annotations

import math
import os
import signal
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from waiting import PATIENCE_S

from planaria import worker
from planaria.contract.control import Drain, Resize, decode
from planaria.worker import deferral, goodbye, loop
from planaria.worker.link import Link

if TYPE_CHECKING:
    from pathlib import Path

    from notices import Notifier


def test_a_program_that_handles_all_signals_itself_is_left_alone_however_often_it_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(deferral.signals, "is_unhandled", asked.append)
    deferred = deferral.Deferral(Link(lambda: None))
    for _ in range(3):
        deferred.begin()
    assert asked == [*deferral.SIGNALS]
    assert deferred._pipe is None, "there is nothing to watch"
    deferred.end()
    deferred.begin()
    assert asked == [*deferral.SIGNALS] * 2


def test_a_signal_that_comes_while_handlers_are_being_set_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    obeyed: list[int] = []
    deferred = deferral.Deferral(Link(lambda: None))
    monkeypatch.setattr(deferred, "_obey", obeyed.append)
    set_handler = deferral.signals.set_handler

    def set_and_send(number: int, handler: Any) -> Any:
        monkeypatch.setattr(deferral.signals, "set_handler", set_handler)
        before = set_handler(number, handler)
        os.kill(os.getpid(), number)
        return before

    monkeypatch.setattr(deferral.signals, "set_handler", set_and_send)
    try:
        deferred.begin()
    finally:
        deferred.end()
    assert obeyed == [signal.SIGTERM]


def test_a_signal_that_comes_while_its_notice_is_being_read_is_deferred(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(line: bytes) -> Any:
        monkeypatch.setattr("planaria.worker.link.decode", decode)
        os.kill(os.getpid(), signal.SIGTERM)
        return decode(line)

    monkeypatch.setattr(loop, "DEFERRAL", deferral.Deferral(loop.LINK))
    try:
        assert not worker.should_stop()
        monkeypatch.setattr("planaria.worker.link.decode", interrupted)
        notifier.tell(Drain("SIGTERM", 30.0))
        assert worker.should_stop(), "and this process is there to tell"
    finally:
        loop.DEFERRAL.end()


def test_a_rank_that_is_ended_in_a_resize_says_what_that_costs(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(deferral, "unhandle_signal", ended.append)
    monkeypatch.setattr(os, "kill", lambda _pid, number: ended.append(number))
    deferred = deferral.Deferral(loop.LINK)
    deferred.begin(lambda: goodbye.lost(3, None))
    try:
        loop.LINK.resize()
        notifier.tell(Resize("node b joined", 10.0))
        deferred._obey(signal.SIGTERM)
    finally:
        deferred.end()
    assert ended == [signal.SIGTERM] * 2
    said = "this rank is ended in the middle of a step: 3 steps are lost, for nothing was committed"
    assert capfd.readouterr().err == f"planaria: {said}\n"


@pytest.mark.parametrize("trouble", ["counting", "a file of the program's", "a pipe that nobody reads"])
def test_nothing_that_is_said_about_an_end_keeps_it_from_coming(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: str
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(deferral, "unhandle_signal", ended.append)
    monkeypatch.setattr(os, "kill", lambda _pid, number: ended.append(number))
    deferred = deferral.Deferral(loop.LINK)
    stderr, (reader, writer) = os.dup(2), os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(1 << 16))
    os.set_blocking(writer, True)
    own = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    try:
        if trouble.startswith("a pipe"):
            os.dup2(writer, 2)
        deferred.begin((lambda: str(1 // 0)) if trouble == "counting" else lambda: goodbye.lost(3, None))
        if trouble.startswith("a file"):
            os.dup2(own, 2)
        loop.LINK.resize()
        notifier.tell(Resize("node b joined", 10.0))
        deferred._obey(signal.SIGTERM)
    finally:
        deferred.end()
        os.dup2(stderr, 2)
        for descriptor in (stderr, reader, writer, own):
            os.close(descriptor)
    assert ended == [signal.SIGTERM] * 2
    assert (tmp_path / "own").read_bytes() == b""


def test_other_signals_do_not_hide_that_a_grace_is_nearly_over(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, heeded = threading.Event(), threading.Semaphore(0)

    def lost() -> str:
        said.set()
        return "all is lost"

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    deferred = deferral.Deferral(loop.LINK)
    heed = deferred._heed

    def heed_and_tell(numbers: bytes) -> float | None:
        found = heed(numbers)
        heeded.release()
        return found

    monkeypatch.setattr(deferred, "_heed", heed_and_tell)
    deferred.begin(lost)
    try:
        loop.LINK.drain()
        notifier.tell(Drain("SIGTERM", 1.0, monotonic()))
        os.kill(os.getpid(), signal.SIGTERM)
        assert heeded.acquire(timeout=PATIENCE_S)  # else both come in one read, which hides nothing
        os.kill(os.getpid(), signal.SIGUSR1)
        assert said.wait(PATIENCE_S)
    finally:
        deferred.end()
        signal.signal(signal.SIGUSR1, before)


def test_when_a_grace_is_nearly_over_is_counted_from_the_notice_and_fits_into_the_kernels_integer() -> None:
    assert goodbye.until_nearly_over_s(Drain("SIGTERM", 10.0, 100.0), 103.0) == pytest.approx(6.0)
    assert goodbye.until_nearly_over_s(Drain("SIGTERM", 10.0, 100.0), 120.0) == 0.0
    assert goodbye.until_nearly_over_s(Drain("SIGTERM", math.inf), 103.0) * 1000 < 1 << 31
