"""The clocks of this machine. Those of other machines are never compared for a decision. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.doctor.model import Finding

FIRST_S = 1_735_689_600  # 2025 began: this program is younger
LAST_S = 4_102_444_800  # 2100
_SLOW_SOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


class ClockFacts(Value):
    """Readings of the monotonic clock in the order they were taken, the wall clock, and what the kernel knows of it.

    `is_synchronised` None: the kernel was not asked, or did not say.
    """

    readings: Sequence[float]
    wall_s: float
    is_synchronised: bool | None = None
    error_s: float = 0.0
    source: str = ""


def check_clock(facts: ClockFacts) -> list[Finding]:
    """Judge the clocks."""
    return [_monotonic(facts), _wall(facts), _synchronised(facts), _source(facts)]


def _monotonic(facts: ClockFacts) -> Finding:
    readings = list(facts.readings)
    if readings != sorted(readings) or readings[-1] <= readings[0]:
        return fail(
            "clock.monotonic",
            "the monotonic clock does not run forward: nothing that waits can be trusted here",
            "move to another machine, and tell who keeps this one: its kernel or its hypervisor is broken",
        )
    return ok("clock.monotonic", "the monotonic clock runs")


def _wall(facts: ClockFacts) -> Finding:
    if FIRST_S <= facts.wall_s < LAST_S:
        return ok("clock.wall", "the wall clock shows a year that may be")
    year = 1970 + int(facts.wall_s // 31_556_952)
    return fail(
        "clock.wall",
        f"the wall clock shows the year {year}: certificates will not be valid, and logs will mislead",
        "set it: chronyc makestep, or timedatectl set-ntp true",
    )


def _synchronised(facts: ClockFacts) -> Finding:
    check = "clock.synchronised"
    if facts.is_synchronised is None:
        return ok(check, "the kernel does not tell whether the wall clock is synchronised")
    if facts.is_synchronised:
        return ok(check, f"the wall clock is synchronised, to within {facts.error_s:.3f} s")
    return warn(
        check,
        "nobody keeps the wall clock in step: planaria never compares clocks, but logs of several nodes will not line up",
        "start chronyd, ntpd or systemd-timesyncd on the host",
    )


def _source(facts: ClockFacts) -> Finding:
    if facts.source in _SLOW_SOURCES:
        return warn(
            "clock.source",
            f"the kernel reads the time from {facts.source}, which takes a microsecond each time",
            "look in dmesg why tsc or kvm-clock is not used; a reboot may help",
        )
    return ok("clock.source", f"the kernel reads the time from {facts.source or 'an unknown clock'}")
