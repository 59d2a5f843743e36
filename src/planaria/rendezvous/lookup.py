"""Look the names of endpoints up until they are known: name servers start with a cluster, not before it."""

from __future__ import annotations

from planaria.base.addresses import look_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.base.addresses import Target
    from planaria.base.loop import Loop, Timer

FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 3.0


class NameLookup:
    """Looks several names up. `on_found` gets all that is known whenever it is more; `say` hears what is missing, and why."""

    def __init__(
        self,
        loop: Loop,
        hosts: tuple[str, ...],
        on_found: Callable[[Mapping[str, tuple[str, ...]]], object],
        say: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._hosts = tuple(dict.fromkeys(hosts))
        self._on_found = on_found
        self._say = say
        self._found: dict[str, tuple[str, ...]] = {}
        self._timers: dict[str, Timer] = {}
        self._over = False

    def begin(self) -> None:
        """Start with all of them at once."""
        for host in self._hosts:
            self._look_up(host, FIRST_RETRY_S)

    def cancel(self) -> None:
        """Tell nothing more."""
        self._over = True
        for timer in self._timers.values():
            timer.cancel()

    def _look_up(self, host: str, retry_s: float) -> None:
        look_up(self._loop, host, 0, lambda found: self._answered(host, found, retry_s))

    def _answered(self, host: str, found: list[Target] | str, retry_s: float) -> None:
        if self._over:
            return
        if isinstance(found, str):
            self._say(f"{found}; trying again")
            again_s = min(retry_s * 2, LONGEST_RETRY_S)
            self._timers[host] = self._loop.call_later(retry_s, lambda: self._look_up(host, again_s))
            return
        self._found[host] = tuple(dict.fromkeys(address[0] for _, address in found))
        self._on_found(dict(self._found))
