"""The command lines of `planaria drain` and `planaria stop`, and their help. Pure."""

from __future__ import annotations

from planaria.base.usage import seconds_in, taken_flag, whole_number
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.launch import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PORT_VARIABLES = ("PET_HEALTH_CHECK_PORT", "TORCHELASTIC_HEALTH_CHECK_PORT")
_VALUES = ("--port", "--host", "--run-id", "--pid", "--timeout", "--grace")
_SWITCHES = ("--json", "--no-wait", "--drain", "--help", "-h")
_FOR_STOP = ("--drain", "--grace")
_DRAIN_S = 10.0  # what a resize gives workers, too
_TIMEOUT_S = 120.0

_COMMON = """\
  --run-id ID        the run, where this machine has several
  --pid PID          the launcher, where several nodes of one run are on this machine
  --port PORT        the agent that answers at this port; of several runs here, TORCHELASTIC_HEALTH_CHECK_PORT is preferred
  --host HOST        ... of this host; orders over the network need PLANARIA_TOKEN or PLANARIA_TOKEN_FILE
  --timeout SECONDS  how long to wait for the end; 120
  --no-wait          return when the agent has been told
  --json             print one JSON object at the end instead of lines
  --help             this text

Exit statuses: 0 it has ended (with --no-wait: it was told), 1 it has not ended in time, 2 it could not be told.
"""
_HELP = {
    "drain": """\
usage: planaria drain [flags]

End a run on this node in good order, as SIGTERM to its launcher does: workers are told, get SIGTERM and, after the launcher's
--shutdown-timeout, SIGKILL. The launcher exits with 75 if there are commits, and what only this node had of them is on disk or
with another node; else with 143. The other nodes of the job go on.

Examples:
  planaria drain                         # the only run of yours on this machine
  planaria drain --run-id=job7 --json    # one of several, for a script
  planaria drain --timeout=25            # the preStop hook of a pod that has 30 s

"""
    + _COMMON,
    "stop": """\
usage: planaria stop [--drain] [flags]

End a run on all of its nodes, from any of them. Workers get SIGTERM and, after the launcher's --shutdown-timeout, SIGKILL.
Every launcher exits with 143.

Examples:
  planaria stop                          # the only run of yours on this machine
  planaria stop --drain                  # workers that listen (planaria.worker) may finish their step first
  planaria stop --drain --grace=60       # ... and have a minute for it

  --drain            let workers that listen end by themselves before the first signal
  --grace SECONDS    ... within so many seconds; 10
"""
    + _COMMON,
}


class Order(Value):
    """What the owner wants. `grace_s` 0: no time before the first signal.

    `port` and `host` are what the command line names: only there is the token of the run ever sent. `likely_port` is a
    variable's, and only helps to choose among the runs of this machine.
    """

    command: str
    run_id: str = ""
    pid: int = 0
    port: int | None = None
    host: str | None = None
    likely_port: int | None = None
    timeout_s: float = _TIMEOUT_S
    grace_s: float = 0.0
    waits: bool = True
    json: bool = False
    help: bool = False


def help_text(command: str) -> str:
    """Return the help of a command."""
    return _HELP[command]


def read_flags(command: str, argv: Sequence[str], environ: Mapping[str, str]) -> Order:
    """Return what a command line means. Raises UsageError."""
    found = _collect(command, argv)
    if "--help" in found or "-h" in found:
        return Order(command, help=True)
    if "--grace" in found and "--drain" not in found:
        raise UsageError("--grace has a meaning with --drain only")
    grace_s = _seconds(found, "--grace", _DRAIN_S) if "--drain" in found else 0.0
    return Order(
        command,
        run_id=found.get("--run-id", ""),
        pid=_number(found, "--pid", "the pid of a launcher", 1 << 22),
        port=_port(found),
        host=values.host(found["--host"], "--host") if "--host" in found else None,
        likely_port=_likely_port(environ),
        timeout_s=_seconds(found, "--timeout", _TIMEOUT_S),
        grace_s=grace_s,
        waits="--no-wait" not in found,
        json="--json" in found,
    )


def _collect(command: str, argv: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    words = list(argv)
    valued, switches = (
        [name for name in names if command == "stop" or name not in _FOR_STOP] for names in (_VALUES, _SWITCHES)
    )
    while words:
        name, value = taken_flag(words, valued, switches, f"planaria {command}")
        found[name] = value
    return found


def _port(found: Mapping[str, str]) -> int | None:
    if "--port" not in found and "--host" in found:
        raise UsageError("--host expects a --port beside it, got none")
    return _number(found, "--port", "a port from 1 to 65535", 1 << 16) or None


def _likely_port(environ: Mapping[str, str]) -> int | None:
    """Return the port that a variable names. One that says "a free one" names none."""
    for name in _PORT_VARIABLES:
        if environ.get(name):
            return whole_number(environ[name], name, "a port from 0 to 65535", 0, 65535) or None
    return None


def _number(found: Mapping[str, str], name: str, expected: str, limit: int) -> int:
    return whole_number(found[name], name, expected, 1, limit - 1) if name in found else 0


def _seconds(found: Mapping[str, str], name: str, default: float) -> float:
    return seconds_in(found[name], name) if name in found else default
