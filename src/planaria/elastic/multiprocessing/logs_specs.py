"""Where the output and the error file of each worker go, as a plan that others can make too.

<log_dir>/<run_id>_<random>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
<log_dir>/<run_id>_<random>/attempt_<n>/filtered_{stdout,stderr}.log

Nothing of an earlier attempt is ever deleted: a round that is no restart has the same number, and gets `attempt_<n>.2`.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from planaria.base.files import remove_tree
from planaria.contract.env import ERROR_FILE, RESTART_COUNT
from planaria.elastic.multiprocessing.std import Std, to_map
from planaria.elastic.utils.logging import get_logger
from planaria.process.logs import folder_name, make_attempt_folder

__all__ = ["DefaultLogsSpecs", "LogsDest", "LogsSpecs"]

logger = get_logger(__name__)

_CONSOLE = ""  # no path: the stream stays the caller's own


@dataclass
class LogsDest:
    """Paths by local rank. What is in `tee_stdouts` is a file that is also shown; an empty path is the console."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = field(default_factory=str)
    filtered_stderr: str = field(default_factory=str)


class LogsSpecs(ABC):
    """A plan for the workers' output. `redirects` go to files, `tee` to files and to the console."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the folders of one life of the workers, whose environments are `envs`, and return the paths."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """Return the folder that all of it is in."""


class DefaultLogsSpecs(LogsSpecs):
    """torchrun's folders. Without a `log_dir` they are temporary, and gone with this process unless they hold any output."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        if log_dir and log_dir != os.devnull:
            if os.path.isfile(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is a file")
            os.makedirs(log_dir, exist_ok=True)
        super().__init__(log_dir or None, redirects, tee, local_ranks_filter)
        self._run_log_dir: str | None = None

    @property
    def root_log_dir(self) -> str:
        """Return the folder that was named, or is made now: a plan that is never asked leaves none behind."""
        if self._root_log_dir is None:
            self._root_log_dir = tempfile.mkdtemp(prefix="torchelastic_")
            if not _names_any(self._redirects) and not _names_any(self._tee):
                atexit.register(_remove, self._root_log_dir, os.getpid())
        return self._root_log_dir

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the folders of one life, and name each worker's error file in its environment."""
        if not envs:
            logger.warning("Empty envs map provided when defining logging destinations.")
        if self._root_log_dir == os.devnull:
            return self._without_files(envs)
        attempt = self._attempt_folder(envs.get(0, {}))
        redirects, tees = to_map(self._redirects, len(envs)), to_map(self._tee, len(envs))
        dest = LogsDest(
            filtered_stdout=os.path.join(attempt, "filtered_stdout.log"),
            filtered_stderr=os.path.join(attempt, "filtered_stderr.log"),
        )
        for rank in range(len(envs)):
            folder = os.path.join(attempt, str(rank))
            os.mkdir(folder)
            outs = ("stdout.log", Std.OUT, dest.stdouts, dest.tee_stdouts)
            errs = ("stderr.log", Std.ERR, dest.stderrs, dest.tee_stderrs)
            for name, which, paths, shown in (outs, errs):
                is_shown = not self._local_ranks_filter or rank in self._local_ranks_filter
                paths[rank] = _CONSOLE if is_shown else os.devnull
                if which & (redirects[rank] | tees[rank]):
                    paths[rank] = os.path.join(folder, name)
                if which & tees[rank] and is_shown:
                    shown[rank] = paths[rank]
            envs[rank][ERROR_FILE] = dest.error_files[rank] = os.path.join(folder, "error.json")
        return dest

    def _attempt_folder(self, env: dict[str, str]) -> str:
        if self._run_log_dir is None:
            run_id = env.get("TORCHELASTIC_RUN_ID", "test_run_id")
            os.makedirs(self.root_log_dir, exist_ok=True)  # somebody may have tidied up since
            self._run_log_dir = tempfile.mkdtemp(prefix=f"{folder_name(run_id)}_", dir=self.root_log_dir)
            logger.info("log directory set to: %s", self._run_log_dir)
        return make_attempt_folder(self._run_log_dir, int(env.get(RESTART_COUNT, "0")))

    def _without_files(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        for env in envs.values():
            env[ERROR_FILE] = ""
        console, nowhere = dict.fromkeys(envs, _CONSOLE), dict.fromkeys(envs, os.devnull)
        return LogsDest(console, dict(console), nowhere, dict(nowhere), dict(nowhere), os.devnull, os.devnull)

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, "
            f"tee={self._tee}, local_ranks_filter={self._local_ranks_filter})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DefaultLogsSpecs):
            return False
        return (self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter) == (
            other._root_log_dir,
            other._redirects,
            other._tee,
            other._local_ranks_filter,
        )

    __hash__ = None  # type: ignore[assignment]  # as of any class that compares and may change


def _names_any(mask: Std | dict[int, Std]) -> bool:
    return any(mask.values()) if isinstance(mask, dict) else bool(mask)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        remove_tree(folder)
