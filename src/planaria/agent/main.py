"""Wire one agent: real loop, real clock, real screen; map what happened to an exit status."""

from __future__ import annotations

import os
import time

from planaria.agent.control import ControlServer
from planaria.agent.door import SOCKET_NAME, Door
from planaria.agent.driver import Driver
from planaria.agent.model import CHECKING, STARTING, WAITING, Group
from planaria.agent.screen import Screen
from planaria.base import linux, signals
from planaria.base.files import remove_tree
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.contract.control import LINE_LIMIT_BYTES
from planaria.contract.env import ENABLE_FILE_TIMER, ERROR_FILE, KUBE_PROGRESS, TIMER_FILE
from planaria.errors import PlanariaError, UsageError
from planaria.process.logs import evidence_dir, open_logs
from planaria.process.workers import Console, Workers, WorkerSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.health import Health
    from planaria.agent.herald import Herald
    from planaria.agent.meeting import Seat
    from planaria.agent.model import Job, Outcome
    from planaria.agent.observer import Observer
    from planaria.contract.failure import Failure
    from planaria.process.guardian import Line

AGENT_NICE = -10  # idle nearly always; when a worker dies or prints, it should not queue behind the others
AGENT_FILES = 65536  # a leader holds a connection to every node; 1,024, the usual limit, is fewer than we serve
QUIET_S = 1.0  # after the start, when nothing is urgent any more: the time to begin a journal that nobody asked for


def run_agent(job: Job, line: Line, mask: set[int], scratch_dir: str) -> int:
    """Run the job's workers on this node until they are done; return the launcher's exit status.

    `line` ties this process to its guardian. Signals come blocked and are let in, down to `mask`, once there is somebody to
    hear them.
    """
    linux.set_title(f"planaria agent of run {job.run_id}")
    loop = Loop()
    screen = Screen(loop)
    try:
        os.mkdir(scratch_dir, 0o700)
        return _run(job, loop, screen, line, mask, scratch_dir)
    except PlanariaError as problem:
        screen.say(str(problem))
        return exit_status.of_error(problem)
    except OSError as problem:
        screen.say(f"cannot go on: {problem}")
        return exit_status.of_error(problem)
    finally:
        remove_tree(scratch_dir)  # the guardian does it too, but may be gone
        screen.flush()


def _run(job: Job, loop: Loop, screen: Screen, line: Line, mask: set[int], scratch_dir: str) -> int:
    job = _with_folder(job)
    driver = Driver(job, group_of(job), loop, lambda now, clean: _say_restart(now, clean, screen))
    temp_dir = job.environment.get("TMPDIR") or os.path.dirname(scratch_dir)
    logs = open_logs(job.logs, job.run_id, scratch_dir, temp_dir=temp_dir, local_world_size=job.local_world_size)
    if logs.announce:
        screen.say(f"the workers' logs are in {logs.announce}")
    driver.control = ControlServer(loop, os.path.join(scratch_dir, "control"), driver.on_message, LINE_LIMIT_BYTES)
    timer_file = timer_path(job, scratch_dir)
    settings = _worker_settings(job, driver.control.path, timer_file, mask)
    driver.workers = Workers(loop, settings, logs, Console(screen.stdout, screen.stderr, screen.say))
    if job.standbys != 0:
        _stand_by(job, loop, driver, screen)
    if timer_file:
        driver.hearing.watch_scopes().open_pipe(timer_file, TIMER_FILE, screen.say)
    _begin_to_watch(job, loop, driver, screen)
    driver.say = screen.say
    driver.evidence_dir = evidence_dir(job.run_dir, logs, temp_dir, job.run_id)
    _listen(driver, loop, line.hear, job.signals)
    signals.restore_mask(mask)
    linux.raise_priority(AGENT_NICE)
    if job.meeting is not None:
        linux.set_file_limit(AGENT_FILES)
    seat = None if job.meeting is None else _take_seat(job, loop, driver, line, screen)
    if job.preflight:
        _prepare_checks(job, loop, driver, screen)
    _open_doors(job, loop, driver, screen, scratch_dir)
    herald = _proclaim(job, loop, driver, screen) if job.environment.get(KUBE_PROGRESS) else None
    try:
        outcome = driver.run()
    finally:
        if herald is not None:
            herald.close()
    outcome = _shelter(job, loop, driver, outcome)
    if timer_file:
        driver.hearing.watch_scopes().close()
    if seat is not None:
        seat.close()
    _conclude(job, driver, outcome, screen)
    return outcome.status


def _worker_settings(job: Job, control: str, timer_file: str, mask: set[int]) -> WorkerSettings:
    """Return how workers are started: as this process was, before it became an agent."""
    return WorkerSettings(
        command=job.command,
        environment={**job.environment, TIMER_FILE: timer_file} if timer_file else job.environment,
        control=control,
        host=os.uname().nodename,
        cpu_sets=job.cpu_sets,
        virtual_rank=job.virtual_local_rank,
        signal_mask=frozenset(mask),
        priority=os.getpriority(os.PRIO_PROCESS, 0),
        file_limit=None if job.meeting is None else linux.file_limit()[0],
        handled_signals=(*job.signals, signals.SIGCHLD, signals.SIGCONT),
        prefix_template=job.logs.prefix_template,
    )


def _shelter(job: Job, loop: Loop, driver: Driver, outcome: Outcome) -> Outcome:
    """Have the newest commit on disk before its memory goes with this agent. A drain must be over within its grace.

    A drain that was announced, instead of being ordered by a signal, and lost nothing has a status of its own.
    """
    if outcome.kind == "abandoned":
        return outcome
    safe = [] if driver.hearsay is None else [driver.hearsay.is_whole]
    if driver.keeper is not None and (driver.keeper.has_parts or not safe):  # a state that has no commit loses none
        is_drain = outcome.kind in ("signal", "stopped")
        left_s = driver.group.stop_at + job.shutdown_timeout_s - loop.now() if is_drain else job.shutdown_timeout_s
        safe.append(driver.keeper.flush(left_s) or driver.has_handed_over)
    if safe and all(safe) and driver.was_noticed and outcome.kind == "signal":
        return replace(outcome, status=exit_status.DRAINED)
    return outcome


def _stand_by(job: Job, loop: Loop, driver: Driver, screen: Screen) -> None:
    """Keep processes ready to be workers. A job that wants none imports nothing of this."""
    from planaria.agent.reserve import Reserve, tree_of
    from planaria.process.standbys import Standbys

    standbys = Standbys(loop, job.standbys, watch=driver.watch, tell=screen.say, free=driver.unclaimed_bytes)
    standbys.memory = driver.snapshot_memory
    driver.workers.standbys = standbys
    driver.reserve = Reserve(loop, driver.workers, standbys, tree_of(job.command), screen.say)


def timer_path(job: Job, scratch_dir: str) -> str:
    """Return where the pipe of torch's expiration timers is to be, empty when nobody asked for one."""
    if job.environment.get(ENABLE_FILE_TIMER) != "1":
        return ""
    return os.path.abspath(job.environment.get(TIMER_FILE) or os.path.join(scratch_dir, "watchdog_timer"))


def group_of(job: Job) -> Group:
    """Return the state a job's worker group begins in."""
    return Group(
        size=job.local_world_size,
        max_restarts=job.max_restarts,
        grace_s=job.shutdown_timeout_s,
        always_restart=job.always_restart,
        worker_exit_code=job.worker_exit_code,
        stall_restarts=job.vigilance.stall_restarts,
        fixed_port=job.master_port is not None,
        phase=CHECKING if job.preflight else STARTING if job.meeting is None else WAITING,
        alone=job.meeting is None,
        has_met=not job.preflight,
        cooldown_s=job.preflight_cooldown_s,
    )


def _prepare_checks(job: Job, loop: Loop, driver: Driver, screen: Screen) -> None:
    """Have what checks this node at hand. A run without `--preflight` imports nothing of this."""
    from planaria.agent.preflight import Preflight

    driver.preflight = Preflight(job, loop, driver, os.environ, screen.say)


def _take_seat(job: Job, loop: Loop, driver: Driver, line: Line, screen: Screen) -> Seat:
    """Meet the other nodes. A node alone imports nothing of this."""
    from planaria.agent.meeting import Seat, open_rendezvous

    driver.seat = Seat(job, loop, driver, line, screen)
    driver.seat.open(open_rendezvous)
    return driver.seat


def _proclaim(job: Job, loop: Loop, driver: Driver, screen: Screen) -> Herald:
    """Tell the cluster how far the run is. A run that nobody asks that of imports nothing of this."""
    from planaria.agent.herald import Herald

    herald = Herald(loop, job.environment[KUBE_PROGRESS], job, driver, screen.say)
    herald.begin()
    return herald


def _open_doors(job: Job, loop: Loop, driver: Driver, screen: Screen, scratch_dir: str) -> None:
    """Let others ask how this agent is, and its owner what to do. What serves HTTP is imported when the first one comes."""
    made: list[Health] = []

    def health() -> Health:
        if not made:
            from planaria.agent.health import Health

            metrics = watched(job, loop, driver, screen.say).registry.expose
            made.append(Health(job, loop, driver, screen.say, metrics))
        return made[0]

    Door(loop, os.path.join(scratch_dir, SOCKET_NAME), lambda visitor: health().welcome(visitor))
    if job.health is not None:
        health().open(job.health)


def _listen(driver: Driver, loop: Loop, hear: int, numbers: tuple[int, ...]) -> None:
    """Make signals and the guardian's pipe wake the loop."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signals.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (*numbers, signals.SIGCHLD, signals.SIGCONT):
        signals.set_handler(number, lambda _number, _frame: None)
    driver.wake = wake
    loop.on_readable(wake, driver.on_signals)
    loop.on_readable(hear, lambda: driver.on_owner(hear))


def _say_restart(group: Group, clean: bool, screen: Screen) -> None:
    from planaria.agent.report import restart_line

    screen.say(restart_line(group))
    if not clean:
        screen.say("some processes of the last life could not be ended; the new one starts beside them")


def _with_folder(job: Job) -> Job:
    """Make this node's folder in that of the run, if there is to be one; the workers' output goes there, if nowhere else.

    Raises:
        UsageError: It cannot be made.
    """
    if job.run_dir is None:
        return job
    from planaria.agent.journal import LOGS, make_folder, node_name
    from planaria.process.logs import writes_files

    folder = make_folder(job.run_dir, job.run_id, node_name(os.uname().nodename))
    logs = job.logs
    if logs.log_dir is None and logs.plan is None and writes_files(logs):
        logs = replace(logs, log_dir=os.path.join(folder, LOGS))
    return replace(job, run_dir=folder, logs=logs)


def _begin_to_watch(job: Job, loop: Loop, driver: Driver, screen: Screen) -> None:
    """Read progress from what workers write, where that was asked for, and watch the group, at the latest in a quiet moment."""
    if job.vigilance.pattern is not None:
        from planaria.agent.reading import read_lines

        read_lines(job.vigilance.pattern, driver)
    driver.observer = observe(job, loop, driver, screen.say)
    if driver.observer is None:
        loop.call_later(QUIET_S, lambda: _watch_now(job, loop, driver, screen))


def _watch_now(job: Job, loop: Loop, driver: Driver, screen: Screen) -> None:
    try:
        watched(job, loop, driver, screen.say)
    except Exception as problem:  # noqa: BLE001  nobody asked for it: it must never end a job
        screen.say(f"cannot watch this run, which is a bug of planaria's: {problem!r}; the job goes on")


def observe(job: Job, loop: Loop, driver: Driver, say: Callable[[str], object]) -> Observer | None:
    """Watch the group for those who asked to be told. Where nobody did, nothing of this is imported yet.

    Raises:
        UsageError: An event handler cannot be had.
    """
    if job.report_file is None and not job.event_handlers and job.health is None and job.run_dir is None:
        return None
    observer = new_observer(job, loop, driver, say)
    if job.event_handlers:
        from planaria.observe.handlers import Surroundings, open_handlers, read_specs

        level = job.environment.get("LOGLEVEL") or "INFO"
        around = Surroundings(say, say, observer.registry, loop.call_soon, level)
        try:
            observer.handlers = open_handlers(read_specs(job.event_handlers), around)
        except UsageError as problem:
            raise UsageError(f"--event-log-handler: {problem}") from problem
    return observer


def new_observer(job: Job, loop: Loop, driver: Driver, say: Callable[[str], object]) -> Observer:
    """Return one that keeps a journal, in this node's folder if there is one, and tells nobody yet."""
    from planaria.agent.journal import Journal, node_name
    from planaria.agent.observer import Observer

    host = os.uname().nodename
    node = node_name(host) if job.run_dir is None else os.path.basename(job.run_dir)
    observer = Observer(job, loop, time.time, host)
    observer.workers = driver.workers
    observer.journal = Journal(node, job.run_dir, say if job.run_dir is None else _from_any_thread(loop, say))
    observer.evidence_dir = lambda: driver.evidence_dir
    observer.pulse.reports = lambda: driver.progress
    observer.pulse.phases = lambda: {} if driver.vigil is None else driver.vigil.phases()
    observer.pulse.commits = lambda: driver.commits
    return observer


def _from_any_thread(loop: Loop, say: Callable[[str], object]) -> Callable[[str], object]:
    from planaria.base.mailbox import Mailbox

    mailbox = Mailbox(loop)
    return lambda text: mailbox.post(lambda: say(text))


def watched(job: Job, loop: Loop, driver: Driver, say: Callable[[str], object]) -> Observer:
    """Return the observer of a driver. One that comes only now is told what happened before."""
    if driver.observer is None:
        observer = new_observer(job, loop, driver, say)
        observer.catch_up(driver.story, group_of(job))
        driver.observer = observer
    return driver.observer


def _conclude(job: Job, driver: Driver, outcome: Outcome, screen: Screen) -> None:
    """Tell people and programs how it ended."""
    group, observer = driver.group, driver.observer
    has_report = job.report_file is not None or job.run_dir is not None
    content = _report(job, driver, outcome) if has_report else b""
    if observer is not None:
        _close(observer, content, screen)
    elif job.run_dir is not None:  # what watched it has failed
        from planaria.agent.journal import REPORT

        _write(os.path.join(job.run_dir, REPORT), content, screen)
    if outcome.kind == "done" and not has_report:
        return
    from planaria.agent import report

    text = report.final_screen(
        group, outcome, report.COLOURS if screen.is_terminal and not job.environment.get("NO_COLOR") else report.Style()
    )
    if text:
        screen.say(text)
    if job.report_file is not None:
        _write(job.report_file, content, screen)
    own_error_file = job.environment.get(ERROR_FILE)
    causes = report.causes(group)
    if outcome.kind == "failed" and own_error_file and causes:
        _write(own_error_file, _torch_error_file(causes[0]), screen)


def _close(observer: Observer, content: bytes, screen: Screen) -> None:
    from planaria.agent.journal import REPORT

    journal = observer.journal
    if journal is not None:
        journal.keep(REPORT, content)
    observer.close()
    if journal is not None and journal.unwritten:
        screen.say(journal.unwritten)


def _report(job: Job, driver: Driver, outcome: Outcome) -> bytes:
    import json

    from planaria.agent import report

    restarts = driver.observer.restarts if driver.observer is not None else []
    hangs = driver.vigil.hangs if driver.vigil is not None else []
    content = report.as_json(driver.group, outcome, job.run_id, restarts, hangs)
    return json.dumps(content, indent=2).encode() + b"\n"


def _torch_error_file(cause: Failure) -> bytes:
    from planaria.contract import error_file

    return error_file.write(cause.message, cause.traceback, status=cause.status, wall_time_s=int(time.time()))


def _write(path: str, content: bytes, screen: Screen) -> None:
    from planaria.base.files import write_atomically

    try:
        write_atomically(path, content)
    except OSError as problem:
        screen.say(f"cannot write {path}: {problem.strerror}")
