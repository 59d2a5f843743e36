"""`petctl`: read the command line, do what the verb says, map errors to exit statuses."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from planaria.aws.desk import Desk
from planaria.aws.flags import Asked, Help, read
from planaria.aws.session import Cloud
from planaria.base.files import tell
from planaria.contract import exit_status
from planaria.errors import PlanariaError


def main() -> None:
    """Run petctl and exit."""
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """Do what a command line says; return the exit status."""
    try:
        asked = read(argv)
        return _do(asked, dict(os.environ))
    except Help as text:
        _show(str(text))
        return exit_status.DONE
    except KeyboardInterrupt:
        return exit_status.by_signal(2)
    except BrokenPipeError:  # petctl logs | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_status.DONE
    except (PlanariaError, OSError) as problem:  # the last: a disk that is full, a terminal that is gone
        _complain(str(problem))
        return exit_status.of_error(problem)


def _do(asked: Asked, environ: Mapping[str, str]) -> int:
    options = asked.options
    cloud = Cloud(_region(asked, environ), options.profile, timeout_s=options.timeout)
    desk = Desk(
        options=options,
        script_args=asked.script_args,
        environ=environ,
        cloud=cloud,
        say=_complain,
        show=_show,
        pause=_pause,
        now=time.monotonic,
        utc=lambda: datetime.now(UTC),
        noise=secrets.token_hex,
    )
    try:
        return _verb(asked.verb)(desk)
    finally:
        cloud.close()


def _region(asked: Asked, environ: Mapping[str, str]) -> str | None:
    """Return the region that was asked for. boto3 itself does not hear AWS_REGION, which everything else does."""
    options = asked.options
    if options.region:
        return str(options.region)
    if getattr(options, "specs_file", None):
        from planaria.aws.code import load_specs

        found = load_specs(options.specs_file).region
        if found:
            return found
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def _verb(name: str) -> Callable[[Desk], int]:
    from planaria.aws import doctor, remove, resize, submit, watch

    verbs: dict[str, Callable[[Desk], int]] = {
        "run-job": submit.run_job,
        "kill-job": remove.kill_job,
        "status": watch.status,
        "logs": watch.logs,
        "hosts": watch.hosts,
        "scale": resize.scale,
        "stop": resize.stop,
        "wait": watch.wait,
        "list": watch.list_jobs,
        "gc": remove.gc,
        "doctor": doctor.doctor,
        "upload": submit.upload,
    }
    return verbs[name]


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)  # nobody sets it; Ctrl-C ends it


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _complain(text: str) -> None:
    tell(2, "".join(f"petctl: {line}\n" for line in text.split("\n")))
