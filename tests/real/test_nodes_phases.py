"""An agent is stopped or killed while its job waits, stops and ends: the others go on. While it runs: test_nodes.py."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from crew import Crew
from crew_jobs import JOB
from harness import wait_gone, wait_until
from stopping import stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Room

STATUSES = {signal.SIGTERM: 143, signal.SIGINT: 130}

# On node c, a worker that is asked to stop says so, and does not before the test lets it.
STUBBORN = """\
from notes import *
from told import wait_at

def keep_on(number, frame):
    note("asked")
    wait_at("go")
    os._exit(0)

if NODE == "c":
    signal.signal(signal.SIGTERM, keep_on)
"""


def waiting(room: Room) -> tuple[Crew, Callable[[], object]]:
    """Return a job that waits for a third node, and what brings the nodes it needs then."""
    crew = Crew(room, "--max-restarts=0", nodes="3")
    crew.add_first("a").wait_said("1 of 3 nodes are here")
    crew.add("b").wait_said("2 of 3 nodes are here")
    return crew, lambda: crew.add_all("c", "d")


def stopping(room: Room) -> tuple[Crew, Callable[[], object]]:
    """Return a job that stops because d has come, and cannot because of a worker on c; and what lets that one go."""
    room.make_gate("go")
    crew = Crew(room, "--max-restarts=0", nodes="1:4", job=STUBBORN + JOB)
    crew.add_first("a")
    crew.add_all("b", "c")
    crew.wait_world("a", "b", "c")
    crew.add("d")
    wait_until(lambda: any(line["what"] == "asked" for line in crew.log()), "a worker that is asked to stop")
    return crew, lambda: room.open_gate("go", 100)  # for every worker that is still to be stopped there


def ending(room: Room) -> tuple[Crew, Callable[[], object]]:
    """Return a job whose workers have ended, and of which one agent has not said so; and what wakes it."""
    crew = Crew(room, "--max-restarts=0", nodes="1:3")
    crew.add_first("a")
    crew.add_all("b", "c")
    crew.wait_world("a", "b", "c")
    workers = [pid for name in "abc" for pid in crew.nodes[name].workers()]
    stop(crew.nodes["c"].agent())
    crew.finish()
    wait_gone(workers)
    return crew, lambda: crew.wake([crew.nodes["c"].agent()])


@pytest.mark.parametrize(
    ("phase", "number", "who"),
    [
        (waiting, signal.SIGTERM, "leader"),
        (waiting, signal.SIGKILL, "leader"),
        (waiting, signal.SIGINT, "follower"),
        (stopping, signal.SIGKILL, "leader"),
        (stopping, signal.SIGINT, "leader"),
        (stopping, signal.SIGTERM, "follower"),
        (ending, signal.SIGTERM, "leader"),
        (ending, signal.SIGKILL, "leader"),
        (ending, signal.SIGKILL, "follower"),
        (ending, signal.SIGINT, "follower"),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_the_others_go_on_whatever_the_job_was_doing(
    room: Room, phase: Callable[[Room], tuple[Crew, Callable[[], object]]], number: signal.Signals, who: str
) -> None:
    crew, release = phase(room)
    victim = crew.nodes["a" if who == "leader" else "b"]
    if number == signal.SIGKILL:
        victim.strike([victim.agent()])
        assert victim.wait().status != 0
    else:
        victim.signal(number)
        end = victim.wait()
        assert (end.status, end.report["outcome"]) == (STATUSES[number], "signal")
    release()
    rest = [name for name in crew.nodes if name != victim.name]
    if phase is not ending:
        assert crew.wait_world(*rest).life == 0
    crew.end_well(*rest)
    assert not [line for node in crew.nodes.values() for line in node.said() if "closed" in line]
