"""Carry a plan out, and take it back when a call fails. There is nothing to decide here but what a failure leaves.

A call that failed may have been done all the same, so after each failure a look tells. What this run made is taken back in
reverse; the claim goes last, and stays when something else could not be taken back: `list` still shows the job then, the
same `run_job` goes on with it, and `kill_job` removes it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planaria.aws.seen import is_missing, seen
from planaria.aws.session import Cloud
from planaria.aws.steps import ANY_RUN, SHARED, Call, File, Kind, Plan, Script, Seen, Step, Token
from planaria.base.usage import quoted
from planaria.errors import AwsError, UsageError

GONE_S = 600.0  # a group with instances takes minutes to go
LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Hands:
    """What carrying out needs beside AWS."""

    cloud: Cloud
    say: Callable[[str], None]  # progress
    pause: Callable[[float], None]
    now: Callable[[], float]  # monotonic


def carry_out(plan: Plan, hands: Hands, token: str) -> None:
    """Make everything in a plan that is not there yet.

    Raises:
        UsageError: A name belongs to another run, or somebody removed the job meanwhile; nothing of this run is left.
        AwsError: A call failed. What was made is gone again, or the message says what is left and who removes it.
    """
    ours: list[Step] = []
    suspect: list[Step] = []
    try:
        for step in plan.steps:
            suspect = [step]
            if _make(step, plan.run, hands, token):
                ours.append(step)
            suspect = []
        _check_claim(plan, hands.cloud)
    except (AwsError, UsageError) as problem:
        doubtful = [] if isinstance(problem, UsageError) else suspect
        raise _after(problem, plan, take_back([*ours, *doubtful], plan.run, hands)) from problem
    except BaseException as problem:  # Ctrl-C, or a bug of ours: nobody shall pay for it
        hands.say(f"{_why(problem)}: taking back what was made")
        _take_back_at_once([*ours, *suspect], plan, hands)
        raise


def _why(problem: BaseException) -> str:
    return "interrupted" if isinstance(problem, KeyboardInterrupt) else f"stopped by {type(problem).__name__}"


def _check_claim(plan: Plan, cloud: Cloud) -> None:
    """Refuse a job whose claim is gone: whoever removed it meanwhile has not seen what was made since."""
    if look(plan.steps[0], cloud).run != plan.run:
        raise UsageError(f"job {plan.job!r} was removed while it was made", hint="give the same command again")


def _take_back_at_once(steps: list[Step], plan: Plan, hands: Hands) -> None:
    """Take back what a command made that did not end well; who interrupts that is told what to do."""
    try:
        left = take_back(steps, plan.run, hands)
    except BaseException:
        hands.say(f"that was interrupted, and something may be left: {_who_removes(plan)}")
        raise
    if left:
        hands.say(f"{_names(left)} could not be taken back: {_who_removes(plan)}")


def _make(step: Step, run: str, hands: Hands, token: str) -> bool:
    """Make one thing; tell whether it is this run's."""
    found = look(step, hands.cloud)
    if not found.there:
        hands.say(f"making {step.kind} {step.name}")
        try:
            hands.cloud.call(filled(step.do, token))
        except AwsError as problem:
            found = _look_or_raise(step, hands.cloud, problem)
        else:
            return True
    if found.run == run or step.kind in SHARED:
        return found.run == run
    if found.going:
        raise UsageError(f"{step.kind} {step.name} is still being deleted", hint="try again in a minute")
    raise UsageError(
        f"{step.kind} {step.name} is there already, of run {found.run or 'unknown'}",
        hint="petctl kill_job removes what is left of a job; or choose another --name",
    )


def _look_or_raise(step: Step, cloud: Cloud, problem: AwsError) -> Seen:
    """Return what is there after a call that failed; raise its error where there is nothing, or nobody can tell."""
    try:
        found = look(step, cloud)
    except AwsError:
        raise problem from None
    if not found.there:
        raise problem
    return found


def look(step: Step, cloud: Cloud) -> Seen:
    """Return whether something is there, and whose it is."""
    answer = None if step.look is None else cloud.ask(step.look)
    return Seen(False) if answer is None else seen(step.kind, answer)


def take_back(steps: list[Step], run: str, hands: Hands) -> list[Step]:
    """Take back steps of this run, the last one first; return those that could not be."""
    left: list[Step] = []
    for step in reversed(steps):
        if step.undo is None:
            continue
        if step.kind is Kind.CLAIM and left:
            left.append(step)
            continue
        try:
            if _is_theirs(step, run, hands.cloud):
                continue
            hands.say(f"taking back {step.kind} {step.name}")
            hands.cloud.call(step.undo)
        except AwsError as problem:
            if not is_missing(problem.code, problem.detail) and not _is_gone(step, hands.cloud):
                left.append(step)
    return left


def _is_theirs(step: Step, run: str, cloud: Cloud) -> bool:
    """Tell whether this is of another run, or of nobody we know. A call that failed may have failed because of it."""
    found = look(step, cloud)
    return found.there and found.run != run


def _is_gone(step: Step, cloud: Cloud) -> bool:
    try:
        found = look(step, cloud)
    except AwsError:
        return False
    return not found.there or found.going


def _after(problem: AwsError | UsageError, plan: Plan, left: list[Step]) -> AwsError | UsageError:
    if not left:
        problem.message += "; nothing of this run is left"
        return problem
    problem.message += f"; left: {_names(left)}"
    problem.hint = _who_removes(plan)
    return problem


def _names(steps: list[Step]) -> str:
    return ", ".join(f"{step.kind} {step.name}" for step in steps)


def _who_removes(plan: Plan) -> str:
    return f"the same command again goes on, and `petctl kill_job {plan.job}` removes what is left"


def remove(plan: Plan, hands: Hands, *, wait: bool) -> bool:
    """Take apart what a removal plan names; return whether anything was there. The same call again goes on.

    Raises:
        UsageError: Something has the name, and is not of a job of ours.
        AwsError: A call failed; the claim is still there, so that the job can be found.
    """
    found = False
    for step in plan.steps:
        there = look(step, hands.cloud)
        if not there.there or plan.run not in (ANY_RUN, there.run):
            continue  # nothing, or of a run that began after somebody looked
        if there.job != plan.job:
            raise UsageError(
                f"{step.kind} {step.name} is not of job {plan.job}: it lacks the tag that petctl gives",
                hint="it is left alone; who made it can remove it",
            )
        found = True
        hands.say(f"removing {step.kind} {step.name}")
        try:
            hands.cloud.call(step.do)
        except AwsError as problem:
            if not is_missing(problem.code, problem.detail) and not _is_gone(step, hands.cloud):
                raise
        if step.kind is Kind.GROUP and wait:
            _await_gone(step, hands)
    return found


def _await_gone(step: Step, hands: Hands) -> None:
    """Wait for a group: a worker that outlives the store would crash in vain."""
    until = hands.now() + GONE_S
    hosts = 0
    while (there := look(step, hands.cloud)).there:
        if there.hosts != hosts:
            hosts = there.hosts
            hands.say(f"{step.name}: {hosts} hosts are still there")
        if hands.now() > until:
            raise AwsError(
                f"{step.kind} {step.name} is still there after {GONE_S:.0f} s",
                hint="AWS goes on deleting it; give the same command again later",
            )
        hands.pause(LOOK_S)


def filled(call: Call, token: str) -> Call:
    """Return a call with everything that stood for something put in."""
    return Call(call.service, call.method, {key: _value(value, token) for key, value in call.request.items()})


def _value(value: object, token: str) -> object:
    match value:
        case Token():
            return token
        case File():
            return _content(value)
        case Script(text=text):
            return base64.b64encode(text.encode()).decode()
        case Mapping():
            return {key: _value(inner, token) for key, inner in value.items()}
        case list():
            return [_value(inner, token) for inner in value]
        case _:
            return value


def _content(file: File) -> bytes:
    try:
        with open(file.path, "rb") as opened:
            content = opened.read()
    except OSError as problem:  # it was there a moment ago
        raise UsageError(f"cannot read {quoted(file.path)}: {problem.strerror}") from problem
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise UsageError(f"{quoted(file.path)} was changed meanwhile", hint="give the same command again")
    return content
