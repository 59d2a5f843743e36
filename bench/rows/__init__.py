"""One module for each kind of measurement, each with its `BENCHES`; `ALL` is the order of the report."""

from __future__ import annotations

from rows import ending, gpu, idle, launch, loss, nodes, page, progress, rendezvous, restart, standby, tee, watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from harness.model import Bench

_ONE_NODE = (
    *launch.BENCHES,
    *idle.BENCHES,
    *restart.BENCHES,
    *standby.BENCHES,
    *ending.BENCHES,
    *tee.BENCHES,
    *watchdog.BENCHES,
    *progress.BENCHES,
    *page.BENCHES,
)
_MANY_NODES = (*nodes.BENCHES, *loss.BENCHES, *rendezvous.BENCHES)
ALL: tuple[Bench, ...] = (*_ONE_NODE, *_MANY_NODES, *gpu.BENCHES)
