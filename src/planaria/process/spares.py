"""Decisions about standbys: what they load, whether one may be promoted, how many there are. Pure."""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.contract.env import RANK_VARIABLES
from planaria.contract.standby import JOIN, PRELOAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.blackbox import Learned
    from planaria.contract.standby import Report, Triple
    from planaria.process.spawn import Start

RESERVE_BYTES = 1 << 30  # memory that standbys leave to everybody else
FIRST_BYTES = 1 << 29  # what the first one is taken to need: about twice a process that has imported torch
_INSTALLED = ("site-packages", "dist-packages")
_FEW = 5  # names in a sentence
_MB = 1 << 20


class Plan(Value):
    """What a standby does before it waits. Modules are pairs of name and file; `own` are never loaded ahead."""

    mode: str = PRELOAD
    load: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, str], ...] = ()

    def papers(self) -> list[Triple]:
        """Return the plan as a standby reads it."""
        return [
            ("mode", self.mode, ""),
            *(("rank", name, "") for name in sorted(RANK_VARIABLES)),
            *(("load", name, file) for name, file in self.load),
            *(("own", name, file) for name, file in self.own),
        ]


def make_plan(learned: Learned, folders: tuple[str, ...]) -> Plan:
    """Return what the next standby does after a life that loaded these modules.

    `folders` are the user's own tree, absolute: the script's folder and the current one. Everything in them is the user's,
    also a package that is installed from there in place, but for an environment that lies in them and Python's own library.
    A module of the user's, and what is found below it, is never loaded ahead: its file may be about to change.
    """
    if learned.joins:
        return Plan(JOIN)
    library = dict(learned.files).get("os", "").rpartition("/")[0]
    own = {name for name, file in learned.files if file and _is_own(file, folders, library)}
    is_own = [_has_package(name, own) for name, _ in learned.files]
    pairs = list(zip(learned.files, is_own, strict=True))
    return Plan(PRELOAD, tuple(one for one, its in pairs if not its), tuple(one for one, its in pairs if its))


def _is_own(file: str, folders: tuple[str, ...], library: str) -> bool:
    if any(f"/{part}/" in file for part in _INSTALLED) or (library and file.startswith(f"{library}/")):
        return False
    return not file.startswith("/") or any(file.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _has_package(name: str, names: set[str]) -> bool:
    """Tell whether a module or a package around it is among `names`."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def newer(before: Learned, now: Learned) -> Learned:
    """Return which of two lists teaches a standby more: the newer one, unless it is only a part of the one before.

    A life that is young, or was short, has come through a part of its imports; what it will load is what its predecessor did.
    """
    is_part = now.joins <= before.joins and set(now.files) <= set(before.files)
    return before if is_part else now


def narrow(plan: Plan, report: Report) -> Plan:
    """Return what is left to load after a standby that must not be promoted said why.

    Whoever read a rank or started a device is left out, with its whole package. If a name led to another file than in the
    life before, the program changes `sys.path` on its way, and nothing that is loaded before can be trusted.
    """
    if report.differs:
        return replace(plan, load=())
    dropped = {name.partition(".")[0] for name in report.unfit}
    return replace(plan, load=tuple(one for one in plan.load if one[0].partition(".")[0] not in dropped))


def refusal(warm: Start, cold: Start) -> str:
    """Say why a standby started as `warm` cannot stand in for a start as `cold`; empty when it can.

    Only names of variables are told: their values may be secrets.
    """
    names = {*warm.environment, *cold.environment} - RANK_VARIABLES
    changed = sorted(name for name in names if warm.environment.get(name) != cold.environment.get(name))
    if changed:
        more = f" and {len(changed) - _FEW} more" if len(changed) > _FEW else ""
        return f"the environment differs in {', '.join(changed[:_FEW])}{more}"
    for field, words in _FIELDS.items():
        if getattr(warm, field) != getattr(cold, field):
            return f"{words} differs"
    return ""


_FIELDS = {
    "argv": "the command line",
    "cpus": "the binding to CPUs",
    "signal_mask": "the set of blocked signals",
    "priority": "the priority",
    "file_limit": "the limit of open files",
    "leash_fd": "the process that workers end with",
}


def standby_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment without what only a round can tell."""
    return {name: value for name, value in environment.items() if name not in RANK_VARIABLES}


class Count(Value):
    """How many standbys there are to be; `why` says it when they are fewer than were asked for."""

    number: int
    why: str = ""


def how_many(
    asked: int | None,
    local_world_size: int,
    *,
    standing: int,
    each_bytes: int,
    free_bytes: int,
    is_short: bool = False,
) -> Count:
    """Decide how many standbys a node keeps. `asked` is None for `auto`: one for each local rank when memory allows.

    `standing` are those that are there and hold their memory, `each_bytes` what one of them takes, 0 when none has been
    ready yet: then one is started, to see. `free_bytes` is what nobody was promised, below zero where too much was. Some
    end when more than half of what is left alone has been taken since: not sooner, so that they do not come and go.
    A number that was asked for is not second-guessed, unless a commit found no room beside them: `is_short`.
    """
    if asked is not None and not is_short:
        why = f"{asked} standbys were asked for, but there are only {local_world_size} workers to stand by for"
        return Count(min(asked, local_world_size), why if asked > local_world_size else "")
    wanted = local_world_size if asked is None else min(asked, local_world_size)
    left_bytes = free_bytes - RESERVE_BYTES
    if left_bytes >= 0 or left_bytes < -RESERVE_BYTES // 2:
        more = left_bytes // (each_bytes or FIRST_BYTES)  # rounded down, also what is below zero
        number = standing + more if each_bytes else max(standing, min(more, 1))
    else:
        number = standing
    number = max(min(number, wanted), 0)
    if number == wanted or (number and not each_bytes):
        return Count(number)
    takes = f"each takes {each_bytes // _MB} MB" if each_bytes else f"the first one may take {FIRST_BYTES // _MB} MB"
    return Count(
        number,
        f"{number} of {wanted} standbys: {takes}, {max(free_bytes, 0) // _MB} MB of memory are free, and "
        f"{RESERVE_BYTES // _MB} MB are left alone",
    )
