"""Which scopes are open, and which of them have been open for too long. Pure: time comes in as an argument."""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

_LONGEST_NAME = 200


class Scope(Value):
    """A part of a program that must end within `limit_s` of `began_at`, on the agent's monotonic clock.

    `signal` is what its process is to be sent when it does not; 0 or less: nothing.
    """

    pid: int
    name: str
    limit_s: float
    began_at: float
    signal: int

    @property
    def deadline(self) -> float:
        """Return the moment at which its time is over."""
        return self.began_at + self.limit_s


class Scopes:
    """Open scopes, by who holds them and by a key of the holder's own.

    `acquired` and `released` count what was heard, also what changed nothing.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, dict[Hashable, Scope]] = {}
        self.acquired = 0
        self.released = 0

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def acquire(self, holder: Hashable, key: Hashable, scope: Scope) -> None:
        """Open a scope; one with the same key is replaced, so that who repeats itself begins anew."""
        self.acquired += 1
        self._held.setdefault(holder, {})[key] = scope

    def release(self, holder: Hashable, key: Hashable) -> None:
        """Close a scope; one that is not open is none of our business."""
        self.released += 1
        self._close(holder, key)

    def drop(self, holder: Hashable) -> None:
        """Forget everything that this holder has open."""
        self._held.pop(holder, None)

    def holders(self) -> list[Hashable]:
        """Return who has scopes open."""
        return list(self._held)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()

    def expired(self, now: float) -> tuple[Scope, ...]:
        """Return the scopes whose time is over, the one that should have ended first in front."""
        return tuple(sorted((one for one in self._all() if one.deadline <= now), key=lambda one: one.deadline))

    def take_expired(self, now: float) -> tuple[Scope, ...]:
        """Return them and forget them: each is told once."""
        found = self.expired(now)
        everywhere = [(holder, key, one) for holder, held in self._held.items() for key, one in held.items()]
        for holder, key, one in everywhere:
            if one.deadline <= now:
                self._close(holder, key)
        return found

    def next_deadline(self) -> float | None:
        """Return when the next scope expires; None when no scope is open."""
        return min((one.deadline for one in self._all()), default=None)

    def _close(self, holder: Hashable, key: Hashable) -> None:
        held = self._held.get(holder)
        if held is not None:
            held.pop(key, None)
            if not held:  # processes come and go for as long as the group lives
                del self._held[holder]

    def _all(self) -> Iterable[Scope]:
        return (one for held in self._held.values() for one in held.values())


def sentence(scope: Scope, now: float) -> str:
    """Say which scope ran for too long, as the first cause of a restart names it."""
    name = safe_line(scope.name, _LONGEST_NAME)
    return f"watchdog: scope '{name}' ran {_seconds(now - scope.began_at)}, limit {_seconds(scope.limit_s)}"


def _seconds(span_s: float) -> str:
    """Return seconds to the tenth, without one that is 0."""
    return f"{max(span_s, 0.0):.1f}".removesuffix(".0") + " s"
