"""What a worker does when `planaria chaos` asks for it."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from planaria.contract import chaos as contract
from planaria.worker import chaos


@pytest.fixture(autouse=True)
def _handler() -> object:
    before = signal.getsignal(contract.SIGNAL)
    yield
    signal.signal(contract.SIGNAL, before)


def test_worker_and_contract_have_the_same_names() -> None:
    text = Path(chaos.__file__).read_text()
    assert contract.SIGNAL == chaos.ORDER_SIGNAL
    assert f'word == "{contract.HANG}"' in text
    assert f'word == "{contract.HOLD_GIL}"' in text
    assert f'"{contract.ORDERS}" in ' in Path(chaos.__file__).with_name("bootstrap.py").read_text()


def order(folder: Path, text: str) -> None:
    path = folder / str(os.getpid())
    path.write_text(text)
    os.kill(os.getpid(), contract.SIGNAL)


def test_a_worker_hangs_for_as_long_as_it_was_told(tmp_path: Path) -> None:
    chaos.listen(str(tmp_path))
    began_at = time.monotonic()
    order(tmp_path, "hang 0.1")
    assert time.monotonic() - began_at >= 0.1
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_holds_the_gil_lets_no_other_thread_run(tmp_path: Path) -> None:
    chaos.listen(str(tmp_path))
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        order(tmp_path, "hold-gil 0.3")
    finally:
        stop.set()
        thread.join()
    assert max(after - before for before, after in itertools.pairwise(ticks)) >= 0.25


def test_an_order_that_was_taken_back_or_means_nothing_does_nothing(tmp_path: Path) -> None:
    chaos.listen(str(tmp_path))
    os.kill(os.getpid(), contract.SIGNAL)
    order(tmp_path, "nonsense")
    order(tmp_path, "dance 1000")
