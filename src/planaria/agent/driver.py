"""Turn what happens to a worker group into events, and the machine's effects into actions. There is no decision here."""

from __future__ import annotations

import os

from planaria.agent.machine import step
from planaria.agent.membership import LeaseMoved
from planaria.agent.model import (
    DONE,
    FINISHING,
    Begun,
    BlameWorker,
    CheckNode,
    DeadlinePassed,
    DumpStacks,
    EndTree,
    Finish,
    KillWorkers,
    LauncherDied,
    ProgressReported,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    StopRequested,
    TellDrain,
    TellRestart,
    TellSetAside,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.rounds import Neighbours, lone_round
from planaria.base import signals
from planaria.errors import InternalError
from planaria.process.children import Children
from planaria.process.descendants import children_of, kill_descendants
from planaria.process.ports import Reservation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.control import ControlServer, Peer
    from planaria.agent.hearing import Hearing
    from planaria.agent.hearsay import Hearsay
    from planaria.agent.keeper import Keeper
    from planaria.agent.meeting import Seat
    from planaria.agent.model import Effect, Event, Group, Job, Outcome
    from planaria.agent.observer import Observer
    from planaria.agent.preflight import Preflight
    from planaria.agent.reserve import Reserve
    from planaria.agent.vigil import Vigil
    from planaria.agent.watchdog import Watchdog
    from planaria.base.loop import Loop, Timer
    from planaria.contract.commit import Stamp
    from planaria.contract.control import Progress
    from planaria.contract.env import Round
    from planaria.process.workers import Workers

STORY_LENGTH = 200  # events kept for the day the machine meets one it has no rule for
LOOK_AGAIN_S = 0.01  # a process that forks while it is being killed is met at the second look
_FREQUENT = (ProgressReported, LeaseMoved)  # they would push everything else out of the story


class Driver:
    """Runs one worker group to its end. `on_restart(group, clean)` tells those who watch."""

    def __init__(self, job: Job, group: Group, loop: Loop, on_restart: Callable[[Group, bool], None]) -> None:
        self._job = job
        self._loop = loop
        self._on_restart = on_restart
        self.group = group
        self.outcome: Outcome | None = None
        self.story: list[tuple[Event, tuple[Effect, ...]]] = []
        self._queue: list[Event] = []
        self._busy = False
        self._deadline: Timer | None = None
        self._tree_deadline: Timer | None = None
        self._port: Reservation | None = None
        self._children = Children(loop, self._on_exit, self._on_childless, self._spared, self._is_replaced)
        self.workers: Workers
        self.control: ControlServer
        self.seat: Seat  # of a group that is not alone
        self.preflight: Preflight  # of a group that is checked before it joins
        self.life: Round | None = None
        self.progress: dict[int, tuple[Progress, float]] = {}  # by local rank: the newest report, and when it came
        self._hearing: Hearing | None = None
        self.watchdog: Watchdog | None = None
        self.vigil: Vigil | None = None
        self.evidence_dir = ""  # where folders of evidence go; made for the first of them
        self.observer: Observer | None = None
        self.keeper: Keeper | None = None
        self.hearsay: Hearsay | None = None
        self.neighbours = Neighbours()
        self.has_handed_over = False  # what only this node had of the newest commit is elsewhere
        self.say: Callable[[str], object] = lambda _line: None
        self.was_noticed = False  # the owner gave notice of the end, instead of sending a signal
        self.reserve: Reserve | None = None
        self.wake: int | None = None  # brings the numbers of signals; an embedded agent has none

    def run(self) -> Outcome:
        """Drive the group from its first start to its last process."""
        self.post(Begun(self._loop.now()))
        self._loop.run()
        if self.outcome is None:
            raise InternalError("the loop ended before the group did")
        return self.outcome

    def post(self, event: Event) -> None:
        """Take an event; events that effects cause wait their turn."""
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                self._take(self._queue.pop(0))
        finally:
            self._busy = False

    def _take(self, event: Event) -> None:
        if self.group.phase == DONE:
            return
        try:
            self.group, effects = step(self.group, event)
        except InternalError as problem:
            problem.add_note("\n".join(f"{past!r} -> {ordered!r}" for past, ordered in self.story))
            raise
        if not isinstance(event, _FREQUENT):
            self.story = [*self.story[1 - STORY_LENGTH :], (event, effects)]
        ordered_at = self._loop.now()
        for effect in effects:
            self._perform(effect)
        if self.observer is not None:
            self._show(self.observer, event, effects, ordered_at)

    def _show(self, observer: Observer, event: Event, effects: tuple[Effect, ...], ordered_at: float) -> None:
        """Let the observer see what happened. A mistake of ours in it costs what it would tell, and nothing else."""
        try:
            observer.saw(event, effects, self.group, ordered_at)
        except Exception as problem:  # noqa: BLE001  who only watches must never end a job
            self.observer = None
            self.say(f"cannot watch this run any more, which is a bug of planaria's: {problem!r}; the job goes on")

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StartWorkers():
                self._start(effect)
            case SignalWorkers(number, only):
                self.workers.signal(number, only)
            case KillWorkers():
                self.workers.signal(signals.SIGKILL)
            case DumpStacks() | BlameWorker() | CheckNode() | TellSetAside():
                self._examine(effect)
            case TellDrain(number, grace_s):
                self._tell_drain(number, grace_s)
            case SetDeadline(after_s):
                self._cancel_deadline()
                self._deadline = self._loop.call_later(after_s, lambda: self.post(DeadlinePassed(self._loop.now())))
            case TellRestart(clean):
                self._on_restart(self.group, clean)
            case EndTree(within_s):
                self._begin_to_end_tree(within_s)
            case Finish(outcome):
                self.outcome = outcome
                self._loop.stop()
            case _:
                self.seat.perform(effect)

    def _examine(self, order: DumpStacks | BlameWorker | CheckNode | TellSetAside) -> None:
        match order:
            case BlameWorker(failure, pid):
                self.workers.blame(failure, pid)
            case DumpStacks():
                self.workers.dump_stacks()
            case _:
                self.preflight.perform(order)

    def _start(self, order: StartWorkers) -> None:
        if self._port is not None:
            self._port.release()
        self._port = Reservation() if self._job.master_port is None else None
        self.begin(lone_round(self._job, order, self._port.port if self._port else self._job.master_port or 0))

    def begin(self, life: Round) -> None:
        """Start the workers of a round. That they run is the next thing the machine hears, whatever else is waiting."""
        self.life, self.progress = life, {}
        self.workers.begin(life, self._children.add)
        self.control.serve(self.workers.by_pid)
        if self.watchdog is not None:
            self.watchdog.serve(self.workers.by_pid)
        if self.vigil is not None:
            self.vigil.begin(self.workers.seen)
        if self.keeper is not None:
            self.keeper.begin(life, self.neighbours)
        if self.hearsay is not None:
            self.hearsay.begin(life)
        if self.reserve is not None:
            self.reserve.began(self.group)
        self._queue.insert(0, WorkersStarted(self._loop.now(), life.master_port))

    def watch(self, pid: int, lifeline: int | None) -> None:
        """Wait for a child that is no worker yet."""
        self._children.add(pid, lifeline=lifeline)

    def snapshot_memory(self, local_rank: int) -> dict[int, int]:
        """Return what a local rank's commits are written into, as descriptors by number; empty without commits."""
        return {} if self.keeper is None else self.keeper.memory_of(local_rank)

    @property
    def commits(self) -> Mapping[str, Stamp]:
        """Return the newest commit of each tier, kept here or by the ranks themselves."""
        kept = {} if self.keeper is None else self.keeper.newest
        return kept if self.hearsay is None else {**self.hearsay.newest, **kept}

    def unclaimed_bytes(self) -> int:
        """Return how much memory is free that no commit was promised; below zero where more was."""
        from planaria.base.memory import free_bytes

        return free_bytes() - (0 if self.keeper is None else self.keeper.claimed_bytes)

    def _dismiss_reserve(self) -> None:
        if self.reserve is not None:
            self.reserve.close()

    def _tell_drain(self, number: int, grace_s: float) -> None:
        from planaria.contract.control import Drain, encode

        self._dismiss_reserve()
        self.control.broadcast(encode(Drain(signals.name_of(number), grace_s, self._loop.now())))

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _begin_to_end_tree(self, within_s: float) -> None:
        self._cancel_deadline()
        if self.group.phase == FINISHING:
            self._dismiss_reserve()
            self._children.count_the_dying()
        elif self.hearsay is not None:
            self.hearsay.end()
        self._tree_deadline = self._loop.call_later(within_s, lambda: self._tree_ended(clean=False))
        self._end_tree(first=True)

    def _end_tree(self, *, first: bool = False) -> None:
        """Kill what is below us, again and again until the kernel says that we have no children, or none is ours to kill."""
        if self._tree_deadline is None:
            return
        spared = self._spared()
        if not kill_descendants(os.getpid(), spared) and not first:
            self._tree_ended(clean=spared.issuperset(children_of(os.getpid())))
            return
        self._children.on_sigchld()
        self._loop.call_later(LOOK_AGAIN_S, self._end_tree)

    def _spared(self) -> frozenset[int]:
        """Return the children that outlive a life. They are asked for only while one ends."""
        return frozenset() if self.reserve is None or self._tree_deadline is None else self.reserve.pids

    def _is_replaced(self, pid: int) -> bool:
        """Tell whether a worker that is dying need not be gone before the next life: who takes its place holds what it needs.

        A process that begins only now might not find room on a device whose memory is still being taken back.
        """
        local_rank = self.workers.by_pid.get(pid)
        return local_rank is not None and self.reserve is not None and self.reserve.has_joined(local_rank)

    def _on_childless(self) -> None:
        if self._tree_deadline is not None:
            self._tree_ended(clean=True)

    def _tree_ended(self, *, clean: bool) -> None:
        if self._tree_deadline is not None:
            self._tree_deadline.cancel()
            self._tree_deadline = None
        if self.reserve is not None:
            self.reserve.ended()
        self.workers.end()
        self.control.catch_up()  # a commit that was made before the end counts
        if self.keeper is not None:
            self.keeper.ended()
        if self.watchdog is not None:
            self.watchdog.forget()
        if self.vigil is not None:
            self.vigil.end()
        self._before_leaving(lambda: self.post(TreeEnded(self._loop.now(), clean)))

    def _before_leaving(self, go_on: Callable[[], object]) -> None:
        """Hand over what only this node has, if it is about to leave the others: within what is left of its grace."""
        group = self.group
        is_leaving = group.phase == FINISHING and group.outcome is not None and group.outcome.kind == "signal"
        left_s = group.stop_at + self._job.shutdown_timeout_s - self._loop.now()
        if self.keeper is None or not is_leaving or group.alone or group.run_over or left_s <= 0:
            go_on()
            return

        def done(is_there: bool) -> None:
            if timer.is_pending:
                timer.cancel()
                self.has_handed_over = is_there
                go_on()

        timer = self._loop.call_later(left_s, go_on)
        self.keeper.hand_over(done)

    def _on_exit(self, pid: int, status: int) -> None:
        if self.reserve is not None and self.reserve.exited(pid, status):
            return
        found = self.workers.exited(pid, status)
        # An agent that got no CPU finds both, and the end first. Workers that ended well because all were asked are no success.
        self.on_signals()
        if found is not None:
            if self.vigil is not None:
                self.vigil.exited(found.local_rank)
            self.post(WorkerExited(found.local_rank, self._loop.now(), found.failure))

    @property
    def hearing(self) -> Hearing:
        """Return the one that takes what workers say; nothing of it is imported before one says anything."""
        if self._hearing is None:
            from planaria.agent.hearing import Hearing

            self._hearing = Hearing(self._job, self._loop, self)
        return self._hearing

    def once_looked(self, go_on: Callable[[], object]) -> None:
        """Do something that ends the workers, after an examination of them that is under way."""
        if self.vigil is None:
            go_on()
        else:
            self.vigil.once_looked(go_on)

    def on_message(self, peer: Peer, line: bytes) -> None:
        """Take a line from the control socket.

        Raises:
            ValueError: It is not a message of ours.
        """
        self.hearing.on_message(peer, line)

    def on_owner(self, hear: int) -> None:
        """Read the guardian's pipe: signal numbers while it lives, end of file when it is gone."""
        numbers = os.read(hear, 64)
        if not numbers:
            self._loop.forget(hear)
            self.post(LauncherDied(self._loop.now()))
        for number in numbers:
            self.post(StopRequested(number, self._loop.now()))

    def on_signals(self) -> None:
        """Read the signals that came to the agent itself, if any did."""
        for number in self._read_wake():
            if number == signals.SIGCHLD:
                self._children.on_sigchld()
            elif number in self._job.signals:
                self.post(StopRequested(number, self._loop.now(), by_owner=False))

    def _read_wake(self) -> bytes:
        try:
            return os.read(self.wake, 1024) if self.wake is not None else b""
        except BlockingIOError:
            return b""
