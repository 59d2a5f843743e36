"""The door to a store: ask, be answered once; watch, be told everything once. All on one loop, nothing ever blocks.

What holds for every backend is written here and tested by `planaria.testing.store_contract`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.store.model import Event, Reply, Request

ANSWER_WITHIN_S = 5.0
"""How long a request waits for its answer unless the caller says otherwise."""


class Where(Value):
    """Where a store is and how to be let in: what the owner said, in words that every backend understands.

    `endpoints` are "host:port", "[v6]:port", the path of a UNIX socket, or a URL where the backend takes one. `token` is for
    stores of ours, `user` and `password` for those that have users; `ca`, `cert` and `key` are names of PEM files. `options`
    is whatever else was said, for backends from elsewhere.
    """

    endpoints: tuple[str, ...] = ()
    token: bytes | None = None
    user: str = ""
    password: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Where(endpoints={self.endpoints!r}, ...)"  # the rest may be secret, and reprs end in logs


class Watching:
    """A watch that is under way. This class alone is one that has ended."""

    def cancel(self) -> None:
        """End it: nothing more is told from now on, not even what was on its way. Harmless when it has ended."""


class Store(ABC):
    """One client of a store. Belongs to one loop; callbacks come from that loop and never from inside a call made here.

    Requests are linearisable: each takes effect at one moment between `ask` and its answer, and every later request of
    anybody sees it. Requests that are under way at the same time may take effect in any order: wait for an answer where
    the order matters.
    """

    @abstractmethod
    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = ANSWER_WITHIN_S) -> None:
        """Send a request; `on_reply` gets its answer, exactly once, unless the store is closed first.

        `Unavailable` comes after `timeout_s` at the latest. Until then reads and renewals are repeated through lost
        connections and fail-overs; a write is sent again only while it is certain that no store has seen it. After
        `Unavailable(maybe_done=True)` a write has taken effect, or still may, or never will: whoever must know reads, and
        compares what is there with what was written.
        """

    @abstractmethod
    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        """Tell every change of a key that begins with `prefix`, after the revision `after`, in order and once.

        `after` is the revision of a `Listed` or `Changed` of this store. The watch survives lost connections, restarts
        and fail-overs of the store for as long as the store remembers what was missed. When it does not, `WatchLost` is
        the last event: list again and watch after that listing, or let `follow` do it. A key that was written twice in
        between is told twice; one that a lease removed is told like one that was deleted. A store that may have been set up
        anew while it was away, and have come as far as before, says `Resumed` when it is back.

        Raises:
            ValueError: No key can begin with `prefix`.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop connections, watches and requests. Nothing is called any more; leases run on and end by themselves.

        What was asked before may or may not have been done. What is asked later is never answered.
        """
