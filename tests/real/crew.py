"""Several nodes of one job, each a launcher started by its command line, and a job that tells when it lived.

The workers note in the room's `log`, one JSON line each, when they began, met and ended; the clock is CLOCK_MONOTONIC, which
all processes of one machine share, network namespaces or not. While it lives, a worker writes the time into a file of its
own every few milliseconds: that is how a test knows when it was last alive, whoever killed it.

`JOB` needs no torch: an all-reduce over MASTER_ADDR and MASTER_PORT that fails as Gloo does when a peer goes away.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import LAUNCHER, PATIENCE_S, End, children_of, is_alive, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness import Room

NOTES = '''\
"""What every worker of these tests notes, whatever it works at."""
import json, os, signal, struct, threading, time

ROOM = os.path.dirname(os.path.abspath(__file__))
NODE = os.environ["CREW_NODE"]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROUND, LIFE = int(os.environ["PLANARIA_ROUND"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def note(what, **more):
    line = {"what": what, "node": NODE, "pid": os.getpid(), "rank": RANK, "world": WORLD, "round": ROUND, "life": LIFE}
    line.update(at=time.monotonic(), **more)
    fd = os.open(ROOM + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\\n").encode())
    os.close(fd)


def is_over():
    """Whether the test wants the job to end well; rank 0 asks, and tells the others."""
    return os.path.exists(ROOM + "/stop")


def started():
    """When this process came to be, by the kernel's clock, which ticks 100 times a second: at least a tick too late."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return min((ticks + 1) / os.sysconf("SC_CLK_TCK") - asleep, time.monotonic())


_fd = os.open(f"{ROOM}/alive/{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o644)


def stamp():
    os.pwrite(_fd, struct.pack("d", time.monotonic()), 0)


def keep_stamping(every_s=0.01):
    """Stamp from a thread, for a job whose own loop may hang in a collective."""
    pause = threading.Event()

    def run():
        while True:
            stamp()
            pause.wait(every_s)

    threading.Thread(target=run, daemon=True).start()


stamp()
note("began", started=started(), reason=os.environ.get("PLANARIA_RESTART_REASON", ""), master=os.environ["MASTER_ADDR"])
'''

JOB = '''\
"""An all-reduce without torch: sums of ranks, over and over, until a file appears."""
from notes import *
import select, socket, sys

STEP_S = 0.02
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
FAMILY = socket.AF_INET6 if ":" in ADDRESS[0] else socket.AF_INET


def lost(peer):
    note("lost", peer=peer)
    sys.exit("Connection closed by peer [%s]" % peer)


def read(peer, size=8):
    data = b""
    while len(data) < size:
        stamp()
        if not select.select([peer], [], [], 0.01)[0]:
            continue
        try:
            chunk = peer.recv(size - len(data))
        except OSError:
            chunk = b""
        if not chunk:
            lost("%s:%s" % ADDRESS)
        data += chunk
    return data


def write(peer, data):
    try:
        peer.sendall(data)
    except OSError:
        lost("%s:%s" % ADDRESS)


def met(total):
    assert total == WORLD * (WORLD - 1) // 2, total
    note("met")


def lead():
    door = socket.socket(FAMILY)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("", ADDRESS[1]))
    door.listen(64)
    peers = []
    while len(peers) < WORLD - 1:
        stamp()
        if select.select([door], [], [], 0.01)[0]:
            peer = door.accept()[0]
            hello = read(peer)
            assert struct.unpack("q", hello)[0] == ROUND, (hello, ROUND)
            peers.append(peer)
    count = 0
    while True:
        over = is_over()
        total = sum(struct.unpack("q", read(peer))[0] for peer in peers)
        for peer in peers:
            write(peer, struct.pack("q", -1 if over else total))
        if count == 0:
            met(total)
        if over:
            return
        count += 1
        stamp()
        time.sleep(STEP_S)


def follow():
    while True:
        stamp()
        try:
            peer = socket.socket(FAMILY)
            peer.settimeout(1)
            peer.connect(ADDRESS)
            break
        except OSError:
            peer.close()
            time.sleep(0.01)
    peer.setblocking(True)
    write(peer, struct.pack("q", ROUND))
    count = 0
    while True:
        write(peer, struct.pack("q", RANK))
        total = struct.unpack("q", read(peer))[0]
        if total < 0:
            return
        if count == 0:
            met(total)
        count += 1


lead() if RANK == 0 else follow()
note("ended")
'''


class World(NamedTuple):
    """One round that ran, as its workers saw it."""

    round: int
    life: int
    ranks: dict[str, tuple[int, ...]]
    reason: str
    began_at: float

    @property
    def nodes(self) -> set[str]:
        return set(self.ranks)


class Worker(NamedTuple):
    """One worker process, from its start to the last moment it was surely alive."""

    node: str
    pid: int
    rank: int
    world: int
    round: int
    life: int
    started: float
    last_alive: float


class CrewNode:
    """A launcher that runs, and its files."""

    def __init__(self, crew: Crew, name: str, process: subprocess.Popen[bytes], host: Any) -> None:
        self._crew = crew
        self.name = name
        self.process = process
        self.pid = process.pid
        self.host = host
        self._agent = 0

    def agent(self) -> int:
        """Return the agent's pid: the launcher's only child."""
        if not self._agent:
            self._agent = wait_until(lambda: children_of(self.pid), f"an agent on {self.name}")[0]
        return self._agent

    def workers(self) -> list[int]:
        """Return the workers that live."""
        return [pid for pid in self._crew.pids(self.name) if is_alive(pid)]

    def processes(self) -> list[int]:
        return [self.pid, self.agent(), *self.workers()]

    def kill(self) -> None:
        """Kill all of it at once, as a power cut does."""
        for pid in self.processes():
            kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def err(self) -> str:
        return self._crew.room.read(f"err.{self.name}").decode("utf-8", "backslashreplace")

    def wait_said(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        def said() -> bool:
            assert text in self.err() or self.is_running, f"{self.name} ended without {text!r}: {self.err()}"
            return text in self.err()

        wait_until(said, f"{self.name} says {text!r}", timeout_s)

    def wait(self, timeout_s: float = PATIENCE_S) -> End:
        """Wait for the end; a launcher that ended by a signal has the shell's status for it."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self._crew.story()}") from None
        path = self._crew.room.path(f"report.{self.name}")
        report = {}
        if os.path.exists(path):
            with open(path) as file:
                report = json.load(file)
        out = self._crew.room.read(f"out.{self.name}")
        return End(128 - status if status < 0 else status, out, self.err(), report)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Crew:
    """The nodes of one job. All get the same flags; `add` may give one node more."""

    def __init__(self, room: Room, *flags: str, nodes: str, ttl_s: float = 30, conf: str = "", **where: str) -> None:
        self.room = room
        self.endpoint = where.get("endpoint") or f"127.0.0.1:{free_port()}"
        backend = where.get("backend", "c10d")
        settings = f"ttl={ttl_s},last_call_timeout=0.5" + (f",{conf}" if conf else "")
        self._flags = (
            f"--nnodes={nodes}",
            f"--rdzv-backend={backend}",
            f"--rdzv-endpoint={self.endpoint}",
            f"--rdzv-id={where.get('run_id', 'crew')}",
            f"--rdzv-conf={settings}",
            *flags,
        )
        self.nodes: dict[str, CrewNode] = {}
        self._seen = -1
        self._stopped_at: dict[int, float] = {}
        room.write("notes.py", NOTES)
        self._script = room.write("job.py", where.get("job") or JOB)
        os.makedirs(room.path("alive"), exist_ok=True)
        room.write("log", "")

    def add(
        self, name: str, *flags: str, host: Any = None, env: Mapping[str, str] | None = None, args: Sequence[str] = ()
    ) -> CrewNode:
        """Start one more node."""
        assert name not in self.nodes
        dropped = ("PET_", "OMP_", "PLANARIA_", "TORCH")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        environment = {**inherited, "TMPDIR": self.room.tmp, "CREW_NODE": name, "OMP_NUM_THREADS": "1", **(env or {})}
        before = host.command(name) if host is not None else []
        report = f"--report-file={self.room.path(f'report.{name}')}"
        argv = [*before, *LAUNCHER, report, *self._flags, *flags, self._script, *args]
        with open(self.room.path(f"out.{name}"), "wb") as out, open(self.room.path(f"err.{name}"), "wb") as err:
            process = subprocess.Popen(
                argv, cwd=self.room.root, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        node = CrewNode(self, name, process, host)
        self.nodes[name] = node
        self.room._launchers.append(node)  # type: ignore[arg-type]  # closed with the room, like any launcher
        return node

    def add_all(self, *names: str, **settings: Any) -> list[CrewNode]:
        return [self.add(name, **settings) for name in names]

    # What the workers noted.

    def log(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in self.room.read("log").decode().splitlines(keepends=True) if line[-1] == "\n"
        ]

    def pids(self, name: str) -> list[int]:
        return [line["pid"] for line in self.log() if line["what"] == "began" and line["node"] == name]

    def worlds(self) -> list[World]:
        """Return every round in which all workers met, in the order in which they did."""
        rounds: dict[int, list[dict[str, Any]]] = {}
        for line in self.log():
            if line["what"] == "met":
                rounds.setdefault(line["round"], []).append(line)
        return [self._world(lines) for lines in rounds.values() if len(lines) == lines[0]["world"]]

    def _world(self, lines: list[dict[str, Any]]) -> World:
        ranks: dict[str, tuple[int, ...]] = {}
        for line in sorted(lines, key=lambda line: line["rank"]):
            ranks[line["node"]] = (*ranks.get(line["node"], ()), line["rank"])
        first = lines[0]
        began = [one for one in self.log() if one["what"] == "began" and one["round"] == first["round"]]
        return World(first["round"], first["life"], ranks, began[0]["reason"], min(one["started"] for one in began))

    def wait_world(self, *names: str, timeout_s: float = PATIENCE_S) -> World:
        """Wait for a world of exactly these nodes, newer than the one last waited for."""

        def formed() -> World | None:
            for world in self.worlds():
                if world.round > self._seen and world.nodes == set(names):
                    return world
            return None

        try:
            world: World = wait_until(formed, f"a world of {names}", timeout_s)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.story()}") from None
        self._seen = world.round
        for name in names:
            self.nodes[name].agent()  # found through its launcher, which may be the next to die
        return world

    def workers(self) -> list[Worker]:
        found = []
        for line in self.log():
            if line["what"] == "began":
                raw = self.room.read(f"alive/{line['pid']}")
                alive = struct.unpack("d", raw)[0] if len(raw) == 8 else line["at"]
                fields = (line[name] for name in ("node", "pid", "rank", "world", "round", "life", "started"))
                found.append(Worker(*fields, self._stopped_at.get(line["pid"], max(alive, line["at"]))))
        return found

    def check_one_world(self) -> None:
        """Check that no worker of one round was alive when one of a later round had started."""
        seats: dict[tuple[int, int], Worker] = {}
        first: dict[int, Worker] = {}
        workers = self.workers()
        for worker in workers:
            twin = seats.setdefault((worker.round, worker.rank), worker)
            assert twin is worker, f"two workers with one rank in one round: {twin} {worker}\n{self.story()}"
            earliest = first.setdefault(worker.round, worker)
            assert (earliest.world, earliest.life) == (worker.world, worker.life), (
                f"{earliest} {worker}\n{self.story()}"
            )
            if worker.started < earliest.started:
                first[worker.round] = worker
        for worker in workers:
            for later in (other for number, other in first.items() if number > worker.round):
                late = f"{worker.last_alive - later.started:.3f} s"
                assert worker.last_alive <= later.started, f"{worker} was alive {late} into {later}\n{self.story()}"

    # Pauses.

    def wake(self, pids: Iterable[int]) -> None:
        """Let stopped processes go on. For workers among them, the life that counts ended when they were stopped.

        What a process does in the milliseconds after its whole machine wakes, before anybody can kill it, is beyond what
        clocks can prevent.
        """
        pids = list(pids)
        for worker in self.workers():
            if worker.pid in pids and is_alive(worker.pid):
                self._stopped_at.setdefault(worker.pid, worker.last_alive)
        for pid in pids:
            kill(pid, signal.SIGCONT)

    # Ends.

    def finish(self) -> None:
        """Ask the job to end well."""
        self.room.write("stop", "")

    def finish_well(self, *names: str) -> dict[str, End]:
        """Ask the job to end, and check that it does on these nodes, with nothing left."""
        self.finish()
        ends = {name: self.nodes[name].wait() for name in names}
        for name, end in ends.items():
            assert end.status == 0, f"{name} ended with {end.status}\n{self.story()}"
            assert end.report["outcome"] == "done"
        return ends

    def story(self) -> str:
        """Return all that is known, for whoever reads a failure."""
        parts = [f"{name}:\n{node.err()}" for name, node in self.nodes.items()]
        lines = [json.dumps(line) for line in self.log()[-40:]]
        return "\n".join([*parts, "log:", *lines, f"now {time.monotonic():.3f}"])


def pause_all(pids: Iterable[int]) -> None:
    """Stop these processes, all of them before anybody can notice that one is."""
    for pid in pids:
        kill(pid, signal.SIGSTOP)
