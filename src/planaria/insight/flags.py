"""The command lines of `planaria status`, `top`, `why` and `logs`, and their help. Pure."""

from __future__ import annotations

from planaria.base.usage import seconds_in, taken_flag, whole_number, wrong
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.launch.values import agent, host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("status", "top", "why", "logs")
STREAMS = ("stdout", "stderr")
_COMMON = ("--run-id", "--run-dir", "--at", "--host", "--port")
_VALUES = {
    "status": _COMMON,
    "top": (*_COMMON, "--every"),
    "why": (*_COMMON, "--round"),
    "logs": (*_COMMON, "--rank", "--stream", "--lines"),
}
_SWITCHES = {
    "status": ("--json", "--watch", "--help"),
    "top": ("--json", "--once", "--help"),
    "why": ("--json", "--help"),
    "logs": ("--json", "--follow", "--help"),
}
_SHORT = {"-h": "--help", "-f": "--follow"}
_LINES = 100
_EVERY_S = 1.0
_HIGHEST_PORT = 65535

_WHERE = """\
  --run-dir DIR      look at a run in this folder, the newest one unless --run-id says which: one that has ended, or all
                     nodes of one that runs, where they share a disk; PET_RUN_DIR is looked at when nothing of yours runs here
  --run-id ID        the run, where there are several
  --at HOST:PORT     ask the agent that answers there (--health-check-port); several for several nodes
  --host HOST --port PORT   the same for one; beyond this machine PLANARIA_TOKEN or PLANARIA_TOKEN_FILE is needed
"""
_STATUSES = """\
Without any of these, the run of yours on this machine is asked through its UNIX socket. Colours are for terminals (NO_COLOR).
Exit statuses: 0 it was shown, 1 there is no such run, or nothing of it could be read, 2 the command line is wrong.
"""
_HELP = {
    "status": """\
usage: planaria status [flags]

Show a run: world, nodes, ranks with step and samples a second, restarts, newest commits, and what happened last.

Examples:
  planaria status                                   # the run of yours on this machine
  planaria status --run-dir=/shared/runs --json     # the newest run there, for a program
  planaria status --at=node-a:8080 --at=node-b:8080 # two nodes, over the network

  --watch            go on showing it: planaria top
  --json             print one JSON object
""",
    "top": """\
usage: planaria top [flags]

Show a run again and again, on the whole screen; q or Ctrl-C ends it, and so does the end of the run.

Examples:
  planaria top                        # the run of yours on this machine
  planaria top --once                 # one screen, as for a pipe
  planaria top --json --every=10      # one JSON object a line, every ten seconds

  --every SECONDS    how often to look; 1
  --once             look once; so it is where standard output is no terminal, without --json
  --json             print one JSON object for each look
""",
    "why": """\
usage: planaria why [--round N] [flags]

Explain what was decided last, the restart, the end, the wait or the hang: its first cause, where the time went in milliseconds,
which steps were lost, and how much of the run's time was training.

Examples:
  planaria why                              # why did it restart?
  planaria why --run-dir=/shared/runs       # why did it fail?
  planaria why --run-dir=runs --round=3     # an earlier restart: the one that led to round 3

  --round N          the restart that led to this round
  --json             print one JSON object
""",
    "logs": """\
usage: planaria logs [-f] [--rank R] [flags]

Show what workers of the newest round wrote, of all nodes that can be asked: host:rank, then | for stdout or ! for stderr, then
the line. Only what goes to files can be shown (--redirects, --tee of planaria run).

Examples:
  planaria logs -f                          # all ranks, until the run ends or Ctrl-C
  planaria logs --rank=0,3 --stream=stderr  # two of them
  planaria logs --run-dir=runs --lines=0    # all that a finished run wrote

  -f, --follow       go on until the run ends
  --rank R           only these ranks: R,R,... or several times
  --stream NAME      only stdout, or only stderr
  --lines N          begin with the last N lines of each; 100; 0: all
  --json             print one JSON object for each line
""",
}


class Asked(Value):
    """What is to be shown, and of which run. `at`: agents, by host and port."""

    command: str
    run_id: str = ""
    run_dir: str | None = None
    at: tuple[tuple[str, int], ...] = ()
    json: bool = False
    help: bool = False
    watch: bool = False
    once: bool = False
    follow: bool = False
    every_s: float = _EVERY_S
    round: int | None = None
    ranks: frozenset[int] | None = None
    streams: tuple[str, ...] = STREAMS
    lines: int = _LINES


def help_text(command: str) -> str:
    """Return the help of a command."""
    return f"{_HELP[command]}{_WHERE}  --help             this text\n\n{_STATUSES}"


def read_flags(command: str, argv: Sequence[str]) -> Asked:
    """Return what a command line means. Raises UsageError."""
    found: dict[str, list[str]] = {}
    words = list(argv)
    while words:
        name, value = taken_flag(
            words, _VALUES[command], _SWITCHES[command], f"planaria {command}", lambda typed: _SHORT.get(typed, typed)
        )
        found.setdefault(name, []).append(value)
    if "--help" in found:
        return Asked(command, help=True)
    run_dir = _last(found, "--run-dir")
    if run_dir == "":
        raise wrong("--run-dir", "a directory", "")
    return Asked(
        command,
        run_id=_last(found, "--run-id") or "",
        run_dir=run_dir,
        at=_agents(found),
        json="--json" in found,
        watch="--watch" in found,
        once="--once" in found,
        follow="--follow" in found,
        every_s=seconds_in(found["--every"][-1], "--every", 0.1, 3600) if "--every" in found else _EVERY_S,
        round=whole_number(found["--round"][-1], "--round", "the number of a round") if "--round" in found else None,
        ranks=_ranks(found.get("--rank")),
        streams=_streams(_last(found, "--stream")),
        lines=whole_number(found["--lines"][-1], "--lines", "a number of lines") if "--lines" in found else _LINES,
    )


def _last(found: dict[str, list[str]], name: str) -> str | None:
    return found[name][-1] if name in found else None


def _agents(found: dict[str, list[str]]) -> tuple[tuple[str, int], ...]:
    if ("--host" in found) and ("--port" not in found):
        raise UsageError("--host expects a --port beside it, got none")
    agents = [agent(text, "--at") for text in found.get("--at", ())]
    if "--port" in found:
        port = whole_number(found["--port"][-1], "--port", f"a port from 1 to {_HIGHEST_PORT}", 1, _HIGHEST_PORT)
        where = _last(found, "--host")
        agents.append(("127.0.0.1" if where is None else host(where, "--host"), port))
    return tuple(dict.fromkeys(agents))


def _ranks(texts: list[str] | None) -> frozenset[int] | None:
    if texts is None:
        return None
    parts = [part.strip() for text in texts for part in text.split(",")]
    return frozenset(whole_number(part, "--rank", "ranks such as 0 or 0,3") for part in parts)


def _streams(text: str | None) -> tuple[str, ...]:
    if text is None:
        return STREAMS
    if text not in STREAMS:
        raise wrong("--stream", "stdout or stderr", text)
    return (text,)
