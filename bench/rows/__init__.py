"""One module for each kind of measurement, each with its `BENCHES`; `ALL` is the order of the report."""

from __future__ import annotations

from rows import ending, idle, launch, restart, tee

TYPE_CHECKING = False
if TYPE_CHECKING:
    from harness.model import Bench

ALL: tuple[Bench, ...] = (*launch.BENCHES, *idle.BENCHES, *restart.BENCHES, *ending.BENCHES, *tee.BENCHES)
