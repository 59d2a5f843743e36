"""`--logs-specs`: a log plan that another package brings, found as torchrun finds it."""

from __future__ import annotations

from functools import partial
from importlib.metadata import entry_points

from planaria.base.usage import quoted
from planaria.base.value import replace
from planaria.elastic.multiprocessing.spec_logs import make_specs
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.launch.plan import Plan

GROUP = "torchrun.logs_specs"


def with_specs(planned: Plan, name: str) -> Plan:
    """Return the plan with the log specs of that name.

    Raises:
        UsageError: There are none, or they cannot be loaded.
    """
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise UsageError(f"--logs-specs expects the name of an entry point in the group {GROUP}, got {quoted(name)}")
    try:
        kind = found.load()
    except Exception as exc:
        raise UsageError(f"--logs-specs {quoted(name)} cannot be loaded: {type(exc).__name__}: {exc}") from exc
    logs = replace(planned.job.logs, plan=partial(make_specs, kind))
    return replace(planned, job=replace(planned.job, logs=logs))
