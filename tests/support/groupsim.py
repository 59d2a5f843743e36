"""One worker group in virtual time: the shipped machine against workers that behave as a seed says."""

import heapq
import itertools
import random

from planaria.agent.machine import step
from planaria.agent.model import (
    DONE,
    Begun,
    DeadlinePassed,
    EndTree,
    Finish,
    Group,
    KillWorkers,
    LauncherDied,
    ProgressReported,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    StopRequested,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.contract.failure import Failure

SIGKILL, SIGTERM, SIGINT = 9, 15, 2
KINDS = {
    "ImportError": ("exception", 1, ("ImportError", "Exception")),
    "RuntimeError": ("exception", 1, ("RuntimeError", "Exception")),
    "usage": ("exit", 2, ()),
    "exit3": ("exit", 3, ()),
    "segfault": ("signal", -11, ()),
}


def failure(local_rank, status=1, at=0.0, kind="exception", bases=("RuntimeError",), **more):
    fields = {"host": "n0", "pid": 100 + local_rank, "age_s": at, "type": bases[0] if bases else "", "where": "x.py:1"}
    return Failure(
        rank=local_rank, local_rank=local_rank, status=status, at=at, kind=kind, bases=bases, **(fields | more)
    )


class GroupSim:
    """Drives `step` until the group is done, checking the invariants after every event."""

    def __init__(self, group: Group, behave, *, seed: int = 0) -> None:
        """`behave(round, local_rank, rng)` returns (seconds, kind or None for success, deaf to signals or "stuck")."""
        self.group = group
        self.rng = random.Random(seed)
        self.behave = behave
        self.now = 0.0
        self.heap: list = []
        self.order = itertools.count()
        self.alive: dict[int, bool | str] = {}
        self.life = 0
        self.deadline_number = 0
        self.signalled_at: float | None = None
        self.tree_ending = False
        self.finished = None
        self.starts: list[StartWorkers] = []
        self.story: list[str] = []
        self.ambush: tuple[str, object] | None = None
        """A phase, and what happens the moment it is first entered."""

    def at(self, when: float, event) -> "GroupSim":
        heapq.heappush(self.heap, (when, next(self.order), event))
        return self

    def run(self, limit_s: float = 1_000_000.0) -> "GroupSim":
        self.post(Begun(self.now))
        while self.heap and self.finished is None:
            self.now, _, event = heapq.heappop(self.heap)
            assert self.now < limit_s, "the group never ends"
            event = event(self) if callable(event) else event
            if event is not None:
                self.post(event)
        assert self.finished is not None, f"nothing left to happen in phase {self.group.phase}"
        return self

    def post(self, event) -> None:
        before = self.group.phase
        self.group, effects = step(self.group, event)
        self.story.append(f"{self.now:8.3f}  {before:<10} {event!r}")
        self.story += [f"{'':20}-> {effect!r}" for effect in effects]
        if {SignalWorkers, SetDeadline} <= {type(effect) for effect in effects}:
            self.signalled_at = self.now  # the grace begins
        self.check(event, effects)
        for effect in effects:
            self.perform(effect)
        if self.ambush and self.group.phase == self.ambush[0]:
            event, self.ambush = self.ambush[1], None
            self.at(self.now, event)

    def check(self, event, effects) -> None:
        group = self.group
        assert group.restarts <= group.max_restarts
        assert self.finished is None or not effects
        assert (group.phase == DONE) == (self.finished is not None or any(isinstance(e, Finish) for e in effects))
        for effect in effects:
            if isinstance(effect, StartWorkers):
                assert not self.alive, "two lives at once"
                assert effect.restart_count == group.restarts
            if isinstance(effect, KillWorkers) and not isinstance(event, StopRequested):
                waited = self.now - self.signalled_at
                assert waited >= group.grace_s, f"killed after {waited} s of a grace of {group.grace_s} s"

    def perform(self, effect) -> None:
        match effect:
            case StartWorkers():
                self.start(effect)
            case SignalWorkers(number):
                self.end([rank for rank, stubborn in self.alive.items() if not stubborn], number, self.rng.random())
            case KillWorkers():
                self.end(self.mortals(), SIGKILL, 1.0)
            case SetDeadline(after_s):
                self.deadline_number += 1
                mine = self.deadline_number
                self.at(
                    self.now + after_s,
                    lambda sim: DeadlinePassed(sim.now) if sim.deadline_number == mine else None,
                )
            case EndTree(within_s):
                assert not self.tree_ending
                self.tree_ending = True
                self.deadline_number += 1
                everybody = len(self.mortals()) == len(self.alive)
                self.end(self.mortals(), SIGKILL, 0.0)
                self.at(self.now + (0.002 if everybody else within_s), GroupSim.tree_ended)
            case Finish(outcome):
                assert not self.alive
                self.finished = outcome

    def end(self, ranks: list[int], number: int, delay_ms: float) -> None:
        for rank in ranks:
            self.exit_at(self.now + delay_ms / 1000, rank, status=-number)

    def mortals(self) -> list[int]:
        """Return the ranks whose processes the kernel lets go of."""
        return [rank for rank, stubborn in self.alive.items() if stubborn != "stuck"]

    def tree_ended(self):
        self.tree_ending = False
        clean = not self.alive
        self.alive.clear()
        return TreeEnded(self.now, clean)

    def start(self, order: StartWorkers) -> None:
        self.starts.append(order)
        assert len(self.starts) <= self.group.max_restarts + 1, "more lives than the budget pays for"
        self.life += 1
        self.signalled_at = None
        self.at(self.now, WorkersStarted(self.now))  # the driver says so before it can see an exit
        for rank in range(self.group.size):
            seconds, kind, stubborn = self.behave(order.round, rank, self.rng)
            self.alive[rank] = stubborn
            self.exit_at(self.now + seconds, rank, kind=kind)

    def exit_at(self, when: float, rank: int, *, kind: str | None = None, status: int | None = None) -> None:
        life = self.life

        def exited(sim: "GroupSim"):
            if sim.life != life or rank not in sim.alive:
                return None
            del sim.alive[rank]
            if status is not None:
                return WorkerExited(rank, sim.now, failure(rank, status, sim.now, "signal", ()))
            if kind is None:
                return WorkerExited(rank, sim.now)
            what, code, bases = KINDS[kind]
            return WorkerExited(rank, sim.now, failure(rank, code, sim.now, what, bases))

        self.at(when, exited)


def random_run(seed: int) -> GroupSim:
    """A whole job with everything that can happen to one node's group, drawn from one number."""
    rng = random.Random(seed)
    group = Group(
        size=rng.choice([1, 2, 3, 8]),
        max_restarts=rng.choice([0, 1, 3]),
        grace_s=rng.choice([0.0, 1.0, 30.0]),
        always_restart=rng.random() < 0.2,
        worker_exit_code=rng.random() < 0.3,
    )
    kinds = [None, None, None, *KINDS]
    alike = rng.choice([None, "ImportError", "usage"]) if rng.random() < 0.3 else None

    def behave(round_number, _rank, dice):
        kind = alike if alike and round_number == 0 else dice.choice(kinds)
        stubborn = dice.random() < 0.1  # deaf to signals, and in no hurry
        seconds = dice.choice([0.0, 0.01, 0.5, 20.0, 4000.0]) * dice.random()
        if dice.random() < 0.03:  # in the kernel's hands: not even SIGKILL ends it
            return 10_000_000.0, None, "stuck"
        return (10_000_000.0 if stubborn and dice.random() < 0.5 else seconds), kind, stubborn

    sim = GroupSim(group, behave, seed=seed)
    sim.at(90_000.0, lambda s: StopRequested(SIGTERM, s.now))  # an owner who has seen enough
    if rng.random() < 0.4:
        sim.at(rng.random() * 30, lambda s: StopRequested(rng.choice([SIGTERM, SIGINT]), s.now))
        sim.at(rng.random() * 60, lambda s: StopRequested(rng.choice([SIGTERM, SIGINT]), s.now, rng.random() < 0.5))
    if rng.random() < 0.2:
        sim.at(rng.random() * 60, lambda s: LauncherDied(s.now))
    if rng.random() < 0.3:
        sim.at(rng.random() * 5, ProgressReported(0, 1))
    if rng.random() < 0.4:
        phase = rng.choice(["running", "settling", "stopping", "restarting", "draining", "finishing"])
        signal = rng.choice([SIGTERM, SIGINT])
        sim.ambush = (phase, rng.choice([lambda s: StopRequested(signal, s.now), lambda s: LauncherDied(s.now)]))
    return sim
