"""The child that runs one job's pattern: started by its path, reads requests and writes answers, one line of JSON each.

It imports nothing of ours, and little else: there may be hundreds. Before each batch it asks the kernel to end it should it
compute for longer than the budget; that works also when whoever started it is gone and nobody counts. The first line has the
pattern and the limits, every other one lines of a log. A pattern that cannot be used is told instead of every answer.
"""

from __future__ import annotations

import json
import math
import re
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_MEMORY = 3  # the exit status where there is no more memory; a bug of Python or of ours ends with 1


def main() -> None:
    """Answer until the input ends."""
    asked = json.loads(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory"], asked["memory"]))
    _budget(asked["cpu_s"])
    pattern = _compiled(asked["pattern"], asked["needs"])
    for line in sys.stdin:
        _budget(asked["cpu_s"])
        answer = pattern if isinstance(pattern, dict) else _answer(pattern, json.loads(line), asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _compiled(text: str, needs: str) -> re.Pattern[str] | dict[str, str]:
    """Return the pattern, or why it cannot be used."""
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as exc:
        return {"unreadable": str(exc)}
    return pattern if needs in pattern.groupindex else {"lacks": needs}


def _answer(pattern: re.Pattern[str], lines: list[str], asked: dict[str, Any]) -> list[dict[str, str] | None]:
    return [_groups(pattern.search(line), asked["groups"], asked["longest"]) for line in lines]


def _budget(cpu_s: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    # The kernel counts in whole seconds: at least what was promised, and less than a second more.
    limit = math.ceil(used.ru_utime + used.ru_stime + cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _groups(match: re.Match[str] | None, names: list[str], longest: int) -> dict[str, str] | None:
    if match is None:
        return None
    found = {name: value for name, value in match.groupdict().items() if name in names and value is not None}
    return {name: value for name, value in found.items() if len(value) <= longest}


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(NO_MEMORY)
