"""What is said about the wrong command lines of the tables `tests/support/wrong_*.py`. `docs/bad-input.md` is made of it:

python tests/unit/launch/bad_input.py > docs/bad-input.md
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planaria.agent import credentials
from planaria.chaos.flags import read_flags as read_chaos
from planaria.dashboard.flags import check_host
from planaria.dashboard.flags import read_flags as read_dashboard_flags
from planaria.doctor import flags as doctor_flags
from planaria.errors import UsageError
from planaria.insight.flags import COMMANDS
from planaria.insight.flags import read_flags as read_look
from planaria.launch import numa
from planaria.launch.devices import Counts
from planaria.launch.logs_specs import with_specs
from planaria.launch.owner_flags import read_flags
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, needs, plan
from planaria.launch.script import check

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

import wrong_chaos
import wrong_dashboard
import wrong_doctor
import wrong_looks
import wrong_nodes
import wrong_orders
import wrong_run
from wrong_row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HOME = "/home/you"
TABLE: tuple[Row | str, ...] = (
    *wrong_run.TABLE,
    *wrong_nodes.TABLE,
    *wrong_orders.TABLE,
    *wrong_looks.TABLE,
    *wrong_doctor.TABLE,
    *wrong_chaos.TABLE,
    *wrong_dashboard.TABLE,
)

ROWS = tuple(row for row in TABLE if isinstance(row, Row))


def prepare(folder: Path) -> None:
    """Make the files that the table speaks of; `folder` must be the current directory of `told`."""
    (folder / "ok.py").write_text("print('hello')\n")
    (folder / "broken.py").write_text("import os\nprint('hello'\n")
    (folder / "nulls.py").write_bytes(b"x = 1\0\n")
    (folder / "data.txt").write_text("data\n")
    for name, content, mode in (("open_token", "secret\n", 0o644), ("empty_token", "\n", 0o600)):
        (folder / name).write_text(content)
        (folder / name).chmod(mode)
    (folder / "empty_dir").mkdir()
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__main__.py").write_text("")


def _read_dashboard(_command: str, argv: Sequence[str], environ: Mapping[str, str]) -> None:
    check_host(read_dashboard_flags(argv), credentials.read(environ).token)


_READERS: Mapping[str, Callable[[str, Sequence[str], Mapping[str, str]], object]] = {
    **dict.fromkeys(("drain", "stop", "health"), read_flags),
    **dict.fromkeys(COMMANDS, lambda command, argv, _environ: read_look(command, argv)),
    "dashboard": _read_dashboard,
    "doctor": lambda _command, argv, environ: doctor_flags.read_flags(argv, environ),
    "chaos": lambda _command, argv, _environ: read_chaos(argv),
}


def told(argv: Sequence[str], environ: Mapping[str, str], folder: Path, command: str = "run") -> str | None:
    """Return what a machine with four CPUs and no GPU says about a command line, or None when it would run."""
    try:
        if command != "run":
            _READERS[command](command, argv, environ)
            return None
        options = parse(argv, environ)
        facts = check(options, True, {"PATH": "/usr/bin:/bin", **environ})
        wanted = needs(options, environ)
        topology = numa.Topology((), {0: frozenset(range(4))}) if "topology" in wanted else None
        found = credentials.read(environ) if "credentials" in wanted else None
        machine = Machine(sys.executable, 4, "fresh-id", facts, Counts(0, 0, 0), topology, found, frozenset())
        planned = plan(options, environ, machine)
        if options.logs_specs is not None:
            planned = with_specs(planned, options.logs_specs)
        meeting = planned.job.meeting
        if meeting is not None:
            credentials.check_files(meeting)
    except UsageError as error:
        return str(error).replace(str(folder), HOME)
    return None


def render() -> str:
    """Return the table as Markdown."""
    lines = [
        "# What planaria says about a wrong command line",
        "",
        "Every line ends the launcher with status 2 before anything is started. This page is made from the tables",
        "`tests/support/wrong_*.py`, which are also tests: run `tests/unit/launch/bad_input.py` to make it again.",
        f"The examples stand in `{HOME}`, on a machine without GPUs; `ok.py` is a script, `pkg` a package, `data.txt` a file.",
        "`open_token` can be read by everybody, `empty_token` holds a newline.",
    ]
    for row in TABLE:
        if isinstance(row, str):
            lines += ["", f"## {row}", "", "| command line | message |", "|---|---|"]
        else:
            variables = [f"{name}={shlex.quote(value)}" for name, value in row.environ.items()]
            command = " ".join([*variables, f"planaria {row.command}", *(shlex.quote(word) for word in row.argv)])
            lines.append(f"| {_code(command)} | {_escaped(row.sentence)} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return f"`{shown.replace('|', chr(92) + '|')}`"


def _escaped(text: str) -> str:
    for letter in "\\|*_<>[]":
        text = text.replace(letter, "\\" + letter)
    return text


if __name__ == "__main__":
    print(render(), end="")
