"""Read the command line as torchrun's argparse does on Python 3.11, in a millisecond and with kinder messages.

Flags come before the script; everything after the script is the script's, verbatim. The command line beats the `PET_*`
variable, which beats the default; of two spellings the last one wins.
"""

from __future__ import annotations

from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.launch.flags import BY_DEST, OURS_BY_NAME, TORCHRUN_BY_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from planaria.agent.settings import HangPolicy, LostMajority
    from planaria.launch.flags import Flag

_SHOWN_CANDIDATES = 6
EVERYTHING = "all"
"""What a flag means whose value is left out."""


class Options(Value):
    """What the user asked for, one field per flag, unchecked beyond its type."""

    training_script: str
    training_script_args: tuple[str, ...]
    given: frozenset[str]
    """Destinations set on the command line."""
    from_variable: frozenset[str]
    """Destinations set by a `PET_*` variable."""
    help: bool
    nproc_per_node: str
    max_restarts: int
    role: str
    monitor_interval: float
    virtual_local_rank: bool
    numa_binding: str | None
    start_method: str
    nnodes: str
    standalone: bool
    rdzv_backend: str
    rdzv_endpoint: str
    rdzv_id: str
    rdzv_conf: str
    node_rank: int
    master_addr: str
    master_port: int | None
    local_addr: str | None
    module: bool
    no_python: bool
    run_path: bool
    log_dir: str | None
    redirects: str
    tee: str
    local_ranks_filter: str
    duplicate_stdout_filters: tuple[str, ...]
    duplicate_stderr_filters: tuple[str, ...]
    logs_specs: str | None
    event_log_handler: str
    signals_to_handle: str
    shutdown_timeout: int | None
    dry_run: bool
    json: bool
    report_file: str | None
    run_dir: str | None
    exit_code: str
    no_bootstrap: bool
    always_restart: bool
    resize_grace: float
    on_lost_majority: LostMajority
    standbys: str
    preflight: str | None
    preflight_cooldown: float
    require_token: bool
    health_check_port: int | None
    health_check_host: str
    snapshot_dir: str | None
    snapshot_keep: int
    snapshot_buddy: str
    hang_floor: float
    hang_policy: HangPolicy
    progress_pattern: str | None
    stall_restarts: int
    health_check_timeout: float

    def source(self, dest: str) -> str:
        """Return what the user would have to change: the `PET_*` variable if it set the value, else the flag."""
        flag = BY_DEST[dest]
        return flag.variable if flag.variable and dest in self.from_variable else flag.name

    def is_set(self, dest: str) -> bool:
        """Say whether the user set this at all."""
        return dest in self.given or dest in self.from_variable


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Return what `argv` (without the program's own name) and the `PET_*` variables ask for.

    Raises:
        UsageError: One sentence that names the flag or variable, what it expects and what it got.
    """
    values: dict[str, Any] = {}
    at = 0
    while at < len(argv) and argv[at] != "--" and not _is_value(argv[at]):
        at += _read_flag(argv, at, values)
        if values.get("help"):
            return _options("", (), values, {})
    # One `--` may stand before the script or right behind it; argparse drops it there and keeps any other.
    if at < len(argv) and argv[at] == "--":
        script, rest = argv[at + 1 : at + 2], argv[at + 2 :]
    else:
        script, rest = argv[at : at + 1], argv[at + 1 :]
        rest = rest[1:] if rest and rest[0] == "--" else rest
    if not script:
        raise _nameless(argv[:at])
    return _options(script[0], tuple(rest), values, _from_variables(environ, values))


def _nameless(flags: Sequence[str]) -> UsageError:
    """Return what is wrong with a command line without a script: perhaps the last flag has taken it for its value."""
    hint = "usage: planaria run [flags] script [arguments]; --help tells more"
    *_, name, word = ("", "", *flags)
    if not name.startswith("--") or "=" in name or not _is_value(word):  # else the word would have been the script
        return UsageError("no script was named", hint=hint)
    from planaria.launch import values  # the words for a value that cannot be one

    flag = _find(name)
    readers = {"standbys": values.standbys, "nproc_per_node": values.worker_count, "nnodes": values.node_range}
    if flag.dest in readers:
        try:
            readers[flag.dest](word, _called(flag, name))
        except UsageError as wrong:
            return wrong
    return UsageError(
        "no script was named", hint=f"{_called(flag, name)} has taken {quoted(word)} for its value; {hint}"
    )


def _options(script: str, args: tuple[str, ...], values: dict[str, Any], variables: dict[str, Any]) -> Options:
    defaults = {dest: flag.default for dest, flag in BY_DEST.items()}
    return Options(
        training_script=script,
        training_script_args=args,
        given=frozenset(values),
        from_variable=frozenset(variables),
        **(defaults | variables | values),
    )


def _is_value(text: str) -> bool:
    """Say whether `text` is a value or a script rather than a flag, by argparse's rules."""
    if not text.startswith("-") or text == "-":
        return True
    if text.startswith("--"):
        name = text.partition("=")[0]
        if name in OURS_BY_NAME or any(known.startswith(name) for known in TORCHRUN_BY_NAME):
            return False
    elif text[:2] in TORCHRUN_BY_NAME:
        return False
    return _is_negative_number(text) or " " in text


def _is_negative_number(text: str) -> bool:
    whole, dot, fraction = text[1:].partition(".")
    if dot:
        return fraction.isdecimal() and (not whole or whole.isdecimal())
    return whole.isdecimal()


def _read_flag(argv: Sequence[str], at: int, values: dict[str, Any]) -> int:
    """Read the flag at `at` with its value into `values`; return how many words that took."""
    text = argv[at]
    if not text.startswith("--") and len(text) > 2:
        text = _read_cluster(text, values)
        if not text:
            return 1
    name, equals, value = text.partition("=")
    flag = _find(name)
    if flag.kind == "flag":
        if equals:
            raise UsageError(f"{_called(flag, name)} takes no value, got {quoted(value)}")
        values[flag.dest] = True
        return 1
    if flag.kind == "optional" and not equals:
        values[flag.dest] = EVERYTHING
        return 1
    if equals:
        values[flag.dest] = _convert(flag, value, _called(flag, name))
        return 1
    following = argv[at + 1] if at + 1 < len(argv) else None
    if following is None or following == "--" or not _is_value(following):
        got = "nothing" if following is None else quoted(following)
        raise UsageError(
            f"{_called(flag, name)} expects a value, got {got}",
            hint=f"write {flag.name}=VALUE if the value starts with a dash" if following not in (None, "--") else "",
        )
    values[flag.dest] = _convert(flag, following, _called(flag, name))
    return 2


def _read_cluster(text: str, values: dict[str, Any]) -> str:
    """Read `-r3`, `-r=3` or `-mt3`; return the short flag that is still to be read, as in `-mt 3`, or nothing."""
    flag = TORCHRUN_BY_NAME.get(text[:2])
    if flag is None:
        raise _unknown(text)
    switches: dict[str, Any] = {}
    rest = text[2:].removeprefix("=")
    while flag.kind == "flag":
        following = TORCHRUN_BY_NAME.get("-" + rest[:1])
        if following is None:
            raise UsageError(f"{flag.names[0]} takes no value, got {quoted(rest)}")
        switches[flag.dest] = True
        flag, rest = following, rest[1:]
        if not rest:
            values.update(switches)
            return flag.names[0]
    values.update(switches, **{flag.dest: _convert(flag, rest, flag.names[0])})
    return ""


def _find(name: str) -> Flag:
    """Return the flag called `name`, or the one torchrun flag it is a prefix of."""
    exact = TORCHRUN_BY_NAME.get(name) or OURS_BY_NAME.get(name)
    if exact is not None:
        return exact
    if not name.startswith("--"):
        raise _unknown(name)
    found = {flag.dest: flag for known, flag in TORCHRUN_BY_NAME.items() if known.startswith(name)}
    if len(found) > 1:
        candidates = sorted(flag.name for flag in found.values())
        shown = ", ".join([*candidates[:_SHOWN_CANDIDATES], *(["..."] if len(candidates) > _SHOWN_CANDIDATES else [])])
        raise UsageError(f"{quoted(name)} could mean any of {shown}")
    if not found:
        raise _unknown(name)
    return next(iter(found.values()))


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    known = [flag.name for flag in BY_DEST.values()]
    near = [full for full in known if len(name) > 3 and full.startswith(name)]  # ours, which must be written in full
    near = near or get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"did you mean {near[0]}?" if near else "--help lists them all"
    return UsageError(f"there is no flag {quoted(name)}", hint=hint)


def _called(flag: Flag, name: str) -> str:
    """Return how to name a flag in a message: as the user wrote it when that is one of its names."""
    return name if name in flag.names else flag.name


def _from_variables(environ: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Read the `PET_*` variables of flags the command line does not set. An empty one counts as unset."""
    found: dict[str, Any] = {}
    for dest, flag in BY_DEST.items():
        text = environ.get(flag.variable, "") if flag.variable else ""
        if not text or dest in values:
            continue
        assert flag.variable is not None
        if flag.kind == "flag":
            if text.strip() not in ("0", "1"):
                raise UsageError(f"{flag.variable} expects 0 or 1, got {quoted(text)}")
            found[dest] = text.strip() == "1"
        elif flag.kind == "optional" and text.strip() in ("0", "1"):
            found[dest] = EVERYTHING if text.strip() == "1" else flag.default
        else:
            found[dest] = _convert(flag, text, flag.variable)
    return found


def _convert(flag: Flag, text: str, called: str) -> str | int | float | tuple[str, ...]:
    try:
        if flag.kind == "integer":
            return int(text)
        if flag.kind == "number":
            return float(text)
    except ValueError:
        what = "a whole number" if flag.kind == "integer" else "a number"
        raise UsageError(f"{called} expects {what}, got {quoted(text)}") from None
    if flag.kind == "choice" and text not in flag.choices:
        raise UsageError(f"{called} expects one of {', '.join(flag.choices)}, got {quoted(text)}")
    return split_list(text) if flag.kind == "list" else text


def split_list(text: str) -> tuple[str, ...]:
    """Split at commas; two commas in a row are one comma of the text."""
    return tuple(item.replace("\0", ",") for item in text.replace(",,", "\0").split(","))
