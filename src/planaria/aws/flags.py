"""Read petctl's command line: dashes or underscores, global flags before or after the verb, `--` before the script's own.

argparse, which the launcher avoids for its cost, is fine here: nobody waits for 15 ms before a call of AWS.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from planaria.aws.help import OVERVIEW, VERB_HELP
from planaria.aws.names import check_job, check_run
from planaria.errors import UsageError

ALIASES = {"list-hosts": "hosts"}
CHANGING = ("run-job", "kill-job", "scale", "stop", "gc", "upload")
# Flags that are followed by a value: what stands behind one of them is not the verb.
_OF_RUN_JOB = ("--specs-file", "--name", "--size", "--min-size", "--max-size", "--owner", "--expires")
_VALUED = ("--region", "--profile", "--timeout", *_OF_RUN_JOB, "--rank", "--run", "--every", "--for")
LONGEST_H = 87_600.0  # ten years


class Help(Exception):
    """The command line asks for help. No error: a text to print."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    verb: str
    options: argparse.Namespace
    script_args: tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"petctl {self.prog} --help lists the flags")


def read(argv: Sequence[str]) -> Asked:
    """Return what a command line asks for.

    Raises:
        Help: It asks for help.
        UsageError: One sentence that names the flag or the verb.
    """
    words, script_args = _split(argv)
    words = [_dashed(word) for word in words]
    place = _first_word(words)
    if place is None or _canonical(words[place]) not in VERB_HELP:
        if not words or {"-h", "--help", "help"} & set(words):
            raise Help(OVERVIEW)
        raise UsageError(_no_verb(None if place is None else words[place]), hint="petctl --help lists the verbs")
    verb = _canonical(words[place])
    rest = [*words[:place], *words[place + 1 :]]
    if {"-h", "--help"} & set(rest):
        raise Help(VERB_HELP[verb])
    if script_args and verb != "run-job":
        raise UsageError(f"petctl {verb} takes nothing after --, got {script_args[0]!r}")
    options = _parser(verb).parse_intermixed_args(rest)
    return Asked(verb, _checked(verb, options), tuple(script_args))


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return petctl's own words and the script's; the first `--` stands between them."""
    if "--" not in argv:
        return list(argv), []
    place = list(argv).index("--")
    return list(argv[:place]), list(argv[place + 1 :])


def _dashed(word: str) -> str:
    """Return a flag with dashes for underscores. Its value stays as it is, and so does a word that is no flag."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _canonical(word: str) -> str:
    dashed = word.replace("_", "-")
    return ALIASES.get(dashed, dashed)


def _first_word(words: Sequence[str]) -> int | None:
    """Return where the first word stands that is neither a flag nor the value of one: the verb, if there is one."""
    for place, word in enumerate(words):
        is_value = place > 0 and words[place - 1] in _VALUED
        if not word.startswith("-") and not is_value:
            return place
    return None


def _no_verb(word: str | None) -> str:
    if word is None:
        return f"a verb is missing, expected one of {', '.join(VERB_HELP)}"
    near = get_close_matches(_canonical(word), list(VERB_HELP), n=1)
    return f"there is no verb {word!r}" + (
        f", did you mean {near[0]}?" if near else f", expected one of {', '.join(VERB_HELP)}"
    )


def _number(low: float, high: float = 1e9) -> Callable[[str], float]:
    def read_one(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"is {text!r}, expected a number from {low:g} to {high:g}")
        return value

    return read_one


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a whole number") from None


def _parser(verb: str) -> _Parser:
    parser = _Parser(prog=verb, add_help=False, allow_abbrev=False)
    for flag in ("--region", "--profile"):
        parser.add_argument(flag)
    parser.add_argument("--timeout", type=_number(0.01))
    parser.add_argument("--json", action="store_true")
    if verb in CHANGING:
        parser.add_argument("--dry-run", action="store_true")
    _ADD[verb](parser)
    return parser


def _add_name(parser: _Parser) -> None:
    parser.add_argument("job", nargs="?")
    parser.add_argument("--name")


def _add_run_job(parser: _Parser) -> None:
    parser.add_argument("--name", required=True)
    parser.add_argument("--specs-file", required=True)
    parser.add_argument("--size", type=_whole, required=True)
    parser.add_argument("--min-size", type=_whole)
    parser.add_argument("--max-size", type=_whole)
    parser.add_argument("--no-upload", action="store_true")
    parser.add_argument("--owner")
    parser.add_argument("--expires", type=_number(0.1, LONGEST_H), default=168.0)
    parser.add_argument("source")
    parser.add_argument("script", nargs="?")


def _add_kill_job(parser: _Parser) -> None:
    _add_name(parser)
    parser.add_argument("--purge", action="store_true")
    parser.add_argument("--no-wait", action="store_true")


def _add_logs(parser: _Parser) -> None:
    _add_name(parser)
    parser.add_argument("-f", "--follow", action="store_true")
    parser.add_argument("--rank", type=_whole)
    parser.add_argument("--run")
    parser.add_argument("--every", type=_number(0.01), default=2.0)


def _add_scale(parser: _Parser) -> None:
    _add_name(parser)
    parser.add_argument("--size", type=_whole, required=True)


def _add_stop(parser: _Parser) -> None:
    _add_name(parser)
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--every", type=_number(0.01), default=5.0)


def _add_wait(parser: _Parser) -> None:
    _add_name(parser)
    parser.add_argument("--for", dest="for_s", type=_number(0))
    parser.add_argument("--every", type=_number(0.01), default=5.0)


def _add_gc(parser: _Parser) -> None:
    parser.add_argument("--list", action="store_true")


def _add_doctor(parser: _Parser) -> None:
    parser.add_argument("--specs-file", required=True)


def _add_upload(parser: _Parser) -> None:
    parser.add_argument("source")
    parser.add_argument("destination", nargs="?")
    parser.add_argument("--specs-file")


_ADD: dict[str, Callable[[_Parser], None]] = {
    "run-job": _add_run_job,
    "kill-job": _add_kill_job,
    "status": _add_name,
    "logs": _add_logs,
    "hosts": _add_name,
    "scale": _add_scale,
    "stop": _add_stop,
    "wait": _add_wait,
    "list": lambda _: None,
    "gc": _add_gc,
    "doctor": _add_doctor,
    "upload": _add_upload,
}


def _checked(verb: str, options: argparse.Namespace) -> argparse.Namespace:
    """Return options with the job's name in `job`, wherever it stood."""
    if verb == "run-job":
        options.job = check_job(options.name)
    elif hasattr(options, "name"):
        if options.job and options.name and options.job != options.name:
            raise UsageError(f"--name is {options.name!r} and the job beside it {options.job!r}, expected one of them")
        name = options.job or options.name
        if not name:
            raise UsageError(f"petctl {verb} needs a job's name", hint="petctl list shows all jobs")
        options.job = check_job(name)
    if getattr(options, "drain", False) and options.no_wait:
        raise UsageError("--drain waits until all have drained, and --no_wait does not: expected one of them")
    if getattr(options, "run", None) is not None:
        check_run(options.run)
    if getattr(options, "rank", None) is not None and options.rank < 0:
        raise UsageError(f"--rank is {options.rank}, expected a rank, at least 0")
    return options
