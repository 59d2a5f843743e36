"""The kernel, the interpreter and ourselves. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.doctor.model import Finding

OLDEST_PYTHON = (3, 11)


class SystemFacts(Value):
    """What we run on. `missing` names features of the kernel that were tried in vain, and why."""

    kernel: str
    python: tuple[int, int, int]
    planaria: str
    missing: tuple[tuple[str, str], ...] = ()
    installed: str | None = None
    """The version that the installed package has, where it can be found."""


_NEEDED = {
    "pidfd": (
        "warn",
        "ends of workers are then noticed by SIGCHLD alone",
        "a kernel from 5.3, or a sandbox that allows it",
    ),
    "memfd": (
        "fail",
        "commits of ElasticState cannot be kept in memory",
        "a kernel from 3.17, or a sandbox that allows it",
    ),
    "eventfd": ("fail", "the agent cannot wait for look-ups", "a sandbox that allows it"),
    "epoll": ("fail", "the agent cannot wait for anything", "a sandbox that allows it"),
    "proc": ("fail", "what is left of a job cannot be found and ended", "mount -t proc proc /proc"),
}
FEATURES = tuple(_NEEDED)


def check_system(facts: SystemFacts) -> list[Finding]:
    """Judge what we run on."""
    return [*_kernel(facts), _python(facts), _planaria(facts)]


def _kernel(facts: SystemFacts) -> list[Finding]:
    check = "system.kernel"
    if not facts.missing:
        return [ok(check, f"Linux {facts.kernel} has what is needed: {', '.join(FEATURES)}")]
    found = []
    for feature, why in facts.missing:
        verdict, harm, remedy = _NEEDED[feature]
        make = fail if verdict == "fail" else warn
        found.append(make(check, f"{feature} cannot be used ({why}): {harm}", remedy))
    return found


def _python(facts: SystemFacts) -> Finding:
    told = f"Python {'.'.join(map(str, facts.python))}"
    if facts.python < OLDEST_PYTHON:
        return fail("system.python", f"{told} is too old", "Python 3.11 or newer")
    return ok("system.python", told)


def _planaria(facts: SystemFacts) -> Finding:
    if facts.installed is not None and facts.installed != facts.planaria:
        return warn(
            "system.planaria",
            f"planaria {facts.planaria} runs here, and {facts.installed} is what is installed for this Python",
            "look at PYTHONPATH and the current directory: another copy is found first",
        )
    return ok("system.planaria", f"planaria {facts.planaria}")
