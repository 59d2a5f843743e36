"""`planaria health`: ask the agents of this user on this machine whether they are alive. For health checks that are commands.

It goes through the UNIX socket in a run's private folder, as `planaria drain` does: no port is needed, and none can be a
stranger's.
"""

from __future__ import annotations

import os

from planaria.base.files import tell
from planaria.base.text import safe_line
from planaria.base.usage import no_such_flag
from planaria.contract import exit_status
from planaria.launch.owner_http import NotAnswered, ask
from planaria.launch.owner_runs import doors_of_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.launch.owner_http import Door

HELP = """\
usage: planaria health [--ready] [--json]

Ask every run of yours on this machine whether its agent is alive, without any port: for HEALTHCHECK of an image, and for
probes that run a command.

Examples:
  planaria health            # alive: the agent's loop turns, whatever the job does
  planaria health --ready    # at work: the workers of this node run in a completed round

  --ready            ask whether the node is at work, not only whether the agent is alive
  --json             print one JSON object
  --help             this text

Exit statuses: 0 all say yes, 1 one does not or there is no run, 2 the command line is wrong.
"""
_FLAGS = ("--ready", "--json", "--help", "-h")


def run_health(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ask, say what was answered, and return the exit status.

    Raises:
        UsageError: There is no such flag.
    """
    for word in argv:
        if word not in _FLAGS:
            raise no_such_flag("planaria health", word)
    if "--help" in argv or "-h" in argv:
        tell(1, HELP)
        return exit_status.DONE
    path = "/readyz" if "--ready" in argv else "/livez"
    answers = [answer for door in doors_of_ours(environ) if (answer := _answer(door, path))]
    is_well = bool(answers) and all(code == 200 for code, _ in answers)
    if "--json" in argv:
        import json

        said = [{"code": code, "said": text} for code, text in answers]
        tell(1, json.dumps({"schema": 1, "asked": path, "healthy": is_well, "agents": said}) + "\n")
    else:
        tell(1, "".join(f"{text}\n" for _, text in answers) or "there is no run of yours here\n")
    return exit_status.DONE if is_well else exit_status.WORKER_FAILED


def _answer(door: Door, path: str) -> tuple[int, str] | None:
    """Return the status and the line an agent answers with, 0 for one that says nothing; None: it is gone."""
    try:
        code, text = ask(door, "GET", path)
    except NotAnswered as problem:
        folder = safe_line(os.path.dirname(door.path))
        return None if problem.is_gone else (0, f"the agent in {folder} does not answer: {problem}")
    return code, safe_line(str(text))
