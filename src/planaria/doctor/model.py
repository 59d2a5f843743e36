"""What a check finds, what can be asked for, and the names of all checks."""

from __future__ import annotations

from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    Verdict = Literal["ok", "warn", "fail"]

OK: Literal["ok"] = "ok"
WARN: Literal["warn"] = "warn"
FAIL: Literal["fail"] = "fail"

CHECKS: dict[str, tuple[str, ...]] = {
    "dns": ("own-name", "loopback", "slow", "endpoint"),
    "network": ("interfaces", "route", "mtu", "chosen"),
    "ports": ("endpoint", "reach", "range"),
    "clock": ("monotonic", "wall", "synchronised", "source"),
    "shm": ("there", "size", "left", "ipc"),
    "limits": ("open-files", "processes", "pids", "memlock", "memory", "cpu", "core"),
    "gpu": ("driver", "torch", "visible", "errors", "busy", "mig", "xid"),
    "disk": ("writable", "space", "inodes", "speed", "kind"),
    "system": ("kernel", "python", "planaria"),
    "environment": ("stale", "proxy", "threads", "traps"),
    "peers": ("reach", "token", "version", "round-trip", "large", "bandwidth", "clock"),
}
"""Every check by its group; docs/doctor.md has a row for each."""
HERE = tuple(group for group in CHECKS if group != "peers")
"""The groups that need no other host."""
UNANSWERED = "answer"
"""The check that every group has besides: whether its facts came in time."""
BROKEN = "bug"
"""And this one: whether looking for them ended with an error of ours."""


class Finding(Value):
    """What one check found, in a sentence, and what to do about it where something is to be done."""

    check: str
    """`GROUP.CHECK`."""
    verdict: Verdict
    sentence: str
    remedy: str = ""


class Asked(Value):
    """What is to be looked at. Addresses are `HOST:PORT`; `folders` are roles and paths, such as `("--log-dir", "logs")`."""

    groups: tuple[str, ...] = HERE
    workers: int = 1
    backend: str = "c10d"
    endpoints: tuple[str, ...] = ()
    folders: tuple[tuple[str, str], ...] = ()
    environ: tuple[tuple[str, str], ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """The environment that is checked."""
        return dict(self.environ)


def ok(check: str, sentence: str) -> Finding:
    """Return that all is well."""
    return Finding(check, OK, sentence)


def warn(check: str, sentence: str, remedy: str) -> Finding:
    """Return what may do harm."""
    return Finding(check, WARN, sentence, remedy)


def fail(check: str, sentence: str, remedy: str) -> Finding:
    """Return what keeps a job from running."""
    return Finding(check, FAIL, sentence, remedy)


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """Return those that failed."""
    return [one for one in findings if one.verdict == FAIL]


def read_groups(text: str, source: str) -> tuple[str, ...]:
    """Return the groups that `all` or a list such as `disk,gpu` means. Raises UsageError."""
    if text == "all":
        return HERE
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in HERE:
            raise UsageError(f"{source} expects all or some of {', '.join(HERE)}, got {quoted(name)}")
    return tuple(group for group in HERE if group in names)


def as_json(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """Return findings as events and `--json` have them."""
    return [
        {
            "check": one.check,
            "ok": one.verdict != FAIL,
            "verdict": one.verdict,
            "sentence": one.sentence,
            "remedy": one.remedy,
        }
        for one in findings
    ]


def size(count: float) -> str:
    """Return bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
