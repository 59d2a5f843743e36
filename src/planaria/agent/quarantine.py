"""A node that is checked before it joins: it passes, or it is set aside for a while and checked again. Pure.

    CHECKING -> STARTING or WAITING      the checks passed: workers are started, or the other nodes are met
    CHECKING -> CHECKING                 they failed: the node is set aside, and checked again after its cool-down
    CHECKING -> FINISHING                they failed on a node alone, or too often; or the owner wants the end

Only a run with `--preflight` imports this file. Nobody was met yet, so nobody has to be told of an end.
"""

from __future__ import annotations

from planaria.agent.machine import TREE_S, step
from planaria.agent.model import (
    CHECKING,
    FINISHING,
    STARTING,
    WAITING,
    Begun,
    CheckNode,
    DeadlinePassed,
    EndRequested,
    EndTree,
    LauncherDied,
    NodeChecked,
    Outcome,
    SetDeadline,
    StopRequested,
    TellSetAside,
)
from planaria.base import signals
from planaria.base.text import safe_line
from planaria.base.value import Value, replace
from planaria.contract import exit_status
from planaria.errors import InvalidTransition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.agent.model import Effect, Event, Group

    Step = tuple[Group, tuple[Effect, ...]]

LONGEST_S = 600.0  # what is mended by hand is not noticed later than this
MOST_SETBACKS = 10  # some 70 minutes by default; then whoever keeps the nodes should hear of it

ELSEWHERE = ("dns.endpoint", "ports.reach")
"""What fails when another node is only late: the rendezvous waits for it, and says so."""
HANGS = ("disk.answer", "gpu.answer")
"""What hangs with these hangs workers, too. Others that do not answer in time are slow, and no more is known of them."""
_LATE, _BUG = ".answer", ".bug"
_SHOWN = 3


class Judged(Value):
    """What the checks found: what keeps this node from joining, what else is to be said, and what was not in order."""

    problem: str
    lines: tuple[str, ...]
    bad: tuple[Mapping[str, object], ...]
    count: int


def judged(said: bytes) -> Judged | None:
    """Judge what the doctor said; None for what cannot be read: that we are slow, or wrong, is no fault of the node."""
    import json

    try:
        findings = json.loads(said)["findings"]
        failed = [one for one in findings if not one["ok"] and sets_aside(one["check"])]
        bad = [one for one in findings if one["verdict"] != "ok"]
        lines = [safe_line(f"{one['check']}: {one['sentence']}", 500) for one in bad if one not in failed]
        return Judged(problem_of(failed), tuple(lines), tuple(bad), len(findings))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def unchecked_line(late_s: float | None) -> str:
    """Return what is said of a node whose checks said nothing that can be read, within `late_s` if that is why."""
    late = "" if late_s is None else f" within {late_s:g} s"
    return f"the checks did not come to an end{late}, and this node goes on unchecked: run planaria doctor"


def sets_aside(check: str) -> bool:
    """Tell whether a failure of this check keeps a node from joining. A bug of ours does not."""
    return check in HANGS or not (check in ELSEWHERE or check.endswith((_LATE, _BUG)))


def problem_of(failed: Sequence[Mapping[str, object]]) -> str:
    """Return in a line what keeps a node from joining; empty when nothing does."""
    told = [f"{one['check']}: {one['sentence']} -> {one['remedy']}" for one in failed]
    more = f"; and {len(told) - _SHOWN} more: run planaria doctor" if len(told) > _SHOWN else ""
    return safe_line("; ".join(told[:_SHOWN]) + more, 1000)


def aside_line(problem: str, after_s: float, *, has_endpoint: bool) -> str:
    """Return what is said of a node that is set aside; `has_endpoint`: the only one, so nobody meets without this node."""
    others = ", and all others wait, since the only endpoint is here" if has_endpoint else ""
    return f"this node is set aside for {after_s:g} s and joins nobody{others}: {problem}"


def cooldown_s(first_s: float, setbacks: int) -> float:
    """Return how long a node is set aside after so many failures in a row, which is one at least."""
    return min(first_s * 2.0 ** min(setbacks - 1, 30), max(LONGEST_S, first_s))


def step_checking(group: Group, event: Event) -> Step:
    """Decide what happens to a node that has not joined yet."""
    if group.phase != CHECKING:  # its owner wanted the end first
        return group, ()
    match event:
        case Begun() | DeadlinePassed():
            return group, (CheckNode(),)
        case NodeChecked(problem, at):
            return _judged(group, problem) if problem else _passed(group, at)
        case StopRequested(number):
            return _end(group, Outcome("signal", exit_status.by_signal(number), number))
        case EndRequested(reason):
            status = exit_status.by_signal(signals.SIGTERM)
            return _end(group, Outcome("stopped", status, explanation=reason))
        case LauncherDied():
            return _end(group, Outcome("abandoned", exit_status.by_signal(signals.SIGKILL), signals.SIGKILL))
        case _:
            raise InvalidTransition(group.phase, event)


def _passed(group: Group, at: float) -> Step:
    phase = STARTING if group.alone else WAITING
    return step(replace(group, phase=phase, has_met=True, setbacks=0, set_aside=""), Begun(at))


def _judged(group: Group, problem: str) -> Step:
    setbacks = group.setbacks + 1
    group = replace(group, setbacks=setbacks, set_aside=problem)
    if group.alone or setbacks >= MOST_SETBACKS:
        times = "" if setbacks == 1 else f" {setbacks} times"
        why = f"this node failed its checks{times}: {problem}"
        return _end(group, Outcome("failed", exit_status.NODE_FAILED, explanation=why))
    after_s = cooldown_s(group.cooldown_s, setbacks)
    return group, (TellSetAside(problem, after_s), SetDeadline(after_s))


def _end(group: Group, outcome: Outcome) -> Step:
    return replace(group, phase=FINISHING, outcome=outcome), (EndTree(TREE_S),)
