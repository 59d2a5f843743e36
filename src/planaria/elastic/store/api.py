"""torch's Store, as far as an agent uses it, on one of our stores. Every method may be called from any thread."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING
from urllib.parse import quote

from planaria.elastic.store.thread import Over
from planaria.store.model import (
    Absent,
    Conflict,
    Delete,
    Deleted,
    Denied,
    Found,
    Get,
    List,
    Listed,
    Put,
    Refused,
    Unavailable,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Never

    from planaria.elastic.store.client import Client
    from planaria.store.model import Reply, Request

DEFAULT_TIMEOUT = timedelta(seconds=300)
_END = "|"  # ends every key, and `quote` leaves none inside: no key is the beginning of another
_LONGEST_PAUSE_S = 0.1


class DistStoreError(RuntimeError):
    """A store did not do what it was asked."""


class DistNetworkError(DistStoreError):
    """A store could not be reached."""


class StoreTimeout(DistStoreError, TimeoutError):
    """Keys that were waited for did not come in time."""


class Store:
    """Keys and values for the agents of a round. Values are at most 64 KiB, keys about 500 bytes.

    `host` and `port` say where it is served; both are empty for one that only this process knows. A call waits for `timeout`
    at most, unless it has a timeout of its own, and a signal handler that raises interrupts it.
    """

    def __init__(
        self,
        client: Client,
        prefix: str = "",
        timeout: timedelta | None = None,
        host: str = "",
        port: int = 0,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._timeout = timeout or DEFAULT_TIMEOUT
        self.host = host
        self.port = port

    def __repr__(self) -> str:
        return f"Store({self.host}:{self.port})" if self.host else "Store()"

    @property
    def timeout(self) -> timedelta:
        """How long a call waits."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Let calls wait for so long from now on."""
        if not isinstance(timeout, timedelta):
            raise TypeError(f"a timeout is a timedelta, not {type(timeout).__name__}")
        self._timeout = timeout

    def has_extended_api(self) -> bool:
        """Tell that `append`, `multi_get` and `multi_set` are there."""
        return True

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        self._do(Put(self._path(key), _as_bytes(value)))

    def get(self, key: str) -> bytes:
        """Return the value of a key once there is one.

        Raises:
            StoreTimeout: There was none in time.
        """
        return self.multi_get([key])[0]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which is 0 as long as there is none, and return what it is then."""
        return int(self._change(key, lambda before: str(int(before or b"0") + amount).encode()))

    def append(self, key: str, value: str | bytes) -> None:
        """Write behind what is there."""
        self._change(key, lambda before: (before or b"") + _as_bytes(value))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Write a key if its value is the expected one, "" for a key that is not there; return its value after that.

        As with torch's own, a key that is not there and was expected to be counts as having the expected value.
        """
        expected, desired = _as_bytes(expected_value), _as_bytes(desired_value)

        def choose(before: bytes | None) -> bytes | None:
            return desired if (before or b"") == expected else None

        return self._change(key, choose, unchanged=expected)

    def check(self, keys: Sequence[str]) -> bool:
        """Tell whether all keys are there, without waiting for any."""
        return all(isinstance(reply, Found) for reply in self._do_all(Get(self._path(key)) for key in keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are there.

        Raises:
            StoreTimeout: Some were not in time.
        """
        self._values(keys, self._timeout if timeout is None else timeout)

    def delete_key(self, key: str) -> bool:
        """Remove a key; tell whether it was there."""
        return isinstance(self._do(Delete(self._path(key))), Deleted)

    def num_keys(self) -> int:
        """Return how many keys there are."""
        reply = self._do(List(self._prefix))
        return len(reply.entries) if isinstance(reply, Listed) else 0

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of all keys once they are there; see `get`."""
        return self._values(keys, self._timeout)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Write several keys."""
        if len(keys) != len(values):
            raise DistStoreError("multiSet keys and values vectors must be of same size")
        self._do_all(Put(self._path(key), _as_bytes(value)) for key, value in zip(keys, values, strict=True))

    def _path(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(f"a key is a str, not {type(key).__name__}")
        return f"{self._prefix}{quote(key, safe='/:', errors='backslashreplace')}{_END}"

    def _do(self, asked: Request) -> Reply:
        return self._do_all((asked,))[0]

    def _do_all(self, asked: Iterable[Request]) -> list[Reply]:
        try:
            replies = self._client.ask_all(tuple(asked), self._timeout.total_seconds())
        except Over as over:
            raise DistStoreError(str(over)) from over
        for reply in replies:
            match reply:
                case Refused(why):
                    raise ValueError(why)
                case Denied(why):
                    raise DistStoreError(why)
                case Unavailable(why):
                    raise DistNetworkError(f"the store{self._where()} did not answer: {why}")
                case _:
                    pass
        return replies

    def _where(self) -> str:
        return f" at {self.host}:{self.port}" if self.host else ""

    def _values(self, keys: Sequence[str], timeout: timedelta) -> list[bytes]:
        deadline = time.monotonic() + timeout.total_seconds()
        try:
            replies = self._client.ask_all([Get(self._path(key)) for key in keys], timeout.total_seconds())
            found = {key: reply.value for key, reply in zip(keys, replies, strict=True) if isinstance(reply, Found)}
            for key in keys:
                left_s = max(deadline - time.monotonic(), 0.0)
                value = found[key] if key in found else self._client.wait_for(self._path(key), left_s)
                if isinstance(value, Refused):
                    raise ValueError(value.why)
                if value is None:
                    self._too_late([missing for missing in keys if missing not in found], timeout)
                found[key] = value
        except Over as over:
            raise DistStoreError(str(over)) from over
        return [found[key] for key in keys]

    def _too_late(self, keys: Sequence[str], timeout: timedelta) -> Never:
        names = ", ".join(f"/{key}" for key in keys)
        raise StoreTimeout(f"wait timeout after {timeout / timedelta(milliseconds=1):.0f}ms, keys: {names}")

    def _change(self, key: str, choose: Callable[[bytes | None], bytes | None], unchanged: bytes = b"") -> bytes:
        """Write what `choose` makes of the value before; None: nothing. Return the value after that."""
        path = self._path(key)
        deadline = time.monotonic() + self._timeout.total_seconds()
        pause_s = 0.001
        while True:
            match self._do(Get(path)):
                case Found(before, revision):
                    pass
                case _:
                    before, revision = None, 0
            after = choose(before)
            if after is None:
                return unchanged if before is None else before
            match self._do(Put(path, after, expect=revision)):
                case Written():
                    return after
                case Conflict() | Absent():
                    pass
            if time.monotonic() >= deadline:
                self._too_late([key], self._timeout)
            rest(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def rest(most_s: float) -> None:
    """Pause for a random part of a moment, so that those who write the same key do not meet again."""
    Event().wait(most_s * int.from_bytes(os.urandom(2), "big") / 0xFFFF)


def _as_bytes(value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a value is a str or bytes, not {type(value).__name__}")
