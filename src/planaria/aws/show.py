"""Print a plan, as text or as data. Pure. Secrets are not in a plan, so they cannot be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping

from planaria.aws.steps import ANY_RUN, AsStarted, Call, File, Kind, Plan, Script, Step, Token

UNSEEN = "(made when the plan is carried out, and never shown)"


def as_data(plan: Plan) -> dict[str, object]:
    """Return a plan for `--json`, user data in full."""
    return {
        "version": 1,
        "job": plan.job or None,
        "run": plan.run or None,
        "steps": [
            {
                "kind": str(step.kind),
                "name": step.name,
                "do": _call(step.do),
                "look": None if step.look is None else _call(step.look),
                "undo": None if step.undo is None else _call(step.undo),
            }
            for step in plan.steps
        ],
    }


def as_text(plan: Plan) -> str:
    """Return a plan for people, ending in a newline."""
    run = "" if plan.run == ANY_RUN else f", run {plan.run}"
    whose = f"job {plan.job}{run}: " if plan.job else ""
    lines = [f"{whose}{len(plan.steps)} step{'s'[: len(plan.steps) > 1]}; nothing was asked of AWS"]
    for number, step in enumerate(plan.steps, 1):
        lines += ["", f"{number}. {step.kind} {step.name}", *_told(step)]
    return "\n".join(lines) + "\n"


def _told(step: Step) -> list[str]:
    request = json.dumps(_plain(step.do.request, short=True), indent=2, ensure_ascii=False)
    lines = [
        f"   do    {step.do} {request}".replace("\n", "\n   "),
        f"   look  {step.look or 'no need: it can be done twice'}",
    ]
    if step.undo != step.do:
        # What has no way back of its own goes with the step before it; a size is changed again.
        without = "none: scale sets another size" if step.kind is Kind.GROUP else "with the step before it"
        lines.append(f"   undo  {step.undo or without}")
    return lines


def _call(call: Call) -> dict[str, object]:
    return {"service": call.service, "method": call.method, "request": _plain(call.request)}


def _plain(value: object, *, short: bool = False) -> object:
    match value:
        case Token():
            return UNSEEN
        case AsStarted():
            return "(the one that the job was started with)"
        case File(path=path, size_bytes=size):
            return f"({size} bytes of {path})"
        case Script(text=text):
            return f"({len(text.encode())} bytes of bash; --json has them)" if short else text
        case bytes():
            return value.decode()
        case Mapping():
            return {str(key): _plain(inner, short=short) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, short=short) for inner in value]
        case _:
            return value
