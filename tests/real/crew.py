"""Several nodes of one job, each a launcher started by its command line, and a job that tells when it lived.

The workers note in the room's `log`, one JSON line each, when they began, met and ended; the clock is CLOCK_MONOTONIC, which
all processes of one machine share, network namespaces or not. While it lives, a worker writes the time into a file of its
own every few milliseconds: that is how a test knows when it was last alive, whoever killed it.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import fences
from crew_jobs import JOB, NOTES
from harness import LAUNCHER, PATIENCE_S, End, children_of, is_alive, kill, wait_until
from ports import free_port
from programs import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness import Room


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
        self.strike(self.processes())
        self.process.wait(PATIENCE_S)

    def strike(self, pids: Iterable[int]) -> None:
        """Kill these processes of it."""
        pids = list(pids)
        if {self.pid, self.agent()} <= set(pids):
            self._crew.room.is_littered = True
        for pid in pids:
            kill(pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def fenced_at(self) -> float:
        """Return when its workers would die if the agent did nothing more, by the board that its launcher reads."""
        folder = f"/proc/{self.pid}/fd"
        (board,) = (fd for fd in os.listdir(folder) if "planaria-fence" in os.readlink(f"{folder}/{fd}"))
        with open(f"{folder}/{board}", "rb") as file:
            return int.from_bytes(file.read(8), "little") / 1e9

    def wait_renewal(self, since: float, ttl_s: float) -> None:
        """Wait until it holds a lease that was asked for after a moment, for one is shorter than the TTL."""
        wait_until(lambda: self.fenced_at() > since + ttl_s, f"{self.name} renews its lease")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def err(self) -> str:
        return self._crew.room.read(f"err.{self.name}").decode("utf-8", "backslashreplace")

    def said(self) -> list[str]:
        """Return the lines of launcher and agent; workers write to the same stream."""
        return [line for line in self.err().splitlines() if line.startswith("planaria: ")]

    def wait_said(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        def said() -> bool:
            assert text in self.err() or self.is_running, f"{self.name} ended without {text!r}: {self.err()}"
            return text in self.err()

        try:
            wait_until(said, f"{self.name} says {text!r}", timeout_s)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self._crew.story()}") from None

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
        self._is_early = ttl_s == fences.TTL_S
        self.nodes: dict[str, CrewNode] = {}
        self._seen = -1
        self._log: list[dict[str, Any]] = []
        self._log_bytes = 0
        self._worlds: list[World] = []
        self._worlds_until = 0
        self._stopped_at: dict[int, float] = {}
        room.write("notes.py", NOTES)
        self._script = room.write("job.py", where.get("job") or JOB)
        os.makedirs(room.path("alive"), exist_ok=True)
        room.write("log", "")

    def add(
        self,
        name: str,
        *flags: str,
        host: Any = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        launcher: Sequence[str] = LAUNCHER,
    ) -> CrewNode:
        """Start one more node, on a host and by another launcher where one is given."""
        assert name not in self.nodes
        own = {"TMPDIR": self.room.tmp, "CREW_NODE": name, "OMP_NUM_THREADS": "1", **(env or {})}
        own |= fences.early(own.get("PYTHONPATH", "")) if self._is_early else {}
        before = host.command(name) if host is not None else []
        report = f"--report-file={self.room.path(f'report.{name}')}"
        argv = [*before, *launcher, report, *self._flags, *flags, self._script, *args]
        with open(self.room.path(f"out.{name}"), "wb") as out, open(self.room.path(f"err.{name}"), "wb") as err:
            process = subprocess.Popen(
                argv, cwd=self.room.root, env=clean_environment(**own), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        node = CrewNode(self, name, process, host)
        self.nodes[name] = node
        self.room._launchers.append(node)  # type: ignore[arg-type]  # closed with the room, like any launcher
        return node

    def add_all(self, *names: str, **settings: Any) -> list[CrewNode]:
        return [self.add(name, **settings) for name in names]

    def add_first(self, name: str, **settings: Any) -> CrewNode:
        """Start the node that will lead, because it has the endpoint's port before anybody else comes."""
        node = self.add(name, **settings)
        port = f"{int(self.endpoint.rpartition(':')[2]):04X}"

        def listens() -> bool:
            with open("/proc/net/tcp") as file:
                rows = [line.split() for line in file.readlines()[1:]]
            return any(row[1].endswith(f":{port}") and row[3] == "0A" for row in rows)

        wait_until(listens, "a listener at the endpoint")
        return node

    # What the workers noted.

    def log(self) -> list[dict[str, Any]]:
        """Return all lines so far. Tests look at it many times a second, so each is read once."""
        with open(self.room.path("log"), "rb") as file:
            file.seek(self._log_bytes)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._log_bytes += len(whole)
        self._log += map(json.loads, whole.splitlines())
        return self._log

    def pids(self, name: str) -> list[int]:
        return [line["pid"] for line in self.log() if line["what"] == "began" and line["node"] == name]

    def worlds(self) -> list[World]:
        """Return every round in which all workers met, in the order in which they did."""
        log = self.log()
        if len(log) != self._worlds_until:
            self._worlds, self._worlds_until = _worlds(log), len(log)
        return self._worlds

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

    def check_no_newer_world(self) -> None:
        """Check that nothing came after the world last waited for. Before it, there may have been one of whoever was early."""
        assert not [world for world in self.worlds() if world.round > self._seen], self.story()

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

    def cut_power(self, host: Any) -> list[int]:
        """End a host with all that runs on it; return the pids."""
        self.room.is_littered = True
        killed: list[int] = host.kill_everything()
        return killed

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

    def end_well(self, *names: str, charged: int = 0) -> None:
        """End the job on these nodes: it never had two worlds, only crashes were charged, and no process is left."""
        ends = self.finish_well(*names)
        self.check_one_world()
        assert {end.report["restarts"] for end in ends.values()} == {charged}, self.story()
        wait_until(lambda: not self.room.leftovers(), "no process left")

    def story(self) -> str:
        """Return all that is known, for whoever reads a failure."""
        parts = [f"{name}:\n{node.err()}" for name, node in self.nodes.items()]
        lines = [json.dumps(line) for line in self.log()[-40:]]
        return "\n".join([*parts, "log:", *lines, f"now {time.monotonic():.3f}"])


def _worlds(log: list[dict[str, Any]]) -> list[World]:
    met: dict[int, list[dict[str, Any]]] = {}
    began: dict[int, list[dict[str, Any]]] = {}
    for line in log:
        if line["what"] in ("met", "began"):
            (met if line["what"] == "met" else began).setdefault(line["round"], []).append(line)
    return [_world(lines, began[number]) for number, lines in met.items() if len(lines) == lines[0]["world"]]


def _world(met: list[dict[str, Any]], began: list[dict[str, Any]]) -> World:
    ranks: dict[str, tuple[int, ...]] = {}
    for line in sorted(met, key=lambda line: line["rank"]):
        ranks[line["node"]] = (*ranks.get(line["node"], ()), line["rank"])
    started = min(line["started"] for line in began)
    return World(met[0]["round"], met[0]["life"], ranks, began[0]["reason"], started)
