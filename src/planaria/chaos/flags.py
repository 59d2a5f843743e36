"""The command line of `planaria chaos`, and its help. Pure."""

from __future__ import annotations

from planaria.base.usage import seconds_in, taken_flag, whole_number, wrong
from planaria.base.value import Value
from planaria.chaos.kinds import KINDS, NAMES
from planaria.chaos.model import MOST_FAULTS
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_VALUES = (
    "--seed", "--faults", "--nodes", "--nproc-per-node", "--kinds", "--pace", "--time-limit", "--ttl", "--compare",
    "--keep", "--with",
)  # fmt: skip
_SWITCHES = ("--networks", "--json", "--dry-run", "--help", "-h")
_MOST_NODES = 64
_MOST_WORKERS = 256
_LEAST_TTL_S = 2.0  # below it agents on a busy machine lose each other without any fault

HELP = """\
usage: planaria chaos [flags] -- SCRIPT [ARGS]

Run a training job of yours as several nodes on this machine, strike it with one seeded fault after the other, and say which
promises were kept: it ends well, with the same result as without faults, never as two worlds, without a process or memory left
behind, with agents that do not grow, with no commit lost that reached its tier, and with no restart charged that was free.

Examples:
  planaria chaos --seed=7 -- examples/numpy/main.py --epochs=40 --step-seconds=0.03
  planaria chaos --faults=300 --keep=campaign -- examples/numpy/main.py --epochs=200 --step-seconds=0.03
  planaria chaos --dry-run --seed=7 --faults=10 -- train.py     # only print what would be done, and when
  planaria chaos --kinds=kill-worker,kill-agent -- train.py     # only these kinds of faults
  planaria chaos --networks -- train.py                         # as root: each node has a network of its own

  --seed N             which campaign; 0. The same seed on the same machine plans the same faults
  --faults N           how many; 30
  --nodes N            how many nodes; 3
  --nproc-per-node N   workers of each; 1
  --kinds NAME,...     which kinds of faults, of those below; all
  --pace SECONDS       at least so long between two faults; 0. A job that tells no steps is struck at this pace, or each second
  --time-limit SECONDS the job is ended when it takes longer than this; 900, or 6 for each fault where that is more
  --ttl SECONDS        lease of a node, see --rdzv-conf of planaria run; 3
  --networks           give every node a network namespace of its own; only root can
  --compare FILE       the file in which the job leaves its result, not there yet; without it the last line that rank 0 prints
                       is compared; none: nothing is
  --with FLAG          one more flag for planaria run, as --with=--standbys=auto; may be repeated
  --keep DIR           keep logs and events there; without it they are kept only when a promise was broken
  --json               print the verdict, or with --dry-run the plan, as one JSON object
  --dry-run            print the plan and start nothing
  --help               this text

Kinds of faults; one that cannot be done here is skipped, and the verdict says why:
@KINDS@

Exit statuses: 0 all promises were kept, 1 one was broken or not all faults could be made, 2 the command line is wrong or the
undisturbed job does not end well, 130 ended by Ctrl-C.
"""


class Options(Value):
    """What the command line means."""

    script: tuple[str, ...] = ()
    seed: int = 0
    faults: int = 30
    nodes: int = 3
    nproc: int = 1
    kinds: tuple[str, ...] = NAMES
    pace_s: float = 0.0
    time_limit_s: float = 900.0
    ttl_s: float = 3.0
    networks: bool = False
    compare: str = ""
    keep: str = ""
    more: tuple[str, ...] = ()
    json: bool = False
    dry_run: bool = False
    help: bool = False


def help_text() -> str:
    """Return the help."""
    rows = (f"  {kind.name:<20} {kind.what}" for kind in KINDS)
    return HELP.replace("@KINDS@", "\n".join(rows))


def read_flags(argv: Sequence[str]) -> Options:
    """Return what a command line means.

    Raises:
        UsageError: It means nothing.
    """
    found, more, script = _collect(argv)
    if "--help" in found or "-h" in found:
        return Options(help=True)
    if not script:
        raise UsageError(
            "planaria chaos expects the job behind its flags", hint="planaria chaos [flags] -- SCRIPT [ARGS]"
        )
    faults = _number(found, "--faults", 30, 1, MOST_FAULTS)
    return Options(
        script=script,
        seed=_number(found, "--seed", 0, 0, (1 << 63) - 1),
        faults=faults,
        nodes=_number(found, "--nodes", 3, 2, _MOST_NODES),
        nproc=_number(found, "--nproc-per-node", 1, 1, _MOST_WORKERS),
        kinds=_kinds(found),
        pace_s=_seconds(found, "--pace", 0.0, 0.0),
        time_limit_s=_seconds(found, "--time-limit", max(900.0, 6.0 * faults), 1.0),
        ttl_s=_seconds(found, "--ttl", 3.0, _LEAST_TTL_S),
        networks="--networks" in found,
        compare=found.get("--compare", ""),
        keep=found.get("--keep", ""),
        more=more,
        json="--json" in found,
        dry_run="--dry-run" in found,
    )


def _collect(argv: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Return the flags, those for the launcher, and the job: what is behind `--`, or from the first word that is no flag."""
    found: dict[str, str] = {}
    more: list[str] = []
    words = list(argv)
    while words:
        if words[0] == "--":
            return found, tuple(more), tuple(words[1:])
        if not words[0].startswith("-"):
            return found, tuple(more), tuple(words)
        name, value = taken_flag(words, _VALUES, _SWITCHES, "planaria chaos")
        if name == "--with":
            more.append(value)
        found[name] = value
    return found, tuple(more), ()


def _kinds(found: dict[str, str]) -> tuple[str, ...]:
    if "--kinds" not in found:
        return NAMES
    words = found["--kinds"].split(",")
    for word in words:
        if word not in NAMES:
            raise wrong("--kinds", "names that --help lists, separated by commas", word)
    return tuple(dict.fromkeys(words))


def _number(found: dict[str, str], name: str, usual: int, least: int, most: int) -> int:
    return whole_number(found.get(name, str(usual)), name, f"a whole number from {least} to {most}", least, most)


def _seconds(found: dict[str, str], name: str, usual: float, least: float) -> float:
    return seconds_in(found[name], name, least) if name in found else usual
