"""A real agent, its guardian and its workers in a job of many nodes. The others are a script: a test orders what they would.

`NODE` is the launcher without a command line. In place of a rendezvous it has a FIFO, from which it reads orders, and it
tells the test what the agent reports.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from harness import Launcher, is_alive, kill, state_of, wait_gone, wait_until
from stopping import stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Room

NODE = '''\
import json, os, sys
from planaria.agent import meeting
from planaria.agent.model import Job
from planaria.agent.settings import Meeting
from planaria.launch.main import _supervise
from planaria.launch.plan import Plan
from planaria.process.model import Command
from planaria.rendezvous import messages, model

ROOM = os.path.dirname(os.path.abspath(__file__))


class Scripted:
    """Stands for the rendezvous."""

    def __init__(self, loop, job, hands):
        self.loop, self.hands, self.heard = loop, hands, b""

    def begin(self):
        self.fd = os.open(ROOM + "/orders", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.loop.on_readable(self.fd, self.read)
        if first:
            self.obey(*first)

    def read(self):
        *lines, self.heard = (self.heard + os.read(self.fd, 1 << 16)).split(b"\\n")
        for line in lines:
            self.obey(*json.loads(line))

    def obey(self, what, *given):
        if what == "start":
            given = (messages.Place(**given[0]),)
        if what == "end":
            given = (messages.Ended(*given),)
        if what == "fence":
            given = (None if given[0] is None else self.loop.now() + given[0],)
        if what == "echo":
            self.tell("Echoed", *given)
        else:
            getattr(self.hands, what)(*given)

    def post(self, event):
        self.tell(type(event).__name__, *[getattr(event, field) for field in type(event)._fields])

    def tell(self, *words):
        fd = os.open(ROOM + "/told", os.O_WRONLY)
        os.write(fd, (json.dumps(words) + "\\n").encode())
        os.close(fd)

    is_gone = True

    def close(self):
        self.loop.forget(self.fd)
        os.close(self.fd)


meeting.open_rendezvous = Scripted
settings = json.loads(sys.argv[1])
first = settings.pop("begins_with", None)
job = Job(
    command=Command("script", ROOM + "/worker.py", (), sys.executable),
    run_id="many",
    role="trainer",
    signals=(1, 2, 3, 15),
    environment=dict(os.environ),
    meeting=Meeting("embedded", ("127.0.0.1:29400",), "many", 1, 2),
    report_file=ROOM + "/report.json",
    **{"local_world_size": 2, "max_restarts": 3, "shutdown_timeout_s": 30.0, **settings},
)
sys.exit(_supervise(Plan(job), None, os.environ))
'''
PLACE = {
    "epoch": "e",
    "term": 1,
    "round": 0,
    "size": 2,
    "slot": 1,
    "first_rank": 3,
    "world_size": 5,
    "first_role_rank": 2,
    "role_world_size": 4,
    "master_addr": "10.0.0.1",
    "master_port": 4711,
    "restart_count": 0,
    "reason": "",
    "deputies": [],
}
FENCE_S = 2.0  # long enough to stop an agent on a busy machine, short enough to wait for
WAIT = "tell(f'pid {os.getpid()}')\nwait_forever()"


class Node:
    """One node, and the hand that stands for all the others."""

    def __init__(self, room: Room) -> None:
        self.room = room
        os.mkfifo(room.path("orders"))
        self._orders = os.open(room.path("orders"), os.O_RDWR)
        self.launcher: Launcher

    def start(self, script: str, *, stderr: int | None = None, **settings: Any) -> Node:
        self.room.write("worker.py", "from told import *\n" + script)
        argv = [sys.executable, self.room.write("node.py", NODE), json.dumps(settings)]
        with open(self.room.path("out"), "wb") as out, open(self.room.path("err"), "wb") as err:
            process = subprocess.Popen(
                argv,
                cwd=self.room.root,
                env={**os.environ, "TMPDIR": self.room.tmp},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err if stderr is None else stderr,
            )
        self.launcher = Launcher(self.room, process)
        self.room._launchers.append(self.launcher)
        return self

    def order(self, *words: Any) -> None:
        os.write(self._orders, json.dumps(words).encode() + b"\n")

    def fence(self, left_s: float | None) -> None:
        """Move the fence, and wait until it is where it shall be."""
        self.order("fence", left_s)
        self.order("echo", "fence")
        assert self.hear("Echoed") == ["fence"]

    def begin_round(self, number: int = 0, **changes: Any) -> None:
        self.order("start", {**PLACE, "round": number, **changes})

    def hear(self, name: str) -> list[Any]:
        """Wait for the next report; it has to be this one."""
        told = json.loads(self.room._take(lambda line: line.startswith("["), 40.0, name))
        assert told[0] == name, told
        return told[1:]

    def workers(self, count: int = 2) -> list[int]:
        return [self.room.hear_value("pid") for _ in range(count)]

    def close(self) -> None:
        os.close(self._orders)


@pytest.fixture
def node(room: Room) -> Iterator[Node]:
    found = Node(room)
    yield found
    found.close()


def test_a_round_is_what_its_place_says_and_done_is_told_after_stopped(node: Node) -> None:
    script = """
names = ("RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "TORCHELASTIC_RESTART_COUNT", "PLANARIA_ROUND", "PLANARIA_RESTART_REASON")
tell(" ".join(os.environ[name].replace(" ", "_") for name in names))
"""
    node.start(script)
    (port,) = node.hear("WorkersStopped")
    assert 0 < port < 65536
    node.begin_round(7, restart_count=2, reason="node b left")
    node.room.hear_many([f"{3 + n} {2 + n} 1 5 2 4 10.0.0.1 4711 2 7 node_b_left" for n in range(2)])
    (fresh,) = node.hear("WorkersStopped")
    assert fresh != port
    assert node.hear("WorkersDone") == []
    node.order("end", "done", 0, "", [], 2)
    end = node.launcher.wait()
    assert (end.status, end.report["outcome"], end.report["restarts"]) == (0, "done", 2)
    assert [(life["round"], life["reason"]) for life in end.report["lives"]] == [(7, "node b left")]
    assert "round 7 starts on 2 nodes, with ranks 3 to 4 of 5 here: node b left" in end.err


def test_a_stop_ends_workers_and_what_they_left_and_no_round_begins_by_itself(node: Node) -> None:
    node.start("tell(f'child {sleeper(detached=True, deaf=True)}')\n" + WAIT)
    node.hear("WorkersStopped")
    node.begin_round()
    pids = [*node.workers(), node.room.hear_value("child"), node.room.hear_value("child")]
    node.order("stop", 1, "node b joined", 10.0)
    node.hear("WorkersStopped")
    assert not any(map(is_alive, pids))
    node.order("stop", 1, "again", 0.0)
    node.hear("WorkersStopped")
    node.begin_round(1, reason="node b joined")
    pids = node.workers()
    node.order("kill", "no leader answered")
    node.hear("WorkersStopped")
    assert not any(map(is_alive, pids))
    node.order("end", "lost", 75, "only 1 of 3 members is left", [], 0)
    end = node.launcher.wait()
    assert (end.status, end.report["outcome"], end.report["lives"][1]["reason"]) == (75, "lost", "node b joined")
    assert "majority lost: only 1 of 3 members is left" in end.err


def test_workers_that_listen_are_told_of_a_resize_and_end_by_themselves(node: Node) -> None:
    script = """
import time
from planaria import worker
signal.signal(signal.SIGTERM, lambda *_: tell("a signal"))
assert worker.resize_notice() is None
tell("ready")
while not (notice := worker.resize_notice()):
    time.sleep(0.01)  # as a training step would: a notice is looked for between two steps
assert worker.drain_notice() is None
tell(f"told {notice.reason} {notice.grace_s}")
"""
    node.start(script)
    node.hear("WorkersStopped")
    node.begin_round()
    node.room.hear("ready", count=2)
    node.order("stop", 1, "node b joined", 20.0)
    node.room.hear("told node b joined 20.0", count=2)
    node.hear("WorkersStopped")
    node.order("end", "done", 0, "", [], 0)
    assert node.launcher.wait().status == 0
    assert "a signal" not in node.room.heard()


def test_a_failure_is_told_and_the_screen_has_the_cause_of_the_whole_job(node: Node) -> None:
    node.start("if RANK == 4: raise ValueError('here')\nwait_forever()", worker_exit_code=True)
    node.hear("WorkersStopped")
    node.begin_round()
    node.hear("WorkersStopped")
    texts, times, blames, free, why = node.hear("WorkersFailed")
    own = json.loads(texts[0])
    assert (len(texts), own["rank"], own["message"], own["progressed"]) == (1, 4, "ValueError: here", False)
    assert (len(times), blames, free, why) == (1, [False], False, "")
    other = {**own, "rank": 0, "host": "elsewhere", "status": 3, "message": "exit status 3", "traceback": ""}
    node.order("end", "failed", 1, "", [json.dumps(other), "nonsense", texts[0]], 1)
    end = node.launcher.wait()
    assert end.status == 3
    assert re.search(r"^planaria: rank 4 .* ValueError: here; telling the other nodes$", end.err, re.MULTILINE)
    assert re.search(r"^planaria: job failed: rank 0 \(.* on elsewhere\): exit status 3$", end.err, re.MULTILINE)
    assert re.search(r"^  then rank 4 .*: ValueError: here$", end.err, re.MULTILINE)
    assert (end.report["first_cause"]["host"], len(end.report["failures"])) == ("elsewhere", 2)


def test_a_node_whose_owner_stops_it_announces_that_and_says_goodbye(node: Node) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    node.begin_round()
    pids = node.workers()
    node.launcher.signal(signal.SIGTERM)
    assert node.hear("LeaveAnnounced") == ["its owner sent SIGTERM"]
    node.hear("WorkersStopped")
    assert not any(map(is_alive, pids))
    assert node.hear("LeaveRequested") == ["its owner sent SIGTERM"]
    assert node.launcher.wait().status == 143


def test_a_run_that_never_began_says_so(node: Node) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    node.order("end", "timeout", 124, "only 1 of 2 nodes came within 600 s", [], 0)
    end = node.launcher.wait()
    assert (end.status, end.report["outcome"], end.report["lives"]) == (124, "timeout", [])
    assert "planaria: no round: only 1 of 2 nodes came within 600 s" in end.err


def test_a_node_that_the_others_refuse_ends_with_their_sentence_and_status_2(node: Node) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    node.order("end", "refused", 2, "--node-rank=1 is taken by vm", [], 0)
    end = node.launcher.wait()
    assert (end.status, end.report["outcome"], end.report["exit_status"]) == (2, "refused", 2)
    assert end.err == "planaria: refused: --node-rank=1 is taken by vm\n"


def test_a_stopped_agent_loses_its_workers_when_its_lease_is_over(node: Node) -> None:
    node.start("tell(f'child {sleeper(detached=True, deaf=True)}')\n" + WAIT)
    node.hear("WorkersStopped")
    node.fence(60.0)
    node.begin_round()
    pids = [*node.workers(), node.room.hear_value("child"), node.room.hear_value("child")]
    agent = node.launcher.agent()
    node.fence(FENCE_S)
    stop(agent)
    wait_gone(pids)
    assert state_of(agent) == "T"
    kill(agent, signal.SIGCONT)
    node.hear("WorkersStopped")  # and no failure: nobody else's doing
    node.order("fence", 60.0)
    node.begin_round(1)
    assert all(map(is_alive, node.workers()))
    node.order("end", "done", 0, "", [], 0)
    end = node.launcher.wait()
    assert (end.status, [life["failures"] for life in end.report["lives"]]) == (0, [[], []])
    assert end.err.count("killed the workers of this node: the lease ran out while this agent was stopped") == 1


def test_a_fence_is_kept_again_after_it_was_kept_once(node: Node) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    agent = node.launcher.agent()
    for number in range(2):
        node.fence(60.0)
        node.begin_round(number)
        pids = node.workers()
        node.fence(FENCE_S)
        stop(agent)
        wait_gone(pids)
        kill(agent, signal.SIGCONT)
        node.hear("WorkersStopped")
    node.launcher.signal(signal.SIGTERM)
    assert node.launcher.wait().status == 143


@pytest.mark.parametrize("fence", [None, 60.0])
def test_without_a_fence_that_is_over_a_stopped_agent_stops_nothing(node: Node, fence: float | None) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    node.order("fence", 0.3)
    node.fence(fence)
    node.begin_round()
    pids = node.workers()
    agent = node.launcher.agent()
    stop(agent)
    watched = os.pidfd_open(pids[0])
    try:
        # Longer than the fence that was taken back: what must not happen has no event to wait for.
        assert select.select([watched], [], [], 0.7) == ([], [], []), "a worker died"
    finally:
        os.close(watched)
    assert all(map(is_alive, pids))
    kill(agent, signal.SIGCONT)
    node.launcher.signal(signal.SIGTERM)
    assert node.launcher.wait().status == 143


def naps(pid: int) -> int:
    """Return how often a process has gone to sleep, which is how often it was woken."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", file.read(), re.MULTILINE)[1])


def test_renewals_do_not_wake_the_guardian(node: Node) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    node.fence(50.0)
    guardian = node.launcher.pid
    wait_until(lambda: state_of(guardian) == "S", "a sleeping guardian")
    before = naps(guardian)
    for left_s in range(51, 81):
        node.fence(float(left_s))
    assert naps(guardian) == before
    node.order("end", "done", 0, "", [], 0)
    assert node.launcher.wait().status == 0


LINES = (("1 of 2 nodes", True), ("1 of 2 nodes", True), ("2 of 2 \x1b[2J nodes", True), ("something else", False))


def test_passing_lines_are_log_lines_where_nobody_watches_one_for_each_change(node: Node) -> None:
    node.start(WAIT)
    node.hear("WorkersStopped")
    for text, passing in LINES:
        node.order("say", text, passing)
    node.order("end", "done", 0, "", [], 0)
    lines = node.launcher.wait().err.splitlines()
    assert lines == ["planaria: 1 of 2 nodes", "planaria: 2 of 2 \\x1b[2J nodes", "planaria: something else"]


def test_passing_lines_are_one_line_on_a_terminal_that_is_cleared_for_others(node: Node) -> None:
    master, slave = os.openpty()
    try:
        node.start(WAIT, stderr=slave)
        node.hear("WorkersStopped")
        for text, passing in (*LINES, ("x" * 500, True)):
            node.order("say", text, passing)
        node.order("end", "timeout", 124, "nobody came", [], 0)
        assert node.launcher.wait().status == 124
        os.close(slave)
        slave = -1
        shown = b""
        while select.select([master], [], [], 0)[0]:
            try:
                shown += os.read(master, 1 << 16)
            except OSError:  # EIO: nobody has the other end any more
                break
    finally:
        os.close(master)
        if slave >= 0:
            os.close(slave)
    rows = shown.decode().split("\r\x1b[K")
    assert rows[:3] == ["planaria: 1 of 2 nodes", "planaria: 2 of 2 \\x1b[2J nodes", rows[2]]
    assert rows[2].startswith("planaria: something else\r\nplanaria: xxx")
    assert len(rows[2].partition("\r\n")[2]) == 79
    assert "no round: nobody came" in rows[3]


def test_a_rendezvous_that_ends_while_it_begins_is_heard(node: Node) -> None:
    node.start(WAIT, begins_with=["end", "failed", 2, "cannot listen on any port of this host", [], 0])
    end = node.launcher.wait()
    assert end.status == 2
    assert "planaria: job failed: cannot listen on any port of this host" in end.err
