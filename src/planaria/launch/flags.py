"""The one table of flags. Parser, help and tests are made from it; nothing else knows a flag's name.

`TORCHRUN` holds every flag of torchrun 2.13 with its own defaults; a unique prefix of one of these is as good as its
name, for ever. `OURS` holds what torchrun does not have: accepted in full only, so that no prefix ever changes meaning.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal["text", "integer", "number", "flag", "list", "choice"]
    Default = str | int | float | bool | tuple[str, ...] | None

WORKERS = "Workers and restarts"
NODES = "Nodes and rendezvous"
PROGRAM = "What to run"
OUTPUT = "Output of the workers"
STOPPING = "Signals and stopping"
LAUNCHER = "Planaria's own (not in torchrun)"
GROUPS = (WORKERS, NODES, PROGRAM, OUTPUT, STOPPING, LAUNCHER)


class Flag(Value):
    """One flag: how it is spelled, where its value goes, and what it means in one line."""

    names: tuple[str, ...]
    dest: str
    kind: Kind
    default: Default
    group: str
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    variable: str | None = None

    @property
    def name(self) -> str:
        """The spelling used in messages: long, with dashes."""
        return next(name for name in self.names if name.startswith("--"))


def _flag(  # noqa: PLR0913, PLR0917  (a row of a table, not a call)
    names: str,
    kind: Kind,
    default: Default,
    group: str,
    help: str,  # noqa: A002  (the word argparse users know)
    metavar: str = "",
    choices: tuple[str, ...] = (),
    variable: bool = True,
) -> Flag:
    spellings = names.split()
    long = spellings[-1]
    dest = long[2:].replace("-", "_")
    if "-" in long[2:]:
        spellings.append("--" + dest)
    pet = "PET_" + dest.upper() if variable else None
    return Flag(tuple(spellings), dest, kind, default, group, help, metavar, choices, pet)


TORCHRUN: tuple[Flag, ...] = (
    _flag("-h --help", "flag", False, LAUNCHER, "show this text and exit", variable=False),
    _flag("--nproc-per-node", "text", "1", WORKERS, "workers on this node: a number, auto, cpu, gpu or xpu", "N"),
    _flag("--max-restarts", "integer", 0, WORKERS, "how often the workers may be restarted before giving up", "N"),
    _flag("--role", "text", "default", WORKERS, "name of the workers' role, shown in log prefixes", "NAME"),
    _flag("--monitor-interval", "number", 0.1, WORKERS, "accepted; failures are noticed at once anyway", "SECONDS"),
    _flag("--virtual-local-rank", "flag", False, WORKERS, "LOCAL_RANK=0 everywhere, one visible GPU per worker"),
    _flag(
        "--numa-binding",
        "choice",
        None,
        WORKERS,
        "bind each worker to the CPUs near its GPU",
        choices=("node", "socket", "exclusive", "core-complex"),
        variable=False,
    ),
    _flag(
        "--start-method",
        "choice",
        "spawn",
        WORKERS,
        "accepted; every worker gets a fresh interpreter",
        choices=("spawn", "fork", "forkserver"),
    ),
    _flag("--nnodes", "text", "1:1", NODES, "number of nodes, or MIN:MAX: the job grows and shrinks", "N|MIN:MAX"),
    _flag("--standalone", "flag", False, NODES, "one node by itself: free port, fresh run id; beats --rdzv-*"),
    _flag(
        "--rdzv-backend",
        "text",
        "static",
        NODES,
        "how nodes find each other: static, c10d, etcd, kubernetes, a plugin",
        "NAME",
    ),
    _flag("--rdzv-endpoint", "text", "", NODES, "where nodes meet; IPv6 addresses in brackets", "HOST[:PORT],..."),
    _flag("--rdzv-id", "text", "none", NODES, "run id, the same on every node of a job", "ID"),
    _flag("--rdzv-conf", "text", "", NODES, "join_timeout, last_call_timeout, ttl and others", "KEY=VALUE,..."),
    _flag("--node-rank", "integer", 0, NODES, "rank of this node (static only)", "N"),
    _flag("--master-addr", "text", "127.0.0.1", NODES, "MASTER_ADDR of the workers (with --master-port)", "HOST"),
    _flag("--master-port", "integer", None, NODES, "MASTER_PORT of the workers; left out: a free port", "PORT"),
    _flag("--local-addr", "text", None, NODES, "address of this node that others can reach", "HOST"),
    _flag("-m --module", "flag", False, PROGRAM, "the script is a module name, as in `python -m`"),
    _flag("--no-python", "flag", False, PROGRAM, "the script is a program of its own; run it without Python"),
    _flag("--run-path", "flag", False, PROGRAM, "run the script with runpy.run_path; beats --no-python"),
    _flag("--log-dir", "text", None, OUTPUT, "keep log files here; /dev/null: keep none", "DIR"),
    _flag(
        "-r --redirects", "text", "0", OUTPUT, "to files only: 0 none, 1 stdout, 2 stderr, 3 both", "MASK|RANK:MASK,..."
    ),
    _flag("-t --tee", "text", "0", OUTPUT, "to files and to the console, same masks", "MASK|RANK:MASK,..."),
    _flag("--local-ranks-filter", "text", "", OUTPUT, "show only these local ranks on the console", "RANK,..."),
    _flag("--duplicate-stdout-filters", "list", (), OUTPUT, "copy stdout lines with one of these words", "WORD,..."),
    _flag("--duplicate-stderr-filters", "list", (), OUTPUT, "copy stderr lines with one of these words", "WORD,..."),
    _flag(
        "--logs-specs",
        "text",
        None,
        OUTPUT,
        "where output goes: another package's (torchrun.logs_specs)",
        "NAME",
        variable=False,
    ),
    _flag(
        "--event-log-handler",
        "text",
        "null",
        OUTPUT,
        "events: console, logging, jsonl:PATH, prometheus[:PATH]",
        "NAME,...",
    ),
    _flag(
        "--signals-to-handle",
        "text",
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        STOPPING,
        "signals that stop the job in order",
        "SIGNAL,...",
    ),
    _flag("--shutdown-timeout", "integer", None, STOPPING, "from SIGTERM to SIGKILL of a worker; 30", "SECONDS"),
)

OURS: tuple[Flag, ...] = (
    _flag("--dry-run", "flag", False, LAUNCHER, "print what would run; start nothing", variable=False),
    _flag("--json", "flag", False, LAUNCHER, "with --dry-run: print JSON", variable=False),
    _flag("--report-file", "text", None, LAUNCHER, "write the final report here, as JSON", "PATH"),
    _flag("--run-dir", "text", None, LAUNCHER, "keep a folder for each run here: journal, report, logs", "DIR"),
    _flag(
        "--exit-code",
        "choice",
        "agent",
        LAUNCHER,
        "worker: exit with the first failed worker's own status",
        choices=("agent", "worker"),
    ),
    _flag("--no-bootstrap", "flag", False, LAUNCHER, "start scripts directly; no traceback is recorded"),
    _flag("--always-restart", "flag", False, LAUNCHER, "restart even if all ranks failed alike at start-up"),
    _flag("--resize-grace", "number", 10.0, LAUNCHER, "how long workers may take to commit before a resize", "SECONDS"),
    _flag(
        "--on-lost-majority",
        "choice",
        "wait",
        LAUNCHER,
        "when most nodes fell silent: wait for them, exit with 75, or continue at the risk of two worlds",
        choices=("wait", "exit", "continue"),
    ),
    _flag(
        "--standbys", "text", "0", LAUNCHER, "processes that wait, loaded, to be workers: a number or auto", "N|auto"
    ),
    _flag("--require-token", "flag", False, LAUNCHER, "do not meet other nodes without a token or TLS"),
    _flag("--health-check-port", "integer", None, LAUNCHER, "answer probes here over HTTP; 0: a free port", "PORT"),
    _flag(
        "--health-check-host", "text", "127.0.0.1", LAUNCHER, "where to answer them; 0.0.0.0 or ::, everywhere", "HOST"
    ),
    _flag("--snapshot-dir", "text", None, LAUNCHER, "write commits of ElasticState here, in the background", "DIR"),
    _flag("--snapshot-keep", "integer", 2, LAUNCHER, "how many of them to keep", "N"),
    _flag(
        "--snapshot-buddy",
        "choice",
        "on",
        LAUNCHER,
        "on several nodes, keep a copy of each node's commits in the memory of another",
        choices=("on", "off"),
    ),
    _flag("--health-check-timeout", "number", 60.0, LAUNCHER, "an agent stuck for so long is not alive", "SECONDS"),
)

TORCHRUN_BY_NAME: dict[str, Flag] = {name: flag for flag in TORCHRUN for name in flag.names}
OURS_BY_NAME: dict[str, Flag] = {name: flag for flag in OURS for name in flag.names}
BY_DEST: dict[str, Flag] = {flag.dest: flag for flag in (*TORCHRUN, *OURS)}
