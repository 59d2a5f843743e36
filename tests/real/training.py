"""A run of `tests/support/trainee.py`, or of `committing.py`, on one node or several, and the hand that kills.

A `History` is made of the lines that workers noted: of every step the one that counts, which is that of the last life that
computed it. Two runs are the same when their histories are: samples with their augmentation, losses, digests.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crew import Crew
from harness import PATIENCE_S, children_of, kill, wait_gone, wait_until
from standing import stands_ready
from stopping import stop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from crew import CrewNode
    from harness import Room

SUPPORT = Path(__file__).parents[1] / "support"
LIFE_S = 90.0  # for a life to begin: imports of torch by all ranks, on two cores that others use too
DIGESTS = ("weights", "optimizer", "random", "schedule")


class Life(NamedTuple):
    """One round in which all ranks have met, and the step that it went on from."""

    round: int
    step: int
    pids: dict[tuple[str, int], int]  # by node and rank


class Seen(NamedTuple):
    """How far a job was: its newest round, and the newest commit that outlives an agent."""

    newest: int
    kept: int


class Step(NamedTuple):
    """One step as it counts: the loss, and what each rank had."""

    round: int
    epoch: int
    loss: float
    samples: tuple[tuple[tuple[int, str], ...], ...]  # by rank: index and draw


class History(NamedTuple):
    """What a run has come to."""

    steps: dict[int, Step]
    digests: dict[tuple[int, int], tuple[str, ...]]  # by epoch and rank
    computed: dict[int, list[int]]  # in which rounds a step was computed by all

    def what_counts(self) -> tuple[Any, ...]:
        """Return all that has to be the same in two runs."""
        return {number: step._replace(round=0) for number, step in self.steps.items()}, self.digests

    def samples_of(self, epoch: int) -> list[int]:
        """Return the samples of an epoch in the order of steps and ranks."""
        taken = (self.steps[number] for number in sorted(self.steps))
        return [index for step in taken if step.epoch == epoch for rank in step.samples for index, _ in rank]


def history(log: Sequence[dict[str, Any]]) -> History:
    """Reconstruct what counts."""
    noted: dict[int, dict[int, dict[int, dict[str, Any]]]] = {}
    digests: dict[tuple[int, int], tuple[int, tuple[str, ...]]] = {}
    for line in log:
        if line["what"] == "step":
            noted.setdefault(line["step"], {}).setdefault(line["round"], {})[line["rank"]] = line
        elif line["what"] == "digest":
            found = (line["round"], tuple(line[name] for name in DIGESTS))
            digests[line["epoch"], line["rank"]] = max(found, digests.get((line["epoch"], line["rank"]), found))
    steps = {}
    computed = {}
    for number, rounds in sorted(noted.items()):
        last = rounds[max(rounds)]
        first = last[min(last)]
        assert len(last) == first["world"], f"step {number}: only ranks {sorted(last)} of round {max(rounds)} noted it"
        samples = tuple(tuple(map(tuple, last[rank]["samples"])) for rank in sorted(last))
        steps[number] = Step(max(rounds), first["epoch"], first["loss"], samples)
        computed[number] = sorted(one for one, ranks in rounds.items() if len(ranks) == ranks[min(ranks)]["world"])
    return History(steps, {place: found for place, (_, found) in digests.items()}, computed)


class Notebook:
    """What the workers of a job noted, read once: tests look many times a second.

    A round is known by a number that grows, also when all agents were lost and rounds are counted from 0 again.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._read = 0
        self._starts: dict[str, int] = {}  # the number that the first round of a node's job has
        self.newest = -1
        self._met: dict[int, list[dict[str, Any]]] = {}
        self._steps: dict[int, int] = {}
        self._kept: dict[str, dict[int, int]] = {}
        self._pids: dict[tuple[str, int], tuple[int, int]] = {}

    def expect(self, node: str) -> None:
        """A node begins; if it is the first one since all were lost, a new count begins with it."""
        self._starts[node] = max(self._starts.values(), default=0)

    def begin_anew(self, node: str) -> None:
        self.look()
        self._starts[node] = self.newest + 1

    def look(self) -> Notebook:
        """Read what is new."""
        log = self._crew.log()
        for line in log[self._read :]:
            round_ = self._starts[line["node"]] + line["round"]
            self.newest = max(self.newest, round_)
            if line["what"] == "began":
                self._pids[line["node"], line["rank"]] = (line["pid"], round_)
            elif line["what"] == "met":
                self._met.setdefault(round_, []).append(line)
            elif line["what"] == "step":
                self._steps[round_] = max(line["step"], self._steps.get(round_, 0))
            elif line["what"] == "kept":
                steps = self._kept.setdefault(line["tier"], {})
                steps[round_] = max(line["step"], steps.get(round_, 0))
        self._read = len(log)
        return self

    def life(self, after: int, nodes: int) -> Life | None:
        """Return the newest round after that one in which all ranks have met, of so many nodes (0: whatever)."""
        for number in sorted((one for one in self._met if one > after), reverse=True):
            ranks = self._met[number]
            if len(ranks) == ranks[0]["world"] and nodes in (0, len({line["node"] for line in ranks})):
                steps = {line["step"] for line in ranks}
                assert len(steps) == 1, f"ranks of one life stand on different steps: {ranks}"
                return Life(number, *steps, {(line["node"], line["rank"]): line["pid"] for line in ranks})
        return None

    def step(self, round_: int) -> int:
        """Return the last step that was computed in a round."""
        return self._steps.get(round_, 0)

    def kept(self, tiers: Sequence[str], after: int = -1, until: int | None = None) -> int:
        """Return the newest step of which a worker was told, in a later round, that its commit has reached one of the tiers.

        `until`: in that round or before it.
        """
        found = (self._kept.get(tier, {}) for tier in tiers)
        rounds = range(after + 1, (self.newest if until is None else until) + 1)
        return max((step for steps in found for round_, step in steps.items() if round_ in rounds), default=0)

    def worker(self, node: str, rank: int, after: int) -> tuple[int, int] | None:
        """Return pid and round of the last worker of that place, if its round is a later one."""
        pid, round_ = self._pids.get((node, rank), (0, -1))
        return (pid, round_) if round_ > after else None


class Training:
    """A job of nodes that train.

    What the next life has to go on from: killed workers lose nothing that is complete; with an agent goes what has not reached
    `buddy`. One agent at a time: after a loss there is one copy of what that agent had, until the next commit has reached
    `buddy`; only the node that took the lost one's place may be lost before. With all agents goes what is not on disk.
    """

    def __init__(
        self, room: Room, *options: str, nodes: str, flags: Sequence[str] = (), program: str = "trainee", **where: Any
    ) -> None:
        job = (SUPPORT / f"{program}.py").read_text()
        self.crew = Crew(room, "--always-restart", *flags, nodes=nodes, job=job, **where)
        self.book = Notebook(self.crew)
        self._options = options
        self._born = 0
        self._lost_in = -1  # the round in which an agent was lost last: what only nodes had is over
        self._over = -1  # the last round that is known to be over
        self._floor = 0
        self.alive: list[CrewNode] = []
        self.told: list[str] = []
        self.stood: set[int] = set()  # everybody who was seen standing by

    @property
    def next_name(self) -> str:
        """What the node that is started next will be called."""
        return f"n{self._born + 1}"

    def add(self, **settings: Any) -> CrewNode:
        """Start one more node."""
        name = self.next_name
        if self.alive or not self._born:
            self.book.expect(name)
        else:
            self.book.begin_anew(name)
        node = self.crew.add(name, args=self._options, **settings)
        self._born += 1
        self.alive.append(node)
        return node

    def wait_life(self, nodes: int = 0) -> Life:
        """Wait until all ranks of a new round have met; all stand on one step, not below what was promised.

        With `nodes`, a round of so many.
        """
        life: Life = self._wait(lambda: self.book.look().life(self._over, nodes), "a life", LIFE_S)
        assert life.step >= self._floor, f"{self._floor} was promised, {life.step} is there\n{self.story()}"
        self._over = life.round
        return life

    def wait_step(self, step: int, life: Life, timeout_s: float = PATIENCE_S) -> None:
        """Wait until somebody has computed a step in this life."""
        self._wait(lambda: self.book.look().step(life.round) >= step, f"step {step} of round {life.round}", timeout_s)

    def wait_kept(self, tier: str, life: Life) -> None:
        """Wait until a commit of this life has reached a tier."""
        self._wait(lambda: self.book.look().kept([tier], life.round - 1), f"a commit at {tier}", PATIENCE_S)

    def _wait(self, predicate: Callable[[], Any], what: str, timeout_s: float) -> Any:
        def found() -> Any:
            dead = [node for node in self.alive if not node.is_running]
            assert not dead, f"{dead[0].name} has ended while {what} was waited for"
            return predicate()

        try:
            return wait_until(found, what, timeout_s)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.story()}") from None

    # Strikes. Each notes what the next life has to go on from.

    def workers_lost(self, life: Life, told: str) -> None:
        """Note that only workers died. What the next life has kept by now was not promised to it."""
        complete = self.book.look().kept(["node", "buddy", "disk"], self._lost_in, until=life.round)
        self._floor = max(complete, life.step)
        self.told.append(f"round {life.round}: {told}")

    def agent_lost(self, life: Life, told: str, seen: Seen | None = None) -> None:
        """Note that an agent died, and its memory with it; if it was still to come, maybe in a later round.

        `seen`: before it was killed. Those who are left and enough for a round may be in it by now.
        """
        newest, self._floor = seen or self.look()
        self._lost_in = self._over = newest
        self.told.append(f"round {life.round}: {told}")

    def look(self) -> Seen:
        book = self.book.look()
        return Seen(book.newest, book.kept(["buddy", "disk"]))

    def agents_lost(self, life: Life) -> None:
        """Note that all agents died."""
        book = self.book.look()
        self._lost_in = self._over = book.newest
        self._floor = book.kept(["disk"])
        self.told.append(f"round {life.round}: all agents")

    def kill_worker(self, life: Life, rng: random.Random, *, whole_node: bool) -> None:
        """Kill one worker, or all of one node."""
        node = rng.choice(sorted({name for name, _ in life.pids}))
        pids = [pid for (name, _), pid in sorted(life.pids.items()) if name == node]
        for pid in pids if whole_node else [rng.choice(pids)]:
            kill(pid)
        self.workers_lost(life, f"{'all workers' if whole_node else 'a worker'} of {node}")

    def kill_agent(self, life: Life, node: CrewNode) -> None:
        """Kill an agent, and see all below it go."""
        self.alive.remove(node)
        below = [pid for (name, _), pid in life.pids.items() if name == node.name]
        seen = self.look()
        kill(node.agent())
        node.wait(PATIENCE_S)
        wait_gone(below)
        self.agent_lost(life, f"agent of {node.name}", seen)

    def wait_standbys(self, count: int) -> None:
        """Wait until so many stand by on every node, and remember them."""

        def standing() -> bool:
            found = [[pid for pid in children_of(node.agent()) if stands_ready(pid)] for node in self.alive]
            self.stood.update(pid for pids in found for pid in pids)
            return all(len(pids) >= count for pids in found)

        self._wait(standing, f"{count} standbys on every node", LIFE_S)

    def strike(self, rng: random.Random, kinds: Sequence[str], standbys: int = 0) -> None:
        """Wait for a life and kill some of it, at a random moment of one of its first steps, with so many standing by."""
        life = self.wait_life()
        kind = rng.choice(kinds)
        self.wait_step(life.step + rng.randint(1, 2), life)
        if standbys:
            self.wait_standbys(standbys)
        if kind == "agent":
            self.wait_kept("buddy", life)
        threading.Event().wait(rng.random() * 0.4)  # anywhere in a step or its commit
        if kind == "agent":
            self.kill_agent(life, rng.choice(self.alive))
            self.add()  # takes its place
        else:
            self.kill_worker(life, rng, whole_node=kind == "workers")

    # Ends.

    def ask_to_end(self) -> None:
        """Name the step to end after, for programs that wait for that. They stand still meanwhile: none may be beyond it."""
        workers = [pid for node in self.alive for pid in node.workers()]
        stop(*workers)
        last = max(line["step"] for line in self.crew.log() if "step" in line) + 2  # one may have begun without a note
        self.crew.room.write("stop.draft", str(last))
        os.rename(self.crew.room.path("stop.draft"), self.crew.room.path("stop"))
        for pid in workers:
            kill(pid, signal.SIGCONT)

    def finish(self, timeout_s: float = LIFE_S) -> History:
        """Wait for the end of the run; return what it has come to."""
        for node in self.alive:
            end = node.wait(timeout_s)
            assert end.status == 0, f"{node.name} ended with {end.status}\n{self.story()}"
        return history(self.crew.log())

    def promoted(self) -> set[int]:
        """Return the workers that had stood by."""
        return self.stood.intersection(line["pid"] for line in self.crew.log() if line["what"] == "began")

    def story(self) -> str:
        return f"strikes: {self.told}\n{self.crew.story()}"
