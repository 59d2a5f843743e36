from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from planaria.base import linux

if TYPE_CHECKING:
    from pathlib import Path


def output_of(source: str) -> str:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_file_is_read_up_to_a_limit_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 200_000)
    assert linux.read_file(str(tmp_path / "file")) == b"x" * 200_000
    assert linux.read_file(str(tmp_path / "file"), 70_000) == b"x" * 70_000
    assert linux.read_file(str(tmp_path / "file"), 0) == b""
    assert linux.read_file(str(tmp_path / "nowhere")) == b""
    assert linux.read_file(str(tmp_path)) == b""


def test_a_fifo_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert linux.read_file(str(tmp_path / "fifo")) == b""


def test_reading_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in (".", "nowhere"):
        linux.read_file(str(tmp_path / name))
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_parent_of_a_process_is_known_whatever_its_name() -> None:
    assert linux.parent_of(os.getpid()) == os.getppid()
    source = "import os\nopen('/proc/self/comm', 'w').write('a ) 1 (b')\nfrom planaria.base import linux\n"
    assert output_of(source + "print(linux.parent_of(os.getpid()) == os.getppid())") == "True\n"
    child = subprocess.Popen(["true"])
    child.wait()
    assert linux.parent_of(child.pid) is None


def test_handlers_of_other_processes_are_seen() -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert linux.catches(os.getpid(), signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        assert not linux.catches(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not linux.catches(2**22 + 1, signal.SIGUSR2)


def test_a_subreaper_adopts_orphans() -> None:
    source = """
import os
from planaria.base import linux
linux.become_subreaper()
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.read(read, 1)
        os._exit(7)
    os._exit(0)
os.wait()
os.write(write, b"x")
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert output_of(source) == "7\n"


def test_a_child_dies_with_the_thread_that_forked_it() -> None:
    source = """
import os, signal
from planaria.base import linux
linux.become_subreaper()
ready, told = os.pipe()
parent = os.fork()
if parent == 0:
    if os.fork() == 0:
        linux.set_parent_death_signal(signal.SIGKILL)
        os.write(told, b"x")
        while True:
            signal.pause()
    signal.pause()
os.read(ready, 1)
os.kill(parent, signal.SIGKILL)
os.waitpid(parent, 0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert output_of(source) == "-9\n"


def test_what_the_kernel_refuses_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"."):
        linux.set_parent_death_signal(999)


@pytest.mark.parametrize("title", ["short", "t" * 5000, ""])
def test_a_title_replaces_the_command_line_as_far_as_there_is_room(title: str) -> None:
    source = f"""
from planaria.base import linux
before = open("/proc/self/cmdline").read()
linux.set_title({title!r})
after = open("/proc/self/cmdline").read()
print(len(after) <= len(before), after.split(chr(0))[0] == {title!r}[: len(before) - 1])
"""
    assert output_of(source) == "True True\n"
