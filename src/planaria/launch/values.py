"""Read the small languages inside flag values: node ranges, masks, rank lists, signals, endpoints.

Every function takes the value and the name the user knows it by (a flag or a `PET_*` variable), and raises `UsageError`
with one sentence: the name, what is expected, what was got.
"""

from __future__ import annotations

from planaria.base import signals, usage
from planaria.base.usage import quoted
from planaria.errors import UsageError
from planaria.process.model import StreamMask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.launch.parse import Options

_UNCATCHABLE = ("SIGKILL", "SIGSTOP")
_MOST_WORKERS = 4_194_304  # the highest pid_max of Linux
_MASTER_PORT = 29500
_HEALTH_VARIABLE = "TORCHELASTIC_HEALTH_CHECK_PORT"
_SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_SHUTDOWN_DEFAULT_S = 30
_NO_HANDLERS = ("null", "dynamic_rendezvous")

wrong = usage.wrong
seconds = usage.seconds


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def node_range(text: str, source: str) -> tuple[int, int]:
    """Read `2` or `1:4`."""
    first, colon, last = text.partition(":")
    least, most = _integer(first), _integer(last if colon else first)
    if least is None or most is None:
        raise wrong(source, "a number of nodes or MIN:MAX", text)
    if not 0 < least <= most:
        raise wrong(source, "at least one node and MIN not above MAX", text)
    return least, most


def worker_count(text: str, source: str) -> int | None:
    """Read a number of workers; None for the words `auto`, `cpu`, `gpu` and `xpu`."""
    if text in ("auto", "cpu", "gpu", "xpu"):
        return None
    number = _integer(text)
    if number is None or not 0 < number <= _MOST_WORKERS:
        raise wrong(source, f"a number of workers from 1 to {_MOST_WORKERS}, or auto, cpu, gpu, xpu", text)
    return number


def standbys(text: str, source: str) -> int | None:
    """Read a number of standbys; None for `auto`."""
    if text == "auto":
        return None
    number = _integer(text)
    if number is None or not 0 <= number <= _MOST_WORKERS:
        raise wrong(source, f"a number of standbys from 0 to {_MOST_WORKERS}, or auto", text)
    return number


def stream_mask(text: str, source: str) -> StreamMask:
    """Read `3`, or `0:1,12:3`: 1 means stdout, 2 stderr, 3 both."""
    if text in ("0", "1", "2", "3"):
        return StreamMask(int(text))
    by_rank: dict[int, int] = {}
    for part in text.split(","):
        rank, _, mask = part.partition(":")
        if not (rank.isascii() and rank.isdigit()) or mask not in ("0", "1", "2", "3"):
            raise wrong(source, "a mask from 0 to 3, or RANK:MASK,...", text)
        by_rank[int(rank)] = int(mask)
    return StreamMask(by_rank=tuple(sorted(by_rank.items())))


def shown_ranks(text: str, source: str) -> frozenset[int] | None:
    """Read `0,1,2`; None when nothing is filtered."""
    if not text:
        return None
    ranks = [_integer(part) for part in text.split(",")]
    if None in ranks:
        raise wrong(source, "local ranks with commas between them, such as 0,1,2", text)
    return frozenset(rank for rank in ranks if rank is not None)


def signal_numbers(text: str, source: str) -> tuple[int, ...]:
    """Read `SIGTERM,SIGUSR1`."""
    numbers: dict[int, None] = {}
    for name in (part.strip() for part in text.split(",")):
        if name in _UNCATCHABLE:
            raise UsageError(f"{source} expects signals that can be handled, got {name}, which cannot")
        if name == "SIGCHLD":
            raise UsageError(
                f"{source} expects signals that stop the job, got SIGCHLD, which every ending worker sends"
            )
        if name not in signals.NUMBERS:
            raise UsageError(f"{source} expects signal names such as SIGTERM,SIGUSR1, got {quoted(name)}")
        numbers[signals.NUMBERS[name]] = None
    return tuple(numbers)


def host(text: str, source: str) -> str:
    """Read a host name or address; an IPv6 address may have its brackets."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    if not bare or not all(letter.isalnum() or letter in "_.:-%" for letter in bare):
        raise wrong(source, "a host name or an IP address", text)
    return bare


def port(number: int, source: str) -> int:
    """Check a port that others have to find."""
    if not 0 < number < 1 << 16:
        raise wrong(source, "a port from 1 to 65535 (leave it out for a free one)", str(number))
    return number


def endpoint(text: str, source: str) -> tuple[str, int | None]:
    """Read `host`, `host:29400` or `[::1]:29400`."""
    bare = text.strip()
    if "@" in bare:  # not repeated: what stands before it may be a password
        raise UsageError(f"{source} expects HOST:PORT without a user name or password")
    if bare.startswith("[") and bare.endswith("]"):
        return host(bare, source), None
    name, colon, digits = bare.rpartition(":")
    if not colon:
        return host(bare, source), None
    if ":" in name and not name.startswith("["):
        raise wrong(source, "IPv6 addresses in brackets, as in [::1]:29400", text)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) < 1 << 16):
        raise wrong(source, "HOST:PORT with a port up to 65535", text)
    return host(name, source), int(digits)


def agent(text: str, source: str) -> tuple[str, int]:
    """Read where an agent answers: `HOST:PORT`."""
    name, number = endpoint(text, source)
    if number is None:
        raise wrong(source, "HOST:PORT", text)
    return name, number


def address(name: str, number: int) -> str:
    """Return `host:port`, with brackets round IPv6."""
    return f"[{name}]:{number}" if ":" in name else f"{name}:{number}"


def master(options: Options) -> tuple[str, int]:
    """Return MASTER_ADDR and MASTER_PORT of the static rendezvous: the endpoint's, or those of the `--master-*` flags."""
    number: int | None = None
    source = options.source("rdzv_endpoint")
    if options.rdzv_endpoint:
        name, number = endpoint(options.rdzv_endpoint, source)
    else:
        name = host(options.master_addr, options.source("master_addr"))
    if number is None:
        source = options.source("master_port")
        number = _MASTER_PORT if options.master_port is None else options.master_port
    return name, port(number, source)


def node_rank(options: Options, nodes: int) -> int:
    """Check the rank of this node in a static rendezvous of so many nodes."""
    if not 0 <= options.node_rank < nodes:
        expected = "0 on one node" if nodes == 1 else f"a rank from 0 to {nodes - 1}"
        raise wrong(options.source("node_rank"), expected, str(options.node_rank))
    return options.node_rank


def run_id(options: Options) -> str:
    """Check the name that all nodes of a job share."""
    if not options.rdzv_id:
        raise wrong(options.source("rdzv_id"), "a run id", options.rdzv_id)
    return options.rdzv_id


def asks_for_foreign_handlers(text: str) -> bool:
    """Tell whether a list of event handlers has names that another package may bring."""
    if text in _NO_HANDLERS:
        return False
    from planaria.observe.handlers import read_specs

    return any(spec.is_foreign for spec in read_specs(text))


def event_handlers(options: Options, plugins: frozenset[str]) -> str:
    """Check a list of event handlers; empty: there is nobody to tell."""
    text, source = options.event_log_handler, options.source("event_log_handler")
    if text in _NO_HANDLERS:
        return ""
    from planaria.observe.handlers import EXPECTED, read_specs

    for spec in read_specs(text):
        if not spec.is_ours and not (spec.is_foreign and spec.name in plugins):
            raise wrong(source, EXPECTED, str(spec))
    return text


def shutdown_timeout_s(options: Options, environ: Mapping[str, str]) -> float:
    """Return the seconds between SIGTERM and SIGKILL: the flag's, the variable's, or 30."""
    source, text = options.source("shutdown_timeout"), str(options.shutdown_timeout)
    if options.shutdown_timeout is None:
        source = _SHUTDOWN_VARIABLE
        text = environ.get(_SHUTDOWN_VARIABLE, "") or str(_SHUTDOWN_DEFAULT_S)
    number = _integer(text)
    if number is None or not 0 <= number <= usage.LONGEST_S:
        raise wrong(source, "whole seconds, 0 or more", text)
    return float(number)


def health_check_port(options: Options, environ: Mapping[str, str]) -> int | None:
    """Return where probes are to be answered: the flag's port, the variable's, or None; 0 is a free one."""
    source, text = options.source("health_check_port"), str(options.health_check_port)
    if options.health_check_port is None:
        source, text = _HEALTH_VARIABLE, environ.get(_HEALTH_VARIABLE, "")
        if not text:
            return None
    number = _integer(text)
    if number is None or not 0 <= number < 1 << 16:
        raise wrong(source, "a port from 0 to 65535, where 0 is a free one", text)
    return number
