"""List, watch, and begin again when the watch was lost: what almost every reader of a store wants."""

from __future__ import annotations

from planaria.store.api import Watching
from planaria.store.model import Changed, Denied, List, Listed, Refused, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer
    from planaria.store.api import Store
    from planaria.store.model import Event, Reply

_AGAIN_S = 0.5  # how long to wait after a listing that was not answered
_LONGEST_AGAIN_S = 4.0  # after one that was denied: people have to see to it, and passwords are costly to check
_CALM_S = 10.0  # a watch that goes on for so long is one that lasts; others are listed again with pauses in between


def follow(
    loop: Loop,
    store: Store,
    prefix: str,
    on_event: Callable[[Listed | Changed | Refused], object],
    on_trouble: Callable[[Denied | Unavailable], object] = lambda _said: None,
) -> Watching:
    """Tell what is under `prefix`, then every change of it.

    `Listed` comes first, and once more whenever changes were missed, or may have been: it replaces all that was told before.
    A store that is away or denies the listing is asked again until it answers; what it said goes to `on_trouble`, each time.
    `Refused` is the last event: this can never be listed.
    """
    return _Following(loop, store, prefix, on_event, on_trouble)


class _Following(Watching):
    def __init__(
        self,
        loop: Loop,
        store: Store,
        prefix: str,
        on_event: Callable[[Listed | Changed | Refused], object],
        on_trouble: Callable[[Denied | Unavailable], object],
    ) -> None:
        self._loop = loop
        self._store = store
        self._prefix = prefix
        self._on_event = on_event
        self._on_trouble = on_trouble
        self._watching: Watching | None = None
        self._timer: Timer | None = None
        self._again_s = _AGAIN_S
        self._rest_s = 0.0
        self._listed_at = 0.0
        self._is_over = False
        self._list()

    def cancel(self) -> None:
        self._is_over = True
        if self._watching is not None:
            self._watching.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _list(self) -> None:
        self._timer = None
        if self._watching is not None:  # what it tells from here on may be newer than the listing that is told then
            self._watching.cancel()
        self._store.ask(List(self._prefix), self._on_reply)

    def _on_reply(self, reply: Reply) -> None:
        if self._is_over:
            return
        if isinstance(reply, Listed):
            self._again_s = _AGAIN_S
            self._listed_at = self._loop.now()
            self._watching = self._store.watch(self._prefix, reply.revision, self._on_change)
            self._on_event(reply)
        elif isinstance(reply, Refused):
            self._is_over = True
            self._on_event(reply)
        elif isinstance(reply, Denied):
            self._timer = self._loop.call_later(self._again_s, self._list)
            self._again_s = min(self._again_s * 2, _LONGEST_AGAIN_S)
            self._on_trouble(reply)
        else:
            self._timer = self._loop.call_later(_AGAIN_S, self._list)
            if isinstance(reply, Unavailable):
                self._on_trouble(reply)

    def _on_change(self, event: Event) -> None:
        if isinstance(event, Changed):
            self._on_event(event)
            return
        if self._timer is not None:  # the listing is on its way
            return
        if self._loop.now() - self._listed_at >= _CALM_S:
            self._rest_s = 0.0
        self._timer = self._loop.call_later(self._rest_s, self._list)
        self._rest_s = min(max(self._rest_s * 2, _AGAIN_S), _LONGEST_AGAIN_S)
