from __future__ import annotations

import gc
import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from ports import free_port

from planaria.agent.trust import OPEN_DOOR
from planaria.elastic import events
from planaria.elastic.events import handlers
from planaria.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from planaria.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend, create_backend
from planaria.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousSettings,
    RendezvousTimeout,
    create_handler,
)
from planaria.elastic.rendezvous.etcd_rendezvous import EtcdRendezvousHandler
from planaria.elastic.rendezvous.handler import MeetingHandler, is_ours
from planaria.elastic.rendezvous.registry import get_rendezvous_handler
from planaria.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous, create_rdzv_handler
from planaria.elastic.store import DistStoreError
from planaria.elastic.utils.distributed import create_c10d_store


def made(backend: str = "c10d", endpoint: str = "localhost:0", nodes: str = "1:1", **config: Any) -> MeetingHandler:
    least, most = map(int, nodes.split(":"))
    handler = get_rendezvous_handler(RendezvousParameters(backend, endpoint, "job", least, most, **config))
    assert isinstance(handler, MeetingHandler)
    return handler


def test_every_name_that_torchrun_and_we_have_makes_a_handler_that_describes_its_meeting() -> None:
    handlers = {
        "c10d": made("c10d", "h:1", "1:2"),
        "embedded": made("embedded", "h:1", "1:2"),
        "etcd": made("etcd", "h:1", "1:2"),
        "etcd-v2": made("etcd-v2", "h:1", "1:2"),
        "kubernetes": made("kubernetes", "ours/job-run", "1:2"),
        "static": made("static", "h:1", "2:2", rank=1),
    }
    assert [handler.get_backend() for handler in handlers.values()] == list(handlers)
    assert [(name, handler.meeting.backend) for name, handler in handlers.items() if handler.meeting] == [
        ("c10d", "embedded"),
        ("embedded", "embedded"),
        ("etcd", "etcd"),
        ("etcd-v2", "etcd"),
        ("kubernetes", "kubernetes"),
        ("static", "static"),
    ]
    assert all(is_ours(handler) and not handler.use_agent_store for handler in handlers.values())
    assert isinstance(handlers["c10d"], DynamicRendezvousHandler)
    assert isinstance(handlers["etcd"], EtcdRendezvousHandler)
    assert isinstance(handlers["static"], StaticTCPRendezvous)
    assert {handler.get_run_id() for handler in handlers.values()} == {"job"}


def test_a_subclass_that_waits_in_its_own_way_is_not_ours_to_take_apart() -> None:
    class Own(DynamicRendezvousHandler):
        def next_rendezvous(self) -> RendezvousInfo:
            pytest.fail("it is only looked at")

    class Like(DynamicRendezvousHandler):
        pass

    params = RendezvousParameters("c10d", "h:1", "job", 1, 2)
    assert not is_ours(Own.from_parameters(params))
    assert is_ours(Like.from_parameters(params))


def test_the_settings_say_what_holds() -> None:
    handler = made("c10d", "h:1", "1:2", join_timeout=9, last_call_timeout=4, close_timeout=7, ttl=6)
    assert isinstance(handler, DynamicRendezvousHandler)
    settings = handler.settings
    assert (settings.run_id, settings.min_nodes, settings.max_nodes) == ("job", 1, 2)
    assert [one.total_seconds() for one in (settings.timeout.join, settings.timeout.last_call)] == [9, 4]
    assert settings.keep_alive_interval * settings.keep_alive_max_attempt == timedelta(seconds=6)
    assert handler.close_timeout == settings.timeout.close == timedelta(seconds=7)


def test_a_node_alone_gets_a_round_whenever_it_asks_with_an_empty_store_and_a_fresh_port() -> None:
    handler = made()
    assert handler.meeting is None
    first = handler.next_rendezvous()
    assert (first.rank, first.world_size, handler.num_nodes_waiting(), handler.is_closed()) == (0, 1, 0, False)
    first.store.set("key", "value")
    second = handler.next_rendezvous()
    assert second.store.check(["key"]) is False
    assert second.bootstrap_store_info != first.bootstrap_store_info
    with pytest.raises(DistStoreError, match=r"this store is over: its round is over"):
        first.store.get("key")
    assert handler.shutdown() is True
    assert handler.is_closed()
    with pytest.raises(RendezvousClosedError, match=r"^the rendezvous 'job' is closed$"):
        handler.next_rendezvous()
    with pytest.raises(DistStoreError, match=r"this store is over|it was shut down"):
        second.store.set("key", "value")


def test_rounds_and_failures_are_events_for_those_who_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str, int | None]] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = json.loads(record.getMessage())
            told.append((event["node_state"], event["message"], event["rank"]))

    monkeypatch.setitem(handlers._log_handlers, "dynamic_rendezvous", Listening())
    monkeypatch.setattr(events, "_events_loggers", {})
    handler = made()
    handler.next_rendezvous()
    handler.shutdown()
    with pytest.raises(RendezvousClosedError):
        handler.next_rendezvous()
    assert told == [
        ("RUNNING", "has rank 0 in a world of size 1", 0),
        ("FAILED", "RendezvousClosedError: the rendezvous 'job' is closed", None),
    ]


def test_a_static_node_alone_has_the_port_that_was_asked_for() -> None:
    handler = made("static", "10.1.2.3:45", "1:1", rank=0)
    told = handler.next_rendezvous().bootstrap_store_info
    assert told is not None
    assert (told.master_addr, told.master_port) == ("10.1.2.3", 45)
    handler.shutdown()


def test_a_handler_that_is_forgotten_takes_its_thread_along() -> None:
    handler = made()
    handler.next_rendezvous()
    threads = threading.active_count()
    del handler
    assert threading.active_count() < threads


def test_closing_wakes_a_thread_that_waits_for_others() -> None:
    handler = made("c10d", f"127.0.0.1:{free_port()}", "2:2")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            handler.next_rendezvous()
        except RendezvousClosedError as problem:
            raised.append(problem)

    waiting = threading.Thread(target=wait)
    waiting.start()
    handler.set_closed()
    waiting.join(30)
    assert [str(one) for one in raised] == ["the rendezvous 'job' is closed"]
    assert handler.is_closed()
    assert handler.shutdown()


def test_two_handlers_of_one_process_meet_and_leave_no_thread_and_no_descriptor_behind() -> None:
    def open_ones() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    def meet() -> None:
        endpoint = f"127.0.0.1:{free_port()}"
        pair = [made("c10d", endpoint, "2:2"), made("c10d", endpoint, "2:2")]
        with ThreadPoolExecutor(2) as pool:
            for _ in range(3):
                found = list(pool.map(lambda handler: handler.next_rendezvous(), pair))
                assert sorted((one.rank, one.world_size) for one in found) == [(0, 2), (1, 2)]
            assert list(pool.map(lambda handler: handler.shutdown(), pair)) == [True, True]

    before = open_ones()
    meet()
    assert open_ones() == before


def test_who_waits_in_vain_is_told_for_what_and_may_wait_again() -> None:
    handler = made("c10d", f"127.0.0.1:{free_port()}", "2:2", join_timeout=1)
    for _ in range(2):
        with pytest.raises(RendezvousTimeoutError):
            handler.next_rendezvous()
    assert not handler.is_closed()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"join_timeout": 0}, r"^The join timeout \(0:00:00\) must be positive.$"),
        ({"close_timeout": -1}, r"^The close timeout \(-1 day, 23:59:59\) must be positive.$"),
        ({"join_timeout": "x"}, "option 'join_timeout' does not represent a valid integer value.$"),
    ],
)
def test_times_that_make_no_sense_are_refused_in_torchs_words(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made("c10d", "h:1", "1:2", **config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("", 1, 1), "^The run id must be a non-empty string.$"),
        (("job", 0, 1), r"^The minimum number of nodes \(0\) must be greater than zero.$"),
        (("job", 2, 1), r"^The maximum number of nodes \(1\) must be greater than or equal to the minimum"),
    ],
)
def test_settings_that_describe_no_run_are_refused_in_torchs_words(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DynamicRendezvousHandler(
            RendezvousSettings(*settings, RendezvousTimeout(), timedelta(seconds=5), 3), "c10d", None
        )


@pytest.mark.parametrize(
    ("endpoint", "config", "message"),
    [
        ("h:1", {}, "^rank is absent in RendezvousParameters.Try add --node-rank to the cmd request$"),
        (" ", {"rank": 0}, "^endpoint is absent in RendezvousParametersTry add --master-port and --master-addr"),
        ("h", {"rank": 0}, "^Port is absent in endpoint: h. Try launching with --master-port$"),
    ],
)
def test_a_static_rendezvous_needs_a_rank_and_a_port(endpoint: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_rdzv_handler(RendezvousParameters("static", endpoint, "job", 2, 2, **config))


def test_a_token_that_cannot_be_used_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANARIA_TOKEN", "")
    with pytest.raises(ValueError, match=r"^PLANARIA_TOKEN expects a secret, got an empty one$"):
        made("c10d", "h:1", "1:2")


def test_a_backend_on_a_store_compares_and_sets() -> None:
    backend = C10dRendezvousBackend(create_c10d_store(True, "127.0.0.1"), "job")
    assert (backend.name, backend.get_state()) == ("c10d", None)
    first = backend.set_state(b"one")
    assert first is not None
    assert first[0::2] == (b"one", True)
    assert backend.get_state() == first[:2]
    assert backend.set_state(b"two") == (b"one", first[1], False)
    assert backend.set_state(b"two", "no token") == (b"one", first[1], False)
    second = backend.set_state(b"two", first[1])
    assert second is not None
    assert second[0::2] == (b"two", True)
    assert backend.set_state(b"three", first[1]) == (b"two", second[1], False)


def test_a_backend_whose_store_is_gone_says_so_in_torchs_words() -> None:
    params = RendezvousParameters("c10d", f"127.0.0.1:{free_port()}", "job", 1, 2, is_host=False, read_timeout=1)
    with pytest.raises(RendezvousConnectionError, match=r"^The connection to the C10d store has failed. See inner"):
        create_backend(params)


@pytest.mark.parametrize("key", ["keep_alive_interval", "keep_alive_max_attempt"])
def test_none_is_no_time(key: str) -> None:
    params = RendezvousParameters("c10d", "h:1", "job", 1, 2, **{key: None})
    backend: Any = None
    with pytest.raises(TypeError, match=f"^You passed '{key}=None' as a rendezvous configuration option$"):
        create_handler(backend, backend, params)


@pytest.mark.parametrize("backend", ["c10d", "etcd", "static"])
def test_a_meeting_that_strangers_can_come_to_is_said_once(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    handler = made(backend, "node1:1", "2:2", rank=0)
    handler.warn_if_open()
    handler.warn_if_open()
    assert [line for line in caplog.messages if "no token and no TLS" in line] == [f"job: {OPEN_DOOR}"]


def test_nothing_is_said_of_a_meeting_on_loopback_or_with_a_token_or_of_nobody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("c10d", "localhost:1", "1:2").warn_if_open()
    made("c10d", "localhost:0", "1:1").warn_if_open()
    monkeypatch.setenv("PLANARIA_TOKEN", "s3cret")
    made("c10d", "node1:1", "1:2").warn_if_open()
    assert not caplog.messages


def test_who_waits_for_a_round_is_told_of_the_open_door(caplog: pytest.LogCaptureFixture) -> None:
    handler = made("c10d", f"0.0.0.0:{free_port()}", "2:2", join_timeout=1)
    with pytest.raises(RendezvousTimeoutError):
        handler.next_rendezvous()
    assert f"job: {OPEN_DOOR}" in caplog.messages
