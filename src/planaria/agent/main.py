"""Wire one agent: real loop, real clock, real screen; map what happened to an exit status."""

from __future__ import annotations

import os
import time

from planaria.agent.control import ControlServer
from planaria.agent.driver import Driver
from planaria.agent.model import STARTING, WAITING, Group
from planaria.base import linux, signals
from planaria.base.files import remove_tree
from planaria.base.loop import Loop
from planaria.contract import exit_status
from planaria.contract.control import LINE_LIMIT_BYTES
from planaria.contract.env import ERROR_FILE
from planaria.errors import InternalError, PlanariaError, UsageError
from planaria.process.logs import RunLogs
from planaria.process.sink import ConsoleSink
from planaria.process.workers import Console, Workers, WorkerSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.meeting import Seat
    from planaria.agent.model import Job, Outcome
    from planaria.agent.observer import Observer
    from planaria.contract.failure import Failure
    from planaria.process.guardian import Line

AGENT_NICE = -10  # idle nearly always; when a worker dies or prints, it should not queue behind the others
CLEAR_LINE = "\r\x1b[K"
AGENT_FILES = 65536  # a leader holds a connection to every node; 1,024, the usual limit, is fewer than we serve
FLUSH_S = 10.0  # how long the end waits for a reader of our output that has fallen behind


class _Screen:
    """Where the agent speaks: stderr, one `planaria: ` line at a time, after whatever workers said before.

    A passing line stays on a terminal until the next line of ours; elsewhere it is a line like others, if it says anything new.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.stdout = ConsoleSink(loop, 1, self._say_dead)
        self.stderr = ConsoleSink(loop, 2)
        self.is_terminal = os.isatty(2)
        self._passing = ""

    def say(self, text: str, *, passing: bool = False) -> None:
        line = f"planaria: {text.rstrip()}"
        if passing and line == self._passing:
            return
        clear = CLEAR_LINE if self._passing and self.is_terminal else ""
        self._passing = line if passing else ""
        shown = _cut_to_terminal(line) if passing and self.is_terminal else f"{line}\n"
        self.stderr.write(f"{clear}{shown}".encode("utf-8", "backslashreplace"))

    def _say_dead(self, problem: OSError) -> None:
        self.say(f"cannot write to standard output any more ({problem.strerror}); the workers go on")

    def flush(self) -> None:
        deadline = self._loop.now() + FLUSH_S
        self.stdout.flush(deadline)
        self.stderr.flush(deadline)


def _cut_to_terminal(line: str) -> str:
    """Return what of a line fits in one row: the rest would wrap, and a row above cannot be cleared."""
    try:
        columns = os.get_terminal_size(2).columns
    except OSError:  # it was closed meanwhile
        columns = 0
    return line[: (columns or 80) - 1]


def run_agent(job: Job, line: Line, mask: set[int], scratch_dir: str) -> int:
    """Run the job's workers on this node until they are done; return the launcher's exit status.

    `line` ties this process to its guardian. Signals come blocked and are let in, down to `mask`, once there is somebody to
    hear them.
    """
    linux.set_title(f"planaria agent of run {job.run_id}")
    loop = Loop()
    screen = _Screen(loop)
    try:
        os.mkdir(scratch_dir, 0o700)
        return _run(job, loop, screen, line, mask, scratch_dir)
    except UsageError as problem:
        screen.say(str(problem))
        return exit_status.USAGE
    except InternalError as problem:
        screen.say(str(problem))
        return exit_status.INTERNAL
    except PlanariaError as problem:
        screen.say(str(problem))
        return exit_status.WORKER_FAILED
    except OSError as problem:
        screen.say(f"cannot go on: {problem}")
        return exit_status.WORKER_FAILED
    finally:
        remove_tree(scratch_dir)  # the guardian does it too, but may be gone
        screen.flush()


def _run(job: Job, loop: Loop, screen: _Screen, line: Line, mask: set[int], scratch_dir: str) -> int:
    driver = Driver(job, _group(job), loop, lambda now, clean: _say_restart(now, clean, screen))
    temp_dir = job.environment.get("TMPDIR") or os.path.dirname(scratch_dir)
    logs = RunLogs(job.logs, job.run_id, scratch_dir, temp_dir=temp_dir, local_world_size=job.local_world_size)
    if logs.announce:
        screen.say(f"the workers' logs are in {logs.announce}")
    driver.control = ControlServer(loop, os.path.join(scratch_dir, "control"), driver.on_progress, LINE_LIMIT_BYTES)
    settings = WorkerSettings(
        command=job.command,
        environment=job.environment,
        control=driver.control.path,
        host=os.uname().nodename,
        cpu_sets=job.cpu_sets,
        virtual_rank=job.virtual_local_rank,
        signal_mask=frozenset(mask),
        priority=os.getpriority(os.PRIO_PROCESS, 0),
        file_limit=None if job.meeting is None else linux.file_limit()[0],
        handled_signals=(*job.signals, signals.SIGCHLD, signals.SIGCONT),
        prefix_template=job.logs.prefix_template,
    )
    driver.workers = Workers(loop, settings, logs, Console(screen.stdout, screen.stderr, screen.say))
    if job.report_file is not None or job.event_handlers:
        driver.observer = _observe(job, loop, driver.workers, screen)
    _listen(driver, loop, line.hear, job.signals)
    signals.restore_mask(mask)
    linux.raise_priority(AGENT_NICE)
    if job.meeting is not None:
        linux.set_file_limit(AGENT_FILES)
    seat = None if job.meeting is None else _take_seat(job, loop, driver, line, screen)
    outcome = driver.run()
    if seat is not None:
        seat.close()
    _conclude(job, driver, outcome, screen)
    return outcome.status


def _group(job: Job) -> Group:
    return Group(
        size=job.local_world_size,
        max_restarts=job.max_restarts,
        grace_s=job.shutdown_timeout_s,
        always_restart=job.always_restart,
        worker_exit_code=job.worker_exit_code,
        fixed_port=job.master_port is not None,
        phase=STARTING if job.meeting is None else WAITING,
        alone=job.meeting is None,
    )


def _take_seat(job: Job, loop: Loop, driver: Driver, line: Line, screen: _Screen) -> Seat:
    """Meet the other nodes. A node alone imports nothing of this."""
    from planaria.agent.meeting import Seat, open_rendezvous

    driver.seat = Seat(job, loop, driver, line, screen)
    driver.seat.open(open_rendezvous)
    return driver.seat


def _listen(driver: Driver, loop: Loop, hear: int, numbers: tuple[int, ...]) -> None:
    """Make signals and the guardian's pipe wake the loop."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signals.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (*numbers, signals.SIGCHLD, signals.SIGCONT):
        signals.set_handler(number, lambda _number, _frame: None)
    loop.on_readable(wake, lambda: driver.on_signals(wake))
    loop.on_readable(hear, lambda: driver.on_owner(hear))


def _say_restart(group: Group, clean: bool, screen: _Screen) -> None:
    from planaria.agent.report import restart_line

    screen.say(restart_line(group))
    if not clean:
        screen.say("some processes of the last life could not be ended; the new one starts beside them")


def _observe(job: Job, loop: Loop, workers: Workers, screen: _Screen) -> Observer:
    """Watch the group for those who asked to be told. A job that nobody watches imports nothing of this."""
    from planaria.agent.observer import Observer

    observer = Observer(job, loop, time.time, os.uname().nodename)
    observer.workers = workers
    if job.event_handlers:
        from planaria.observe.handlers import Surroundings, open_handlers, read_specs

        level = job.environment.get("LOGLEVEL") or "INFO"
        around = Surroundings(screen.say, screen.say, observer.registry, loop.call_soon, level)
        observer.handlers = open_handlers(read_specs(job.event_handlers), around)
    return observer


def _conclude(job: Job, driver: Driver, outcome: Outcome, screen: _Screen) -> None:
    """Tell people and programs how it ended."""
    group, observer = driver.group, driver.observer
    if observer is not None:
        observer.close()
    if outcome.kind == "done" and job.report_file is None:
        return
    from planaria.agent import report

    text = report.final_screen(
        group, outcome, report.COLOURS if screen.is_terminal and not job.environment.get("NO_COLOR") else report.Style()
    )
    if text:
        screen.say(text)
    if job.report_file is not None:
        restarts = observer.restarts if observer is not None else []
        _write(job.report_file, _as_bytes(report.as_json(group, outcome, job.run_id, restarts)), screen)
    own_error_file = job.environment.get(ERROR_FILE)
    causes = report.causes(group)
    if outcome.kind == "failed" and own_error_file and causes:
        _write(own_error_file, _torch_error_file(causes[0]), screen)


def _as_bytes(content: dict[str, object]) -> bytes:
    import json

    return json.dumps(content, indent=2).encode() + b"\n"


def _torch_error_file(cause: Failure) -> bytes:
    from planaria.contract import error_file

    return error_file.write(cause.message, cause.traceback, status=cause.status, wall_time_s=int(time.time()))


def _write(path: str, content: bytes, screen: _Screen) -> None:
    from planaria.base.files import write_atomically

    try:
        write_atomically(path, content)
    except OSError as problem:
        screen.say(f"cannot write {path}: {problem.strerror}")
