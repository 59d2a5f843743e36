"""The command line of `planaria dashboard`, and its help. Pure."""

from __future__ import annotations

from planaria.base.usage import taken_flag, whole_number
from planaria.base.value import Value
from planaria.contract.env import TOKEN
from planaria.errors import UsageError
from planaria.launch import values
from planaria.observe.http import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.contract.secret import Secret

LOOPBACK = "127.0.0.1"
PORT = 8265
_VALUES = ("--host", "--port", "--at", "--run-dir")
_SWITCHES = ("--all-users", "--help", "-h")

HELP = f"""\
usage: planaria dashboard [flags]

Serve a web page of your runs: the world over time, every recovery with its phases, ranks, stragglers, events, logs, evidence,
and the first cause of a failure. It looks at the running jobs of this machine, at the agents named by --at, and at run folders.

Examples:
  planaria dashboard                                # the runs of yours on this machine
  planaria dashboard --run-dir=/shared/runs         # finished runs, too, and all nodes that write there
  planaria dashboard --at=node-a:8080 --at=node-b:8080
  ssh -L {PORT}:127.0.0.1:{PORT} node-a planaria dashboard  # from a laptop: then open http://127.0.0.1:{PORT}/

  --run-dir DIR      a folder that `planaria run --run-dir=DIR` has written to; may be given several times
  --at HOST:PORT     an agent that answers there (its --health-check-port); may be given several times
  --port PORT        where the page is; {PORT}. 0: a free one, which is printed
  --host HOST        the address to listen at; {LOOPBACK}. Any other needs a token, also for reading
  --all-users        let every user of this machine read; else those but you and root need the token
  --help             this text

The page only reads. With PLANARIA_TOKEN or PLANARIA_TOKEN_FILE set here, whoever types that token into the page may also
drain a node and stop a run. The token goes to the agents of --at, as `planaria stop` sends it.
"""


class Settings(Value):
    """What the command line says."""

    host: str = LOOPBACK
    port: int = PORT
    at: tuple[tuple[str, int], ...] = ()
    run_dirs: tuple[str, ...] = ()
    all_users: bool = False
    help: bool = False


def read_flags(argv: Sequence[str]) -> Settings:
    """Return what a command line means. Raises UsageError."""
    words = list(argv)
    found: dict[str, list[str]] = {}
    while words:
        name, value = taken_flag(words, _VALUES, _SWITCHES, "planaria dashboard")
        if name in found and name in ("--host", "--port"):
            raise UsageError(f"{name} was given twice")
        found.setdefault(name, []).append(value)
    if "--help" in found or "-h" in found:
        return Settings(help=True)
    return Settings(
        host=values.host(found["--host"][0], "--host") if "--host" in found else LOOPBACK,
        port=whole_number(found["--port"][0], "--port", "a port from 0 to 65535", 0, 65535)
        if "--port" in found
        else PORT,
        at=tuple(values.agent(text, "--at") for text in found.get("--at", ())),
        run_dirs=tuple(_folder(text) for text in found.get("--run-dir", ())),
        all_users="--all-users" in found,
    )


def check_host(settings: Settings, token: Secret | None) -> None:
    """Refuse to serve strangers where there is no token that they would have to know. Raises UsageError."""
    if token is None and not (is_loopback(settings.host) or settings.host == "localhost"):
        raise UsageError("--host expects 127.0.0.1, ::1 or localhost where there is no token", hint=f"set {TOKEN}")


def _folder(text: str) -> str:
    if not text or "\0" in text:
        raise values.wrong("--run-dir", "a directory", text)
    return text
