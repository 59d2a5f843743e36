"""One worker group in virtual time: the shipped machine against workers that behave as a seed says.

`GroupSim` is a node alone; `MemberSim` one of many, with a leader that starts, stops, fences and ends as a seed says.
"""

import heapq
import itertools
import random

from planaria.agent.machine import step
from planaria.agent.membership import (
    Fenced,
    GoodbyeSaid,
    LeaseMoved,
    LeaveRun,
    MeetOthers,
    ReportDone,
    ReportFailed,
    ReportStopped,
    RoundStarted,
    RoundStopped,
    RunEnded,
    TakePlace,
    TellResize,
)
from planaria.agent.model import (
    DONE,
    WAITING,
    Begun,
    BlameWorker,
    DeadlinePassed,
    EndRequested,
    EndTree,
    Finish,
    Group,
    KillWorkers,
    LauncherDied,
    MembersChanged,
    ProgressReported,
    ScopeExpired,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    StopRequested,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.base.value import replace
from planaria.contract.failure import Failure
from planaria.rendezvous.messages import Place

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
        self.blamed: dict[int, Failure] = {}
        self.life = 0
        self.deadline_number = 0
        self.signalled_at: float | None = None
        self.tree_ending = False
        self.finished = None
        self.starts: list[StartWorkers] = []
        self.free_restarts = 0
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
            if isinstance(effect, KillWorkers) and not self.may_kill_at_once(event):
                waited = self.now - self.signalled_at
                assert waited >= group.grace_s, f"killed after {waited} s of a grace of {group.grace_s} s"

    def may_kill_at_once(self, event) -> bool:
        return isinstance(event, StopRequested)

    def perform(self, effect) -> None:
        match effect:
            case StartWorkers():
                self.start(effect)
            case SignalWorkers(number, only):
                heard = self.mortals() if number == SIGKILL else [rank for rank, deaf in self.alive.items() if not deaf]
                self.end([rank for rank in heard if only is None or rank in only], number, self.rng.random())
            case BlameWorker(blamed):
                assert blamed.local_rank in self.alive, "blamed for nothing"
                self.blamed[blamed.local_rank] = blamed
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
        assert len(self.starts) <= self.group.max_restarts + 1 + self.free_restarts, (
            "more lives than the budget pays for"
        )
        self.life += 1
        self.signalled_at = None
        self.blamed.clear()
        self.at(self.now, WorkersStarted(self.now))  # the driver says so before it can see an exit
        for rank in range(self.group.size):
            seconds, kind, stubborn = self.behave(order.round, rank, self.rng)
            self.alive[rank] = stubborn
            self.exit_at(self.now + seconds, rank, kind=kind)

    def change_members(self):
        if self.group.phase != "running":
            return None
        self.free_restarts += 1
        return MembersChanged(self.now)

    def exit_at(self, when: float, rank: int, *, kind: str | None = None, status: int | None = None) -> None:
        life = self.life

        def exited(sim: "GroupSim"):
            if sim.life != life or rank not in sim.alive:
                return None
            del sim.alive[rank]
            if rank in sim.blamed:
                return WorkerExited(rank, sim.now, replace(sim.blamed[rank], status=status or 0))
            if status is not None:
                return WorkerExited(rank, sim.now, failure(rank, status, sim.now, "signal", ()))
            if kind is None:
                return WorkerExited(rank, sim.now)
            what, code, bases = KINDS[kind]
            return WorkerExited(rank, sim.now, failure(rank, code, sim.now, what, bases))

        self.at(when, exited)


def hang(rank: int, signal: int = SIGTERM):
    """A worker, if it lives, stays in a scope for too long."""

    def expired(sim: GroupSim):
        if rank not in sim.alive:
            return None
        late = failure(rank, -signal, sim.now, "watchdog", (), message="watchdog: scope 'step' ran 61 s, limit 60 s")
        return ScopeExpired(late, 100 + rank, signal)

    return expired


def random_hangs(sim: GroupSim, seed: int) -> None:
    """Let scopes expire, one or several in the same moment, in some of the runs."""
    rng = random.Random(f"hangs of {seed}")
    if rng.random() < 0.3:
        when = rng.choice([1.0, 10.0, 60.0]) * rng.random()
        for _ in range(rng.choice([1, 1, 2, 4])):
            sim.at(when, hang(rng.randrange(sim.group.size), rng.choice([SIGTERM, SIGKILL, SIGINT])))
            when += rng.choice([0.0, 0.1, 1.0])


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
    if rng.random() < 0.3:
        grace_s, listens = rng.choice([0.0, 2.0]), rng.random() < 0.5
        sim.at(rng.random() * 40, lambda s: EndRequested("enough", grace_s, s.now, listens))
    if rng.random() < 0.2:
        sim.at(rng.random() * 5, GroupSim.change_members)
    random_hangs(sim, seed)
    return sim


def place(number: int = 0, *, slot: int | None = 0, nodes: int = 2, size: int = 2, **more) -> Place:
    """The place of a node in a round of equal nodes."""
    fields = {
        "epoch": "e",
        "term": 1,
        "round": number,
        "size": nodes,
        "slot": slot,
        "first_rank": (slot or 0) * size,
        "world_size": nodes * size,
        "first_role_rank": (slot or 0) * size,
        "role_world_size": nodes * size,
        "master_addr": "10.0.0.1",
        "master_port": 4711,
        "restart_count": 0,
        "reason": "",
        "deputies": (),
    }
    return Place(**(fields | more))


class MemberSim(GroupSim):
    """Drives the group of one node of many. What the leader may know of this node is what the group reported."""

    def __init__(self, group: Group, behave, *, seed: int = 0) -> None:
        super().__init__(group, behave, seed=seed)
        self.is_idle = False
        """The group has said that no worker lives, and was not told to start any since."""
        self.owes_a_report = False
        self.is_leaving = False
        self.run_ended = False
        self.next_round = 0
        self.restart_count = 0
        self.reports: list = []
        self.hears_goodbye = True

    def check(self, event, effects) -> None:
        super().check(event, effects)
        kinds = [type(effect) for effect in effects]
        assert not {StartWorkers, TellRestart} & set(kinds), "a restart that nobody ordered"
        for kind in (ReportDone, ReportFailed, LeaveRun):
            assert kind not in kinds or ReportStopped in kinds[: kinds.index(kind)], "a report before the workers' end"
        for effect in effects:
            match effect:
                case TakePlace():
                    assert not self.alive, "two lives at once"
                    assert isinstance(event, RoundStarted)
                case ReportFailed(failures):
                    assert failures
                    assert all(one.stopped_for is None for one in failures)
                case Finish(outcome):
                    assert outcome.kind != "done" or self.run_ended, "done before the others are"

    def may_kill_at_once(self, event) -> bool:
        late = isinstance(event, WorkerExited) and self.group.lease_until is not None
        return late or isinstance(event, (StopRequested, Fenced))

    def perform(self, effect) -> None:
        match effect:
            case MeetOthers():
                assert not self.is_idle, "what others are told first is that no worker lives"
            case TakePlace(taken):
                self.start_place(taken)
            case TellResize(_, grace_s):
                for rank in [rank for rank, stubborn in self.alive.items() if not stubborn]:
                    self.exit_at(
                        self.now + self.rng.random() * 2 * grace_s, rank, kind=self.rng.choice([None, "exit3"])
                    )
            case ReportStopped():
                assert not self.alive, "reported dead and alive"
                self.is_idle, self.owes_a_report = True, False
            case ReportDone() | ReportFailed():
                self.reports.append(effect)
            case LeaveRun():
                assert not self.alive
                self.is_leaving = True
                if self.hears_goodbye:
                    self.at(self.now + self.rng.random(), GoodbyeSaid())
            case _:
                super().perform(effect)

    def start_place(self, taken: Place) -> None:
        self.life += 1
        self.signalled_at = None
        self.blamed.clear()
        heapq.heappush(self.heap, (self.now, -1, WorkersStarted(self.now, taken.master_port)))  # whatever else waits
        for rank in range(self.group.size):
            seconds, kind, stubborn = self.behave(taken.round, rank, self.rng)
            self.alive[rank] = stubborn
            self.exit_at(self.now + seconds, rank, kind=kind)

    # What the leader does.

    def order_start(self):
        assert not self.owes_a_report, "a round begins before the last one was reported to be over"
        if not self.is_idle or self.run_ended:
            return None
        self.is_idle = False
        number, self.next_round = self.next_round, self.next_round + 1
        return RoundStarted(place(number, size=self.group.size, restart_count=self.restart_count), self.now)

    def order_stop(self, grace_s: float = 0.0, *, has_listeners: bool = False):
        self.owes_a_report = self.group.phase not in ("draining", "finishing", "leaving", "done")
        return RoundStopped(self.next_round, "somebody came", grace_s, self.now, has_listeners)

    def order_fence(self):
        self.owes_a_report = self.group.phase not in ("draining", "finishing", "leaving", "done")
        return Fenced("no leader answered", self.now)

    def order_end(self, kind: str):
        self.run_ended, self.owes_a_report = True, False
        causes = (failure(0, 1, self.now),) if kind == "failed" else ()
        return RunEnded(kind, "", causes, self.restart_count, self.now)


def member_worker(round_number, _rank, dice):
    """Behave as workers of a job of many do: most live until something stops them or they fail."""
    if round_number == 0 and dice.random() < 0.4:
        return dice.random(), "ImportError", False
    if dice.random() < 0.03:
        return 10_000_000.0, None, "stuck"
    stubborn = dice.random() < 0.15
    seconds = dice.choice([0.01, 0.5, 20.0, 4000.0]) * dice.random()
    return (10_000_000.0 if stubborn else seconds), dice.choice([None, None, *KINDS]), stubborn


ORDERS = {
    "start": lambda sim, _rng: sim.order_start() if sim.group.phase == WAITING and not sim.owes_a_report else None,
    "stop": lambda sim, _rng: sim.order_stop(),
    "resize": lambda sim, rng: sim.order_stop(rng.choice([1.0, 10.0]), has_listeners=rng.random() < 0.7),
    "fence": lambda sim, _rng: sim.order_fence(),
    "lease": lambda sim, _rng: LeaseMoved(sim.now + 4.0),
    "lapse": lambda sim, _rng: LeaseMoved(sim.now),
    "free": lambda _sim, _rng: LeaseMoved(None),
    "spend": lambda sim, _rng: setattr(sim, "restart_count", min(sim.restart_count + 1, sim.group.max_restarts)),
    "end": lambda sim, rng: (
        None
        if sim.run_ended or rng.random() < 0.9
        else sim.order_end(rng.choice(["done", "failed", "timeout", "lost", "stopped"]))
    ),
}
AMBUSHES = (
    lambda sim: StopRequested(SIGINT, sim.now),
    lambda sim: LauncherDied(sim.now),
    lambda sim: sim.order_end("failed"),
    lambda sim: sim.order_fence(),
    lambda sim: sim.order_stop(),
)
MEMBER_PHASES = ("running", "settling", "resizing", "stopping", "restarting", "draining", "finishing", "leaving")


def random_member(seed: int) -> MemberSim:
    """A node's part in a job of many, with everything that its leader, its owner and its workers may do."""
    rng = random.Random(seed)
    group = Group(
        size=rng.choice([1, 2, 3]),
        max_restarts=rng.choice([0, 1, 3]),
        grace_s=rng.choice([0.0, 1.0, 30.0]),
        worker_exit_code=rng.random() < 0.3,
        alone=False,
        phase=WAITING,
    )
    sim = MemberSim(group, member_worker, seed=seed)
    sim.hears_goodbye = rng.random() < 0.7
    choices = ["start"] * 5 + list(ORDERS)

    def leader_acts(sim: MemberSim):
        sim.at(sim.now + rng.choice([0.0, 0.01, 0.3, 5.0, 100.0]) * rng.random(), leader_acts)
        return ORDERS[rng.choice(choices)](sim, rng)

    sim.at(0.0, leader_acts)
    sim.at(20_000.0, lambda s: None if s.run_ended else s.order_end("failed"))
    if rng.random() < 0.5:
        when = rng.random() * 50
        sim.at(when, lambda s: StopRequested(rng.choice([SIGTERM, SIGINT]), s.now))
        sim.at(when + rng.random() * 3, lambda s: StopRequested(SIGINT, s.now, rng.random() < 0.5))
    if rng.random() < 0.2:
        sim.at(rng.random() * 60, lambda s: LauncherDied(s.now))
    if rng.random() < 0.3:
        sim.at(rng.random() * 5, ProgressReported(0, 1))
    if rng.random() < 0.5:
        sim.ambush = (rng.choice(MEMBER_PHASES), rng.choice(AMBUSHES))
    if rng.random() < 0.3:
        sim.at(rng.random() * 40, lambda s: EndRequested("enough", 0.0, s.now))
    random_hangs(sim, seed)
    return sim
