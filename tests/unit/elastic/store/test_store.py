from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from planaria.elastic.store import DistNetworkError, DistStoreError, Store, StoreTimeout
from planaria.elastic.store.client import MOST_WAITING, Client
from planaria.elastic.store.thread import LoopThread
from planaria.elastic.utils.distributed import create_c10d_store
from planaria.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT = timedelta(milliseconds=30)


@pytest.fixture(params=["served", "in this process"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "served":
        yield create_c10d_store(True, "127.0.0.1")
        return
    thread = LoopThread()
    yield Store(Client(thread, MemoryStore))
    thread.stop()


def in_threads(count: int, work: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not any(one.is_alive() for one in threads)


@pytest.mark.parametrize("key", ["a", "a/b:c", "with | and %7C", "ü\n\x00", " ", "\udcff", ""])
def test_a_key_may_be_any_text_and_a_value_any_bytes(store: Store, key: str) -> None:
    store.set(key, b"\x00\xff|")
    assert store.get(key) == b"\x00\xff|"
    assert store.check([key])
    assert key in store.list_keys()
    assert store.num_keys() == 1 + store.check(["_tcp_store/num_members/num_members"]) * 2
    store.set(key, "ü")
    assert store.get(key) == "ü".encode()
    assert [store.delete_key(key), store.delete_key(key)] == [True, False]
    assert not store.check([key])


def test_no_key_is_the_beginning_of_another(store: Store) -> None:
    store.set("k1", "x")
    with pytest.raises(StoreTimeout):
        store.wait(["k"], SHORT)


def test_numbers_are_counted_by_many_at_a_time(store: Store) -> None:
    in_threads(8, lambda _number: [store.add("n", 2) for _ in range(10)])
    assert (store.get("n"), store.add("n", -160), store.add("fresh", 0)) == (b"160", 0, 0)


def test_what_many_append_is_all_there(store: Store) -> None:
    in_threads(4, lambda number: [store.append("list", str(number)) for _ in range(5)])
    assert sorted(store.get("list").decode()) == sorted("0123" * 5)


@pytest.mark.parametrize(
    ("before", "expected", "answer", "after"),
    [
        (None, "", b"new", b"new"),
        (None, "old", b"old", None),  # as torch's store: it cannot say that there is nothing
        ("old", "old", b"new", b"new"),
        ("old", "other", b"old", b"old"),
        ("old", "", b"old", b"old"),
        ("", "", b"new", b"new"),
    ],
)
def test_a_value_is_set_if_it_is_the_expected_one(
    store: Store, before: str | None, expected: str, answer: bytes, after: bytes | None
) -> None:
    if before is not None:
        store.set("key", before)
    assert store.compare_set("key", expected, "new") == answer
    assert (store.get("key") if store.check(["key"]) else None) == after


def test_several_keys_at_once(store: Store) -> None:
    keys = [f"k{number}" for number in range(600)]
    store.multi_set(keys, [key.encode() for key in keys])
    assert store.multi_get(keys) == [key.encode() for key in keys]
    assert (store.check(keys), store.check([*keys, "other"]), store.multi_get([]), store.check([])) == (
        True,
        False,
        [],
        True,
    )
    with pytest.raises(DistStoreError, match=r"^multiSet keys and values vectors must be of same size$"):
        store.multi_set(["a"], [])


def test_a_wait_is_over_as_soon_as_the_last_key_is_there(store: Store) -> None:
    threading.Timer(0.05, store.set, ("late", "1")).start()
    threading.Timer(0.1, store.set, ("later", "2")).start()
    store.set("early", "0")
    assert store.multi_get(["later", "early", "late"]) == [b"2", b"0", b"1"]
    store.wait(["late", "later"], timedelta(0))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda store: store.get("x"), "wait timeout after 30ms, keys: /x"),
        (lambda store: store.wait(["x", "there", "y"]), "wait timeout after 30ms, keys: /x, /y"),
        (lambda store: store.wait(["x"], timedelta(milliseconds=1)), "wait timeout after 1ms, keys: /x"),
        (lambda store: store.multi_get(["there", "x"]), "wait timeout after 30ms, keys: /x"),
    ],
)
def test_who_waits_too_long_is_told_in_torchs_words(store: Store, ask: Callable[[Store], object], message: str) -> None:
    store.set("there", "")
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    with pytest.raises(StoreTimeout) as told:
        ask(store)
    assert str(told.value) == message
    assert isinstance(told.value, DistStoreError)
    assert isinstance(told.value, TimeoutError)
    assert isinstance(told.value, RuntimeError)  # torch's is one


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (lambda store: store.set("k", 5), TypeError, "a value is a str or bytes, not int"),
        (lambda store: store.get(b"k"), TypeError, "a key is a str, not bytes"),
        (lambda store: store.set_timeout(5), TypeError, "a timeout is a timedelta, not int"),
        (lambda store: store.set("k", b"x" * 70_000), ValueError, "a value has at most 65536 bytes, not 70000"),
        (lambda store: store.get("k" * 600), ValueError, "a key has 1 to 512 bytes"),
        (lambda store: store.add("word", 1), ValueError, "invalid literal"),
    ],
)
def test_what_no_store_takes_is_refused(
    store: Store, ask: Callable[[Any], object], kind: type[Exception], message: str
) -> None:
    store.set("word", "abc")
    with pytest.raises(kind, match=message):
        ask(store)


def test_a_barrier_opens_for_all_when_the_last_has_come(store: Store) -> None:
    in_threads(3, lambda _number: store.barrier("gate", 3, timedelta(seconds=30)))
    with pytest.raises(StoreTimeout):
        store.barrier("other", 2, SHORT)


def test_a_clone_is_the_same_store_with_a_timeout_of_its_own_and_outlives_its_origin() -> None:
    made = create_c10d_store(True, "127.0.0.1")
    clone = made.clone()
    clone.set_timeout(SHORT)
    assert made.timeout != SHORT
    made.set("key", "value")
    del made
    assert clone.get("key") == b"value"


def test_a_store_has_the_methods_that_agents_call_and_no_queues(store: Store) -> None:
    called = "add append check compare_set delete_key get multi_get multi_set num_keys set set_timeout timeout wait"
    assert all(hasattr(store, name) for name in called.split())
    assert store.has_extended_api()
    assert not any(hasattr(store, name) for name in ("queue_push", "queue_pop", "queue_len"))


def wait_and_be_interrupted(store: Store) -> None:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    store.get("never")


def test_a_signal_interrupts_who_waits() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    store = create_c10d_store(True, "127.0.0.1")
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            wait_and_be_interrupted(store)
    finally:
        signal.signal(signal.SIGUSR1, before)
    store.set("still", "there")
    assert store.get("still") == b"there"


def test_a_store_that_is_gone_is_not_waited_for_longer_than_asked() -> None:
    serving = create_c10d_store(True, "127.0.0.1")
    other = create_c10d_store(False, "127.0.0.1", serving.port, 2, wait_for_workers=False)
    other.set("key", "value")
    del serving
    other.set_timeout(timedelta(milliseconds=200))
    with pytest.raises(DistNetworkError, match=r"^the store at 127.0.0.1:\d+ did not answer: "):
        other.set("key", "value")
    with pytest.raises(StoreTimeout):
        other.get("key")


def test_a_client_that_is_closed_tells_everybody_why_those_who_wait_and_those_who_ask_later() -> None:
    thread = LoopThread()
    client = Client(thread, MemoryStore)
    store = Store(client)
    told: list[str] = []

    def wait(_number: int) -> None:
        try:
            store.get("never")
        except DistStoreError as problem:
            told.append(str(problem))

    threading.Timer(0.05, client.close, ("closing time",)).start()
    in_threads(5, wait)
    assert told == ["closing time"] * 5
    with pytest.raises(DistStoreError, match=r"^closing time$"):
        store.set("key", "value")
    thread.stop()
    with pytest.raises(DistStoreError, match=r"closing time|it was shut down"):
        store.set("key", "value")


def test_more_threads_than_a_store_can_watch_for_are_told_so() -> None:
    store = create_c10d_store(True, "127.0.0.1")
    told: list[str] = []

    def wait(_number: int) -> None:
        try:
            store.get("awaited")
        except DistStoreError as problem:
            told.append(str(problem))
            store.set("awaited", "value")  # nobody waits longer than for this

    in_threads(MOST_WAITING + 1, wait)
    assert told == [f"at most {MOST_WAITING} threads of a process can wait for keys of one store"]


def test_a_wait_that_is_over_leaves_nothing() -> None:
    thread = LoopThread()
    client = Client(thread, MemoryStore)
    for _ in range(3):
        assert client.wait_for("never", 0.01) is None
    assert not client._boxes
    assert not thread._open
    thread.stop()


def test_a_loop_that_fails_is_the_failure_of_those_who_wait() -> None:
    thread = LoopThread()
    store = Store(Client(thread, MemoryStore))
    threading.Timer(0.05, thread.post, (lambda: 1 / 0,)).start()
    with pytest.raises(DistStoreError, match=r"the thread behind it failed: ZeroDivisionError") as told:
        store.get("never")
    assert isinstance(told.value.__cause__, Exception)
    assert isinstance(told.value.__cause__.__cause__, ZeroDivisionError)


def test_what_is_done_on_the_loop_raises_at_the_caller() -> None:
    thread = LoopThread()
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 / 0)
    assert thread.call(lambda: 7) == 7
    thread.stop()
    assert thread.has_ended


def test_a_forked_child_has_no_part_in_it() -> None:
    thread = LoopThread()
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        thread.stop()
        os._exit(0 if thread.has_ended and time.monotonic() < began + 30 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert thread.call(lambda: 7) == 7
    thread.stop()
