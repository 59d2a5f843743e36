"""The command line of a worker. Pure."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from planaria.process.model import Command

BOOTSTRAP = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker", "bootstrap.py")
LOCAL_RANK_MACRO = "${local_rank}"
_RUN_PATH = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


LEARN = "learn"
"""Tells the start-up file to write down which modules get loaded; `standby:...` takes its place in a standby."""


def filled(args: Iterable[object], local_rank: object) -> tuple[Any, ...]:
    """Replace torchrun's macro in the arguments that are texts; nothing else, so `$$` and `$HOME` stay as they are."""
    return tuple(arg.replace(LOCAL_RANK_MACRO, str(local_rank)) if isinstance(arg, str) else arg for arg in args)


def worker_argv(command: Command, local_rank: int, black_box: int, *, learn: bool = False) -> tuple[str, ...]:
    """Return what to execute for one worker; `black_box` is the descriptor its start-up file finds its black box at."""
    args = tuple(map(str, filled(command.args, local_rank)))
    if command.kind == "program":
        return (command.target, *args)
    python = (command.interpreter, "-u")
    if command.bootstrap:
        mode = (LEARN,) if learn else ()
        return (*python, BOOTSTRAP, str(black_box), *mode, command.kind, command.target, *args)
    if command.kind == "module":
        return (*python, "-m", command.target, *args)
    if command.kind == "path":
        return (*python, "-c", _RUN_PATH, command.target, *args)
    return (*python, command.target, *args)
