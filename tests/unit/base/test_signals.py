from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from planaria.base import signals


def test_names_and_numbers_are_those_of_the_signal_module() -> None:
    for number in signal.Signals:
        if number.name.startswith("SIGRT"):
            continue
        assert signals.NUMBERS[number.name] == number
        assert signals.name_of(number) == number.name
    assert not {"SIGRTMIN", "SIGRTMAX", "SIG_DFL", "SIGCLD"} & set(signals.NUMBERS)


@pytest.mark.parametrize(
    ("number", "name"),
    [(int(signal.SIGRTMIN), "SIGRTMIN+0"), (62, "SIGRTMIN+28"), (0, "signal 0"), (999, "signal 999")],
)
def test_signals_without_a_fixed_name_have_one_too(number: int, name: str) -> None:
    assert signals.name_of(number) == name


def test_meanings_are_the_kernel_s() -> None:
    assert signals.meaning_of(signal.SIGSEGV) == "Segmentation fault"
    assert signals.meaning_of(signal.SIGKILL) == "Killed"


def test_a_blocked_signal_is_waited_for_and_the_mask_comes_back() -> None:
    source = """
import os, signal
from planaria.base import signals
before = signals.block([])
assert signals.block([signal.SIGUSR1]) == before
assert signals.wait_for_any([signal.SIGUSR1], 0.0) is None
os.kill(os.getpid(), signal.SIGUSR1)
assert signals.wait_for_any([signal.SIGUSR1, signal.SIGUSR2]) == signal.SIGUSR1
assert signals.block([]) == before | {signal.SIGUSR1}
signals.restore_mask(before)
assert signals.block([]) == before
"""
    subprocess.run([sys.executable, "-c", source], timeout=60, check=True)


def test_a_wait_whose_time_is_over_while_the_process_is_stopped_finds_nothing() -> None:
    source = """
import signal
from planaria.base import signals
signals.block([signal.SIGUSR1])
print("waiting", flush=True)
for _ in range(3):
    assert signals.wait_for_any([signal.SIGUSR1], 0.3) is None
print("done", flush=True)
assert signals.wait_for_any([signal.SIGUSR1], 60.0) == signal.SIGUSR1
"""
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"waiting\n"
            for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP):
                child.send_signal(number)
                time.sleep(0.5)  # longer than its time: that is what is tried here
            child.send_signal(signal.SIGCONT)
            assert child.stdout.readline() == b"done\n"
            child.send_signal(signal.SIGUSR1)
            assert child.wait(60) == 0
        finally:
            child.kill()


def test_an_ignored_signal_is_known_as_such() -> None:
    source = "import signal; from planaria.base import signals; assert signals.is_ignored(signal.SIGHUP)"
    subprocess.run(["nohup", sys.executable, "-c", source], timeout=60, check=True, capture_output=True)
    assert not signals.is_ignored(signal.SIGTERM)
