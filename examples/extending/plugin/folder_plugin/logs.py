"""One file for each rank, both streams in it, all lives one after the other."""

from __future__ import annotations

import os

from planaria.elastic.multiprocessing import LogsDest, LogsSpecs, Std


class FlatLogs(LogsSpecs):
    """Writes `<log_dir>/rank<N>.log`. Whatever `redirects` and `tee` say, everything goes there."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(log_dir or "logs", redirects, tee, local_ranks_filter)

    @property
    def root_log_dir(self) -> str:
        """Return the folder that the files are in."""
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Plan the streams of one life. The error files get names of their own, so that no life reads another's."""
        os.makedirs(self.root_log_dir, exist_ok=True)
        files, errors = {}, {}
        for local_rank, env in envs.items():
            rank, life = env["RANK"], env["TORCHELASTIC_RESTART_COUNT"]
            files[local_rank] = os.path.join(self.root_log_dir, f"rank{rank}.log")
            errors[local_rank] = os.path.join(self.root_log_dir, f"rank{rank}.life{life}.json")
            env["TORCHELASTIC_ERROR_FILE"] = errors[local_rank]
        return LogsDest(stdouts=files, stderrs=dict(files), error_files=errors)
