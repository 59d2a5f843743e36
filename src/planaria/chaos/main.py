"""`planaria chaos`: read the command line, run the job undisturbed, then run the campaign and print the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import tempfile
import time

from planaria import __version__
from planaria.base.files import random_name, remove_tree, tell
from planaria.base.linux import become_subreaper
from planaria.base.text import safe, safe_line
from planaria.base.usage import wrong
from planaria.base.value import as_dict, replace
from planaria.chaos import interrupt, shared, story
from planaria.chaos.campaign import Campaign, Settings, digest
from planaria.chaos.disk import Disk
from planaria.chaos.flags import help_text, read_flags
from planaria.chaos.folder import COMMITS, Folder
from planaria.chaos.hosts import Network
from planaria.chaos.hosts import why_not as why_no_hosts
from planaria.chaos.job import Job
from planaria.chaos.model import Facts
from planaria.chaos.nodes import Start, run_undisturbed, surroundings
from planaria.chaos.plan import Plan, as_text, plan
from planaria.chaos.verdict import judge
from planaria.chaos.watch import Watch
from planaria.contract import chaos as orders
from planaria.contract import exit_status
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planaria.chaos.flags import Options
    from planaria.chaos.model import Observed, Strike

PORT = 29400  # of the hosts, each of which has all its ports to itself
HANG_FLAGS = ("--hang-policy=restart", "--hang-floor=4")
INTERRUPTED = 130
SHOWN_LINES = 20


def chaos(argv: Sequence[str]) -> int:
    """Run a campaign as the command line says; return the exit status."""
    try:
        options = read_flags(argv)
        if options.help:
            tell(1, help_text())
            return exit_status.DONE
        return _run(options, dict(os.environ))
    except UsageError as problem:
        tell(2, f"planaria: {problem}\n")
        return exit_status.USAGE
    except KeyboardInterrupt:
        tell(2, "planaria: interrupted before the first fault\n")
        return INTERRUPTED


def _run(options: Options, environ: Mapping[str, str]) -> int:
    interrupt.listen()
    folder = Folder(_short_folder(environ))
    try:
        disk = Disk(folder.part(COMMITS), mounts="fill-disk" in options.kinds)
        planned = plan(random.Random(options.seed), options.faults, options.kinds, _facts(options, disk))  # noqa: S311  faults are no secret
        if options.dry_run:
            tell(1, json.dumps(as_dict(planned), indent=2) + "\n" if options.json else as_text(planned))
            return exit_status.DONE
        return _campaign(options, planned, disk, folder, environ)
    finally:
        interrupt.hush()
        folder.close()


def _short_folder(environ: Mapping[str, str]) -> str:
    """Return where the folder of a campaign goes: sockets are in it, whose paths may have 107 characters."""
    wanted = environ.get("TMPDIR", "")
    return wanted if 0 < len(wanted) < 40 else "/tmp"  # noqa: S108  a fresh folder is made in it


def _facts(options: Options, disk: Disk) -> Facts:
    cannot = {}
    if disk.why_never_full:
        cannot["fill-disk"] = disk.why_never_full
    why = why_no_hosts() if options.networks else "nodes have networks of their own only with --networks"
    if why and options.networks:
        raise UsageError(f"--networks cannot be had here: {why}")
    if why:
        cannot |= {"slow-network": why, "cut-network": why}
    return Facts(options.nodes, options.nproc, options.ttl_s, _finds_hangs(options.more), cannot)


def _finds_hangs(more: Sequence[str]) -> bool:
    """Tell whether nodes get our flags about hangs. With others nobody knows whether one is found, and when."""
    return not any(word.replace("_", "-").startswith("--hang") for word in more)


def _campaign(options: Options, planned: Plan, disk: Disk, folder: Folder, environ: Mapping[str, str]) -> int:
    become_subreaper()
    if _compared(options) and os.path.lexists(options.compare):
        raise wrong("--compare", "a file that is not there yet: both runs write it", options.compare)
    logs = _logs(options.keep)
    scratch, asked = folder.part("t"), folder.part("orders")
    os.mkdir(scratch)
    os.mkdir(asked)
    variables = surroundings(environ, {orders.ORDERS: asked, "PLANARIA_TOKEN": random_name() + random_name()})
    try:
        seen = _observed(
            options, planned, disk, Start(options.script, variables, logs, scratch, random_name() + random_name())
        )
    except BaseException:
        if options.keep:
            tell(2, f"planaria chaos: logs and events: {safe_line(logs)}\n")
        else:
            remove_tree(logs)
        raise
    return _verdict(options, planned, seen, logs)


def _observed(options: Options, planned: Plan, disk: Disk, start: Start) -> Observed:
    """Run the job undisturbed, then the campaign; return what was seen of it."""
    shared_before = shared.names()
    expected = _expected(options, start)
    usual_leaks = shared.left(shared_before, ())
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(Network(options.nodes)).hosts if options.networks else []
        words = (*_words(options, planned, disk, [host.address for host in hosts]), *options.script)
        watch = Watch()
        size = options.nodes * options.nproc
        job = Job(replace(start, words=words), watch, options.nodes, size, hosts)
        settings = Settings(options.pace_s, options.time_limit_s, expected, _compared(options), usual_leaks)
        return Campaign(job, watch, disk, start.variables[orders.ORDERS], settings).run(
            planned, _teller(options.faults)
        )


def _logs(keep: str) -> str:
    """Make the folder for logs and events. What is in it already would be taken for this campaign's."""
    if not keep:
        return tempfile.mkdtemp(prefix="chaos-logs-")
    try:
        os.makedirs(keep, exist_ok=True)
        if os.listdir(keep):
            raise wrong("--keep", "a folder that is empty or not there yet", keep)
    except OSError as exc:
        raise wrong("--keep", f"a folder that can be made ({exc.strerror})", keep) from exc
    return os.path.abspath(keep)


def _compared(options: Options) -> str:
    return "" if options.compare == "none" else options.compare


def _expected(options: Options, start: Start) -> str | None:
    """Run the job undisturbed; return its result.

    Raises:
        UsageError: It does not end well even so, or has no result.
    """
    if options.compare == "none":
        return None
    tell(2, "planaria chaos: the job runs undisturbed first\n")
    began_at = time.monotonic()
    words = (
        "--standalone",
        f"--nproc-per-node={options.nodes * options.nproc}",
        "--local-ranks-filter=0",
        *options.more,
    )
    status, out, err = run_undisturbed(words, start, options.time_limit_s)
    if status:
        tell(2, safe("\n".join(err.splitlines()[-SHOWN_LINES:])) + "\n")
        raise UsageError(f"the job does not end well even undisturbed: its status is {status}")
    lines = [line for line in out.splitlines() if line.strip()]
    found = digest(options.compare) if options.compare else (lines[-1] if lines else None)
    if found is None:
        what = (
            f"--compare={options.compare}: the job has not written it" if options.compare else "rank 0 prints nothing"
        )
        raise UsageError(
            f"there is no result to compare: {what}", hint="--compare=FILE names one, --compare=none does without"
        )
    if options.compare:
        os.unlink(options.compare)
    tell(2, f"planaria chaos: undisturbed after {time.monotonic() - began_at:.1f} s: {safe_line(found)}\n")
    return found


def _words(options: Options, planned: Plan, disk: Disk, addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of every node."""
    charged = sum(fault.is_charged for fault in planned.faults)
    endpoint = ",".join(f"{address}:{PORT}" for address in addresses) or f"127.0.0.1:{_free_port()}"
    hangs = HANG_FLAGS if any(fault.variant == "for ever" for fault in planned.faults) else ()
    return (
        f"--nnodes={options.nodes}",
        f"--nproc-per-node={options.nproc}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id=chaos-{options.seed}",
        f"--rdzv-conf=ttl={options.ttl_s:g}",
        f"--max-restarts={charged}",
        "--always-restart",
        "--shutdown-timeout=5",
        "--local-ranks-filter=0",
        f"--snapshot-dir={disk.folder}",
        *hangs,
        *options.more,
    )


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _teller(planned: int) -> Callable[[Strike, float], None]:
    def told(strike: Strike, began_at: float) -> None:
        tell(2, story.line(strike, planned, began_at) + "\n")

    return told


def _about(options: Options) -> dict[str, object]:
    """Return what makes a verdict a record: which campaign, of which job, when, and on what."""
    here = os.uname()
    return {
        "seed": options.seed,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "versions": {
            "planaria": __version__,
            "python": platform.python_version(),
            "kernel": f"{here.sysname} {here.release}",
        },
        "cores": len(os.sched_getaffinity(0)),
        "nodes": options.nodes,
        "nproc": options.nproc,
        "networks": options.networks,
        "script": [os.path.basename(options.script[0]), *options.script[1:]],
    }


def _verdict(options: Options, planned: Plan, seen: Observed, logs: str) -> int:
    broken = judge(seen)
    if not broken and not options.keep:
        remove_tree(logs)
        logs = ""
    if options.json:
        tell(1, json.dumps(story.verdict_json(seen, planned, broken, logs, _about(options))) + "\n")
    else:
        tell(1, story.verdict_text(seen, planned, broken, logs))
    if broken:
        return exit_status.WORKER_FAILED
    return INTERRUPTED if seen.is_interrupted else exit_status.DONE
