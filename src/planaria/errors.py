"""Every deliberate error, on one screen. `docs/operations.md` has an entry for each.

A `message` says what happened; a `hint` says what the reader can do.
Expected outcomes (a worker that exits, a stop that was asked for) are values, not errors.
"""

from __future__ import annotations


class PlanariaError(Exception):
    """Something went wrong that we foresaw."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        told = f"{self.message} ({self.hint})" if self.hint else self.message
        return "\n".join([told, *getattr(self, "__notes__", ())])


class UsageError(PlanariaError):
    """The caller asked for the impossible; nothing was started. Exit status 2."""


class StateRefused(UsageError):
    """A value cannot be kept in a snapshot, a snapshot does not fit into memory, or it is not one of this program's state."""


class CodeRefused(UsageError):
    """The code of a job is not what it should be: another hash, an archive that leads out of its folder, too much of it."""


class FetchFailed(PlanariaError):
    """The code of a job could not be fetched, or there was no room for it; nothing was started. Exit status 69."""


class ProcessError(PlanariaError):
    """The operating system refused something about a process. Exit status 71."""


class SpawnFailed(ProcessError):
    """A worker could not be started. Exit status 71."""


class ResultNotPicklable(ProcessError):
    """A function returned what cannot be sent to the process that asked for it; its worker counts as failed."""


class AwsError(PlanariaError):
    """AWS refused a call, or did not answer. Exit status 69 of `petctl`."""

    def __init__(
        self, message: str, *, hint: str = "", code: str = "", detail: str = "", retryable: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.detail = detail
        self.retryable = retryable  # nobody answered, or AWS has too much to do: later it may work


class KubeError(PlanariaError):
    """A Kubernetes API server refused a call, or did not answer. Exit status 69 of `planaria operator`."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int = 0,
        reason: str = "",
        said: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status  # of HTTP; 0 where nobody answered
        self.reason = reason  # the server's own word, such as AlreadyExists
        self.said = said  # the server's own sentence
        self.retry_after_s = retry_after_s  # what the server asked for
        self.retryable = status in (0, 408, 409, 410, 429) or status >= 500

    @property
    def is_conflict(self) -> bool:
        """Tell whether somebody wrote first, or there is one of that name."""
        return self.status == 409


class LeadershipLost(KubeError):
    """The Lease could not be renewed in time: another operator may act from now on, and this one may not. Exit status 69."""


class InternalError(PlanariaError):
    """A bug of ours; reported whole, never handled. Exit status 70."""


class InvalidTransition(InternalError):
    """A state machine met a pair of phase and event that nobody thought of."""

    def __init__(self, phase: str, event: object) -> None:
        super().__init__(
            f"no rule for {event!r} while {phase}",
            hint="this is a bug in planaria: please report it with the lines above",
        )
