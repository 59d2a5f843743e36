"""`planaria drain` and `planaria stop`: find the agent of a run on this machine, tell it, and wait until it has ended.

A run of our own user is found by its private folder (`owner_runs`) and spoken to through its UNIX socket, which needs no
secret. Only where the command line names a port, or another host, is an agent spoken to over TCP, with the token of the run.
"""

from __future__ import annotations

import time

from planaria.agent import credentials
from planaria.base import signals
from planaria.base.addresses import join_address
from planaria.base.files import tell
from planaria.base.text import safe_line
from planaria.contract import exit_status
from planaria.contract.env import TOKEN
from planaria.errors import UsageError
from planaria.launch.owner_flags import help_text, read_flags
from planaria.launch.owner_http import NotAnswered, ask, is_here
from planaria.launch.owner_runs import Run, find_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.launch.owner_flags import Order

LOOK_S = 0.2  # between two looks at an agent that is ending
LOOPBACK = "127.0.0.1"


def run_order(command: str, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the command line says; return the exit status.

    Raises:
        UsageError: One sentence: a flag is wrong, or there is no such run, or it does not take this order.
    """
    order = read_flags(command, argv, environ)
    if order.help:
        tell(1, help_text(command))
        return exit_status.DONE
    found = find(order, environ)
    body = b'{"grace_s": %g}' % order.grace_s if order.grace_s else b""
    try:
        code, answer = ask(found.target, "POST", f"/v1/{command}", body=body, token=found.token)
    except NotAnswered as problem:
        raise UsageError(f"run {found.name} may not have been told: {problem}") from problem
    if code != 202:
        raise UsageError(f"the agent of run {found.name} refuses: {safe_line(str(answer))}")
    return _finish(order, found, _wait(order, found) if order.waits else None)


def find(order: Order, environ: Mapping[str, str]) -> Run:
    """Return the one agent that is meant."""
    if order.host is not None and not is_here(order.host):
        return _far(order, environ)
    found = find_here(order, environ)
    return found if found is not None else _far(order, environ)


def _far(order: Order, environ: Mapping[str, str]) -> Run:
    """Return the agent at a port, which is not ours to reach by its socket."""
    assert order.port is not None
    target = (order.host or LOOPBACK, order.port)
    where = join_address(*target)
    token = credentials.read(environ).token
    if token is None:
        raise UsageError(
            f"no run of yours answers at {where}, and others take orders with a token only",
            hint=f"set {TOKEN}",
        )
    try:
        code, answer = ask(target, "GET", "/v1/status", token=token.reveal())
    except NotAnswered as problem:
        raise UsageError(f"no agent answers at {where}: {problem}") from problem
    if code != 200 or not isinstance(answer, dict):
        raise UsageError(f"the agent at {where} refuses: {safe_line(str(answer))}")
    run = Run(target, token.reveal(), answer)
    if not run.is_named(order):
        raise UsageError(f"the agent at {where} is another: {run}")
    return run


def _wait(order: Order, run: Run) -> bool:
    """Tell what happens until the agent has ended; False when it takes too long."""
    begun, said = time.monotonic(), ""
    while time.monotonic() < begun + order.timeout_s:
        try:
            line = _progress_line(ask(run.target, "GET", "/v1/status", token=run.token)[1])
        except NotAnswered as problem:
            if problem.is_gone:
                return True
            line = ""  # it hung up, or is busy: whether it is there shows when it is asked again
        if line and line != said and not order.json:
            said = line
            tell(2, f"planaria: run {run.name}: {line}\n")
        signals.wait_for_any((), LOOK_S)
    return False


def _progress_line(answer: object) -> str:
    if not isinstance(answer, dict):
        return ""
    workers = answer.get("workers")
    running = sum(isinstance(one, dict) and one.get("state") == "running" for one in workers or ())
    plural = "" if running == 1 else "s"
    return f"{safe_line(str(answer.get('state')))}, {running} worker{plural} running"


def _finish(order: Order, run: Run, has_ended: bool | None) -> int:
    """Say how it went; None: nobody waited for it."""
    if order.json:
        import json

        told = {"schema": 1, "command": order.command, "run_id": run.run_id, "accepted": True, "ended": has_ended}
        tell(1, json.dumps(told) + "\n")
    elif has_ended is None:
        tell(1, f"run {run.name} was told to {order.command}\n")
    elif has_ended:
        tell(1, f"run {run.name} has ended on this node\n")
    if has_ended is False:
        tell(
            2,
            f"planaria: run {run.name} has not ended within --timeout={order.timeout_s:g}; it is still being ended\n",
        )
        return exit_status.WORKER_FAILED
    return exit_status.DONE
