"""Of several failures, the first is named."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from harness import is_alive, kill, wait_until
from stopping import stop

if TYPE_CHECKING:
    from harness import Room


TWO = ("--nproc-per-node=2",)
FIRST = ["raise RuntimeError('the first')", "os._exit(7)", "sys.exit(7)", "os.kill(os.getpid(), signal.SIGKILL)"]


@pytest.mark.parametrize("second", ["raise ConnectionResetError('Connection reset by peer')", "os._exit(8)"])
@pytest.mark.parametrize("first", FIRST)
def test_of_two_workers_that_fail_5_ms_apart_the_first_is_named(room: Room, first: str, second: str) -> None:
    room.make_fifo("life")
    script = f"""
import time
if RANK == 1:
    held = hold('life')
    {first}
wait_end('life')
time.sleep(0.005)  # the 5 ms that are tried here
{second}
"""
    end = room.run([*TWO, "--shutdown-timeout=5"], script)
    assert end.status == 1
    end.assert_cause(1, "")


@pytest.mark.parametrize("first", FIRST)
def test_a_worker_that_fails_because_another_died_is_not_the_first_cause(room: Room, first: str) -> None:
    room.make_fifo("life")
    script = f"""
if RANK == 0:
    held = hold('life')
    {first}
wait_end('life')
raise ConnectionResetError('Connection reset by peer')
"""
    room.run(TWO, script).assert_cause(0, "")


@pytest.mark.parametrize("first", FIRST)
def test_the_first_cause_is_named_first_even_by_an_agent_that_wakes_up_late(room: Room, first: str) -> None:
    room.make_gate("go")
    room.make_fifo("life")
    script = f"""
tell(f'pid{{RANK}} {{os.getpid()}}')
if RANK == 0:
    held = hold('life')
    wait_at('go')
    {first}
wait_end('life')
raise ConnectionResetError('Connection reset by peer')
"""
    launcher = room.start(TWO, script)
    pids = [room.hear_value("pid0"), room.hear_value("pid1")]
    agent = launcher.agent()
    stop(agent)
    room.open_gate("go")
    wait_until(lambda: not any(map(is_alive, pids)), "both workers dead")
    os.kill(agent, signal.SIGCONT)
    launcher.wait().assert_cause(0, "")


@pytest.mark.parametrize(("first", "cause"), [("ConnectionResetError('reset')", 0), ("RuntimeError('boom')", 1)])
def test_a_kill_by_somebody_else_during_our_stop_is_not_blamed_on_us(room: Room, first: str, cause: int) -> None:
    script = f"""
if RANK == 1:
    wait_at('deaf')
    raise {first}
signal.signal(signal.SIGTERM, lambda *_: tell('stopping'))
tell(f'pid {{os.getpid()}}')
wait_forever()
"""
    room.make_gate("deaf")
    launcher = room.start(TWO, script)
    pid = room.hear_value("pid")
    room.open_gate("deaf")
    room.hear("stopping")
    kill(pid)
    end = launcher.wait()
    end.assert_cause(cause, "SIGKILL" if cause == 0 else "boom")
    killed = next(one for one in end.report["lives"][0]["failures"] if one["rank"] == 0)
    assert (killed["killer"], killed["stopped_for"]) == ("other", None)
