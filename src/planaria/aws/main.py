"""`petctl`: read the command line, do what the verb says, map errors to exit statuses."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from planaria.aws.desk import Desk
from planaria.aws.fields import REGION, is_region
from planaria.aws.flags import Asked, Help, read
from planaria.aws.session import Cloud
from planaria.aws.specs import Specs
from planaria.base.files import tell
from planaria.base.usage import quoted
from planaria.contract import exit_status
from planaria.errors import PlanariaError, UsageError


class Interrupted(KeyboardInterrupt):
    """A signal asks for the end, as Ctrl-C does: whatever is being made is taken back first."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run petctl and exit."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one of them, and means it
            signal.signal(number, _interrupt)
    sys.exit(run(sys.argv[1:]))


def _interrupt(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a terminal that is closed may say so twice, and would end the taking back
    raise Interrupted(number)


def run(argv: Sequence[str]) -> int:
    """Do what a command line says; return the exit status."""
    try:
        asked = read(argv)
        return _do(asked, dict(os.environ))
    except Help as text:
        _show(str(text))
        return exit_status.DONE
    except Interrupted as told:
        return exit_status.by_signal(told.number)
    except KeyboardInterrupt:
        return exit_status.by_signal(signal.SIGINT)
    except BrokenPipeError:  # petctl logs | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_status.DONE
    except (PlanariaError, OSError) as problem:  # the last: a disk that is full, a terminal that is gone
        _complain(str(problem))
        return exit_status.of_error(problem)


def _do(asked: Asked, environ: Mapping[str, str]) -> int:
    options = asked.options
    specs = given_specs(asked)
    cloud = Cloud(_region(options.region, specs, environ), options.profile, timeout_s=options.timeout)
    desk = Desk(
        options=options,
        script_args=asked.script_args,
        specs=specs,
        environ=environ,
        cloud=cloud,
        say=_complain,
        show=_show,
        pause=time.sleep,
        now=time.monotonic,
        utc=lambda: datetime.now(UTC),
        noise=secrets.token_hex,
    )
    try:
        return _verb(asked.verb)(desk)
    finally:
        cloud.close()


def given_specs(asked: Asked) -> Specs | None:
    """Return the specs file of a command line, read once: it may be a pipe."""
    path: str | None = getattr(asked.options, "specs_file", None)
    if path is None:
        return None
    from planaria.aws.code import load_specs

    return load_specs(path)


def _region(typed: str | None, specs: Specs | None, environ: Mapping[str, str]) -> str | None:
    """Return the region that was asked for. boto3 itself does not hear AWS_REGION, which everything else does."""
    if not typed and specs is not None and specs.region:
        return specs.region
    for source in ("--region", "AWS_REGION", "AWS_DEFAULT_REGION"):
        region = typed if source == "--region" else environ.get(source)
        if region and not is_region(region):
            raise UsageError(f"{source} is {quoted(region)}, expected {REGION}")
        if region:
            return region
    return None


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


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _complain(text: str) -> None:
    tell(2, "".join(f"petctl: {line}\n" for line in text.split("\n")))
