"""Decisions about standbys: what they load, whether one may be promoted, how many there are. Pure."""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.contract.blackbox import Learned
from planaria.contract.env import RANK_VARIABLES
from planaria.contract.standby import JOIN, PRELOAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.contract.standby import Report, Triple
    from planaria.process.prints import Print
    from planaria.process.spawn import Start

RESERVE_BYTES = 1 << 30  # memory that standbys leave to everybody else
FIRST_BYTES = 1 << 29  # what the first one is taken to need: about twice a process that has imported torch
LATE_LEAST_S = 60.0  # a standby shares its CPUs with workers that train, and may be many times slower
LATE_TIMES = 10.0
RETRIES = 3  # standbys in a row that may die or be unfit before we stop trying
_INSTALLED = ("site-packages", "dist-packages")
_FEW = 5  # names in a sentence
_MB = 1 << 20


class Lesson(Value):
    """What a life taught us for a standby, and the files of the program that did: of another program it says nothing.

    `program` are the user's own files, the main one first, each with its fingerprint in that life.
    """

    learned: Learned = Learned()
    program: tuple[tuple[str, Print], ...] = ()


class Plan(Value):
    """What a standby does before it waits. Modules are pairs of name and file; `own` are never loaded ahead.

    One that runs the program does so as long as `program`, files with their fingerprints, is what it was when a worker joined:
    another one may never join. It has `patience_s` to come to `join()`, and may be ended then.
    """

    mode: str = PRELOAD
    load: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    program: tuple[tuple[str, Print], ...] = ()
    patience_s: float = LATE_LEAST_S

    def papers(self) -> list[Triple]:
        """Return the plan as a standby reads it."""
        return [
            ("mode", self.mode, ""),
            *(("rank", name, "") for name in sorted(RANK_VARIABLES)),
            *(("load", name, file) for name, file in self.load),
            *(("own", name, file) for name, file in self.own),
        ]


def is_same(one: Plan, other: Plan) -> bool:
    """Tell whether two plans come to the same; how long the last life took to join is no reason for a new standby."""
    return replace(one, patience_s=0.0) == replace(other, patience_s=0.0)


def make_plans(lesson: Lesson, folders: tuple[str, ...], count: int) -> tuple[Plan, ...]:
    """Return, by local rank, what the next standbys do: only for a rank that has joined the program is run."""
    plan = replace(make_plan(lesson.learned, folders), program=lesson.program)
    patience_s = {join.local_rank: patience(join.after_s) for join in lesson.learned.joins}
    return tuple(
        replace(plan, mode=JOIN, patience_s=patience_s[local_rank]) if local_rank in patience_s else plan
        for local_rank in range(count)
    )


def patience(after_s: float) -> float:
    """Return how long a standby may take to come to `join()`, where a worker took so long."""
    return max(LATE_TIMES * after_s, LATE_LEAST_S)


def make_plan(learned: Learned, folders: tuple[str, ...]) -> Plan:
    """Return what the next standby does after a life that loaded these modules, unless it runs the program.

    `folders` are the user's own tree, absolute: the script's folder and the current one. Everything in them is the user's,
    also a package that is installed from there in place, but for an environment that lies in them and Python's own library.
    A module of the user's, and what is found below it, is never loaded ahead: its file may be about to change.
    """
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


def newer(before: Lesson, now: Lesson, *, is_under_way: bool = False) -> Lesson:
    """Return which of two lives teaches a standby more: the newer one, unless it has shown only a part of the one before.

    A life that is young, or was short, has come through a part of its imports; what it will load is what its predecessor did.
    Not so when it runs another program. And one that `is_under_way`, so that a worker has reported progress, has shown who
    joins: a rank that did so only in the life before does not do it any more.
    """
    then, program = {join.local_rank: join for join in before.learned.joins}, dict(before.program)
    joined = {join.local_rank: join for join in now.learned.joins}
    is_other = any(program.get(file, found) != found for file, found in now.program)
    is_part = joined.keys() <= then.keys() and set(now.learned.files) <= set(before.learned.files)
    if is_other or not is_part:
        return now
    joins = joined if is_under_way else then | joined
    learned = replace(before.learned, joins=tuple(joins[local_rank] for local_rank in sorted(joins)))
    return Lesson(learned, tuple((program | dict(now.program)).items()))


def own_files(learned: Learned, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of the program that are the user's own, as far as they are known: its main one, where it has joined, and
    what it has loaded of the user's tree.
    """
    own = [file for _, file in make_plan(learned, folders).own]
    return tuple(dict.fromkeys(file for file in (*(join.main for join in learned.joins), *own) if file))


def narrow(plan: Plan, report: Report) -> Plan:
    """Return what is left to load after a standby that must not be promoted said why.

    Whoever read a rank or started a device is left out, with its whole package. If a name led to another file than in the
    life before, the program changes `sys.path` on its way, and nothing that is loaded before can be trusted.
    """
    if report.differs:
        return replace(plan, load=())
    dropped = {name.partition(".")[0] for name in report.unfit}
    return replace(plan, load=tuple(one for one in plan.load if one[0].partition(".")[0] not in dropped))


def without_unfit(plan: Plan, reports: Sequence[Report]) -> Plan:
    """Return what is left to load after these; nothing, where there was no end of them."""
    for report in reports:
        plan = narrow(plan, report)
    return replace(plan, load=()) if len(reports) > RETRIES else plan


def failures_after_unfit(failures: int, reports: Sequence[Report]) -> int:
    """Return how many in a row were of no use, with one more that was unfit: the last of these reports is its own.

    After the last that may be, the next one loads nothing. It is fit in the end, and better than none.
    """
    return 0 if len(reports) == RETRIES + 1 else failures + 1


def runs_too_often_in_vain(plan: Plan, failures: int) -> bool:
    """Tell whether standbys are to run the program no more, after so many in a row that have died in it."""
    return plan.mode == JOIN and failures > RETRIES


def safe_mode(plan: Plan, *, has_changed: bool, never_joins: bool) -> Plan:
    """Return what a standby does that is started now. One that does not join would run the program beside the worker."""
    return replace(plan, mode=PRELOAD) if plan.mode == JOIN and (has_changed or never_joins) else plan


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


class Lost(Value):
    """What became of the standby that a local rank had before. What made that one stale is why a cold start it is."""

    why: str = ""
    is_stale: bool = False


PROMOTED = Lost("the one before was promoted")
REPLACED = Lost("the one before was replaced: the last life ran or loaded something else")


class Absence(Value):
    """What is known of a local rank that has no standby when its worker is to be started.

    `pause` says why none is started for anybody at the moment. `place` is the rank's among those that lack one, `free` how many
    of them are to get one, and `short` why not all are.
    """

    local_rank: int = 0
    is_last: bool = False
    is_taught: bool = True
    failures: int = 0
    pause: str = ""
    asked: int | None = None
    place: int = 0
    free: int = 0
    short: str = ""
    lost: Lost = Lost()


def absence(one: Absence) -> str:
    """Say why there is no standby. What keeps the next from being started says more than how the last one went."""
    if bar := _bar(one):
        return f"there is no standby: {bar}"
    return one.lost.why if one.lost.is_stale else f"there is no standby yet: {one.lost.why or _IN_TURN}"


_IN_TURN = "they are started one after the other"


def _bar(one: Absence) -> str:
    """Say why none was to be started for this rank; empty: it was."""
    if one.is_last:
        return "the life before was to be the last one, which has none"
    if not one.is_taught:
        return "the life before was too short to learn what it loads"
    if one.asked is not None and one.local_rank >= one.asked:
        return f"only {one.asked} {'was' if one.asked == 1 else 'were'} asked for"
    return given_up(one.failures) or one.pause or (one.short if one.place >= one.free else "")


def given_up(failures: int) -> str:
    """Say that there will be none in this life any more, after so many in a row that were of no use; empty: there will."""
    return (
        f"{failures} standbys in a row were of no use: no more are started before the next life"
        if failures > RETRIES
        else ""
    )


def not_ready(lost: Lost) -> str:
    """Say why the standby there is cannot be promoted, and why it is so young."""
    if lost.is_stale:
        return lost.why
    return f"it is not ready yet: {lost.why}" if lost.why else "it is not ready yet"


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
        are = "is only 1 worker" if local_world_size == 1 else f"are only {local_world_size} workers"
        why = f"{asked} standbys were asked for, but there {are} to stand by for"
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
