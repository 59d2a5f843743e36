"""Run a job whose nodes meet through a rendezvous handler of another package (entry point group `torchrun.handlers`).

Such a handler can only be asked, so the agent is the one of `planaria.elastic` that asks. It lives where every agent lives:

    guardian --pipe: signal numbers, end of file = I am dead--> a thread here --signal--> main thread: agent --> workers

The main thread is the handler's for as long as it waits for others, and that may be in code that hears no signal. The thread
does not wait for it for ever: whoever is told to end has ended when the time for it is over, and nothing survives a launcher.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, NoReturn, cast

from planaria.base import linux, signals
from planaria.base.addresses import join_address
from planaria.base.files import remove_tree, tell
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.elastic.agent.server.health_check_server import create_healthcheck_server
from planaria.elastic.agent.server.local_elastic_agent import _AliveCallbackProxy
from planaria.elastic.events import get_logging_handler
from planaria.elastic.launcher.api import make_agent, run_agent
from planaria.elastic.multiprocessing import SignalException
from planaria.elastic.multiprocessing.errors import ChildFailedError, record
from planaria.elastic.multiprocessing.signals import raise_on_signals
from planaria.elastic.rendezvous.api import is_named
from planaria.errors import PlanariaError, ProcessError
from planaria.process.descendants import end_descendants
from planaria.run import config_from_args

if TYPE_CHECKING:
    from argparse import Namespace

    from planaria.agent.model import Job
    from planaria.elastic.agent.server.health_check_server import HealthCheckServer
    from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from planaria.elastic.launcher.api import LaunchConfig
    from planaria.launch.parse import Options
    from planaria.process.guardian import Line

END_TIMEOUT_S = 5.0
BEYOND_GRACE_S = 5.0  # what an agent may need beyond its workers' grace: their output, a handler that lets go
SHORTEST_ALIVE_S = 2  # signs of life are whole seconds
_NO_FILE = "<N/A>"


def run_asked(job: Job, options: Options, line: Line, mask: set[int], scratch_dir: str) -> int:
    """Run the job's workers on this node until they are done; return the launcher's exit status.

    As for every agent: `line` ties this process to its guardian, and signals come blocked, to be let in down to `mask`.
    """
    linux.set_title(f"planaria agent of run {job.run_id}")
    os.environ.clear()  # noqa: TID251  an agent that asks gives its own environment to its workers
    os.environ.update(job.environment)  # noqa: TID251  the same
    try:
        os.mkdir(scratch_dir, 0o700)
        tempfile.tempdir = scratch_dir  # whatever is temporary ends with the run
        with raise_on_signals(tuple(map(signal.Signals, job.signals))):
            threading.Thread(target=_heed, args=(line.hear, job, scratch_dir), daemon=True).start()
            signals.restore_mask(mask)
            return _run(job, options, scratch_dir)
    except SignalException as told:
        _say(f"stopped by {told.sigval.name}")
        return exit_status.by_signal(told.sigval)
    except OSError as problem:
        _say(f"cannot go on: {problem}")
        return exit_status.of_error(problem)
    finally:
        remove_tree(scratch_dir)  # the guardian does it too, but may be gone
        _flush()


def _run(job: Job, options: Options, scratch_dir: str) -> int:
    config, what, words = config_from_args(_arguments(job, options, scratch_dir))
    try:
        get_logging_handler(config.event_log_handler)
    except ValueError as problem:
        _say(f"{options.source('event_log_handler')}: {_sentence(problem)}")
        return exit_status.USAGE
    try:
        agent = make_agent(config, what, words, _health_check(job))
    except SignalException:
        raise
    except Exception as problem:  # noqa: BLE001  a handler of others may raise whatever it likes
        _say(f"{options.source('rdzv_backend')} {options.rdzv_backend}: {_sentence(problem)}")
        could_work = isinstance(problem, OSError) or is_named(problem, "RendezvousError")
        return exit_status.WORKER_FAILED if could_work else exit_status.USAGE
    return _carry_out(agent, config, job, scratch_dir)


def _carry_out(agent: LocalElasticAgent, config: LaunchConfig, job: Job, scratch_dir: str) -> int:
    try:
        record(run_agent)(agent, config)
    except (SignalException, OSError):
        raise
    except ChildFailedError as failed:
        _say(f"job failed:{_report(failed, scratch_dir)}")
        _, first = failed.get_first_failure()
        return exit_status.of_worker(first.exitcode) if job.worker_exit_code else exit_status.WORKER_FAILED
    except ProcessError as problem:  # of this node, and no handler's
        _say(f"cannot go on: {_sentence(problem)}")
        return exit_status.of_error(problem)
    except Exception as problem:  # noqa: BLE001  a handler of others may raise whatever it likes
        if not isinstance(problem, PlanariaError) and not is_named(problem, "RendezvousError"):
            sys.excepthook(type(problem), problem, problem.__traceback__)
        _say(f"cannot go on: {_sentence(problem)}")
        has_no_round = is_named(problem, "RendezvousTimeoutError")
        return exit_status.NO_ROUND if has_no_round else exit_status.WORKER_FAILED
    return exit_status.DONE


def _arguments(job: Job, options: Options, scratch_dir: str) -> Namespace:
    """Return the command line as torchrun's parser would, with what was found out since in it."""
    log_dir, streams = options.log_dir, (job.logs.redirects, job.logs.tee)
    if not log_dir and options.logs_specs is None and any(one.every or one.by_rank for one in streams):
        parent = job.environment.get("TMPDIR") or os.path.dirname(scratch_dir)
        log_dir = tempfile.mkdtemp(prefix="planaria_", dir=parent)
        _say(f"the workers' logs are in {log_dir}")
    known = replace(
        options,
        nproc_per_node=str(job.local_world_size),
        shutdown_timeout=int(job.shutdown_timeout_s),
        log_dir=log_dir or None,
    )
    return cast("Namespace", known)  # a field for every flag, as there


def _health_check(job: Job) -> HealthCheckServer | None:
    """Answer probes from now on, if anybody asked for that: an agent that asks has torch's, with `/livez` only."""
    if job.health is None:
        return None
    timeout_s = max(math.ceil(job.health.timeout_s), SHORTEST_ALIVE_S)
    server = create_healthcheck_server(_AliveCallbackProxy(), job.health.port, timeout_s)
    server.host = job.health.host
    server.start()
    if job.health.port == 0 and server.port:
        _say(f"health check at http://{join_address(job.health.host, server.port)}/")
    return server


def _heed(hear: int, job: Job, scratch_dir: str) -> None:
    """Pass the guardian's signals on to the main thread; end everything when it does not heed them, or the guardian is dead.

    Runs in a thread of its own, which is started while signals are blocked: they come to the main thread alone.
    """
    poll = select.poll()
    poll.register(hear, select.POLLIN)
    told: list[int] = []
    deadline = math.inf
    while left_s := max(deadline - time.monotonic(), 0.0):
        if not poll.poll(None if left_s == math.inf else left_s * 1000):
            continue
        numbers = os.read(hear, 64)
        told += numbers
        if not numbers:
            _leave(exit_status.WORKER_FAILED, scratch_dir)
        if told.count(signals.SIGINT) > 1:
            _leave(exit_status.by_signal(signals.SIGINT), scratch_dir)
        deadline = min(deadline, time.monotonic() + job.shutdown_timeout_s + BEYOND_GRACE_S)
        for number in numbers:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
    _say(f"the rendezvous handler does not let go after {signals.name_of(told[0])}: everything is ended")
    _leave(exit_status.by_signal(told[0]), scratch_dir)


def _leave(status: int, scratch_dir: str) -> NoReturn:
    """End everything below this process, and the process itself, whatever its main thread is at."""
    end_descendants(END_TIMEOUT_S, time.monotonic)
    remove_tree(scratch_dir)
    os._exit(status)


def _report(failed: ChildFailedError, scratch_dir: str) -> str:
    """Return torch's report, without the names of files that are about to go."""
    for failure in failed.failures.values():
        if failure.error_file.startswith(scratch_dir):
            failure.error_file = _NO_FILE
    return failed.format_msg()


def _sentence(problem: Exception) -> str:
    text = " ".join(str(problem).split()) or "no message"
    return text if isinstance(problem, (PlanariaError, ValueError)) else f"{type(problem).__name__}: {text}"


def _say(text: str) -> None:
    _flush()
    tell(2, f"planaria: {text.rstrip()}\n")


def _flush() -> None:
    """Show what was written: this process ends without the interpreter's own farewell."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # a program may have taken it away, or was started without
                stream.flush()
        except (OSError, ValueError):
            continue
