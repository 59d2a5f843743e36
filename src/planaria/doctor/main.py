"""`planaria doctor`: real clocks, sockets and environment; findings become lines and an exit status."""

from __future__ import annotations

import json
import os
import time

from planaria import __version__
from planaria.agent.credentials import read
from planaria.base import linux, signals
from planaria.base.colours import style_for
from planaria.base.files import tell
from planaria.base.text import safe_line
from planaria.contract import exit_status
from planaria.doctor import show
from planaria.doctor.flags import HELP, read_flags
from planaria.doctor.gather import examine
from planaria.doctor.model import as_json, failures
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.base.loop import Loop
    from planaria.doctor.flags import Order
    from planaria.doctor.model import Finding

SCHEMA = 1


def doctor(argv: Sequence[str]) -> int:
    """Run the checks, or answer those of other hosts; return the exit status."""
    environ = dict(os.environ)
    try:
        order = read_flags(argv, environ)
        if order.help:
            tell(1, HELP)
            return exit_status.DONE
        secret = read(environ).token
    except UsageError as problem:
        tell(2, f"planaria: {problem}\n")
        return exit_status.USAGE
    if order.parent and not _ends_with(order.parent):
        return exit_status.by_signal(signals.SIGKILL)
    token = None if secret is None else secret.reveal()
    if order.listens:
        return _listen(order, token)
    found = examine(order.asked, version=__version__, wall_s=time.time(), token=token)
    if order.peers:
        found += _visit(order, token)
    _print(found, order)
    return int(bool(failures(found)))


def _ends_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends; False when that is over already, or was another."""
    linux.set_parent_death_signal(signals.SIGKILL)
    return os.getppid() == parent


def _print(found: Sequence[Finding], order: Order) -> None:
    if not order.json:
        tell(1, show.as_text(found, style_for(os.environ, is_terminal=os.isatty(1)), is_long=order.is_long))
        return
    content = {
        "schema": SCHEMA,
        "planaria": __version__,
        "host": os.uname().nodename,
        "ok": not failures(found),
        "findings": as_json(found),
    }
    tell(1, json.dumps(content) + "\n")


def _visit(order: Order, token: bytes | None) -> list[Finding]:
    from planaria.base.loop import Loop
    from planaria.doctor.look_peers import own_greeting, visit_all
    from planaria.doctor.peers import check_peer

    seen = visit_all(
        Loop(),
        order.peers,
        lambda: own_greeting(__version__, time.time()),
        token=token,
        timeout_s=order.timeout_s,
    )
    return [finding for one in seen for finding in check_peer(one)]


def _listen(order: Order, token: bytes | None) -> int:
    """Answer until a signal comes."""
    from planaria.base.loop import Loop
    from planaria.doctor.listen import Answering
    from planaria.doctor.look_peers import own_greeting

    loop = Loop()

    def told(host: str, found: list[Finding]) -> None:
        if order.json:
            tell(1, json.dumps({"schema": SCHEMA, "peer": host, "findings": as_json(found)}) + "\n")
        else:
            style = style_for(os.environ, is_terminal=os.isatty(1))
            tell(1, f"{safe_line(host)} found:\n{show.as_text(found, style, is_long=True)}")

    def complain(line: str) -> None:
        tell(2, f"planaria: {safe_line(line)}\n")

    try:
        answering = Answering(
            loop,
            (order.host, order.port),
            lambda: own_greeting(__version__, time.time()),
            told,
            token=token,
            complain=complain,
        )
    except OSError as problem:
        tell(2, f"planaria: cannot listen at port {order.port}: {problem.strerror} (--port=PORT chooses another)\n")
        return exit_status.of_error(problem)
    _end_by_signal(loop)
    known = "those who have the token" if token is not None else "anybody: set PLANARIA_TOKEN to prevent that"
    tell(2, f"planaria: answering at port {answering.port}, to {known}; Ctrl-C ends it\n")
    loop.run()
    answering.close()
    return exit_status.DONE


def _end_by_signal(loop: Loop) -> None:
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signals.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (signals.SIGINT, signals.SIGTERM):
        signals.set_handler(number, lambda _number, _frame: None)
    loop.on_readable(wake, loop.stop)
