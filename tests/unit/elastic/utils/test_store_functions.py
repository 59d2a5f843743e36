from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ports import free_port

from planaria.elastic.store import DistStoreError, Store, StoreTimeout
from planaria.elastic.utils.distributed import create_c10d_store, get_free_port, get_socket_with_port
from planaria.elastic.utils.store import barrier, get_all, store_timeout, synchronize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def in_ranks(size: int, work: Callable[[int], Any]) -> dict[int, Any]:
    """Do `work` in a thread a rank; return what came of it, exceptions too."""
    found: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            found[rank] = work(rank)
        except Exception as problem:  # noqa: BLE001  # the test looks at it
            found[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return found


@pytest.fixture
def store() -> Store:
    return create_c10d_store(True, "127.0.0.1")


def test_a_timeout_holds_inside_the_block_only_also_when_the_block_fails(store: Store) -> None:
    with store_timeout(store, 7):
        assert store.timeout == timedelta(seconds=7)
    assert store.timeout == timedelta(minutes=10)
    with pytest.raises(StoreTimeout), store_timeout(store, 0.01):
        store.get("never")
    assert store.timeout == timedelta(minutes=10)


def test_all_ranks_get_what_all_gave(store: Store) -> None:
    found = in_ranks(3, lambda rank: synchronize(store, f"{rank}".encode(), rank, 3, "key"))
    assert found == {rank: [b"0", b"1", b"2"] for rank in range(3)}


def test_rank_0_stays_until_all_have_read(store: Store) -> None:
    store.multi_set(["p0", "p1"], ["a", "b"])
    with store_timeout(store, 1), pytest.raises(StoreTimeout, match=r"keys: /p/finished/last_member$"):
        get_all(store, 0, "p", 2)
    assert get_all(store, 1, "p", 2) == [b"a", b"b"]


def test_a_barrier_opens_when_all_are_there(store: Store) -> None:
    assert in_ranks(5, lambda _rank: barrier(store, 5, "gate", 30)) == dict.fromkeys(range(5))


class Hasty:
    """A store whose time is over at once where the last member of a barrier is waited for, and nowhere else."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def wait(self, keys: list[str]) -> None:
        if keys == ["gate/last_member"]:
            raise StoreTimeout("wait timeout")
        self._store.wait(keys)


def test_a_barrier_says_who_is_missing_when_it_is_told_who_is_there(store: Store) -> None:
    def wait(rank: int) -> None:
        own: Any = create_c10d_store(False, "127.0.0.1", store.port, 2, 30, wait_for_workers=False)
        if rank == 0:
            own.wait(["gate1/TRACE"])  # the other's time is over: what rank 0 finds does not depend on who is faster
            barrier(own, 4, "gate", 1.0, rank, lambda one: f"host{one}", 1.0)
        else:
            barrier(Hasty(own), 4, "gate", 60, rank, lambda one: f"host{one}", 1.0)

    found = in_ranks(2, wait)
    start = (
        "Timed out waiting on barrier on rank {}, for key prefix: gate (world_size=4, missing_ranks=[{}], timeout={})"
    )
    assert [str(found[0]), str(found[1])] == [
        start.format(0, "host2, host3", 1.0),
        start.format(1, "[<check rank 0 (host0) for missing rank info>]", 60),
    ]
    assert all(isinstance(one, DistStoreError) for one in found.values())


def test_a_barrier_that_nobody_can_explain_times_out(store: Store) -> None:
    with pytest.raises(StoreTimeout, match=r"^wait timeout after 1000ms, keys: /gate/last_member$"):
        barrier(store, 2, "gate", 1)
    with pytest.raises(StoreTimeout, match=r"^wait timeout after 1000ms, keys: /gate2/last_member$"):
        barrier(store, 2, "gate2", 1, rank=1)
    with pytest.raises(AssertionError, match=r"^Tracing requires rank information$"):
        barrier(store, 2, "gate3", 1, rank_tracing_decoder=str)


def test_members_of_a_store_wait_for_each_other() -> None:
    port = free_port()
    made = in_ranks(2, lambda rank: create_c10d_store(rank == 0, "127.0.0.1", port, 2, 30))
    made[0].set("key", "value")
    assert (made[1].get("key"), made[1].host, made[1].port) == (b"value", "127.0.0.1", port)


def test_a_store_whose_members_do_not_come_is_given_up() -> None:
    with pytest.raises(TimeoutError, match=r"^timed out waiting for all 2 members to join$"):
        create_c10d_store(True, "127.0.0.1", free_port(), 2, 0.1)


def test_a_port_that_is_taken_and_one_that_nobody_could_know_are_refused(store: Store) -> None:
    with pytest.raises(RuntimeError, match=f"^on 127.0.0.1, port: {store.port} already in use$"):
        create_c10d_store(True, "127.0.0.1", store.port)
    with pytest.raises(
        ValueError, match=r"^server_port must be specified when world_size > 1, got server_port=-1, world_size=2$"
    ):
        create_c10d_store(True, "127.0.0.1", -1, 2)


def test_who_has_another_token_is_not_let_into_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANARIA_TOKEN", "s3cret")
    store = create_c10d_store(True, "127.0.0.1")
    monkeypatch.setenv("PLANARIA_TOKEN", "guess")
    stranger = create_c10d_store(False, "127.0.0.1", store.port, 2, 0.3, wait_for_workers=False)
    with pytest.raises(DistStoreError):
        stranger.set("key", "value")
    assert not store.check(["key"])


def test_a_free_port_is_one_that_a_socket_gets() -> None:
    with get_socket_with_port() as held:
        port = held.getsockname()[1]
        assert port > 0
        assert get_free_port() != port


def test_a_store_that_strangers_can_reach_is_said(caplog: pytest.LogCaptureFixture) -> None:
    store = create_c10d_store(True, "0.0.0.0")
    (said,) = caplog.messages
    assert said.startswith(f"no token: whoever reaches port {store.port} of this host")


def test_nothing_is_said_of_a_store_on_loopback_or_with_a_token(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_c10d_store(True, "127.0.0.1")
    monkeypatch.setenv("PLANARIA_TOKEN", "s3cret")
    create_c10d_store(True, "0.0.0.0")
    assert not caplog.messages


def test_a_token_that_cannot_be_used_is_a_wrong_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANARIA_TOKEN_FILE", str(tmp_path / "missing"))
    with pytest.raises(ValueError, match="PLANARIA_TOKEN_FILE"):
        create_c10d_store(True, "127.0.0.1")
