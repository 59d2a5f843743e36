"""`planaria dashboard`: read the command line, serve the page until told to end, map errors to exit statuses."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

from planaria.agent import credentials
from planaria.base.addresses import join_address
from planaria.base.files import tell
from planaria.base.usage import wrong
from planaria.contract import exit_status
from planaria.dashboard.answers import Answers
from planaria.dashboard.door import Door
from planaria.dashboard.flags import HELP, check_host, read_flags
from planaria.dashboard.lookout import lookout
from planaria.dashboard.peers import is_ours
from planaria.dashboard.source import Seen
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.dashboard.flags import Settings


def dashboard(argv: Sequence[str]) -> int:
    """Serve the page; return the exit status."""
    try:
        settings = read_flags(argv)
        if settings.help:
            tell(1, HELP)
            return exit_status.DONE
        token = credentials.read(os.environ).token
        check_host(settings, token)
        for folder in settings.run_dirs:
            if not os.path.isdir(folder):
                raise wrong("--run-dir", "a directory", folder)
        secret = None if token is None else token.reveal()
        looking = lookout(settings.at, secret, settings.run_dirs, dict(os.environ), time.monotonic)
        source = Seen(looking, time.monotonic)
        answers = Answers(source, token, settings.host, time.monotonic)
        asyncio.run(serve(answers, settings))
    except UsageError as problem:
        tell(2, f"planaria: {problem}\n")
        return exit_status.USAGE
    except OSError as problem:
        where = join_address(settings.host, settings.port)
        number = problem.errno or 0
        why = os.strerror(number) if number > 0 else problem.strerror  # asyncio adds words of its own to the former
        tell(2, f"planaria: cannot serve the page at {where}: {why}\n")
        return exit_status.of_error(problem)
    return exit_status.DONE


async def serve(answers: Answers, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    door = Door(answers.answer, None if settings.all_users else is_ours)
    port = await door.open(settings.host, settings.port)
    tell(1, f"planaria: dashboard at http://{join_address(settings.host, port)}/\n")
    await ended.wait()
    await door.close()
