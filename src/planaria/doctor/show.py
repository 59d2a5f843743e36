"""Findings for people. Pure."""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.doctor.model import FAIL, OK, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.doctor.model import Finding


class Style(Value):
    """Escape sequences, all empty when the screen is not a terminal."""

    good: str = ""
    doubtful: str = ""
    bad: str = ""
    plain: str = ""


COLOURS = Style("\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m")
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
            lines.append(f"{style.good}ok  {style.plain}  {group}: {_counted(len(found), 'check')}")
        for one in found if is_long else troubles:
            lines += _lines(one, style)
    return "\n".join([*lines, summary(findings)]) + "\n"


def _lines(one: Finding, style: Style) -> list[str]:
    colour = {OK: style.good, WARN: style.doubtful, FAIL: style.bad}[one.verdict]
    told = [f"{colour}{one.verdict:<4}{style.plain}  {one.check}: {safe_line(one.sentence, _LONGEST)}"]
    return [*told, f"      -> {safe_line(one.remedy, _LONGEST)}"] if one.remedy else told


def summary(findings: Sequence[Finding]) -> str:
    """Say in one line how it came out."""
    failed = sum(one.verdict == FAIL for one in findings)
    doubtful = sum(one.verdict == WARN for one in findings)
    parts = [_counted(failed, "failure")] * bool(failed) + [_counted(doubtful, "warning")] * bool(doubtful)
    return f"{_counted(len(findings), 'check')}: {' and '.join(parts) or 'all is well'}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
