"""Where the workers' output goes: masks, prefixes, filters, terminals, folders."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from harness import Terminal, wait_until

if TYPE_CHECKING:
    from harness import Room

TWO = ("--nproc-per-node=2", "--role=r")
SPEAK = "os.write(1, b'out %d\\n' % RANK); os.write(2, b'err %d\\n' % RANK)"  # `print` under -u makes two writes of one


def _logs(room: Room, folder: str = "logs") -> dict[str, bytes]:
    """Return every file of the only run in a log folder, by its path below the run's folder."""
    (run,) = os.listdir(room.path(folder))
    top = room.path(f"{folder}/{run}")
    paths = [os.path.join(where, name) for where, _, names in os.walk(top) for name in names]
    return {os.path.relpath(path, top): room.read(path) for path in paths}


def _lines(text: bytes | str) -> list[str]:
    text = text if isinstance(text, str) else text.decode()
    return sorted(line for line in text.splitlines() if "OMP_NUM_THREADS" not in line)


@pytest.mark.parametrize(
    ("flags", "out", "err", "files"),
    [
        (("-r", "0"), ["out 0", "out 1"], ["err 0", "err 1"], set()),
        (("-r", "1"), [], ["err 0", "err 1"], {"0/stdout", "1/stdout"}),
        (("-r", "2"), ["out 0", "out 1"], [], {"0/stderr", "1/stderr"}),
        (("-r", "3"), [], [], {"0/stdout", "0/stderr", "1/stdout", "1/stderr"}),
        (("-r", "0:3,1:1"), [], ["err 1"], {"0/stdout", "0/stderr", "1/stdout"}),
        (("-r", "1:2"), ["out 0", "out 1"], ["err 0"], {"1/stderr"}),
        (("-t", "1"), ["[r0]:out 0", "[r1]:out 1"], ["err 0", "err 1"], {"0/stdout", "1/stdout"}),
        (("-t", "2"), ["out 0", "out 1"], ["[r0]:err 0", "[r1]:err 1"], {"0/stderr", "1/stderr"}),
        (
            ("-t", "3"),
            ["[r0]:out 0", "[r1]:out 1"],
            ["[r0]:err 0", "[r1]:err 1"],
            {"0/stdout", "0/stderr", "1/stdout", "1/stderr"},
        ),
        (("-t", "1:3"), ["[r1]:out 1", "out 0"], ["[r1]:err 1", "err 0"], {"1/stdout", "1/stderr"}),
        (
            ("-r", "3", "-t", "0:1"),
            ["[r0]:out 0"],
            [],
            {"0/stdout", "0/stderr", "1/stdout", "1/stderr"},
        ),
        (
            ("-t", "3", "--local-ranks-filter=1"),
            ["[r1]:out 1"],
            ["[r1]:err 1"],
            {"0/stdout", "0/stderr", "1/stdout", "1/stderr"},
        ),
        (("--local-ranks-filter=0",), ["out 0"], ["err 0"], set()),
    ],
)
def test_masks_say_what_is_shown_and_what_is_kept(
    room: Room, flags: tuple[str, ...], out: list[str], err: list[str], files: set[str]
) -> None:
    end = room.run([*TWO, *flags, "--log-dir", room.path("logs")], SPEAK)
    assert end.status == 0
    assert _lines(end.out) == out
    assert _lines(end.err) == err
    expected = {f"attempt_0/{file}.log": f"{file[-3:]} {file[0]}\n".encode() for file in files}
    kept = _logs(room)
    assert set(kept) == set(expected)
    for path, content in kept.items():
        stream, rank = ("out" if "stdout" in path else "err"), path.split("/")[1]
        assert content == f"{stream} {rank}\n".encode()


@pytest.mark.parametrize("sink", ["pipe", "file"])
def test_every_line_of_eight_chatty_workers_arrives_whole_and_in_order(room: Room, sink: str) -> None:
    script = "for number in range(2000): print(f'{RANK} {number} ' + 'x' * (number % 300), flush=number % 3 == 0)"
    settings = {"stdout": subprocess.PIPE} if sink == "pipe" else {}
    launcher = room.start(["--nproc-per-node=8", "-t", "1", "--log-dir", room.path("logs")], script, **settings)
    end = launcher.wait()
    assert end.status == 0
    seen: dict[int, list[bytes]] = {rank: [] for rank in range(8)}
    for line in end.out.splitlines():
        found = re.fullmatch(rb"\[default(\d)\]:((\d) \d+ x*)", line)
        assert found, line
        assert found[1] == found[3]
        seen[int(found[1])].append(found[2])
    kept = _logs(room)
    for rank, lines in seen.items():
        assert lines == [f"{rank} {number} {'x' * (number % 300)}".encode() for number in range(2000)]
        assert kept[f"attempt_0/{rank}/stdout.log"].splitlines() == lines


def test_a_line_without_an_end_is_shown_as_a_line(room: Room) -> None:
    end = room.run([*TWO, "-t", "1", "--log-dir", room.path("logs")], "sys.stdout.write(f'no end {RANK}')")
    assert _lines(end.out) == ["[r0]:no end 0", "[r1]:no end 1"]
    assert end.out.endswith(b"\n")
    assert set(_logs(room).values()) == {b"no end 0", b"no end 1"}


def test_what_is_shown_rarely_is_shown_at_once(room: Room) -> None:
    room.make_gate("end")
    launcher = room.start(["-t", "1"], "print('now')\nwait_at('end')", stdout=subprocess.PIPE)
    assert launcher.process.stdout is not None
    assert launcher.process.stdout.readline() == b"[default0]:now\n"
    room.open_gate("end")
    assert launcher.wait().status == 0


def test_the_prefix_is_the_users_to_choose(room: Room) -> None:
    template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} $rank/$local_rank $$ $unknown> "}
    end = room.run([*TWO, "-t", "1"], "print('hello')", env=template)
    assert _lines(end.out) == ["<r 0/0 $ $unknown> hello", "<r 1/1 $ $unknown> hello"]


def test_lines_that_match_a_filter_are_copied_to_a_file_of_their_own(room: Room) -> None:
    script = """
for number in range(5): print(f'rank {RANK} loss {number}')
print(f'rank {RANK} other')
print(f'rank {RANK} loss on stderr', file=sys.stderr)
print(f'rank {RANK} warning', file=sys.stderr)
"""
    filters = ["--duplicate-stdout-filters=loss 1,loss 3", "--duplicate-stderr-filters=warning"]
    end = room.run([*TWO, "-t", "3", *filters, "--log-dir", room.path("logs")], script)
    assert end.status == 0
    kept = _logs(room)
    expected = [f"[r{rank}]:rank {rank} loss {number}" for rank in (0, 1) for number in (1, 3)]
    assert _lines(kept["attempt_0/filtered_stdout.log"]) == expected
    assert _lines(kept["attempt_0/filtered_stderr.log"]) == ["[r0]:rank 0 warning", "[r1]:rank 1 warning"]
    assert len(_lines(end.out)) == 12


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        ((), ["True", "True", "True"]),
        (("--local-ranks-filter=0",), ["True", "True", "True"]),
        (("-t", "1"), ["True", "False", "True"]),
        (("-r", "2"), ["True", "True", "False"]),
    ],
)
def test_terminals_stay_terminals_unless_output_is_redirected(
    room: Room, terminal: Terminal, flags: tuple[str, ...], kinds: list[str]
) -> None:
    launcher = terminal.start(flags, "tell(' '.join(str(os.isatty(fd)) for fd in (0, 1, 2)))\nprint('seen')")
    room.hear(" ".join(kinds))
    assert launcher.wait().status == 0
    assert b"seen\n" in terminal.read()


def test_a_failure_is_shown_in_colour_only_on_a_terminal(room: Room, terminal: Terminal) -> None:
    assert terminal.start((), "raise RuntimeError('boom')").wait().status == 1
    assert b"\x1b[31mjob failed: rank 0" in terminal.read()
    assert "\x1b" not in room.run((), "raise RuntimeError('boom')").err


@pytest.mark.parametrize("flag", ["-t", "-r"])
def test_logs_that_nobody_chose_a_folder_for_are_kept_and_the_folder_is_named(room: Room, flag: str) -> None:
    end = room.run([flag, "3"], SPEAK)
    assert end.status == 0
    (folder,) = os.listdir(room.tmp)
    path = os.path.join(room.tmp, folder)
    assert f"planaria: the workers' logs are in {path}\n" in end.err
    assert room.read(f"{path}/attempt_0/0/stdout.log") == b"out 0\n"
    assert os.stat(path).st_mode & 0o777 == 0o700


def test_nothing_is_kept_when_nothing_is_redirected(room: Room) -> None:
    assert room.run(TWO, SPEAK).status == 0
    assert os.listdir(room.tmp) == []


@pytest.mark.parametrize("flag", ["-t", "-r"])
def test_dev_null_as_log_folder_keeps_no_files_but_shows_the_output(room: Room, flag: str) -> None:
    end = room.run(
        [*TWO, flag, "3", "--log-dir=/dev/null"], SPEAK + "\nif RANK: raise RuntimeError('boom')\nwait_forever()"
    )
    end.assert_cause(1, "boom")
    assert end.report["first_cause"]["log_files"] == []
    assert os.listdir(room.tmp) == []
    shown = {"-t": "[r1]:out 1", "-r": "out 1"}[flag]
    assert shown in _lines(end.out)


def test_a_reader_that_is_slow_loses_nothing(room: Room) -> None:
    script = "for number in range(30000): print('line', number)\ntell('written')"
    launcher = room.start(["-t", "1", "--log-dir", room.path("logs")], script, stdout=subprocess.PIPE, bufsize=0)
    assert launcher.process.stdout is not None
    first = launcher.process.stdout.read(10)  # and then nobody reads for a while: pipe and sink fill up
    agent = launcher.agent()
    wait_until(lambda: _is_idle(agent), "an agent that waits for its reader")
    end = launcher.wait()
    assert (first + end.out).splitlines() == [b"[default0]:line %d" % number for number in range(30000)]


def _is_idle(pid: int) -> bool:
    with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
        return "ep" in file.read()
