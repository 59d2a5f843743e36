"""Every way a worker can fail: the right first cause on screen and in the report, the right status, nothing left."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import LAUNCHER, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Room

TWO = ("--nproc-per-node=2",)
MEMORY_CGROUPS = "/sys/fs/cgroup/memory"


def test_an_exception_is_named_with_its_traceback(room: Room) -> None:
    end = room.run(TWO, "if RANK == 1: raise RuntimeError('boom')\nwait_forever()")
    cause = end.assert_cause(1, "RuntimeError: boom")
    assert end.status == 1
    assert cause["kind"] == "exception"
    assert cause["traceback"].startswith("Traceback (most recent call last):\n")
    assert cause["where"] == f"{room.path('worker.py')}:2"
    assert "bootstrap" not in cause["traceback"]
    assert "|     if RANK == 1: raise RuntimeError('boom')" in end.err
    assert end.report["lives"][0]["failures"][1]["stopped_for"] == 1


@pytest.mark.parametrize(("flags", "status"), [((), 1), (("--exit-code=worker",), 3)])
def test_system_exit_is_a_status_of_its_own_and_passed_on_only_if_asked_for(
    room: Room, flags: tuple[str, ...], status: int
) -> None:
    end = room.run([*TWO, *flags], "if RANK == 0: sys.exit(3)\nwait_forever()")
    cause = end.assert_cause(0, "exit status 3")
    assert end.status == status
    assert (cause["kind"], cause["status"]) == ("exit", 3)


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGSEGV)", signal.SIGSEGV),
        ("os.abort()", signal.SIGABRT),
    ],
)
def test_a_fatal_signal_is_decoded_and_shows_the_python_stack(room: Room, how: str, number: signal.Signals) -> None:
    script = f"def deep_inside():\n    {how}\nif RANK == 1: deep_inside()\nwait_forever()"
    end = room.run([*TWO, "--exit-code=worker"], script, preexec_fn=_no_core_files)
    cause = end.assert_cause(1, number.name)
    assert end.status == 128 + number
    assert cause["status"] == -number
    assert f'File "{room.path("worker.py")}", line 3 in deep_inside' in cause["traceback"]
    assert "line 3 in deep_inside" in end.err
    assert "its stack:" in end.err


def _no_core_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def test_a_kill_by_somebody_else_is_not_taken_for_ours(room: Room) -> None:
    launcher = room.start(TWO, "tell(f'pid{RANK} {os.getpid()}')\nwait_forever()")
    room.hear_value("pid0")
    kill(room.hear_value("pid1"))
    end = launcher.wait()
    cause = end.assert_cause(1, "SIGKILL (Killed), not sent by planaria")
    assert end.status == 1
    assert cause["killer"] == "other"


@pytest.fixture
def memory_cgroup(room: Room) -> Iterator[str]:
    if os.geteuid() != 0 or not os.path.exists(f"{MEMORY_CGROUPS}/memory.limit_in_bytes"):
        pytest.skip("needs root and a cgroup v1 memory controller at /sys/fs/cgroup/memory")
    path = f"{MEMORY_CGROUPS}/planaria-{os.path.basename(room.root)}"
    os.mkdir(path)
    try:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if os.path.exists(f"{path}/{name}"):
                _write(f"{path}/{name}", str(100 << 20))
        yield path
    finally:
        for pid in room.leftovers():  # there are some only if the test has failed
            kill(pid)
        wait_until(lambda: not room.leftovers(), "nobody in the cgroup")
        os.rmdir(path)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


@pytest.mark.root
def test_a_kill_by_the_oom_killer_says_so(room: Room, memory_cgroup: str) -> None:
    enter = ["sh", "-c", f'echo $$ > {memory_cgroup}/cgroup.procs; exec "$@"', "sh"]
    script = "hoard = []\nwhile RANK == 1: hoard.append(bytearray(b'x' * (1 << 20)))\nwait_forever()"
    end = room.run(TWO, script, before=enter)
    cause = end.assert_cause(1, "OOM killer")
    assert end.status == 1
    assert (cause["killer"], cause["status"]) == ("oom", -signal.SIGKILL)


def test_an_import_error_on_every_rank_ends_early(room: Room) -> None:
    """One worker is all ranks: a second may be so late on a busy machine that the agent has decided without it."""
    end = room.run(["--max-restarts=3"], "import there_is_no_such_module")
    cause = end.assert_cause(0, "ModuleNotFoundError: No module named")
    assert end.status == 1
    assert cause["type"] == "ModuleNotFoundError"
    assert end.report["restarts"] == 0
    assert "--always-restart" in end.err


def test_always_restart_spends_the_budget_on_an_import_error(room: Room) -> None:
    end = room.run([*TWO, "--max-restarts=3", "--always-restart"], "import there_is_no_such_module")
    assert end.status == 1
    assert end.report["restarts"] == 3
    assert [life["restart_count"] for life in end.report["lives"]] == [0, 1, 2, 3]
    assert end.err.count("starting all workers again") == 3


def test_one_rank_of_two_that_fails_by_mistake_does_not_end_the_job_early(room: Room) -> None:
    end = room.run([*TWO, "--max-restarts=2"], "if RANK == 1: raise ValueError('only here')\nwait_forever()")
    end.assert_cause(1, "ValueError: only here")
    assert end.report["restarts"] == 2


def test_a_usage_error_of_every_rank_ends_early(room: Room) -> None:
    script = "import argparse\nargparse.ArgumentParser().parse_args()"
    end = room.run(["--max-restarts=3", "-r", "2"], script, "--no-such-flag")
    cause = end.assert_cause(0, "exit status 2")
    assert end.status == 1
    assert end.report["restarts"] == 0
    assert "unrecognized arguments: --no-such-flag" in cause["stderr_tail"]


def test_a_missing_script_is_found_before_anything_starts(room: Room) -> None:
    end = room.start_command([*TWO, room.path("nowhere.py")]).wait()
    assert (end.status, end.report) == (2, {})
    assert end.err.startswith("planaria: there is no script ")


def test_a_syntax_error_is_found_before_anything_starts(room: Room) -> None:
    end = room.run(TWO, "tell('started')\nwhat is this?")
    assert (end.status, end.report) == (2, {})
    assert end.err.startswith("planaria: the script does not compile: line 3 of ")
    assert room.heard() == []


def test_a_program_that_may_not_be_executed_is_found_before_anything_starts(room: Room) -> None:
    program = room.write("program", "#!/bin/sh\n", 0o644)
    end = room.start_command(["--no-python", *TWO, program]).wait()
    assert end.status == 2
    assert end.err == f"planaria: the program '{program}' is not executable\n"


@pytest.mark.parametrize(("loss", "message"), [("chmod a-x", "Permission denied"), ("rm", "No such file or directory")])
def test_a_program_that_can_no_longer_be_started_is_a_failure_that_says_so(room: Room, loss: str, message: str) -> None:
    program = room.write("program", f'#!/bin/sh\n{loss} "$0"\nexit 5\n', 0o755)
    end = room.start_command(["--no-python", "--max-restarts=1", program]).wait()
    cause = end.assert_cause(0, f"cannot start {program}: {message}")
    assert end.status == 1
    assert cause["kind"] == "spawn"
    assert end.report["lives"][0]["failures"][0]["status"] == 5


def test_a_program_finds_no_signal_ignored_that_a_shell_would_not_ignore(room: Room) -> None:
    program = room.write("program", "#!/bin/sh\nkill -PIPE $$\nkill -XFSZ $$\n", 0o755)
    end = room.start_command(["--no-python", "--exit-code=worker", program]).wait()
    end.assert_cause(0, "SIGPIPE (Broken pipe)")
    assert end.status == 128 + signal.SIGPIPE


# A launcher whose workers have longer to write their stacks than a processor may be away: it is a quarter of a second.
PATIENT = """\
import sys
from planaria.agent import machine
machine.STACK_DUMP_S = 3.0
from planaria.launch.main import run
sys.exit(run(sys.argv[sys.argv.index("run") + 1:]))
"""


def test_a_worker_that_hangs_in_the_stop_is_killed_and_the_report_says_where_it_hung(room: Room) -> None:
    room.make_gate("deaf")
    script = """
def stuck():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell('deaf')
    wait_forever()
if RANK == 1: stuck()
wait_at('deaf')
raise RuntimeError('the cause')
"""
    before = [sys.executable, room.write("patient.py", PATIENT)]
    launcher = room.start([*TWO, "--shutdown-timeout=1"], script, before=before)
    room.hear("deaf")
    room.open_gate("deaf")
    end = launcher.wait()
    end.assert_cause(0, "the cause")
    other = end.report["lives"][0]["failures"][1]
    assert (other["killer"], other["stopped_for"], other["status"]) == ("us", 0, -signal.SIGKILL)
    assert "in stuck" in other["traceback"]
    assert "rank 1: killed by us, it did not stop in time after rank 0 failed; it was at File " in end.err
    assert "in wait_forever" in end.err


@pytest.mark.parametrize("ending", ["", "sys.exit(0)"])
def test_a_worker_that_is_killed_in_what_it_does_at_exit_is_not_said_to_have_hung(room: Room, ending: str) -> None:
    script = f"""
import atexit
def close_down():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell('closing')
    wait_forever()
atexit.register(close_down)
{ending}
"""
    launcher = room.start(["--shutdown-timeout=1"], script)
    room.hear("closing")
    launcher.signal(signal.SIGTERM)
    end = launcher.wait()
    assert end.status == 128 + signal.SIGTERM, end.err
    assert "rank 0: its program had ended, and it was killed by us while Python closed it down" in end.err
    assert "did not stop in time" not in end.err


@pytest.mark.parametrize("ending", ["", "sys.exit(0)"])
def test_a_program_whose_threads_are_at_work_has_not_ended(room: Room, ending: str) -> None:
    script = f"""
import threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def work():
    tell('working')
    wait_forever()
threading.Thread(target=work).start()
{ending}
"""
    launcher = room.start(["--shutdown-timeout=1"], script)
    room.hear("working")
    launcher.signal(signal.SIGTERM)
    end = launcher.wait()
    assert end.status == 128 + signal.SIGTERM, end.err
    assert "its program had ended" not in end.err
    assert "rank 0: killed by us, it did not stop in time" in end.err


@pytest.mark.parametrize("ending", ["sys.exit(0)", "raise RuntimeError('boom')"])
def test_a_grandchild_that_holds_the_tee_pipe_does_not_hold_up_the_end(room: Room, ending: str) -> None:
    script = f"print('first'); sleeper(detached=True, stdout=True, deaf=True)\nprint('last', end='')\n{ending}"
    end = room.run(["-t", "3", "--log-dir", room.path("logs")], script)
    assert end.status == ("raise" in ending)
    assert end.out == b"[default0]:first\n[default0]:last\n"
    assert room.worker_log(0, 0, "stdout.log") == b"first\nlast"


@pytest.mark.parametrize("flag", ["-t", "-r"])
def test_a_line_of_100_mb_costs_the_agent_no_memory_and_is_logged_exactly(room: Room, flag: str) -> None:
    room.make_gate("end")
    script = """
digest = __import__('hashlib').sha256()
for number in range(100):
    block = bytes([97 + number % 26]) * (1 << 20)
    digest.update(block)
    os.write(1, block)
tell('digest_' + digest.hexdigest())
tell('done')
wait_at('end')
os._exit(9)
"""
    # Written in one go by a pipe's measure: os.write of a blocking pipe returns when all of it is taken.
    launcher = room.start([flag, "3", "--log-dir", room.path("logs")], script, stdout=subprocess.DEVNULL)
    room.hear("done")
    with open(f"/proc/{launcher.agent()}/status", encoding="ascii") as file:
        peak_kb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    room.open_gate("end")
    end = launcher.wait()
    end.assert_cause(0, "exit status 9")
    assert peak_kb < 64 << 10
    written = room.worker_log(0, 0, "stdout.log")
    assert len(written) == 100 << 20
    assert room.heard() == [f"digest_{hashlib.sha256(written).hexdigest()}"]
    assert len(end.err) < 4000


def test_output_that_is_no_text_is_carried_unchanged(room: Room) -> None:
    noise = b"\xff\xfe\x00\x80 caf\xe9\n\xf0\x28\x8c\x28\n"
    script = f"os.write(1, {noise!r}); os.write(2, {noise!r}); os._exit(4)"
    end = room.run(["-t", "3", "--log-dir", room.path("logs")], script)
    end.assert_cause(0, "exit status 4")
    assert end.out == b"".join(b"[default0]:" + line for line in noise.splitlines(keepends=True))
    assert room.worker_log(0, 0, "stdout.log") == room.worker_log(0, 0, "stderr.log") == noise


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("flags", [(), ("-t", "3")])
def test_closed_streams_change_nothing_about_the_outcome(room: Room, closed: str, flags: tuple[str, ...]) -> None:
    script = "print('out'); print('err', file=sys.stderr)\nif RANK == 1: raise RuntimeError('boom')\nwait_forever()"
    launcher = room.start([*TWO, *flags], script, before=["sh", "-c", f'exec "$@" {closed}', "sh"])
    end = launcher.wait()
    assert end.status == 1
    assert end.report["first_cause"]["message"] == "RuntimeError: boom"
    assert ("job failed: rank 1" in end.err) == ("2>" not in closed)


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_a_worker_without_stderr_commits_and_restores_whatever_there_is_to_say(room: Room, closed: str) -> None:
    script = """
from planaria.worker import ElasticState
state = ElasticState(step=0)
state.sync()
if LIFE == 0:
    state.step = 7
    state.commit(wait="buddy", timeout_s=1.0)  # there is none, which is told
    os.kill(os.getpid(), signal.SIGKILL)
tell(f"step {state.step} {sys.stderr}")
"""
    end = room.start(("--max-restarts=1",), script, before=["sh", "-c", f'exec "$@" {closed}', "sh"]).wait()
    assert (end.status, room.heard()) == (0, ["step 7 None"])


def test_a_reader_that_leaves_early_does_not_end_workers_whose_output_is_teed(room: Room) -> None:
    room.make_gate("left")
    script = """
print('first', flush=True)
wait_at('left')
for number in range(20000): print('a line that nobody reads', number)
tell('finished')
"""
    launcher = room.start(["-t", "3", "--log-dir", room.path("logs")], script, stdout=subprocess.PIPE)
    assert launcher.process.stdout is not None
    assert launcher.process.stdout.readline() == b"[default0]:first\n"
    launcher.process.stdout.close()
    room.open_gate("left")
    room.hear("finished")
    assert launcher.process.wait(60) == 0
    assert len(room.worker_log(0, 0, "stdout.log").splitlines()) == 20001


def test_a_reader_that_leaves_early_is_the_workers_own_broken_pipe_without_tee(room: Room) -> None:
    room.make_gate("left")
    script = "print('first', flush=True)\nwait_at('left')\nfor number in range(20000): print('nobody reads', number)"
    launcher = room.start((), script, stdout=subprocess.PIPE)
    assert launcher.process.stdout is not None
    assert launcher.process.stdout.readline() == b"first\n"
    launcher.process.stdout.close()
    room.open_gate("left")
    assert launcher.process.wait(60) == 1
    assert json.loads(room.read("report.json"))["first_cause"]["type"] == "BrokenPipeError"


def test_a_worker_that_dies_twice_and_then_succeeds_ends_well(room: Room) -> None:
    script = "tell(f'rank {RANK} life {LIFE}')\nif LIFE < 2:\n    if RANK == 1: os._exit(1)\n    wait_forever()"
    end = room.run([*TWO, "--max-restarts=2"], script)
    assert end.status == 0
    assert (end.report["outcome"], end.report["restarts"]) == ("done", 2)
    assert {f"rank {rank} life 2" for rank in (0, 1)} <= set(room.heard())
    assert "job failed" not in end.err


@pytest.mark.parametrize("budget", [0, 1, 2])
def test_max_restarts_counts_restarts_of_all_workers_as_torchrun_does(room: Room, budget: int) -> None:
    script = """
names = ('TORCHELASTIC_RESTART_COUNT', 'TORCHELASTIC_MAX_RESTARTS')
tell(f'rank {RANK} has {[os.environ[name] for name in names]}')
wait_at('all') if RANK == 1 else None
if RANK == 1: os._exit(1)
wait_forever()
"""
    room.make_gate("all")
    launcher = room.start([*TWO, f"--max-restarts={budget}"], script)
    for life in range(budget + 1):
        room.hear_many([f"rank {rank} has {[str(life), str(budget)]}" for rank in (0, 1)])
        room.open_gate("all")
    end = launcher.wait()
    end.assert_cause(1, "exit status 1")
    assert end.status == 1
    assert len(end.report["lives"]) == budget + 1
    assert room.heard() == []


@pytest.mark.parametrize(("flags", "env", "count"), [(TWO, {}, 1), ((), {}, 0), (TWO, {"OMP_NUM_THREADS": "4"}, 0)])
def test_the_notice_about_omp_num_threads_comes_once(
    room: Room, flags: tuple[str, ...], env: dict[str, str], count: int
) -> None:
    script = "tell(os.environ.get('OMP_NUM_THREADS', 'unset'))\nos._exit(LIFE == 0)"
    end = room.run([*flags, "--max-restarts=1"], script, env=env)
    assert end.status == 0
    assert end.err.count("OMP_NUM_THREADS") == count
    assert set(room.heard()) == {"1" if count else env.get("OMP_NUM_THREADS", "unset")}


def test_a_master_port_taken_by_another_program_costs_no_restart(room: Room) -> None:
    script = """
if os.environ['PLANARIA_ROUND'] == '0':
    raise RuntimeError(f"port: {os.environ['MASTER_PORT']}, code: -98, name: EADDRINUSE, message: address already in use")
tell(f'life {LIFE}')
"""
    end = room.run((), script)
    assert end.status == 0
    assert room.heard() == ["life 0"]
    assert "costs no restart" in end.err


def test_no_worker_waits_for_a_launcher_whose_stderr_is_stuck(room: Room) -> None:
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, bytes(fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)))
        script = "tell(f'life {LIFE}')\nos._exit(1)"
        launcher = room.start(["--max-restarts=1", "-r", "3"], script, stderr=write_end)
        room.hear_many(["life 0", "life 1"])
        os.set_blocking(read_end, False)
        wait_until(lambda: _drained(read_end) and launcher.process.poll() is not None, "the end")
        assert launcher.process.returncode == 1
    finally:
        os.close(read_end)
        os.close(write_end)


def _drained(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 1 << 16):
            continue
    return True


def test_a_broken_option_starts_nothing(room: Room) -> None:
    command = [*LAUNCHER, "--max-restarts=x", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, check=False, cwd=room.root)
    assert done.returncode == 2
    assert b"--max-restarts" in done.stderr
    assert len(done.stderr.splitlines()) == 1
