"""The store in Kubernetes when the API server fails in ways that a real one cannot be told to."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest
from ports import free_port
from scripted_api import Fault, ScriptedApi
from store_clients import clients, position

from planaria.base.loop import Loop
from planaria.errors import UsageError
from planaria.rendezvous.lease import Lease
from planaria.store.api import Where
from planaria.store.backends import open_store
from planaria.store.kubernetes_api import CONFIG_MAPS, LEASES, Access, Api, ApiAway, ApiDenied, Manners
from planaria.store.kubernetes_keys import INDEX
from planaria.store.model import (
    Absent,
    Changed,
    Denied,
    Found,
    Get,
    Grant,
    Granted,
    Left,
    Put,
    Remaining,
    Renew,
    Renewed,
    Unavailable,
    WatchLost,
    Written,
)
from planaria.testing.store_client import Client, run_for, run_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Connect = Callable[[str], Client]

PLACE = "ours/job-run"


@pytest.fixture
def connect(loop: Loop) -> Iterator[Connect]:
    with clients(loop, "kubernetes") as connect:
        yield lambda url: connect(Where((PLACE,), options=(("server", url),)))


@pytest.fixture
def client(api: ScriptedApi, connect: Connect) -> Client:
    return connect(api.url)


def write(client: Client, value: bytes) -> int:
    reply = client.ask(Put("k", value))
    assert isinstance(reply, Written), reply
    return reply.revision


def test_who_is_told_to_wait_waits_that_long_with_everything(api: ScriptedApi, client: Client, loop: Loop) -> None:
    write(client, b"1")
    api.faults.append(Fault("GET", "configmaps", 429, (("Retry-After", "1"),)))
    began = loop.now()
    answers = client.ask_all(Get("k"))
    assert isinstance(answers[0], Found)
    assert loop.now() - began >= 1.0
    api.faults.append(Fault("PUT", "configmaps", 429, (("Retry-After", "1"),)))
    assert isinstance(client.ask(Put("k", b"2")), Written), "what was turned away was not done, and may be sent again"


def test_a_request_that_may_not_wait_so_long_says_why_and_that_nothing_was_done(
    api: ScriptedApi, client: Client
) -> None:
    write(client, b"1")
    api.faults += [Fault("PUT", "configmaps", 429, (("Retry-After", "20"),))]
    reply = client.ask(Put("k", b"2"), timeout_s=1.0)
    assert reply == Unavailable(f"the API server at {api.url}: scripted 429", maybe_done=False)
    asked = api.count("GET", "configmaps")
    assert isinstance(client.ask(Get("k"), timeout_s=0.5), Unavailable)
    assert api.count("GET", "configmaps") == asked, "nobody asks again before the time is over"


def test_who_finds_another_was_first_reads_again_and_goes_on(api: ScriptedApi, client: Client) -> None:
    write(client, b"1")
    api.faults += [Fault("PUT", "configmaps", 409)] * 3
    revision = write(client, b"2")
    assert client.ask(Get("k")) == Found(b"2", revision, None)


@pytest.mark.parametrize("status", [0, 500, 503, 504])
def test_a_read_is_repeated_through_failures(api: ScriptedApi, client: Client, status: int) -> None:
    revision = write(client, b"1")
    api.faults += [Fault("GET", "configmaps", status)] * 2
    assert client.ask(Get("k")) == Found(b"1", revision, None)


@pytest.mark.parametrize("status", [0, -1, 500, 504])
def test_a_write_without_an_answer_may_have_been_done(api: ScriptedApi, client: Client, status: int) -> None:
    write(client, b"1")
    api.faults.append(Fault("PUT", "configmaps", status))
    reply = client.ask(Put("k", b"2"))
    assert isinstance(reply, Unavailable)
    assert reply.maybe_done
    found = client.ask(Get("k"))
    assert isinstance(found, Found)
    assert found.value == (b"2" if status == -1 else b"1")


def test_a_renewal_whose_answer_was_lost_is_repeated_by_who_asks(api: ScriptedApi, client: Client) -> None:
    granted = client.ask(Grant(30.0))
    assert isinstance(granted, Granted)
    api.faults.append(Fault("PUT", "leases", -1))
    told: list[object] = []
    while Unavailable not in map(type, told):  # one that comes too soon after the last is not written
        told.append(client.ask(Renew(granted.lease), timeout_s=2.0))
    assert client.ask(Renew(granted.lease)) == Renewed(30.0)


@pytest.mark.parametrize(("status", "by_rights"), [(401, True), (403, True), (413, False), (422, False)])
def test_what_the_api_server_denies_is_said(api: ScriptedApi, client: Client, status: int, by_rights: bool) -> None:
    write(client, b"1")
    api.faults += [Fault("PUT", "configmaps", status)] * 20
    reply = client.ask(Put("k", b"2"), timeout_s=1.0)
    assert isinstance(reply, Denied)
    assert reply.by_rights == by_rights
    assert f"scripted {status}" in reply.why


@pytest.mark.parametrize(("kind", "called"), [("configmaps", "ConfigMap"), ("leases", "Lease")])
def test_an_object_that_is_missing_is_named(api: ScriptedApi, client: Client, kind: str, called: str) -> None:
    api.remove(kind)
    reply = client.ask(Get("k") if kind == "configmaps" else Grant(5.0), timeout_s=1.0)
    assert reply == Denied(
        f"there is no {called} {PLACE}: an agent may not make it, so it must be there before", by_rights=True
    )
    api.make(kind)
    assert isinstance(client.ask(Get("k") if kind == "configmaps" else Grant(5.0)), (Absent, Granted))


def test_a_lease_that_is_missing_is_no_config_map_in_a_namespace_of_that_name(api: ScriptedApi, loop: Loop) -> None:
    api.remove("leases")
    asking = Api(Access(api.url, None, "", "configmaps", "job-run"), Manners(), loop.now, Event())
    with pytest.raises(ApiDenied, match=r"^there is no Lease configmaps/job-run: "):
        asking.get(LEASES, 5.0)
    asking.close()


def test_a_watch_whose_place_is_forgotten_reads_the_object_anew_and_misses_nothing(
    api: ScriptedApi, client: Client
) -> None:
    first = write(client, b"1")
    api.faults += [Fault("WATCH", "configmaps", 410), Fault("WATCH", "configmaps", 0)]
    watched = client.watch("", first)
    second = write(client, b"2")
    assert watched.wait_for(1) == [Changed("k", b"2", second)]
    api.forget()
    third = write(client, b"3")
    assert watched.wait_for(2)[1] == Changed("k", b"3", third)
    listed = [one for one in api.seen if (one.method, one.kind) == ("LIST", "configmaps")]
    assert len(listed) >= 2
    asked = [one.query for one in api.seen if one.method == "WATCH"]
    assert all(query["allowWatchBookmarks"] == ["true"] for query in asked)
    assert all(query["fieldSelector"] == ["metadata.name=job-run"] for query in asked)


def test_an_api_server_that_was_away_for_longer_than_a_lease_ends_none_and_no_watch(
    api: ScriptedApi, client: Client, connect: Connect
) -> None:
    granted = client.ask(Grant(2.0))
    assert isinstance(granted, Granted)
    first = client.ask(Put("k", b"1", lease=granted.lease))
    assert isinstance(first, Written)
    observers = [connect(api.url) for _ in range(3)]
    watches = [observer.watch("", first.revision) for observer in observers]
    assert [observer.ask(Get("k")) for observer in observers] == [Found(b"1", first.revision, granted.lease)] * 3
    api.is_away = True
    run_for(client.loop, 4.0)
    api.is_away = False
    run_for(
        client.loop, 1.5
    )  # time enough for who believes what it saw before to act on it, and not for a lease to end
    assert client.ask(Renew(granted.lease)) == Renewed(2.0)
    second = write(client, b"2")
    for watched in watches:
        assert watched.wait_for(1) == [Changed("k", b"2", second)]


def test_an_object_that_was_removed_and_made_anew_ends_the_watches(api: ScriptedApi, client: Client) -> None:
    watched = client.watch("", write(client, b"1"))
    api.remove("configmaps")
    api.make("configmaps")
    assert watched.wait_for(1) == [WatchLost()]
    assert client.ask(Get("k")) == Absent()


def test_a_lease_object_that_was_made_anew_takes_all_leases_and_keys_with_it(api: ScriptedApi, client: Client) -> None:
    granted = client.ask(Grant(60.0))
    assert isinstance(granted, Granted)
    assert isinstance(client.ask(Put("k", b"v", lease=granted.lease)), Written)
    watched = client.watch("", position(client))
    api.remove("leases")
    api.make("leases")
    event = watched.wait_for(1)[0]
    assert isinstance(event, Changed)
    assert (event.key, event.value) == ("k", None)


def test_an_object_that_others_have_written_to_is_said_and_left_alone(api: ScriptedApi, client: Client) -> None:
    found = api.objects["configmaps"]
    api.write("configmaps", {**found, "data": {INDEX: "{}"}})
    reply = client.ask(Put("k", b"v"), timeout_s=2.0)
    assert isinstance(reply, Unavailable)
    assert "is not ours" in reply.why
    assert api.objects["configmaps"]["data"] == {INDEX: "{}"}


def test_where_nobody_listens_requests_are_answered_in_time_and_certainly_not_done(
    connect: Connect, loop: Loop
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    client = connect(url)
    for asked in (Put("k", b"v"), Get("k"), Grant(5.0), Renew(7)):
        assert client.ask(asked, timeout_s=1.0) == Unavailable(
            f"the API server at {url}: Connection refused", maybe_done=False
        )


def test_a_leader_writes_less_than_once_a_second_however_short_its_lease_and_however_many_look(
    api: ScriptedApi, connect: Connect, loop: Loop
) -> None:
    observers = [connect(api.url) for _ in range(4)]
    for observer in observers:
        observer.watch("", position(observer))
    before = api.count("PUT", "leases")
    lease = Lease(loop, connect(api.url).store, 1.0, lambda _event: None)
    numbers: list[int] = []
    lease.obtain(numbers.append)
    run_until(loop, lambda: numbers)
    began = loop.now()
    run_until(loop, lambda: api.count("PUT", "leases") >= before + 5)
    assert loop.now() - began >= 4.0
    assert isinstance(observers[0].ask(Remaining(numbers[0])), Left)
    assert api.count("PUT", "configmaps") == 1, "the lease itself, once"
    done: list[bool] = []
    lease.give_back(lambda: done.append(True))
    run_until(loop, lambda: done)


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (Where((), options=(("server", "https://h:1"),)), "one endpoint"),
        (Where(("a", "b"), options=(("server", "https://h:1"),)), "one endpoint"),
        (Where(("a",)), "KUBERNETES_SERVICE_HOST"),
        (Where(("a",), options=(("server", "https://h:1"), ("token_file", "/nowhere/token"))), "/nowhere/token"),
    ],
)
def test_what_can_never_work_is_said_before_anything_is_tried(loop: Loop, where: Where, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        open_store("kubernetes", loop, where)


def test_a_certificate_authority_that_is_none_is_said(loop: Loop, tmp_path: Path) -> None:
    for name in ("token", "ca"):
        (tmp_path / name).write_text("not a certificate")
    options = (("server", "https://127.0.0.1:1"), ("token_file", str(tmp_path / "token")))
    with pytest.raises(UsageError, match="certificates"):
        open_store("kubernetes", loop, Where(("a/b",), ca=str(tmp_path / "ca"), options=options))


def test_a_watch_is_not_opened_before_the_api_server_wants_to_be_asked(api: ScriptedApi) -> None:
    waits: list[float] = []

    class Flag(Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return len(waits) > 1

    manners = Manners()
    manners.until = 107.0
    asking = Api(Access(api.url, None, "", "ours", "job-run"), manners, lambda: 100.0, Flag())
    asking.watch(CONFIG_MAPS, "v100", 5.0).close()
    asking.close()
    with pytest.raises(ApiAway, match="it asked us to wait"):  # it is closing
        asking.watch(CONFIG_MAPS, "v100", 5.0)
    assert waits == [7.0, 7.0]
    assert api.count("WATCH", "configmaps") == 1
