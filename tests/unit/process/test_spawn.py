from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from planaria.base.value import replace
from planaria.process.spawn import SPAWN_FAILED, Start, spawn

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def box() -> Iterator[int]:
    descriptor = os.memfd_create("box")
    yield descriptor
    os.close(descriptor)


def ended(start: Start) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(spawn(start), 0)[1])


def shell(box: int, words: str, **changes: object) -> Start:
    return replace(Start(("/bin/sh", "-c", words), {"PATH": os.defpath}, box), **changes)


def output(box: int, words: str, **changes: object) -> str:
    """Run a shell with its output in an anonymous file and return it."""
    told = os.memfd_create("told")
    try:
        assert ended(shell(box, words, stdout_fd=told, **changes)) == 0
        return os.pread(told, 1 << 16, 0).decode()
    finally:
        os.close(told)


def test_the_status_is_the_program_s(box: int) -> None:
    assert ended(shell(box, "exit 7")) == 7
    assert ended(shell(box, "kill -9 $$")) == -9


def test_both_streams_go_where_they_were_told(box: int) -> None:
    told = os.memfd_create("told")
    try:
        assert ended(shell(box, "echo out; echo err >&2", stdout_fd=told, stderr_fd=told)) == 0
        assert os.pread(told, 100, 0) == b"out\nerr\n"
    finally:
        os.close(told)


def test_the_environment_is_exactly_the_given_one(box: int) -> None:
    shown = output(box, "env", environment={"PATH": os.defpath, "A": "b c"}).splitlines()
    assert {"A=b c", f"PATH={os.defpath}"} <= set(shown)
    assert "HOME=" not in output(box, "env")


def test_every_worker_leads_a_session_of_its_own(box: int) -> None:
    pid, session, group = output(box, "echo $$ $(cut -d' ' -f6 /proc/$$/stat) $(cut -d' ' -f5 /proc/$$/stat)").split()
    assert pid == session == group


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("/nowhere/program",), "cannot start /nowhere/program: No such file or directory\n"),
        (("no-such-program-anywhere",), "cannot start no-such-program-anywhere: No such file or directory\n"),
        (("/etc/passwd",), "cannot start /etc/passwd: Permission denied\n"),
        (("/",), "cannot start /: Permission denied\n"),
        (("/no/\udcff",), "cannot start /no/\\udcff: No such file or directory\n"),
    ],
)
def test_a_program_that_cannot_be_started_is_named_in_the_box(box: int, argv: tuple[str, ...], said: str) -> None:
    assert ended(Start(argv, {"PATH": os.defpath}, box)) == SPAWN_FAILED
    assert os.pread(box, 1000, 0).decode() == said


@pytest.mark.parametrize("argv", [("/bin/echo", "a\0b"), ("/bin/echo", "\ud800"), ("ech\ud800o",)])
def test_words_the_system_cannot_take_are_a_failed_start_too(box: int, argv: tuple[str, ...]) -> None:
    assert ended(Start(argv, {"PATH": os.defpath}, box)) == SPAWN_FAILED
    assert os.pread(box, 1000, 0).startswith(b"cannot start ")


def test_cpus_that_do_not_exist_are_a_failed_start(box: int) -> None:
    assert ended(shell(box, "true", cpus=frozenset([4095]))) == SPAWN_FAILED
    assert os.pread(box, 1000, 0).startswith(b"cannot start ")


def test_cpus_are_bound_before_the_program_starts(box: int) -> None:
    cpu = min(os.sched_getaffinity(0))
    shown = output(box, "grep Cpus_allowed_list /proc/self/status", cpus=frozenset([cpu]))
    assert shown.split()[1] == str(cpu)


def test_only_the_box_is_inherited_where_it_was_asked_for(box: int) -> None:
    plain = output(box, "ls /proc/self/fd").split()
    with_box = output(box, "ls /proc/self/fd", inherit_black_box_as=99).split()
    assert set(with_box) - set(plain) == {"99"}


def test_a_box_that_has_the_wanted_number_already_is_inherited_too(box: int) -> None:
    os.set_inheritable(box, False)
    assert str(box) in output(box, "ls /proc/self/fd", inherit_black_box_as=box).split()


def test_ignored_and_blocked_signals_are_as_asked_for(box: int) -> None:
    mask = frozenset([int(signal.SIGUSR1)])
    argv = ("/bin/grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")  # a shell would clear the mask
    shown = output(box, "", argv=argv, signal_mask=mask).split()
    fields = dict(zip(shown[::2], (int(number, 16) for number in shown[1::2]), strict=True))
    assert fields["SigBlk:"] == 1 << (signal.SIGUSR1 - 1)
    assert not fields["SigIgn:"] & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_a_worker_dies_with_its_parent(box: int) -> None:
    """The parent here is a process in between, which ends right after it has started the worker."""
    alive, held = os.pipe()
    os.set_inheritable(held, True)
    parent = os.fork()
    if parent == 0:
        spawn(Start((sys.executable, "-c", "import signal; signal.pause()"), {}, box))
        os._exit(0)
    os.close(held)
    os.waitpid(parent, 0)
    assert os.read(alive, 1) == b""  # the end of file comes when the last holder, the worker, is dead
    os.close(alive)


STALLED = """
import os, signal, sys
from planaria.base import linux, signals
from planaria.process.spawn import Start, spawn

reached, reached_end = os.pipe()
release, release_end = os.pipe()
wake, wake_end = os.pipe()
os.set_blocking(wake, False)
os.set_blocking(wake_end, False)
signals.set_wakeup_fd(wake_end)
signals.set_handler(15, lambda *_: None)
honest = linux.set_parent_death_signal

def stalled(number):
    os.write(reached_end, b"x")
    os.read(release, 1)
    honest(number)

linux.set_parent_death_signal = stalled
box = os.memfd_create("box")
pid = spawn(Start(("/bin/sleep", "60"), dict(os.environ), box, handled_signals=(15,)))
os.read(reached, 1)
os.kill(pid, 15)
os.write(release_end, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
try:
    print("woken by", list(os.read(wake, 9)))
except BlockingIOError:
    print("not woken")
"""


def test_a_signal_between_fork_and_exec_ends_the_worker_and_does_not_reach_the_agent() -> None:
    done = subprocess.run([sys.executable, "-c", STALLED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "-15\nnot woken\n"
