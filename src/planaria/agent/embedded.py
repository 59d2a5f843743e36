"""An agent inside somebody else's process: the driver of `planaria run`, and nothing touched that is not its own.

    caller's thread: loop, machine, workers' output, rendezvous  -->  workers, each with a session of its own
                 \\-- sentry: kills the workers when this process dies, or is stopped beyond its lease

There is no guardian. Only workers are waited for and only what comes from them is killed (`process/own.py`); signal handlers
and the wake-up descriptor are put back; outside the main thread signals are not touched at all. Workers die with the thread
that runs the agent, which is why it ends them before it returns.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

from planaria.agent.control import ControlServer
from planaria.agent.door import EMBEDDED_NAME, SOCKET_NAME, Door
from planaria.agent.driver import LOOK_AGAIN_S, Driver
from planaria.agent.main import group_of, new_observer, timer_path
from planaria.agent.model import StopRequested
from planaria.base import signals
from planaria.base.files import private_path, remove_tree
from planaria.base.loop import Loop
from planaria.base.value import Value
from planaria.contract.control import LINE_LIMIT_BYTES
from planaria.contract.env import CONTROL, TIMER_FILE
from planaria.process.children import Children
from planaria.process.guardian import Line
from planaria.process.logs import open_logs
from planaria.process.own import kill_own
from planaria.process.sentry import Sentry
from planaria.process.sink import ConsoleSink
from planaria.process.workers import Console, Workers, WorkerSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from planaria.agent.model import Event, Group, Job, Outcome
    from planaria.agent.settings import HealthCheck
    from planaria.contract.env import Round
    from planaria.observe.handlers import Handler
    from planaria.process.logs import Logs

CLOSE_S = 1.0  # how long workers that were killed are waited for after an exception; the rest is the kernel's
BEAT_S = 1.0
FLUSH_S = 10.0  # how long the end waits for a reader of the workers' output that has fallen behind
NOBODY = -1  # stands for the guardian's pid


class Ended(Value):
    """How the run ended on this node: the outcome, the group with all its lives, and the last round it was in, if any.

    `return_values` are those of the last round's functions, by local rank.
    """

    outcome: Outcome
    group: Group
    life: Round | None
    return_values: Mapping[int, object]


class Watching(Value):
    """Who is told while the agent runs: lines for people (`warn`: what went wrong), each round with the pids of its workers
    by local rank, every second that the loop turns, and every event (`agent/observer.py`), if anybody wants them.
    """

    say: Callable[[str], object]
    warn: Callable[[str], object]
    on_round: Callable[[Round, Mapping[int, int]], object]
    beat: Callable[[], object]
    events: Handler | None = None


def run_embedded(job: Job, watching: Watching) -> Ended:
    """Run the job's workers on this node until they are done. Blocks; may be called in any thread, again and again.

    Raises:
        PlanariaError: The workers could not be started, or the rendezvous cannot be held. Nothing is left running.
    """
    with ExitStack() as opened:
        driver = _open(job, watching, opened)
        driver.beat()
        outcome = driver.run()
        if job.meeting is not None:
            driver.seat.close()
        return Ended(outcome, driver.group, driver.life, driver.workers.return_values)


def _open(job: Job, watching: Watching, opened: ExitStack) -> _EmbeddedDriver:
    """Make everything that one run needs; `opened` closes it, the driver first."""
    scratch_dir = private_path(job.environment.get("TMPDIR"))
    os.mkdir(scratch_dir, 0o700)
    opened.callback(remove_tree, scratch_dir)
    loop = Loop()
    opened.callback(loop.close)
    board = os.memfd_create("planaria-fence", os.MFD_CLOEXEC)
    opened.callback(os.close, board)
    control = os.path.join(scratch_dir, "control")
    mark = f"{CONTROL}={control}".encode("utf-8", "surrogateescape")
    sentry = Sentry(board, mark, scratch_dir)
    opened.callback(sentry.dismiss)
    driver = _EmbeddedDriver(job, group_of(job), loop, lambda group, clean: _tell_restart(group, clean, watching))
    driver.prepare(mark, watching, sentry)
    driver.say = watching.warn
    heard = _Signals(loop, job.signals, lambda number: driver.post(StopRequested(number, loop.now())))
    opened.callback(heard.end)
    heard.begin()
    driver.control = ControlServer(loop, control, driver.on_message, LINE_LIMIT_BYTES)
    opened.callback(driver.control.close)
    sinks = (ConsoleSink(loop, 1), ConsoleSink(loop, 2))
    opened.callback(_close_sinks, sinks, loop)
    settings = _settings(job, scratch_dir, heard.numbers)
    driver.workers = Workers(loop, settings, _logs(job, scratch_dir), Console(*sinks, watching.warn))
    if watching.events is not None or job.health is not None:
        driver.observer = new_observer(job, loop, driver, watching.warn)
        driver.observer.handlers = (watching.events,) if watching.events is not None else ()
    if timer_path(job, scratch_dir):
        driver.hearing.watch_scopes().open_pipe(timer_path(job, scratch_dir), TIMER_FILE, watching.warn)
        opened.callback(driver.hearing.watch_scopes().close)
    opened.callback(driver.close)
    if job.meeting is not None:
        from planaria.agent.meeting import Seat, open_rendezvous

        driver.seat = Seat(job, loop, driver, Line(NOBODY, board, NOBODY), _Screen(driver, watching))
        driver.seat.open(open_rendezvous)
    if job.health is not None:
        driver.open_doors(job.health, scratch_dir, opened)
    return driver


def _logs(job: Job, scratch_dir: str) -> Logs:
    temp_dir = job.environment.get("TMPDIR") or os.path.dirname(scratch_dir)
    return open_logs(job.logs, job.run_id, scratch_dir, temp_dir=temp_dir, local_world_size=job.local_world_size)


def _settings(job: Job, scratch_dir: str, handled: tuple[int, ...]) -> WorkerSettings:
    timer_file = timer_path(job, scratch_dir)
    return WorkerSettings(
        command=job.command,
        environment={**job.environment, TIMER_FILE: timer_file} if timer_file else job.environment,
        control=os.path.join(scratch_dir, "control"),
        host=os.uname().nodename,
        cpu_sets=job.cpu_sets,
        virtual_rank=job.virtual_local_rank,
        signal_mask=frozenset(signals.block(())),
        handled_signals=handled,
        prefix_template=job.logs.prefix_template,
        embedded=True,
    )


def _close_sinks(sinks: tuple[ConsoleSink, ...], loop: Loop) -> None:
    deadline = loop.now() + FLUSH_S
    for sink in sinks:
        sink.flush(deadline)
        sink.close()


def _tell_restart(group: Group, clean: bool, watching: Watching) -> None:
    from planaria.agent.report import restart_line

    watching.warn(restart_line(group))
    if not clean:
        watching.warn("some processes of the last life could not be ended; the new one starts beside them")


class _EmbeddedDriver(Driver):
    """A driver that knows only its own workers."""

    _mark: bytes
    _watching: Watching
    _sentry: Sentry

    def prepare(self, mark: bytes, watching: Watching, sentry: Sentry) -> None:
        """Take what an agent with a guardian does not need."""
        self._children = Children(self._loop, self._on_exit)
        self._mark = mark
        self._watching = watching
        self._sentry = sentry
        self._sessions: frozenset[int] = frozenset()
        self._is_closed = False

    def begin(self, life: Round) -> None:
        """Start the workers of a round, and tell who watches."""
        super().begin(life)
        pids = self.workers.by_pid
        self._sessions = frozenset(pids)
        self._sentry.know(self._sessions)
        self._watching.on_round(life, {local_rank: pid for pid, local_rank in pids.items()})

    def open_doors(self, check: HealthCheck, scratch_dir: str, opened: ExitStack) -> None:
        """Answer over TCP, and to this process' owner through a door, until the run is over."""
        from planaria.agent.health import Health

        assert self.observer is not None
        metrics = self.observer.registry.expose
        health = Health(self._job, self._loop, self, self._watching.warn, metrics, os.getpid())
        opened.callback(health.close)
        health.open(check)
        with open(os.path.join(scratch_dir, EMBEDDED_NAME), "xb"):  # before anybody can knock
            door = Door(self._loop, os.path.join(scratch_dir, SOCKET_NAME), health.welcome)
        opened.callback(door.close)

    def beat(self) -> None:
        """Show every second that the loop turns."""
        self._watching.beat()
        self._loop.call_later(BEAT_S, self.beat)

    def close(self) -> None:
        """End whatever still lives, because of an exception; after an orderly end there is nothing."""
        self._is_closed = True
        self.workers.signal(signals.SIGKILL)
        kill_own(self._sessions, self._mark)
        deadline = self._loop.now() + CLOSE_S
        while self.workers.by_pid and (left_s := deadline - self._loop.now()) > 0:
            self._loop.run_once(left_s)
        self.workers.end()
        if self.keeper is not None:
            self.keeper.close()
        self._children.bury()
        if self._port is not None:
            self._port.release()

    def post(self, event: Event) -> None:
        """Take an event; after the end there is nobody to decide about it."""
        if not self._is_closed:
            super().post(event)

    def _end_tree(self, *, first: bool = False) -> None:
        """Kill what comes from our workers until a look finds nothing, and every worker was waited for."""
        if self._tree_deadline is None:
            return
        if not kill_own(self._sessions, self._mark) and not self.workers.by_pid and not first:
            self._tree_ended(clean=True)
            return
        self._loop.call_later(LOOK_AGAIN_S, self._end_tree)

    def _tree_ended(self, *, clean: bool) -> None:
        self._sessions = frozenset()
        self._sentry.know(self._sessions)
        self._children.bury()  # from now on their numbers may be others'
        super()._tree_ended(clean=clean)


class _Screen:
    """Where a seat speaks. What it says after the first life is why there has to be another."""

    def __init__(self, driver: Driver, watching: Watching) -> None:
        self._driver = driver
        self._watching = watching

    def say(self, text: str, *, passing: bool = False) -> None:
        tell = self._watching.warn if self._driver.group.lives and not passing else self._watching.say
        tell(text)


class _Signals:
    """The process's signals while an agent runs in its main thread. Elsewhere they are not ours, and nothing is done.

    Ctrl-C is taken too where it would raise KeyboardInterrupt, which could come between any two lines of ours: the workers
    are stopped first. Signals of others are passed on to whoever listened before.
    """

    def __init__(self, loop: Loop, numbers: tuple[int, ...], on_signal: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._wake = self._wake_end = -1
        self.numbers = self._ours(numbers)

    def _ours(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        import signal
        import threading

        if threading.current_thread() is not threading.main_thread():
            return ()
        interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        wanted = {*numbers, *((signals.SIGINT,) if interrupts else ())}
        return tuple(sorted(number for number in wanted if not signals.is_ignored(number)))

    def begin(self) -> None:
        """Listen from now on."""
        if not self.numbers:
            return
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        self._wakeup_before = signals.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        for number in self.numbers:
            self._before[number] = signals.set_handler(number, lambda _number, _frame: None)
        if signals.is_ignored(signals.SIGCHLD):  # the kernel would throw away how a worker ended
            self._before[signals.SIGCHLD] = signals.set_handler(signals.SIGCHLD, signals.SIG_DFL)
        self._loop.on_readable(self._wake, self._read)

    def _read(self) -> None:
        for number in os.read(self._wake, 1024):
            if number in self.numbers:
                self._on_signal(number)
            elif self._wakeup_before != -1:
                with suppress(BlockingIOError):  # whoever listened before is behind, and will read this signal too
                    os.write(self._wakeup_before, bytes([number]))

    def end(self) -> None:
        """Put everything back."""
        if self._wake == -1:
            return
        for number, handler in self._before.items():
            signals.set_handler(number, handler if handler is not None else signals.SIG_DFL)
        signals.set_wakeup_fd(self._wakeup_before)
        self._loop.forget(self._wake)
        os.close(self._wake)
        os.close(self._wake_end)
