"""Decide what a command line means on this machine. Pure: what must be asked of the machine comes in as `Machine`.

torchrun's rule is kept: without an endpoint or a port, `static` on one node means `--standalone`.
"""

from __future__ import annotations

from planaria.agent.model import Job
from planaria.agent.settings import HealthCheck, Shelter, Vigilance
from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.contract.env import for_workers
from planaria.errors import InternalError, UsageError
from planaria.launch import values
from planaria.launch.script import ScriptFacts
from planaria.process.model import Command, LogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from planaria.agent.conf import Credentials
    from planaria.agent.settings import Meeting
    from planaria.launch.devices import Counts
    from planaria.launch.meeting import Asked
    from planaria.launch.numa import Topology
    from planaria.launch.parse import Options

    Need = Literal["accelerators", "topology", "credentials", "plugins", "event_handlers"]

_SHORTEST_FLOOR_S = 1.0  # looking at workers that hang takes about as long
_LOOPBACK = "127.0.0.1"
_WITHOUT_A_STORE = ("static", "c10d", "embedded")
_WITH_OURS = ("etcd", "etcd-v2", "kubernetes")


class Machine(Value):
    """What only the machine knows. Fields that are None by default cost milliseconds: ask when `needs` says so."""

    executable: str
    cpu_count: int
    fresh_run_id: str
    script: ScriptFacts = ScriptFacts()
    accelerators: Counts | None = None
    topology: Topology | None = None
    credentials: Credentials | None = None
    plugins: frozenset[str] | None = None
    handlers: frozenset[str] | None = None
    event_handlers: frozenset[str] | None = None


class Plan(Value):
    """What will be run, and what the user should be told once before.

    `asked`: the nodes meet through a handler of another package, and the agent of `asked.py` runs the job.
    """

    job: Job
    notices: tuple[str, ...] = ()
    dry_run: bool = False
    json: bool = False
    asked: Asked | None = None


class Contact(Value):
    """How the workers find each other: the outcome of `--nnodes` and all `--rdzv-*` and `--master-*` flags."""

    run_id: str
    master_addr: str
    master_port: int | None = None
    meeting: Meeting | None = None
    notices: tuple[str, ...] = ()
    asked: Asked | None = None


def needs(options: Options, environ: Mapping[str, str]) -> frozenset[Need]:
    """Return what `Machine` has to hold for these options beyond the cheap facts."""
    wanted: set[Need] = set()
    if values.health_check_port(options, environ) is not None:
        wanted.add("credentials")
    if options.nproc_per_node in ("auto", "gpu", "xpu"):
        wanted.add("accelerators")
    if options.numa_binding is not None:
        wanted.add("topology")
    if not is_alone(options):
        wanted.add("credentials")
        if options.rdzv_backend not in (*_WITHOUT_A_STORE, *_WITH_OURS):
            wanted.add("plugins")
    if values.asks_for_foreign_handlers(options.event_log_handler):
        wanted.add("event_handlers")
    return frozenset(wanted)


def is_alone(options: Options) -> bool:
    """Say whether this node needs nobody's consent: there is no other, and no store that was asked for."""
    if options.standalone:
        return True
    _, most = values.node_range(options.nnodes, options.source("nnodes"))
    return most == 1 and options.rdzv_backend in _WITHOUT_A_STORE and "://" not in options.rdzv_endpoint


def plan(options: Options, environ: Mapping[str, str], machine: Machine) -> Plan:
    """Check every value and return the job.

    Raises:
        UsageError: One sentence that names the flag or variable and what it expects.
    """
    _refuse_what_cannot_work(options)
    contact = _alone(options, machine) if is_alone(options) else _among_others(options, machine)
    nproc = _worker_count(options, machine)
    environment, notices = _environment(options, environ, nproc)
    _check_visible_devices(options, environ, nproc)
    command = _command(options, environ, machine, asked=contact.asked is not None)
    job = Job(
        command=command,
        local_world_size=nproc,
        run_id=contact.run_id,
        role=options.role,
        max_restarts=options.max_restarts,
        shutdown_timeout_s=values.shutdown_timeout_s(options, environ),
        signals=values.signal_numbers(options.signals_to_handle, options.source("signals_to_handle")),
        environment=environment,
        logs=_logs(options, environ),
        master_addr=contact.master_addr,
        master_port=contact.master_port,
        virtual_local_rank=options.virtual_local_rank,
        cpu_sets=_cpu_sets(options, machine, nproc),
        always_restart=options.always_restart,
        worker_exit_code=options.exit_code == "worker",
        report_file=options.report_file,
        run_dir=options.run_dir,
        event_handlers=values.event_handlers(options, machine.event_handlers or frozenset()),
        meeting=contact.meeting,
        health=_health(options, environ, machine),
        shelter=_shelter(options),
        preflight=_preflight(options),
        preflight_cooldown_s=values.seconds(options.preflight_cooldown, options.source("preflight_cooldown"), 1),
        vigilance=_vigilance(options),
        standbys=_standbys(options, command, contact),
    )
    idle = _without_effect(options, contact, silent=job.health is None)
    notices = (*notices, *idle, *_standbys_without_effect(options, command, contact), *contact.notices)
    return Plan(job, notices, options.dry_run, options.json, contact.asked)


def _refuse_what_cannot_work(options: Options) -> None:
    if options.max_restarts < 0:
        raise values.wrong(options.source("max_restarts"), "0 or more restarts", str(options.max_restarts))
    if not 0 < options.monitor_interval < float("inf"):
        raise values.wrong(options.source("monitor_interval"), "seconds above 0", str(options.monitor_interval))
    values.seconds(options.resize_grace, options.source("resize_grace"))
    if options.no_python and options.module and not options.run_path:
        raise UsageError(f"{options.source('no_python')} and {options.source('module')} exclude each other")


def _alone(options: Options, machine: Machine) -> Contact:
    least, _ = values.node_range(options.nnodes, options.source("nnodes"))
    if least > 1:
        raise UsageError(f"--standalone is one node by itself; {options.source('nnodes')} expects 1, got '{least}'")
    if options.rdzv_conf:
        from planaria.agent import conf

        conf.check(options.rdzv_conf, options.source("rdzv_conf"), options.rdzv_backend)
    here = values.host(options.local_addr, options.source("local_addr")) if options.local_addr else _LOOPBACK
    implicit = options.rdzv_backend == "static" and not options.rdzv_endpoint and options.master_port is None
    if options.standalone or implicit:
        return Contact(machine.fresh_run_id, here)
    run_id = values.run_id(options)
    if options.rdzv_backend == "static":
        values.node_rank(options, 1)
        return Contact(run_id, *values.master(options))
    for part in options.rdzv_endpoint.split(",") if options.rdzv_endpoint else ():
        values.endpoint(part, options.source("rdzv_endpoint"))
    return Contact(run_id, here)


def _among_others(options: Options, machine: Machine) -> Contact:
    from planaria.launch.meeting import arrange, arrange_asked, is_asked

    if machine.credentials is None:
        raise InternalError("the token was not looked for although `needs` asked for it")
    plugins = machine.plugins or frozenset()
    if is_asked(options, plugins, machine.handlers or frozenset()):
        asked = arrange_asked(options)
        return Contact(asked.run_id, options.local_addr or _LOOPBACK, notices=asked.notices, asked=asked)
    arranged = arrange(options, machine.credentials, plugins)
    meeting = arranged.meeting
    if meeting.backend == "static":
        return Contact(meeting.run_id, *values.master(options), meeting, arranged.notices)
    return Contact(meeting.run_id, meeting.local_addr or _LOOPBACK, None, meeting, arranged.notices)


def _worker_count(options: Options, machine: Machine) -> int:
    word, source = options.nproc_per_node, options.source("nproc_per_node")
    number = values.worker_count(word, source)
    if number is not None:
        return number
    if word == "cpu":
        return machine.cpu_count
    found = machine.accelerators
    if found is None:
        raise InternalError("accelerators were not counted although `needs` asked for them")
    if word == "auto":
        return found.gpus or found.discrete_xpus or machine.cpu_count
    count, what = (found.gpus, "GPU") if word == "gpu" else (found.xpus, "XPU")
    if count == 0:
        raise UsageError(f"{source} expects a visible {what} for {quoted(word)}, got none")
    return count


def _environment(options: Options, environ: Mapping[str, str], nproc: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what every worker inherits, and what to say about it."""
    inherited = for_workers(environ)
    inherited["TORCHELASTIC_SIGNALS_TO_HANDLE"] = options.signals_to_handle
    if nproc == 1 or "OMP_NUM_THREADS" in inherited:
        return inherited, ()
    inherited["OMP_NUM_THREADS"] = "1"
    setting = "Setting OMP_NUM_THREADS environment variable for each process to be 1"
    return inherited, (f"{setting}: {nproc} workers share these CPUs; set it yourself for another number.",)


def _check_visible_devices(options: Options, environ: Mapping[str, str], nproc: int) -> None:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if options.virtual_local_rank and visible is not None and len(visible.split(",")) < nproc:
        source = options.source("virtual_local_rank")
        raise UsageError(
            f"{source} expects a device for each of {nproc} workers, got CUDA_VISIBLE_DEVICES={quoted(visible)}"
        )


def _command(options: Options, environ: Mapping[str, str], machine: Machine, *, asked: bool) -> Command:
    target, args = options.training_script, options.training_script_args
    interpreter = environ.get("PYTHON_EXEC", "") or machine.executable
    bootstrap = not options.no_bootstrap and not asked
    if options.run_path:  # torchrun runs it under its own interpreter, whatever PYTHON_EXEC says
        return Command("path", target, args, machine.executable, bootstrap)
    if options.no_python:
        return Command("program", target, args, bootstrap=False)
    if options.module:
        return Command("module", target, args, interpreter, bootstrap)
    return Command("script", target, args, interpreter, bootstrap and machine.script.kind == "source")


def _logs(options: Options, environ: Mapping[str, str]) -> LogSettings:
    return LogSettings(
        log_dir=options.log_dir or None,
        redirects=values.stream_mask(options.redirects, options.source("redirects")),
        tee=values.stream_mask(options.tee, options.source("tee")),
        shown_ranks=values.shown_ranks(options.local_ranks_filter, options.source("local_ranks_filter")),
        stdout_filters=options.duplicate_stdout_filters,
        stderr_filters=options.duplicate_stderr_filters,
        prefix_template=environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        reads_lines=options.progress_pattern is not None,
    )


def _health(options: Options, environ: Mapping[str, str], machine: Machine) -> HealthCheck | None:
    """Return where probes are answered, if anybody asked for that."""
    port = values.health_check_port(options, environ)
    host = values.host(options.health_check_host, options.source("health_check_host"))
    timeout_s = values.seconds(options.health_check_timeout, options.source("health_check_timeout"), 0.1)
    if port is None:
        return None
    return HealthCheck(port, host, timeout_s, machine.credentials.token if machine.credentials is not None else None)


def _shelter(options: Options) -> Shelter:
    """Return where commits go."""
    if options.snapshot_keep < 1:
        raise values.wrong(options.source("snapshot_keep"), "1 or more commits", str(options.snapshot_keep))
    return Shelter(options.snapshot_dir, options.snapshot_keep, options.snapshot_buddy == "on")


def _preflight(options: Options) -> tuple[str, ...]:
    """Return the groups of checks that are wanted. A run that wants none imports nothing of the doctor."""
    if options.preflight is None:
        return ()
    from planaria.doctor.model import read_groups

    return read_groups(options.preflight, options.source("preflight"))


def _vigilance(options: Options) -> Vigilance:
    """Return when a rank is said to hang, and what is done then."""
    floor_s = values.seconds(options.hang_floor, options.source("hang_floor"))
    if 0 < floor_s < _SHORTEST_FLOOR_S:
        raise values.wrong(options.source("hang_floor"), f"0, or {_SHORTEST_FLOOR_S:g} s and more", f"{floor_s:g}")
    if options.stall_restarts < 0:
        raise values.wrong(options.source("stall_restarts"), "0 or more lives", str(options.stall_restarts))
    pattern = options.progress_pattern
    if pattern is not None:
        from planaria.process.pattern import check

        check(pattern, options.source("progress_pattern"))
    return Vigilance(floor_s, options.hang_policy, pattern, options.stall_restarts)


def _standbys(options: Options, command: Command, contact: Contact) -> int | None:
    """Return how many processes are to stand by, None for `auto`; none where no worker could ever be one of them."""
    asked = values.standbys(options.standbys, options.source("standbys"))
    return 0 if _why_no_standbys(options, command, contact) else asked


def _why_no_standbys(options: Options, command: Command, contact: Contact) -> str:
    if not command.bootstrap:
        return "has no effect without the start-up file (--no-python, --no-bootstrap, a script that is no source)"
    return (
        "has no effect on one node without --max-restarts"
        if contact.meeting is None and not options.max_restarts
        else ""
    )


def _standbys_without_effect(options: Options, command: Command, contact: Contact) -> tuple[str, ...]:
    why = _why_no_standbys(options, command, contact) if contact.asked is None else ""
    return (f"{options.source('standbys')} {why}",) if why and options.standbys != "0" else ()


def _cpu_sets(options: Options, machine: Machine, nproc: int) -> tuple[frozenset[int], ...]:
    if options.numa_binding is None:
        return ()
    if machine.topology is None:
        raise InternalError("the topology was not read although `needs` asked for it")
    from planaria.launch import numa

    return numa.cpu_sets(options.numa_binding, nproc, machine.topology)


def _without_effect(options: Options, contact: Contact, *, silent: bool) -> tuple[str, ...]:
    """Return a line for each flag that was given and changes nothing here."""
    agreed = contact.master_port is None
    alone = contact.meeting is None and contact.asked is None
    fresh = options.run_path and options.start_method != "spawn"
    standalone = options.standalone
    _, most = values.node_range(options.nnodes, options.source("nnodes"))
    candidates = (
        ("start_method", not options.run_path, "has no effect without --run-path"),
        ("start_method", fresh, "has no effect: every worker starts in a fresh interpreter"),
        (
            "event_log_handler",
            silent and contact.asked is None and options.event_log_handler == "prometheus",
            "has no effect without --health-check-port or prometheus:PATH",
        ),
        (
            "node_rank",
            agreed and options.node_rank != 0,
            "has no effect without the static rendezvous of --master-port",
        ),
        ("master_addr", agreed, "has no effect without the static rendezvous of --master-port"),
        ("master_port", agreed, "has no effect without the static rendezvous"),
        ("nnodes", standalone and most > 1, "has no effect with --standalone"),
        ("rdzv_backend", standalone and options.rdzv_backend != "c10d", "has no effect with --standalone"),
        ("rdzv_endpoint", standalone, "has no effect with --standalone"),
        ("rdzv_id", standalone, "has no effect with --standalone"),
        ("resize_grace", alone, "has no effect on one node"),
        ("on_lost_majority", alone, "has no effect on one node"),
        ("module", options.run_path and options.module, "has no effect with --run-path"),
        ("no_python", options.run_path and options.no_python, "has no effect with --run-path"),
        ("snapshot_buddy", alone, "has no effect on one node"),
        ("snapshot_keep", options.snapshot_dir is None, "has no effect without --snapshot-dir"),
        ("hang_policy", options.hang_floor == 0, "has no effect with --hang-floor=0"),
        ("stall_restarts", alone and not options.max_restarts, "has no effect without --max-restarts"),
        ("health_check_host", silent, "has no effect without --health-check-port"),
        ("health_check_timeout", silent, "has no effect without --health-check-port"),
        ("preflight_cooldown", options.preflight is None, "has no effect without --preflight"),
        ("preflight_cooldown", alone and options.preflight is not None, "has no effect on one node"),
        ("json", not options.dry_run, "has no effect without --dry-run"),
    )
    return tuple(f"{options.source(dest)} {why}" for dest, idle, why in candidates if idle and options.is_set(dest))
