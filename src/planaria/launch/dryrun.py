"""Show a plan instead of carrying it out: `as_data` for `--json`, `as_text` for people. Starts and creates nothing."""

from __future__ import annotations

from planaria.agent.model import StartWorkers
from planaria.agent.rounds import lone_round
from planaria.base import signals
from planaria.base.text import safe_line
from planaria.base.value import replace
from planaria.contract import env
from planaria.contract.secret import HIDDEN, SecretText
from planaria.errors import InternalError
from planaria.launch import values
from planaria.process.command import worker_argv
from planaria.process.logs import folder_name, stream_kind
from planaria.process.model import DEV_NULL, STDERR, STDOUT, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.agent.model import Job
    from planaria.agent.settings import HealthCheck, Meeting
    from planaria.launch.meeting import Asked
    from planaria.launch.plan import Plan

_LATER = "(chosen at start)"
_AGREED = "(agreed when the nodes meet)"
_AGREED_RANKS = ("RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE")
_NO_PORT = 0
_ONLY_OURS = (env.CONTROL, env.ROUND, env.RESTART_REASON)  # which an agent that asks does not set
_ALWAYS_SHOWN = (env.OMP_NUM_THREADS, "TORCHELASTIC_SIGNALS_TO_HANDLE", env.TIMER_FILE)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


def as_data(plan: Plan) -> dict[str, object]:
    """Return the plan as JSON-able data. The inherited environment is left out: it may hold secrets."""
    job = plan.job
    return {
        "run_id": job.run_id,
        "role": job.role,
        "local_world_size": job.local_world_size,
        "master_addr": None if _is_agreed(plan) else job.master_addr,
        "master_port": job.master_port,
        "max_restarts": job.max_restarts,
        "always_restart": job.always_restart,
        "shutdown_timeout_s": job.shutdown_timeout_s,
        "signals": [signals.name_of(number) for number in job.signals],
        "exit_code": "worker" if job.worker_exit_code else "agent",
        "report_file": job.report_file,
        "run_dir": job.run_dir,
        "event_handlers": job.event_handlers,
        "log_dir": job.logs.log_dir,
        "snapshot_dir": job.shelter.directory,
        "snapshot_keep": job.shelter.keep,
        "snapshot_buddy": job.shelter.has_buddies,
        "hang_floor_s": job.vigilance.floor_s,
        "hang_policy": job.vigilance.policy,
        "progress_pattern": job.vigilance.pattern,
        "stall_restarts": job.vigilance.stall_restarts,
        "bootstrap": _command(job).bootstrap,
        "standbys": "auto" if job.standbys is None else job.standbys,
        "preflight": list(job.preflight),
        "preflight_cooldown_s": job.preflight_cooldown_s,
        "meeting": None if job.meeting is None else _meeting(job.meeting),
        "handler": None if plan.asked is None else _handler(plan.asked),
        "health_check": None if job.health is None else _health(job.health),
        "workers": [_worker(plan, local_rank) for local_rank in range(job.local_world_size)],
        "notices": list(plan.notices),
    }


def as_text(plan: Plan) -> str:
    """Return the plan for people, ending in a newline: the job, then every worker."""
    job = plan.job
    restarts = f"{job.max_restarts} restarts at most" + (", also at start-up" if job.always_restart else "")
    handled = ", ".join(signals.name_of(number) for number in job.signals)
    lines = [
        f"would run {job.local_world_size} worker(s) on this node; nothing was started",
        f"  run id    {safe_line(job.run_id)}, role {safe_line(job.role)}",
        f"  master    {_master_words(plan)}",
        f"  restarts  {restarts}",
        f"  stopping  on {handled}; SIGKILL {job.shutdown_timeout_s:g} s after SIGTERM",
        f"  logs      {_log_words(job)}",
    ]
    if job.meeting is not None:
        lines += _meeting_lines(job.meeting)
    if plan.asked is not None:
        lines += _handler_lines(plan.asked)
    if _command(job).bootstrap:
        lines.append("  start-up  through planaria's start-up file, which records tracebacks")
    lines += _start_lines(job)
    if job.health is not None:
        lines.append(f"  probes    at {_health_words(job.health)}")
    if job.shelter.directory is not None:
        lines.append(f"  commits   the newest {job.shelter.keep} in {safe_line(job.shelter.directory)}")
    lines += _written_lines(job)
    for local_rank in range(job.local_world_size):
        lines += _worker_lines(plan, local_rank)
    return "\n".join([*lines, *(f"note: {notice}" for notice in plan.notices)]) + "\n"


def _written_lines(job: Job) -> list[str]:
    """Say what is written where while the job runs, and at its end."""
    lines = []
    if job.report_file is not None:
        lines.append(f"  report    {safe_line(job.report_file)}")
    if job.run_dir is not None:
        lines.append(f"  journal   in {safe_line(job.run_dir)}, in a folder of this run")
    if job.event_handlers:
        lines.append(f"  events    to {safe_line(job.event_handlers)}")
    return lines


def _start_lines(job: Job) -> list[str]:
    """Return what is done around the start of workers, where it was asked for."""
    lines = [f"  standbys  {_standby_words(job.standbys)}"] if job.standbys != 0 else []
    return [*lines, f"  preflight {', '.join(job.preflight)}, before this node joins"] if job.preflight else lines


def _standby_words(asked: int | None) -> str:
    return "one for each worker, while memory lasts" if asked is None else f"{asked}, one for each worker at most"


def _health(check: HealthCheck) -> dict[str, object]:
    """Return the health check without its secret."""
    return {
        "host": check.host,
        "port": check.port,
        "timeout_s": check.timeout_s,
        "has_token": check.token is not None,
    }


def _health_words(check: HealthCheck) -> str:
    where = values.address(safe_line(check.host), check.port) if check.port else f"{safe_line(check.host)}, a free port"
    return f"{where}; orders need {'the token' if check.token is not None else 'the socket of planaria drain and stop'}"


def _is_agreed(plan: Plan) -> bool:
    """Say whether the nodes agree on a master when they meet."""
    return _meets(plan) and plan.job.master_port is None


def _meets(plan: Plan) -> bool:
    return plan.job.meeting is not None or plan.asked is not None


def _master_words(plan: Plan) -> str:
    job = plan.job
    if _is_agreed(plan):
        return _AGREED
    return f"{job.master_addr}:{_LATER if job.master_port is None else job.master_port}"


def _meeting(meeting: Meeting) -> dict[str, object]:
    """Return the meeting without its secrets."""
    return {
        "backend": meeting.backend,
        "endpoints": list(_meeting_points(meeting)),
        "run_id": meeting.run_id,
        "min_nodes": meeting.min_nodes,
        "max_nodes": meeting.max_nodes,
        "node_rank": meeting.node_rank,
        "local_addr": meeting.local_addr,
        "has_token": meeting.token is not None,
        "has_tls": "tls_cert" in meeting.options,
        "require_token": meeting.require_token,
        "ttl_s": meeting.ttl_s,
        "quiet_s": meeting.quiet_s,
        "join_timeout_s": meeting.join_timeout_s,
        "resize_grace_s": meeting.resize_grace_s,
        "on_lost_majority": meeting.on_lost_majority,
        "options": _shown_options(meeting.options),
    }


def _handler(asked: Asked) -> dict[str, object]:
    """Return what a handler of another package is told, without its secrets."""
    return {
        "backend": asked.backend,
        "endpoint": asked.endpoint,
        "run_id": asked.run_id,
        "min_nodes": asked.min_nodes,
        "max_nodes": asked.max_nodes,
        "options": _shown_options(asked.settings),
    }


def _handler_lines(asked: Asked) -> list[str]:
    options = " ".join(f"{key}={value}" for key, value in _shown_options(asked.settings).items())
    where = safe_line(asked.endpoint) or "no endpoint"
    return [
        f"  nodes     {_node_words(asked.min_nodes, asked.max_nodes)}",
        f"  meeting   by the handler {safe_line(asked.backend)} of another package, at {where}",
        *([f"  options   {safe_line(options)}"] if options else []),
    ]


def _node_words(least: int, most: int) -> str:
    return f"{most} node(s)" if least == most else f"{least} to {most} nodes"


def _meeting_lines(meeting: Meeting) -> list[str]:
    nodes = _node_words(meeting.min_nodes, meeting.max_nodes)
    rank = "" if meeting.node_rank is None else f", this one has rank {meeting.node_rank}"
    address = "" if meeting.local_addr is None else f", this one at {meeting.local_addr}"
    where = " ".join(_meeting_points(meeting)) or "no endpoint"
    guards = ["a token"] * (meeting.token is not None) + ["TLS"] * ("tls_cert" in meeting.options)
    options = " ".join(f"{key}={value}" for key, value in _shown_options(meeting.options).items())
    return [
        f"  nodes     {nodes}{rank}{address}",
        f"  meeting   by {safe_line(meeting.backend)} at {safe_line(where)}, guarded by {' and '.join(guards) or 'nothing'}",
        f"  waiting   {meeting.join_timeout_s:g} s for the first round, {meeting.quiet_s:g} s after the last arrival",
        f"  losses    a silent node is lost after {meeting.ttl_s:g} s; without a majority: {meeting.on_lost_majority}",
        f"  resizing  within {meeting.resize_grace_s:g} s",
        *([f"  options   {safe_line(options)}"] if options else []),
    ]


def _meeting_points(meeting: Meeting) -> tuple[str, ...]:
    """Return where the agents meet: with `static` one port above the workers' master."""
    if meeting.backend != "static":
        return meeting.endpoints
    host, _, port = meeting.endpoints[0].rpartition(":")
    return (f"{host}:{int(port) + 1}",)


def _shown_options(options: Mapping[str, str]) -> dict[str, str]:
    return {key: HIDDEN if isinstance(value, SecretText) else value for key, value in sorted(options.items())}


def _worker(plan: Plan, local_rank: int) -> dict[str, object]:
    job = plan.job
    cpus = job.cpu_sets[local_rank] if job.cpu_sets else frozenset()
    return {
        "local_rank": local_rank,
        "argv": list(_argv(job, local_rank)),
        "environment": _environment(plan, local_rank),
        "stdout": _destination(job, local_rank, STDOUT),
        "stderr": _destination(job, local_rank, STDERR),
        "cpus": sorted(cpus),
    }


def _worker_lines(plan: Plan, local_rank: int) -> list[str]:
    job = plan.job
    lines = [f"worker {local_rank}: {' '.join(_for_shell(word) for word in _argv(job, local_rank))}"]
    if job.cpu_sets:
        lines.append(f"  cpus {','.join(str(cpu) for cpu in sorted(job.cpu_sets[local_rank]))}")
    for name, stream in (("stdout", STDOUT), ("stderr", STDERR)):
        lines.append(f"  {name} to {safe_line(_destination(job, local_rank, stream))}")
    variables = _environment(plan, local_rank)
    return [*lines, *(f"  {name}={safe_line(value)}" for name, value in sorted(variables.items()))]


def _argv(job: Job, local_rank: int) -> tuple[str, ...]:
    """Return the command as the user thinks of it; the start-up file in front of it is mentioned apart."""
    return worker_argv(replace(_command(job), bootstrap=False), local_rank, 0)


def _command(job: Job) -> Command:
    """Return the command: functions come from programs that embed an agent, never from a command line."""
    if not isinstance(job.command, Command):
        raise InternalError("a command line names no function")
    return job.command


def _environment(plan: Plan, local_rank: int) -> dict[str, str]:
    """Return what a worker gets beyond what it inherits, and what the launcher itself decided about the inherited."""
    job = plan.job
    life = lone_round(job, StartWorkers(0, 0, ""), job.master_port or _NO_PORT)
    error_file = "" if job.logs.log_dir == DEV_NULL else _LATER
    inherited = {name: value for name, value in job.environment.items() if name != env.ERROR_FILE}
    whole = env.worker_environment(
        inherited, life, local_rank, error_file=error_file, control=_LATER, virtual_rank=job.virtual_local_rank
    )
    if job.master_port is None:
        whole["MASTER_PORT"] = _LATER
    if _meets(plan):
        agreed = (*_AGREED_RANKS, "MASTER_ADDR", "MASTER_PORT") if _is_agreed(plan) else _AGREED_RANKS
        whole.update(dict.fromkeys(agreed, _AGREED))
    if job.environment.get(env.ENABLE_FILE_TIMER) == "1":
        whole[env.TIMER_FILE] = job.environment.get(env.TIMER_FILE) or _LATER
    own = env.worker_environment({}, life, local_rank, error_file="", control="", virtual_rank=job.virtual_local_rank)
    absent = _ONLY_OURS if plan.asked is not None else ()
    return {name: whole[name] for name in (*own, *_ALWAYS_SHOWN) if name in whole and name not in absent}


def _destination(job: Job, local_rank: int, stream: int) -> str:
    if job.logs.plan is not None:
        return _LATER
    kind = stream_kind(job.logs, stream, local_rank)
    name = "stdout.log" if stream == STDOUT else "stderr.log"
    file = f"{_log_folder(job)}/attempt_0/{local_rank}/{name}" if job.logs.log_dir != DEV_NULL else ""
    match kind:
        case "inherit":
            return "console"
        case "null":
            return DEV_NULL
        case "file":
            return file
        case "pipe":
            return f"{file} and console" if file else "console"


def _log_folder(job: Job) -> str:
    name = f"{folder_name(job.run_id)}_(random)"
    return f"{job.logs.log_dir}/{name}" if job.logs.log_dir else f"(temporary directory)/planaria_{name}"


def _log_words(job: Job) -> str:
    if job.logs.plan is not None:
        return "where the log specs say"
    if job.logs.log_dir == DEV_NULL:
        return "none (/dev/null)"
    masks = (job.logs.redirects, job.logs.tee)
    if job.logs.log_dir is None and not any(mask.of(rank) for mask in masks for rank in range(job.local_world_size)):
        return "none (console only)"
    return f"in {safe_line(_log_folder(job))}"


def _for_shell(word: str) -> str:
    if word and all(letter in _PLAIN for letter in word):
        return word
    return "'" + safe_line(word, 10_000).replace("'", "'\\''") + "'"
