"""Find progress in the lines that workers write, by a pattern of the user's with named groups. Pure.

`step` and `samples` are numbers, `phase` is a name; any other group that is a number goes along as a value. Without `step`,
every line that matches is one step further; a line with a phase alone is none. A step in a line without a phase ends the phase
that an earlier line has begun.
"""

from __future__ import annotations

import re

from planaria.base.usage import wrong
from planaria.base.value import Value
from planaria.contract.control import INTEGER_LIMIT, LONGEST_PHASE, STEP, Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE = 4096  # a pattern may take long on a line without end
_OWN = ("step", "samples", "phase")


class Seen(Value):
    """What a line says: a phase, empty for the steps themselves; progress; or both."""

    phase: str | None = None
    progress: Progress | None = None


def check(pattern: str, source: str) -> None:
    """Refuse what is no pattern, or names nothing that we could use.

    Raises:
        UsageError: One sentence that names `source`.
    """
    try:
        named = re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as problem:
        raise wrong(source, f"a regular expression ({problem})", pattern) from None
    if not any(name in named for name in _OWN):
        raise wrong(source, "a group that is named step, samples or phase, such as 'step (?P<step>[0-9]+)'", pattern)


class Reader:
    """Reads the lines of one rank's streams, life after life. Steps that are counted here are counted over all of them."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._counts = "step" not in self._pattern.groupindex
        self._step = 0
        self._phase = ""

    def begin(self) -> None:
        """Begin a life: it is in no phase that the one before has begun."""
        self._phase = ""

    def read(self, lines: bytes) -> Iterator[Seen]:
        """Return what some whole lines say, in their order."""
        for line in lines.splitlines():
            match = self._pattern.search(line[:LONGEST_LINE].decode("utf-8", "replace"))
            if match is not None:
                yield self._seen(match.groupdict())

    def _seen(self, groups: dict[str, str | None]) -> Seen:
        numbers = {name: number for name, text in groups.items() if (number := _number(text)) is not None}
        phase = groups.get("phase")
        name = None if phase is None else "" if phase.strip().lower() == STEP else phase.strip()[:LONGEST_PHASE]
        if "step" in numbers:
            self._step = int(numbers["step"])
        elif not self._counts or (phase is not None and not numbers):
            self._phase = self._phase if name is None else name
            return Seen(name)
        else:
            self._step += 1
        if name is None and self._phase:
            name = ""
        self._phase = name or ""
        values = tuple((key, number) for key, number in numbers.items() if key not in ("step", "phase"))
        return Seen(name, Progress(self._step, values))


def _number(text: str | None) -> float | None:
    try:
        number = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return number if abs(number) < INTEGER_LIMIT else None
