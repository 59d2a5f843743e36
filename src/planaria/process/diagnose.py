"""Say how a worker ended, from the evidence it left. Pure."""

from __future__ import annotations

from planaria.base import signals
from planaria.base.value import Value
from planaria.contract import blackbox, error_file
from planaria.contract.failure import ENDED, Failure
from planaria.process.spawn import SPAWN_FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.failure import FailureKind, Killer

TAIL_LINES = 20


class Evidence(Value):
    """All there is to know about a worker that ended badly. `at` is when its end was seen, `started_at` its start."""

    rank: int
    local_rank: int
    host: str
    pid: int
    status: int
    started_at: float
    at: float
    killed_by_us: bool = False
    blame: Failure | None = None
    """What the agent ended it for, if that was its own fault."""
    lost: str = ""
    """Why nobody knows its status, if that is so."""
    oom_kills: int = 0
    black_box: bytes = b""
    error_file: bytes | None = None
    error_file_path: str = ""
    stderr_tail: bytes = b""
    log_files: tuple[str, ...] = ()


def diagnose(seen: Evidence) -> Failure:
    """Weigh the evidence. The worker's own record beats torch's error file, which beats what the status alone says.

    A worker that we had to end for its own fault failed for that, and when we saw it: its stacks say where it was.
    """
    box = blackbox.read(seen.black_box)
    told = error_file.read(seen.error_file) if seen.error_file is not None else error_file.ErrorFile()
    ending = box.ending
    kind, message, trace = _from_status(seen, box.text)
    if ending is not None and not _is_interrupt(ending, seen.status):
        afterwards = f", then {message}" if seen.status < 0 else ""
        kind = "exception" if ending.kind == "exception" else "exit"
        message, trace = _ending_message(ending, seen.status) + afterwards, _stacks(ending, seen, trace)
    elif told.message:
        message, trace = told.message, told.traceback or trace
    elif told.problem:
        message = f"{message}; its error file {told.problem}"
    at = ending.at if ending is not None else seen.at
    if seen.blame is not None:
        kind, message, at = "watchdog", seen.blame.message, seen.blame.at
        trace = box.text or trace
    return Failure(
        rank=seen.rank,
        local_rank=seen.local_rank,
        host=seen.host,
        pid=seen.pid,
        status=seen.status,
        at=at,
        age_s=seen.at - seen.started_at,
        kind=kind,
        type=_type(seen, box, kind),
        bases=ending.bases if ending is not None and kind == "exception" else (),
        message=message,
        traceback=trace,
        where=seen.blame.where if seen.blame is not None else ending.where if ending is not None else "",
        killer=_killer(seen),
        stderr_tail=_last_lines(seen.stderr_tail),
        error_file=seen.error_file_path if seen.error_file is not None else "",
        log_files=seen.log_files,
    )


def _type(seen: Evidence, box: blackbox.BlackBox, kind: FailureKind) -> str:
    if seen.blame is not None:
        return seen.blame.type
    if box.ending is not None:
        return box.ending.type if kind == "exception" else ""
    return ENDED if box.has_ended and _killer(seen) == "us" else ""


def _from_status(seen: Evidence, text: str) -> tuple[FailureKind, str, str]:
    """Return kind, message and stack as far as status and fault handler tell."""
    if seen.status < 0:
        return "signal", _signal_message(seen), text
    if seen.lost:
        return "exit", seen.lost, ""
    if seen.status == SPAWN_FAILED and text.startswith("cannot start "):
        return "spawn", text.strip(), ""
    return "exit", f"exit status {seen.status}", ""


def _stacks(ending: blackbox.Ending, seen: Evidence, dumped: str) -> str:
    """Choose between the traceback and what the fault handler wrote: where it hung, or both when it crashed after it."""
    if not dumped:
        return ending.traceback
    return dumped if seen.killed_by_us or ending.kind == "exit" else f"{ending.traceback}\n{dumped}"


def _is_interrupt(ending: blackbox.Ending, status: int) -> bool:
    """Tell whether this is how Python ends after Ctrl-C: the exception first, then the signal itself."""
    return ending.type == "KeyboardInterrupt" and status == -signals.SIGINT


def _ending_message(ending: blackbox.Ending, status: int) -> str:
    if ending.kind == "exit":
        if not ending.message.lstrip("-").isdecimal():
            return f"exit: {ending.message}"
        return f"exit status {ending.message if status < 0 else status}"  # sys.exit(-1) makes 255
    return f"{ending.type}: {ending.message}" if ending.message else ending.type


def _signal_message(seen: Evidence) -> str:
    number = -seen.status
    told = f"{signals.name_of(number)} ({signals.meaning_of(number)})"
    match _killer(seen):
        case "oom":
            return f"{told}: the kernel's OOM killer, out of memory in its memory cgroup"
        case "other":
            return f"{told}, not sent by planaria: another process, or the kernel"
        case _:
            return told


def _killer(seen: Evidence) -> Killer:
    if seen.status != -signals.SIGKILL:
        return ""
    if seen.killed_by_us:
        return "us"
    return "oom" if seen.oom_kills else "other"


def _last_lines(tail: bytes) -> str:
    lines = tail.decode("utf-8", "replace").rstrip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])
