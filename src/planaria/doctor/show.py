"""Findings for people. Pure."""

from __future__ import annotations

from planaria.base.text import safe_line, several
from planaria.doctor.model import FAIL, OK, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.base.colours import Style
    from planaria.doctor.model import Finding

_LONGEST = 600


def as_text(findings: Sequence[Finding], style: Style, *, is_long: bool = False) -> str:
    """Return a line for each finding, with its remedy below it; groups in which all is well have one line together."""
    groups: dict[str, list[Finding]] = {}
    for one in findings:
        groups.setdefault(one.check.partition(".")[0], []).append(one)
    lines = []
    for group, found in groups.items():
        troubles = [one for one in found if one.verdict != OK]
        if not troubles and not is_long:
            lines.append(f"{style.green}ok  {style.plain}  {group}: {several(len(found), 'check')}")
        for one in found if is_long else troubles:
            lines += _lines(one, style)
    return "\n".join([*lines, summary(findings)]) + "\n"


def _lines(one: Finding, style: Style) -> list[str]:
    colour = {OK: style.green, WARN: style.yellow, FAIL: style.red}[one.verdict]
    told = [f"{colour}{one.verdict:<4}{style.plain}  {one.check}: {safe_line(one.sentence, _LONGEST)}"]
    return [*told, f"      -> {safe_line(one.remedy, _LONGEST)}"] if one.remedy else told


def summary(findings: Sequence[Finding]) -> str:
    """Say in one line how it came out."""
    failed = sum(one.verdict == FAIL for one in findings)
    doubtful = sum(one.verdict == WARN for one in findings)
    parts = [several(failed, "failure")] * bool(failed) + [several(doubtful, "warning")] * bool(doubtful)
    return f"{several(len(findings), 'check')}: {' and '.join(parts) or 'all is well'}"
