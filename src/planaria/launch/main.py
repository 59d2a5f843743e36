"""`planaria run`: read the command line, then become the guardian of the agent that runs the job."""

from __future__ import annotations

import os
import sys
import time

from planaria.base import signals
from planaria.base.files import private_path, random_name, remove_tree, tell, write_all
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.errors import UsageError
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, needs, plan
from planaria.launch.script import check, same_interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planaria.agent.model import Job
    from planaria.launch.parse import Options
    from planaria.launch.plan import Plan
    from planaria.process.guardian import Line


def run(argv: Sequence[str]) -> int:
    """Run a job as the command line says; return the exit status."""
    _tidy_descriptors()
    environ = dict(os.environ)
    try:
        options = parse(argv, environ)
        if options.help:
            from planaria.launch.help import text

            return _print(text())
        planned = plan(options, environ, _machine(options, environ))
        if options.logs_specs is not None:
            from planaria.launch.logs_specs import with_specs

            planned = with_specs(planned, options.logs_specs)
        if planned.job.meeting is not None:
            from planaria.agent.credentials import check_files

            check_files(planned.job.meeting)
        if planned.dry_run:
            return _dry_run(planned)
    except UsageError as problem:
        _complain(str(problem))
        return exit_status.USAGE
    for notice in planned.notices:
        _complain(notice)
    return _supervise(replace(planned, job=_under_nohup(planned.job)), options, environ)


def order(command: str, argv: Sequence[str]) -> int:
    """Run `planaria drain`, `planaria stop` or `planaria health`; return the exit status."""
    try:
        if command == "health":
            from planaria.launch.owner_health import run_health

            return run_health(argv, dict(os.environ))
        from planaria.launch.owner import run_order

        return run_order(command, argv, dict(os.environ))
    except UsageError as problem:
        _complain(str(problem))
        return exit_status.USAGE


def _under_nohup(job: Job) -> Job:
    """Leave SIGHUP ignored when we were started so: `nohup planaria run` outlives its terminal."""
    if not signals.is_ignored(signals.SIGHUP):
        return job
    return replace(job, signals=tuple(number for number in job.signals if number != signals.SIGHUP))


def _tidy_descriptors() -> None:
    """Keep what our caller left open from the workers, and our own pipes off the numbers of closed standard streams."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor < 3:
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            _keep_from_workers(int(name))


def _keep_from_workers(descriptor: int) -> None:
    try:
        os.set_inheritable(descriptor, False)
    except OSError:  # the one that the listing itself had open
        return


def _machine(options: Options, environ: Mapping[str, str]) -> Machine:
    facts = check(options, same_interpreter(environ, sys.executable), environ)
    wanted = needs(options, environ)
    counts = topology = credentials = plugins = handlers = event_handlers = None
    if "accelerators" in wanted:
        from planaria.launch.devices import count

        counts = count(environ)
    if "topology" in wanted:
        from planaria.launch.numa import read_topology

        topology = read_topology(options.numa_binding or "", environ, frozenset(os.sched_getaffinity(0)))
    if "credentials" in wanted:
        from planaria.agent.credentials import read

        credentials = read(environ)
    if "plugins" in wanted:
        plugins, handlers = _plugins()
    if "event_handlers" in wanted:
        from planaria.observe.handlers import installed_names

        event_handlers = installed_names()
    return Machine(
        executable=sys.executable,
        cpu_count=len(os.sched_getaffinity(0)),
        fresh_run_id=f"{random_name()}{random_name()}",
        script=facts,
        accelerators=counts,
        topology=topology,
        credentials=credentials,
        plugins=plugins,
        handlers=handlers,
        event_handlers=event_handlers,
    )


def _plugins() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of stores and of handlers that other packages bring. It takes 30 ms: only a foreign name is worth it."""
    from importlib.metadata import entry_points

    from planaria.launch.meeting import HANDLER_GROUP, PLUGIN_GROUP

    return frozenset(entry_points(group=PLUGIN_GROUP).names), frozenset(entry_points(group=HANDLER_GROUP).names)


def _dry_run(planned: Plan) -> int:
    from planaria.launch import dryrun

    if planned.json:
        import json

        return _print(json.dumps(dryrun.as_data(planned), indent=2) + "\n")
    return _print(dryrun.as_text(planned))


def _supervise(planned: Plan, options: Options, environ: Mapping[str, str]) -> int:
    """Fork the agent and guard it. Its rooms are imported before the fork: both processes share those pages."""
    from planaria.process.guardian import guard, start_agent

    job = planned.job
    run = _agent_of(planned, options)
    # The agent makes it: there is never a folder and only one to remove it.
    scratch = private_path(environ.get("TMPDIR"))
    try:
        agent = start_agent(lambda line, mask: run(line, mask, scratch), job.signals)
        end = guard(agent, job.signals, time.monotonic)
    except OSError as problem:
        _complain(f"cannot start the agent: {problem.strerror} (is a limit used up: processes, open files, memory?)")
        return exit_status.of_error(problem)
    finally:
        remove_tree(scratch)
    if not end.clean:
        _complain(
            "some processes of the job could not be ended: they are stuck in the kernel or belong to another user"
        )
    if end.status < 0:
        _complain(f"the agent (pid {agent.pid}) was ended by {signals.name_of(-end.status)}, and the job with it")
        return exit_status.by_signal(-end.status)
    return end.status


def _agent_of(planned: Plan, options: Options) -> Callable[[Line, set[int], str], int]:
    """Return what the agent's process does: run the agent that is told, or the one that asks a handler of another package."""
    if planned.asked is None:
        from planaria.agent.main import run_agent

        return lambda line, mask, scratch: run_agent(planned.job, line, mask, scratch)
    from planaria.launch.asked import run_asked

    return lambda line, mask, scratch: run_asked(planned.job, options, line, mask, scratch)


def _print(text: str) -> int:
    """Print to whoever still listens: `planaria run --help | head` is no error."""
    try:
        write_all(1, text.encode())
    except BrokenPipeError:
        return exit_status.DONE
    except OSError as problem:
        _complain(f"cannot write to standard output: {problem.strerror}")
        return exit_status.WORKER_FAILED
    return exit_status.DONE


def _complain(text: str) -> None:
    tell(2, f"planaria: {text}\n")
