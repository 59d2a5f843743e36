"""`planaria drain` and `planaria stop`: find the agent of a run on this machine, tell it, and wait until it has ended.

A run of our own user is found by its private folder and spoken to through its UNIX socket, which needs no secret. Only an agent
that has none here is spoken to over TCP, with the token of the run.
"""

from __future__ import annotations

import os
import time

from planaria.agent import credentials
from planaria.agent.door import SOCKET_NAME
from planaria.base import signals
from planaria.base.addresses import join_address
from planaria.base.files import write_all
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.contract import exit_status
from planaria.errors import UsageError
from planaria.launch.owner_flags import help_text, read_flags
from planaria.launch.owner_http import NotAnswered, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planaria.launch.owner_flags import Order
    from planaria.launch.owner_http import Target

LOOK_S = 0.2  # between two looks at an agent that is ending
FOLDER = "planaria-"


class Run(Value):
    """An agent that answers: where, and what it said of itself."""

    target: Target
    token: bytes | None
    status: Mapping[str, object]

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return safe_line(str(_part(self.status, "job", "run_id")), 200)

    @property
    def launcher(self) -> object:
        """The pid of the launcher."""
        return _part(self.status, "job", "launcher_pid")

    def __str__(self) -> str:
        return f"--run-id={self.run_id} --pid={self.launcher} ({safe_line(str(self.status.get('state')))})"


def run_order(command: str, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the command line says; return the exit status.

    Raises:
        UsageError: One sentence: a flag is wrong, or there is no such run, or it does not take this order.
    """
    order = read_flags(command, argv, environ)
    if order.help:
        write_all(1, help_text(command).encode())
        return exit_status.DONE
    found = find(order, environ)
    body = b'{"grace_s": %g}' % order.grace_s if order.grace_s else b""
    try:
        code, answer = ask(found.target, "POST", f"/v1/{command}", body=body, token=found.token)
    except NotAnswered as problem:
        raise UsageError(f"{found.run_id} was not told: {problem}") from problem
    if code != 202:
        raise UsageError(f"the agent of run {found.run_id} refuses: {safe_line(str(answer))}")
    return _finish(order, found, _wait(order, found) if order.waits else None)


def find(order: Order, environ: Mapping[str, str]) -> Run:
    """Return the one agent that is meant."""
    folders = _folders(environ)
    here = [run for run in _answering(folders) if _is_meant(order, run)]
    if len(here) > 1 and order.command == "stop" and len({run.run_id for run in here}) == 1:
        return here[0]  # several nodes of one run: any of them can end it
    if len(here) > 1:
        shown = "; ".join(map(str, here[:8]))
        raise UsageError(f"planaria {order.command} found {len(here)} agents: choose one by {shown}")
    if here:
        return here[0]
    if order.port is None:
        places = " and ".join(dict.fromkeys(map(os.path.dirname, folders))) if folders else "this machine"
        raise UsageError(f"planaria {order.command} found no run of yours {_wanted(order)}in {places}")
    return _far(order, environ)


def _wanted(order: Order) -> str:
    names = [f"with run id {safe_line(order.run_id)} "] * bool(order.run_id) + [f"with pid {order.pid} "] * bool(
        order.pid
    )
    return "".join(names)


def _far(order: Order, environ: Mapping[str, str]) -> Run:
    """Return the agent at a port, which is not ours to reach by its socket."""
    assert order.port is not None
    target = (order.host, order.port)
    where = join_address(*target)
    token = credentials.read(environ).token
    if token is None:
        raise UsageError(
            f"no run of yours answers at {where}, and others take orders with a token only",
            hint=f"set {credentials.TOKEN}",
        )
    try:
        code, answer = ask(target, "GET", "/v1/status", token=token.reveal())
    except NotAnswered as problem:
        raise UsageError(f"no agent answers at {where}: {problem}") from problem
    if code != 200 or not isinstance(answer, dict):
        raise UsageError(f"the agent at {where} refuses: {safe_line(str(answer))}")
    run = Run(target, token.reveal(), answer)
    if not _is_meant(order, run):
        raise UsageError(f"the agent at {where} is another: {run}")
    return run


def _is_meant(order: Order, run: Run) -> bool:
    address = str(_part(run.status, "job", "address"))
    at_port = order.port is None or not isinstance(run.target, str) or address.endswith(f":{order.port}")
    return at_port and order.run_id in ("", _part(run.status, "job", "run_id")) and order.pid in (0, run.launcher)


def _folders(environ: Mapping[str, str]) -> list[str]:
    """Return the private folders of runs: those of our user, where the launcher would make them."""
    found: list[str] = []
    for parent in dict.fromkeys((os.path.abspath(environ.get("TMPDIR") or "/tmp"), "/tmp")):  # noqa: S108  only looked into
        try:
            names = sorted(os.listdir(parent))
        except OSError:
            continue
        paths = [os.path.join(parent, name) for name in names if name.startswith(FOLDER)]
        found += [path for path in paths if _is_ours(path)]
    return found


def _is_ours(path: str) -> bool:
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return False
    return os.path.isdir(path) and not os.path.islink(path) and (owner == os.geteuid() or os.geteuid() == 0)


def _answering(folders: Sequence[str]) -> Iterator[Run]:
    for folder in folders:
        path = os.path.join(folder, SOCKET_NAME)
        try:
            code, answer = ask(path, "GET", "/v1/status")
        except NotAnswered:  # it is gone, or stopped: what it cannot hear it cannot be told
            continue
        if code == 200 and isinstance(answer, dict):
            yield Run(path, None, answer)


def _wait(order: Order, run: Run) -> bool:
    """Tell what happens until the agent has ended; False when it takes too long."""
    begun, said = time.monotonic(), ""
    while time.monotonic() < begun + order.timeout_s:
        try:
            _, answer = ask(run.target, "GET", "/v1/status", token=run.token)
        except NotAnswered as problem:
            if problem.is_gone:
                return True
            answer = {"state": "silent"}
        line = _progress_line(answer)
        if line and line != said and not order.json:
            said = line
            _say(2, f"planaria: run {run.run_id}: {line}\n")
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
        _say(1, json.dumps(told) + "\n")
    elif has_ended is None:
        _say(1, f"run {run.run_id} was told to {order.command}\n")
    elif has_ended:
        _say(1, f"run {run.run_id} has ended on this node\n")
    if has_ended is False:
        _say(
            2,
            f"planaria: run {run.run_id} has not ended within --timeout={order.timeout_s:g}; it is still being ended\n",
        )
        return exit_status.WORKER_FAILED
    return exit_status.DONE


def _say(descriptor: int, text: str) -> None:
    try:
        write_all(descriptor, text.encode("utf-8", "backslashreplace"))
    except OSError:  # nobody listens; the exit status still tells
        return


def _part(status: Mapping[str, object], *names: str) -> object:
    found: object = status
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found
