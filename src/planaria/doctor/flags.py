"""The command line of `planaria doctor`, and its help. Pure."""

from __future__ import annotations

from planaria.agent.conf import BACKENDS, DEFAULT_PORTS
from planaria.base.addresses import join_address, split_address
from planaria.base.usage import seconds_in, taken_flag, whole_number, wrong
from planaria.base.value import Value
from planaria.doctor.disk import SNAPSHOTS, TEMPORARY
from planaria.doctor.model import HERE, Asked, read_groups
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PORT = DEFAULT_PORTS["embedded"]
TIMEOUT_S = 5.0
_FOLDERS = ("--log-dir", SNAPSHOTS, "--run-dir")
_OF_A_JOB = ("--nproc-per-node", "--rdzv-endpoint", "--rdzv-backend", *_FOLDERS)
_VALUES = ("--checks", "--peer", "--port", "--host", "--timeout", "--parent", *_OF_A_JOB)
_SWITCHES = ("--listen", "--json", "--verbose", "-v", "--help", "-h")
_MOST_WORKERS = 100_000
_MOST_PIDS = 1 << 22

HELP = f"""\
usage: planaria doctor [flags]

Look for what keeps training jobs from running well on this machine, or between two of them, and say what to do about it.
Nothing is changed. It needs no job; give it the flags of one to check what that job would use.

Examples:
  planaria doctor                                             # this machine
  planaria doctor --nproc-per-node=8 --snapshot-dir=/data     # ... for 8 workers, and a folder for their commits
  planaria doctor --rdzv-endpoint=node-a --verbose            # ... and the way to the endpoint; every check with its sentence
  planaria doctor --listen                                    # on one host, until Ctrl-C
  planaria doctor --peer=node-a,node-b:29401                  # on another: round trip, large packets, bandwidth, version
  planaria run --preflight ...                                # the same checks before a node joins a job

  --checks LIST           only these: {", ".join(HERE[:7])},
                          {", ".join(HERE[7:])}; peers with --peer; all
  --nproc-per-node N      for so many workers; 1
  --rdzv-endpoint LIST    where a job's nodes meet: HOST[:PORT],...
  --rdzv-backend NAME     how they do; c10d
  --log-dir DIR, --snapshot-dir DIR, --run-dir DIR
                          folders that a job writes to; TMPDIR is always looked at
  --peer LIST             hosts on which `planaria doctor --listen` runs: HOST[:PORT],...; the port is {PORT}
  --listen                answer the doctors of other hosts, and say what they find
  --port PORT             ... at this port; {PORT}
  --host HOST             ... at this address only
  --timeout SECONDS       how long a peer may take for each answer; {TIMEOUT_S:g}
  --parent PID            end with the process that started this one, which has this pid
  --verbose, -v           say what is well, too
  --json                  print one JSON object
  --help                  this text

PLANARIA_TOKEN or PLANARIA_TOKEN_FILE: the secret of the job. With it only who has it, too, is talked to.
Exit statuses: 0 all is well, or there are warnings; 1 a check failed; 2 the command line is wrong.
"""


class Order(Value):
    """What is wanted."""

    asked: Asked
    peers: tuple[str, ...] = ()
    listens: bool = False
    host: str = ""
    port: int = PORT
    timeout_s: float = TIMEOUT_S
    parent: int = 0
    """The process to end with; 0: none."""
    is_long: bool = False
    json: bool = False
    help: bool = False


def read_flags(argv: Sequence[str], environ: Mapping[str, str]) -> Order:
    """Return what a command line means. Raises UsageError."""
    found: dict[str, str] = {}
    words = list(argv)
    while words:
        name, value = taken_flag(words, _VALUES, _SWITCHES, "planaria doctor")
        found[name] = value
    if "--help" in found or "-h" in found:
        return Order(Asked(), help=True)
    _refuse_what_does_not_fit(found)
    return Order(
        asked=_asked(found, environ),
        peers=_addresses(found, "--peer", PORT),
        listens="--listen" in found,
        host=found.get("--host", ""),
        port=_number(found, "--port", "a port from 0 to 65535", 0, 65535, PORT),
        timeout_s=seconds_in(found["--timeout"], "--timeout", 0.1) if "--timeout" in found else TIMEOUT_S,
        parent=_number(found, "--parent", "a pid", 1, _MOST_PIDS, 0),
        is_long="--verbose" in found or "-v" in found,
        json="--json" in found,
    )


def _refuse_what_does_not_fit(found: Mapping[str, str]) -> None:
    if "--listen" in found:
        for name in ("--peer", "--checks", *_OF_A_JOB):
            if name in found:
                raise UsageError(f"--listen and {name} exclude each other: one host listens, the other looks")
    for name in ("--port", "--host"):
        if name in found and "--listen" not in found:
            raise UsageError(f"{name} has a meaning with --listen only", hint="a peer's port goes with it: HOST:PORT")


def _asked(found: Mapping[str, str], environ: Mapping[str, str]) -> Asked:
    temporary = environ.get("TMPDIR") or "/tmp"  # noqa: S108  where everybody's temporary files are
    folders = [(TEMPORARY, temporary), *((name, found[name]) for name in _FOLDERS if found.get(name))]
    backend = found.get("--rdzv-backend", "c10d")
    if not backend.replace("-", "").replace("_", "").isalnum():
        raise wrong("--rdzv-backend", "the name of a backend", backend)
    default = DEFAULT_PORTS.get(BACKENDS.get(backend, ""), PORT)
    return Asked(
        groups=_groups(found),
        workers=_number(found, "--nproc-per-node", "a number of workers", 1, _MOST_WORKERS, 1),
        backend=backend,
        endpoints=_addresses(found, "--rdzv-endpoint", default),
        folders=tuple(folders),
        environ=tuple(environ.items()),
    )


def _groups(found: Mapping[str, str]) -> tuple[str, ...]:
    text = found.get("--checks", "all")
    if "--peer" not in found:
        return read_groups(text, "--checks")
    here = ",".join(name for name in text.split(",") if name.strip() != "peers")
    return read_groups(here, "--checks") if here else ()


def _addresses(found: Mapping[str, str], name: str, port: int) -> tuple[str, ...]:
    return tuple(_address(part.strip(), name, port) for part in found[name].split(",")) if name in found else ()


def _address(text: str, source: str, port: int) -> str:
    is_bare = "]" not in text.rpartition(":")[2] and ":" in text
    try:
        return join_address(*split_address(text if is_bare else f"{text}:{port}"))
    except ValueError as problem:
        raise wrong(source, "HOST or HOST:PORT, with brackets around an IPv6 address", text) from problem


def _number(found: Mapping[str, str], name: str, expected: str, least: int, most: int, default: int) -> int:
    return whole_number(found[name], name, expected, least, most) if name in found else default
