"""`planaria status`, `top`, `why` and `logs`: read the command line, look, and show. Exit statuses are in their help."""

from __future__ import annotations

import json
import os
import time

from planaria.base.colours import style_for
from planaria.base.files import tell, write_all
from planaria.base.signals import wait_for_any
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.errors import UsageError
from planaria.insight import show
from planaria.insight.flags import help_text, read_flags
from planaria.insight.follow import follow
from planaria.insight.picture import picture
from planaria.insight.sentences import PAST
from planaria.insight.sources import find
from planaria.insight.terminal import watch
from planaria.insight.why import lines, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.insight.flags import Asked
    from planaria.insight.loglines import Line
    from planaria.insight.model import RunSeen
    from planaria.insight.sources import Found

NOTHING_SHOWN = 1
_NO_FILES = "no worker that was asked for writes to a file; --redirects=3 or --tee=3 of planaria run makes them"


def look(command: str, argv: Sequence[str]) -> int:
    """Run one of the commands; return the exit status."""
    environ = dict(os.environ)
    try:
        asked = read_flags(command, argv)
        if asked.help:
            tell(1, help_text(command))
            return exit_status.DONE
        found = find(asked, environ)
    except UsageError as problem:
        tell(2, f"planaria: {problem}\n")
        return exit_status.USAGE
    if isinstance(found, str):
        tell(2, f"planaria: {found}\n")
        return NOTHING_SHOWN
    try:
        return _COMMANDS[command](asked, found, environ)
    except BrokenPipeError:  # `planaria logs | head` is no error
        return exit_status.DONE


def _say(text: str) -> None:
    write_all(1, f"{text}\n".encode("utf-8", "backslashreplace"))


def _nobody(run: RunSeen) -> int:
    """Say why nothing is seen, where nobody has told anything."""
    tell(2, f"planaria: {run.gaps[0] if run.gaps else 'nothing is known of this run yet'}\n")
    return NOTHING_SHOWN


def _status(asked: Asked, found: Found, environ: Mapping[str, str]) -> int:
    if asked.watch:
        return _top(asked, found, environ)
    run = picture(found.look())
    if not run.run_id:
        return _nobody(run)
    if asked.json:
        _say(json.dumps(run.as_json(), default=str))
    else:
        _say("\n".join(show.status_lines(run, style_for(environ, is_terminal=os.isatty(1)))))
    return exit_status.DONE


def _top(asked: Asked, found: Found, environ: Mapping[str, str]) -> int:
    if asked.json and not asked.once:
        return _top_json(asked, found)
    if asked.once or asked.json or not (os.isatty(0) and os.isatty(1)):
        return _status(replace(asked, watch=False), found, environ)
    run = picture(found.look())
    if not run.run_id:
        return _nobody(run)
    style = style_for(environ, is_terminal=os.isatty(1))
    last = watch(run, lambda: picture(found.look()), lambda run, size: show.top_lines(run, style, *size), asked.every_s)
    if last is not None and last.is_past:
        _say("\n".join(show.status_lines(last, style)))
    return exit_status.DONE


def _top_json(asked: Asked, found: Found) -> int:
    due = time.monotonic()
    while True:
        run = picture(found.look())
        if not run.run_id:
            return _nobody(run)
        _say(json.dumps(run.as_json(), default=str))
        if run.is_past:
            return exit_status.DONE
        due = max(due + asked.every_s, time.monotonic())
        wait_for_any((), max(0.0, due - time.monotonic()))


def _why(asked: Asked, found: Found, environ: Mapping[str, str]) -> int:
    run = picture(found.look())
    if not run.run_id:
        return _nobody(run)
    reasons = why(run, asked.round)
    if reasons is None:
        rounds = ", ".join(str(one.round) for one in run.restarts[-8:]) or "none"
        tell(2, f"planaria: no restart led to round {asked.round}; restarts led to: {rounds}\n")
        return NOTHING_SHOWN
    if asked.json:
        _say(json.dumps(reasons.as_json(), default=str))
    else:
        style = style_for(environ, is_terminal=os.isatty(1))
        first, *rest = lines(reasons)
        _say("\n".join([f"{style.bold}{first}{style.plain}", *rest]))
    return exit_status.DONE


def _logs(asked: Asked, found: Found, _environ: Mapping[str, str]) -> int:
    def say(line: Line) -> None:
        _say(json.dumps(line.as_json()) if asked.json else str(line))

    count, run = follow(asked, found, say)
    if not run.run_id:
        return _nobody(run)
    ended = PAST.get(run.state, "") if asked.follow and not run.is_over else ""
    told = [_NO_FILES] * (count == 0) + [ended] * bool(ended) + [f"not seen: {gap}" for gap in run.gaps if not count]
    for line in told:
        tell(2, f"planaria: {line}\n")
    return exit_status.DONE if count else NOTHING_SHOWN


_COMMANDS = {"status": _status, "top": _top, "why": _why, "logs": _logs}
