"""The runs of this machine, as their owner finds them: a private folder each, with a UNIX socket in it that answers.

Everybody can make folders where these are, so a folder counts for what its owner is: ours are looked at first, and root looks
at those of other users only for a run that it names. Who listens there the kernel says.
"""

from __future__ import annotations

import os
import stat
import time

from planaria.agent.door import EMBEDDED_NAME, SOCKET_NAME
from planaria.base import linux
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.launch.owner_http import Door, NotAnswered, ask, pid_behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.launch.owner_flags import Order
    from planaria.launch.owner_http import Target

FOLDER = "planaria-"
ROOT = 0
MOST_SHOWN = 8
LONGEST_LOOK_S = 30.0  # at folders that somebody may have made to keep us waiting


class Run(Value):
    """An agent that answers: where, and what it said of itself. `launcher_pid` is the kernel's word for it, 0: it has none."""

    target: Target
    token: bytes | None
    status: Mapping[str, object]
    launcher_pid: int = 0

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return safe_line(str(_part(self.status, "job", "run_id")), 200)

    @property
    def name(self) -> str:
        """The name of the run, and whose it is if that is not us."""
        if not isinstance(self.target, Door) or self.target.owner == os.geteuid():
            return self.run_id
        return f"{self.run_id} of user {_user_name(self.target.owner)}"

    @property
    def launcher(self) -> object:
        """The pid of the launcher."""
        return self.launcher_pid or _part(self.status, "job", "launcher_pid")

    def is_named(self, order: Order) -> bool:
        """Tell whether the order may mean this run by its name."""
        return order.run_id in ("", _part(self.status, "job", "run_id")) and order.pid in (0, self.launcher)

    def answers_at(self, port: int | None) -> bool:
        """Tell whether this agent answers at a port, too."""
        return port is not None and str(_part(self.status, "job", "address")).endswith(f":{port}")

    def __str__(self) -> str:
        state = safe_line(str(self.status.get("state")))
        whose = self.name[len(self.run_id) :]
        return f"--run-id={self.run_id} --pid={self.launcher} ({state}{whose})"


class Silent(Value):
    """An agent that is there and says nothing: it is stopped, or stuck."""

    folder: str
    launcher_pid: int

    def __str__(self) -> str:
        who = f"its launcher, pid {self.launcher_pid}" if self.launcher_pid else "its launcher"
        return f"a run in {safe_line(self.folder)} does not answer; send SIGTERM to {who}"


def find_here(order: Order, environ: Mapping[str, str]) -> Run | None:
    """Return the one agent of this machine that is meant; None: there is none, and the order names a port.

    Raises:
        UsageError: There is none, or there are several, or it does not answer.
    """
    doors = _doors(_folders(environ))
    own = [door for door in doors if door.owner == os.geteuid()]
    others = [door for door in doors if door.owner != os.geteuid()]
    runs, silent = _look(own, order)
    if not runs and not silent and (order.run_id or order.pid):
        runs, silent = _look(others, order)
    chosen = _choose(order, runs, silent)
    if chosen is None and order.port is None:
        raise UsageError(_nobody(order, _parents(environ), others), hint="it is in the TMPDIR of its launcher")
    return chosen


def all_here(order: Order, environ: Mapping[str, str]) -> tuple[list[Run], list[Silent]]:
    """Return every agent of ours on this machine that the order may mean, and those that are there and say nothing.

    As for orders, root is shown another user's only by its name.
    """
    doors = _doors(_folders(environ))
    runs, silent = _look([door for door in doors if door.owner == os.geteuid()], order)
    if not runs and not silent and order.run_id:
        runs, silent = _look([door for door in doors if door.owner != os.geteuid()], order)
    return runs, silent


def doors_of_ours(environ: Mapping[str, str]) -> list[Door]:
    """Return the doors of our own user's runs; behind some there is nobody any more."""
    return [door for door in _doors(_folders(environ)) if door.owner == os.geteuid()]


def _choose(order: Order, runs: list[Run], silent: list[Silent]) -> Run | None:
    if order.port is not None:
        runs, silent = [run for run in runs if run.answers_at(order.port)], []
    if len(runs) > 1 and order.command == "stop" and len({run.run_id for run in runs}) == 1:
        return runs[0]  # several nodes of one run: any of them can end it
    if len(runs) > 1:
        runs = [run for run in runs if run.answers_at(order.likely_port)] or runs
    if silent and not runs:
        raise UsageError(str(silent[0]))
    if len(runs) + len(silent) > 1:
        shown = "; ".join(map(str, [*runs, *silent][:MOST_SHOWN]))
        raise UsageError(f"planaria {order.command} found {len(runs) + len(silent)} agents: choose one by {shown}")
    return runs[0] if runs else None


def _nobody(order: Order, parents: Sequence[str], others: Sequence[Door]) -> str:
    wanted = f" with run id {safe_line(order.run_id)}" if order.run_id else ""
    wanted += f" with pid {order.pid}" if order.pid else ""
    text = f"planaria {order.command} found no run of yours{wanted} in {' or '.join(map(safe_line, parents))}"
    if others and not wanted:
        users = ", ".join(sorted({_user_name(door.owner) for door in others})[:MOST_SHOWN])
        text += f"; there are folders of {users}, whose runs have to be named by --run-id or --pid"
    return text


def _parents(environ: Mapping[str, str]) -> list[str]:
    tmp = "/tmp"  # noqa: S108  only looked into
    return list(dict.fromkeys((os.path.abspath(environ.get("TMPDIR") or tmp), tmp)))


def _folders(environ: Mapping[str, str]) -> list[str]:
    """Return what may be private folders of runs, where a launcher would make them."""
    found: list[str] = []
    for parent in _parents(environ):
        try:
            names = sorted(os.listdir(parent))
        except OSError:
            continue
        found += [os.path.join(parent, name) for name in names if name.startswith(FOLDER)]
    return found


def _doors(folders: Sequence[str]) -> list[Door]:
    """Return the doors that we may knock at: our own, and all of them if we are root."""
    found = []
    for folder in folders:
        try:
            seen = os.lstat(folder)
        except OSError:
            continue
        if stat.S_ISDIR(seen.st_mode) and os.geteuid() in (seen.st_uid, ROOT):
            found.append(Door(os.path.join(folder, SOCKET_NAME), seen.st_uid))
    return found


def _look(doors: Sequence[Door], order: Order) -> tuple[list[Run], list[Silent]]:
    """Knock at every door; return who answers, and who is there and does not, as far as the order may mean them."""
    runs: list[Run] = []
    silent: list[Silent] = []
    until = time.monotonic() + LONGEST_LOOK_S
    for door in doors:
        launcher_pid = _launcher_behind(door) if door.owner != os.geteuid() else 0
        if launcher_pid and order.pid not in (0, launcher_pid):
            continue  # another user's word for it does not count, and need not be waited for
        if door.owner != os.geteuid() and time.monotonic() > until:
            raise UsageError("the folders of other users keep planaria waiting: name the run by --pid")
        try:
            code, answer = ask(door, "GET", "/v1/status")
        except NotAnswered as problem:  # most are gone: a folder that was left behind
            launcher_pid = _launcher_behind(door) if problem.is_silent else 0
            if problem.is_silent and order.pid in (0, launcher_pid):
                silent.append(Silent(os.path.dirname(door.path), launcher_pid))
            continue
        if code == 200 and isinstance(answer, dict):
            found = Run(door, None, answer, launcher_pid)
            runs += [found] if found.is_named(order) else []
    return runs, silent


def _launcher_behind(door: Door) -> int:
    """Return the process above the agent, or the agent's own where a program brought it along; 0: it is gone."""
    pid = pid_behind(door)
    if os.path.lexists(os.path.join(os.path.dirname(door.path), EMBEDDED_NAME)):
        return pid
    return (linux.parent_of(pid) or 0) if pid else 0


def _user_name(number: int) -> str:
    import pwd

    try:
        return safe_line(pwd.getpwuid(number).pw_name)
    except KeyError:
        return str(number)


def _part(status: Mapping[str, object], *names: str) -> object:
    found: object = status
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found
