"""Meet through a store: exchange data and wait for each other. The names, the keys and the messages are torch's."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from planaria.elastic.store import DistStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]

_NUM_MEMBERS = "/num_members"
_LAST_MEMBER_CHECKIN = "/last_member"
_TRACE = "/TRACE"
_TRACING_GATE = "/TRACING_GATE"
_MOST_MISSING_NAMED = 16
_SHORTEST = timedelta(milliseconds=1)
_IGNORED = "<val_ignored>"


@contextmanager
def store_timeout(store: Any, timeout: float) -> Iterator[None]:
    """Let calls of `store` wait for so many seconds inside the block; after it, also after an error, as before."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """Return what every rank wrote under `prefix` and its rank. Rank 0 returns when all have read: it serves the store."""
    found: list[bytes] = store.multi_get([f"{prefix}{one}" for one in range(world_size)])
    last = _check_in(store, world_size, f"{prefix}/finished")
    if rank == 0:
        store.wait([last])
    return found


def synchronize(
    store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300
) -> list[bytes]:
    """Give `data` to all ranks and return what all gave. A prefix can be used once in the life of a store."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(  # noqa: PLR0917  # the signature is torch's
    store: Any,
    world_size: int,
    key_prefix: str,
    barrier_timeout: float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None,
    trace_timeout: float = 10,
) -> None:
    """Return once all ranks are here. A prefix can be used once in the life of a store.

    Who gives its rank learns which ranks are missing when the time is over; `rank_tracing_decoder` names them.

    Raises:
        DistStoreError: Not all came in time. A store of torch raises its own.
    """
    if rank is None and rank_tracing_decoder is not None:
        raise AssertionError("Tracing requires rank information")
    with store_timeout(store, barrier_timeout):
        last = _check_in(store, world_size, key_prefix)
        try:
            store.wait([last])
        except RuntimeError:  # ours and torch's DistStoreError both are
            if rank is None:
                raise
            missing = _missing_ranks(
                store, world_size, key_prefix, rank, rank_tracing_decoder or str, timedelta(seconds=trace_timeout)
            )
            if missing is None:
                raise
            raise DistStoreError(
                f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} (world_size={world_size}, "
                f"missing_ranks=[{', '.join(missing)}], timeout={barrier_timeout})"
            ) from None


def _check_in(store: Any, world_size: int, key_prefix: str) -> str:
    """Count this rank, tell everybody if it was the last, and return the key that says so."""
    last = key_prefix + _LAST_MEMBER_CHECKIN
    if store.add(key_prefix + _NUM_MEMBERS, 1) == world_size:
        store.set(last, _IGNORED)
    return last


def _missing_ranks(
    store: Any, world_size: int, key_prefix: str, rank: int, name_of: Callable[[int], str], timeout: timedelta
) -> Iterable[str] | None:
    """Find out who is missing: rank 0 does for all. None: nobody could tell."""
    store.set(f"{key_prefix}{rank}{_TRACE}", _IGNORED)
    if rank == 0:
        missing = _find_missing(store, world_size, key_prefix, name_of, timeout)
        store.set(f"{key_prefix}{_TRACING_GATE}", _IGNORED)
        return missing
    try:
        store.wait([f"{key_prefix}{_TRACING_GATE}"])
    except RuntimeError:  # rank 0 itself may be the one that is missing
        return None
    return [f"[<check rank 0 ({name_of(0)}) for missing rank info>]"]


def _find_missing(
    store: Any, world_size: int, key_prefix: str, name_of: Callable[[int], str], timeout: timedelta
) -> list[str]:
    missing: list[str] = []
    for one in range(1, world_size):
        if len(missing) >= _MOST_MISSING_NAMED:
            break
        try:  # once one is known to be missing, the others had as much time
            store.wait([f"{key_prefix}{one}{_TRACE}"], _SHORTEST if missing else timeout)
        except RuntimeError:
            missing.append(name_of(one))
    return missing
