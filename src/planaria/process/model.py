"""What is to run on this node, and where its output goes. Values only."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from planaria.process.logs import Logs

    CommandKind = Literal["script", "module", "path", "program"]

NO_STREAM = 0
STDOUT = 1
STDERR = 2
DEV_NULL = "/dev/null"


class Command(Value):
    """The user's program. `script`, `module` and `path` (runpy) run under `interpreter`, `program` by itself."""

    kind: CommandKind
    target: str
    args: tuple[str, ...] = ()
    interpreter: str = ""
    bootstrap: bool = True


class Call(Value):
    """A function of the caller's, to be called in a process of its own that `start_method` makes."""

    function: Callable[..., object]
    args: tuple[object, ...] = ()
    start_method: str = "spawn"


class StreamMask(Value):
    """Which of stdout (1) and stderr (2) a flag such as `--tee` means, for each local rank."""

    every: int = NO_STREAM
    by_rank: tuple[tuple[int, int], ...] = ()

    def of(self, local_rank: int) -> int:
        """Return the mask of one local rank; a list that does not name the rank means no stream."""
        return dict(self.by_rank).get(local_rank, NO_STREAM) if self.by_rank else self.every


class LogSettings(Value):
    """Where the workers' output goes. `log_dir` is None when the user named none, `/dev/null` for no files at all.

    `plan` makes of all this what another package's log specs say. `reads_lines`: the agent reads all of it, wherever it goes.
    """

    log_dir: str | None = None
    redirects: StreamMask = StreamMask()
    tee: StreamMask = StreamMask()
    shown_ranks: frozenset[int] | None = None
    stdout_filters: tuple[str, ...] = ()
    stderr_filters: tuple[str, ...] = ()
    prefix_template: str | None = None
    plan: Callable[[LogSettings], Logs] | None = None
    reads_lines: bool = False
