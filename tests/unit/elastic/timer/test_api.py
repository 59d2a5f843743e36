from __future__ import annotations

import queue
import time

import pytest

from planaria.elastic import timer
from planaria.elastic.timer import api
from planaria.elastic.timer.local_timer import MultiprocessingRequestQueue


class Recorder(timer.TimerClient):
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.times: list[float] = []

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self.calls.append(("acquire", scope_id))
        self.times.append(expiration_time)

    def release(self, scope_id: str) -> None:
        self.calls.append(("release", scope_id))


def test_expires_without_a_client_raises_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_timer_client", None)
    with (
        pytest.raises(RuntimeError, match=r"^Configure timer client before using countdown timers\.$"),
        timer.expires(1),
    ):
        pass


def test_expires_acquires_and_releases_also_when_the_block_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_timer_client", None)
    client = Recorder()
    timer.configure(client)
    before = time.time()
    with timer.expires(after=10, scope="a"):
        pass
    with pytest.raises(ZeroDivisionError), timer.expires(after=10, scope="b"):
        raise ZeroDivisionError
    assert client.calls == [("acquire", "a"), ("release", "a"), ("acquire", "b"), ("release", "b")]
    assert before + 10 <= client.times[0] <= time.time() + 10


def test_a_client_that_is_given_wins_and_a_scope_is_named_after_its_place() -> None:
    client = Recorder()
    with timer.expires(1, client=client):
        pass
    line = test_a_client_that_is_given_wins_and_a_scope_is_named_after_its_place.__code__.co_firstlineno + 2
    assert client.calls[0] == ("acquire", f"{__file__}#{line}")


def test_requests_are_equal_by_their_fields() -> None:
    assert api.TimerRequest(1, "a", 2.0) == api.TimerRequest(1, "a", 2.0)
    assert api.TimerRequest(1, "a", 2.0) != api.TimerRequest(1, "a", 3.0)
    assert api.TimerRequest(1, "a", 2.0) != "a"
    assert timer.FileTimerRequest(1, "a", 2.0, 9) != timer.FileTimerRequest(1, "a", 2.0)


class Server(timer.TimerServer):
    """What people write: their own way to keep timers and to end workers."""

    def __init__(self, request_queue: api.RequestQueue) -> None:
        super().__init__(request_queue, max_interval=0.01)
        self.timers: dict[tuple[object, str], api.TimerRequest] = {}
        self.reaped: list[object] = []

    def register_timers(self, timer_requests: list[api.TimerRequest]) -> None:
        for request in timer_requests:
            self.timers[request.worker_id, request.scope_id] = request

    def clear_timers(self, worker_ids: set[object]) -> None:
        self.timers = {key: one for key, one in self.timers.items() if key[0] not in worker_ids}

    def get_expired_timers(self, deadline: float) -> dict[str, list[api.TimerRequest]]:
        late = [one for one in self.timers.values() if one.expiration_time <= deadline]
        return {one.worker_id: [one] for one in late}

    def _reap_worker(self, worker_id: object) -> bool:
        self.reaped.append(worker_id)
        if worker_id == "raises":
            raise OSError
        return worker_id != "refuses"


def test_a_server_of_ones_own_is_asked_as_torch_asks_it() -> None:
    requests: queue.Queue[api.TimerRequest] = queue.Queue()
    server = Server(MultiprocessingRequestQueue(requests))
    for worker_id in ("dies", "raises", "refuses"):
        requests.put(api.TimerRequest(worker_id, "a", time.time() - 1))
    requests.put(api.TimerRequest("lives", "a", time.time() + 1000))
    server._run_watchdog()
    assert sorted(map(str, server.reaped)) == ["dies", "raises", "refuses"]
    assert {key[0] for key in server.timers} == {"refuses", "lives"}  # who was not ended is tried again


def test_a_queue_gives_what_it_has_and_does_not_wait_longer_than_it_may() -> None:
    requests: queue.Queue[api.TimerRequest] = queue.Queue()
    found = MultiprocessingRequestQueue(requests)
    assert (found.size(), found.get(1, 0.01)) == (0, [])
    for number in range(5):
        requests.put(api.TimerRequest(number, "a", 1.0))
    assert (found.size(), len(found.get(3, 10.0)), len(found.get(5, 0.01))) == (5, 3, 2)
