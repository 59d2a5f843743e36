"""The table of torchrun's flags as an `argparse` parser, for programs that use the names of `torch.distributed.run`.

`planaria run` reads its command line with `parse.py` and never comes here: `argparse` alone costs 10 ms. Flags that
torchrun does not have belong to that command, since a `LaunchConfig` has no place for them.
"""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser

from planaria.base.usage import quoted
from planaria.errors import UsageError
from planaria.launch.flags import TORCHRUN
from planaria.launch.parse import split_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from planaria.launch.flags import Flag

_TYPES: dict[str, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "list": lambda text: list(split_list(text)),
}


def make_parser(environ: Mapping[str, str]) -> ArgumentParser:
    """Return a parser whose defaults are those of the `PET_*` variables, else torchrun's.

    Raises:
        UsageError: The variable of an on/off flag is neither 0 nor 1.
    """
    parser = ArgumentParser(description="Start and supervise the workers of a training job, as torchrun does.")
    for flag in TORCHRUN:
        if flag.dest == "help":  # argparse has its own
            continue
        text = environ.get(flag.variable, "") if flag.variable else ""
        if flag.kind == "flag":
            parser.add_argument(*flag.names, action="store_true", default=_switch(flag, text), help=flag.help)
        else:
            parser.add_argument(*flag.names, dest=flag.dest, default=text or _default(flag), **_rules(flag))
    parser.add_argument("training_script", help="the program to be started once per worker")
    parser.add_argument("training_script_args", nargs=REMAINDER, help="its arguments")
    return parser


def _default(flag: Flag) -> object:
    return list(flag.default) if isinstance(flag.default, tuple) else flag.default


def _rules(flag: Flag) -> dict[str, Any]:
    rules: dict[str, Any] = {"type": _TYPES.get(flag.kind, str), "help": flag.help.replace("%", "%%")}
    if flag.choices:
        return {**rules, "choices": list(flag.choices)}
    return {**rules, "metavar": flag.metavar}


def _switch(flag: Flag, text: str) -> bool:
    if text.strip() not in ("", "0", "1"):
        raise UsageError(f"{flag.variable} expects 0 or 1, got {quoted(text)}")
    return text.strip() == "1"
