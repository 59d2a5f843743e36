"""Ask a store and wait for its answer, from any thread; the store itself lives on a loop's thread."""

from __future__ import annotations

import time
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from planaria.elastic.store.thread import Over, put
from planaria.store.follow import follow
from planaria.store.model import Changed, Found, Get, Listed, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from planaria.base.loop import Loop
    from planaria.elastic.store.thread import LoopThread
    from planaria.store.api import Store, Watching
    from planaria.store.model import Reply, Request

T = TypeVar("T")

MOST_WAITING = 60
"""How many threads of a process may wait for keys of one store: the embedded one takes 64 watches of a client."""
_AT_A_TIME = 256  # requests under way; more would only fill the buffers between


class Client:
    """One client of a store. `open_store` is called on the loop."""

    def __init__(self, thread: LoopThread, open_store: Callable[[Loop], Store]) -> None:
        self._thread = thread
        self._lock = Lock()
        self._boxes: set[Future[object]] = set()
        self._why_over = ""
        self._waiting = 0
        self._store = thread.call(lambda: self._open(open_store))

    def _open(self, open_store: Callable[[Loop], Store]) -> Store:
        store = open_store(self._thread.loop)
        self._thread.at_end(store.close)
        return store

    def ask(self, asked: Request, timeout_s: float) -> Reply:
        """Return the answer to one request; `Unavailable` after the timeout at the latest.

        Raises:
            Over: This client was closed, before or meanwhile.
        """
        return self.ask_all((asked,), timeout_s)[0]

    def ask_all(self, asked: Sequence[Request], timeout_s: float) -> list[Reply]:
        """Return the answers to requests that are under way at the same time; see `ask`."""
        replies: list[Reply] = []
        for first in range(0, len(asked), _AT_A_TIME):
            batch = asked[first : first + _AT_A_TIME]
            box: Future[list[Reply]] = self._box()
            self._thread.post(partial(self._ask_batch, batch, timeout_s, box))
            replies += box.result()
        return replies

    def wait_for(self, key: str, timeout_s: float) -> bytes | Refused | None:
        """Return the value of a key once there is one, or None when the time is over.

        Raises:
            Over: This client was closed, or too many threads wait.
        """
        if timeout_s <= 0:
            return None
        deadline = time.monotonic() + timeout_s
        reply = self.ask(Get(key), timeout_s)
        if isinstance(reply, Found):
            return reply.value
        if isinstance(reply, Refused):
            return reply
        with self._lock:
            if self._waiting >= MOST_WAITING:
                raise Over(f"at most {MOST_WAITING} threads of a process can wait for keys of one store")
            self._waiting += 1
        box: Future[bytes | Refused] = self._box()
        waiting = _Waiting(self._thread.loop, self._store, key, box)
        self._thread.post(waiting.begin)
        try:
            return box.result(max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            return None
        finally:
            box.cancel()  # whoever keeps it forgets it, also when a signal interrupts the wait
            self._thread.post(waiting.cancel)
            with self._lock:
                self._waiting -= 1

    def close(self, why: str, after_s: float = 0.0) -> None:
        """Answer no more, from a moment on: whoever waits then, or asks later, is told why."""
        self._thread.post(lambda: self._thread.loop.call_later(after_s, partial(self._end, why)))

    def _box(self) -> Future[T]:
        box: Future[T] = self._thread.box()
        with self._lock:
            why = self._why_over
            self._boxes.add(box)  # type: ignore[arg-type]  # whatever it is for, it can be told of the end
        box.add_done_callback(self._forget)
        if why:
            put(box, problem=Over(why))
        return box

    def _forget(self, box: Future[T]) -> None:
        with self._lock:
            self._boxes.discard(box)

    def _ask_batch(self, asked: Sequence[Request], timeout_s: float, box: Future[list[Reply]]) -> None:
        replies: dict[int, Reply] = {}

        def take(place: int, reply: Reply) -> None:
            replies[place] = reply
            if len(replies) == len(asked):
                put(box, [replies[number] for number in range(len(asked))])

        for place, request in enumerate(asked):
            self._store.ask(request, partial(take, place), timeout_s=timeout_s)

    def _end(self, why: str) -> None:
        with self._lock:
            self._why_over = self._why_over or why
            boxes = tuple(self._boxes)
        self._store.close()
        self._thread.not_at_end(self._store.close)
        for box in boxes:
            put(box, problem=Over(self._why_over))


class _Waiting:
    """One thread's wait for a key."""

    def __init__(self, loop: Loop, store: Store, key: str, box: Future[bytes | Refused]) -> None:
        self._loop = loop
        self._store = store
        self._key = key
        self._box = box
        self._watching: Watching | None = None

    def begin(self) -> None:
        self._watching = follow(self._loop, self._store, self._key, self._told)

    def cancel(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _told(self, event: Listed | Changed | Refused) -> None:
        match event:
            case Listed(entries):
                for entry in entries:
                    if entry.key == self._key:
                        put(self._box, entry.value)
            case Changed(key, value) if value is not None and key == self._key:
                put(self._box, value)
            case Refused():
                put(self._box, event)
            case _:
                pass
