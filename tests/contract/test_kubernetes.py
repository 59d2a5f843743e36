"""The store in Kubernetes against a real API server, with the rights of an agent and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kube_client import Refused
from kube_place import NAMESPACE, Place
from store_clients import ask_in_vain, clients, write

from planaria.base.loop import Loop
from planaria.store.api import Where
from planaria.store.backends import open_store
from planaria.store.kubernetes_keys import MOST_CHANGES
from planaria.store.model import (
    Absent,
    Denied,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Put,
    Unavailable,
    WatchLost,
    Written,
)
from planaria.testing.store_client import Client
from planaria.testing.store_contract import StoreContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_clients import Connect

    from planaria.store.api import Store


class TestKubernetes(StoreContract):
    @pytest.fixture
    def make_store(self, place: Place) -> Callable[[Loop], Store]:
        return lambda loop: open_store("kubernetes", loop, place.where)

    @pytest.fixture
    def forget_history(self) -> Callable[[Client], object]:
        return lambda client: client.ask_all(*[Put("elsewhere", b"") for _ in range(MOST_CHANGES + 1)])


@pytest.fixture
def connect(loop: Loop) -> Iterator[Connect]:
    with clients(loop, "kubernetes") as connect:
        yield connect


def test_an_agents_rights_make_and_remove_nothing(place: Place) -> None:
    agent = place.cluster.client_of(place.name, NAMESPACE)
    folder = place.path("configmaps").rpartition("/")[0]
    for method, path in (
        ("POST", folder),
        ("DELETE", place.path("configmaps")),
        ("DELETE", place.path("leases")),
        ("GET", folder),
        ("GET", f"{folder}/other"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    ):
        with pytest.raises(Refused) as refused:
            agent.call(method, path, {"metadata": {"name": "x"}} if method == "POST" else None)
        assert refused.value.status == 403


def test_a_token_that_is_renewed_in_its_file_is_used_and_one_that_is_none_is_said(
    place: Place, connect: Connect
) -> None:
    good = place.token_file.read_text()
    client = connect(place.where)
    assert client.ask(Get("k")) == Absent()
    place.token_file.write_text("eyJ.not.one")
    (denied,) = ask_in_vain(client, Get("k"))
    assert isinstance(denied, Denied)
    assert denied.by_rights
    assert "Unauthorized" in denied.why
    assert "eyJ" not in denied.why
    place.token_file.write_text(good)
    assert client.ask(Get("k")) == Absent()


def test_rights_and_objects_that_are_missing_are_named(place: Place, connect: Connect) -> None:
    elsewhere = connect(Where((f"{NAMESPACE}/not-mine",), ca=place.where.ca, options=place.where.options))
    (denied,) = ask_in_vain(elsewhere, Get("k"))
    assert isinstance(denied, Denied)
    assert denied.by_rights
    assert 'configmaps "not-mine" is forbidden' in denied.why
    place.cluster.client.delete(place.path("configmaps"))
    (missing,) = ask_in_vain(connect(place.where), Get("k"))
    assert isinstance(missing, Denied)
    assert f"there is no ConfigMap {place.endpoint}" in missing.why


def test_a_config_map_that_was_made_anew_ends_watches_and_leases_of_before(place: Place, connect: Connect) -> None:
    client = connect(place.where)
    lease = client.ask(Grant(60.0))
    assert isinstance(lease, Granted)
    before = write(client, b"1")
    watched = client.watch("", before)
    admin, path = place.cluster.client, place.path("configmaps")
    admin.delete(path)
    admin.create(path.rpartition("/")[0], {"metadata": {"name": place.name}})
    assert watched.wait_for(1) == [WatchLost()]
    assert client.ask(Put("k", b"2", expect=before)) != Written(before)
    assert client.ask(Put("k", b"2", lease=lease.lease)) == LeaseGone()


def test_the_api_server_must_show_a_certificate_of_the_authority_that_was_named(
    place: Place, connect: Connect, tmp_path: Path
) -> None:
    from certificates import make_certificate

    stranger = make_certificate(tmp_path, "stranger")
    client = connect(Where((place.endpoint,), ca=stranger.cert, options=place.where.options))
    (said,) = ask_in_vain(client, Get("k"))
    assert isinstance(said, Unavailable)
    assert "certificate is not accepted" in said.why
    assert not said.maybe_done
