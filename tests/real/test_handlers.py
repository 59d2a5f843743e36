"""Nodes that meet through a handler's methods alone, as an agent of somebody else would: real processes, real sockets."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import etcd_server
import pytest
from etcd_server import Etcd
from handler_node import Node
from ports import free_port
from programs import clean_environment, install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., Node]

SOON_S = 30.0
RUNS = itertools.count()
HAS_ETCD = etcd_server.program() is not None and importlib.util.find_spec("etcd3gw") is not None


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of one server for all tests: each has a run id of its own."""
    if not HAS_ETCD:
        pytest.skip("this needs an etcd and etcd3gw")
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    yield server.endpoints[0]
    server.close()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """A backend, an endpoint and a run id."""
    backend = getattr(request, "param", "c10d")
    own = backend != "etcd"
    endpoint = f"127.0.0.1:{free_port()}" if own else request.getfixturevalue("etcd")
    return backend, endpoint, f"job{next(RUNS)}"


@pytest.fixture
def start(place: tuple[str, str, str]) -> Iterator[Start]:
    nodes: list[Node] = []

    def begin(**settings: Any) -> Node:
        nodes.append(Node(*place, **settings))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.close()


everywhere = pytest.mark.parametrize("place", ["embedded", "etcd"], indirect=True)


def meet(*nodes: Node) -> list[dict[str, Any]]:
    """Let all look for their next round, and check that it is one."""
    for node in nodes:
        node.begin("next")
    found = [node.answer() for node in nodes]
    assert sorted(one["rank"] for one in found) == list(range(len(nodes))), found
    assert {one["size"] for one in found} == {len(nodes)}
    assert len({tuple(one["master"]) for one in found}) == 1
    return found


def take_in(newcomer: Node, *others: Node) -> list[dict[str, Any]]:
    """Let one more join those who have met; return their places, its own last."""
    newcomer.begin("next")
    assert all(node.ask("wanted", SOON_S)["number"] > 0 for node in others)
    assert newcomer.is_silent_for(0.3)  # it has no place before all have stopped
    for node in others:
        node.begin("next")
    return [node.answer() for node in (*others, newcomer)]


@everywhere
def test_two_nodes_meet_and_exchange_data_and_every_round_has_a_store_and_a_port_of_its_own(start: Start) -> None:
    a, b = start(nodes="2"), start(nodes="2")
    first = meet(a, b)
    for node, own in zip((a, b), first, strict=True):
        node.begin("synchronize", f"rank {own['rank']}", own["rank"], 2, "k")
    assert [node.answer()["found"] for node in (a, b)] == [["rank 0", "rank 1"]] * 2
    second = meet(a, b)
    assert second[0]["master"] != first[0]["master"]
    assert a.ask("call", "check", 5, ["k0"]) == b.ask("call", "check", 5, ["k0"]) == {"found": False}


@everywhere
def test_who_asks_for_another_round_ends_the_one_that_runs_for_all(start: Start) -> None:
    a, b = start(nodes="2"), start(nodes="2")
    meet(a, b)
    assert b.ask("wanted", 0)["number"] == 0
    a.begin("next")  # its workers failed
    assert b.ask("wanted", SOON_S)["number"] > 0
    assert b.ask("next")["size"] == a.answer()["size"] == 2
    assert b.ask("wanted", 0)["number"] == 0


@everywhere
def test_a_node_that_joins_later_is_taken_in_when_the_others_have_stopped(start: Start) -> None:
    a, b = start(nodes="2:3"), start(nodes="2:3")
    before = meet(a, b)
    after = take_in(start(nodes="2:3"), a, b)
    assert [one["rank"] for one in after] == [before[0]["rank"], before[1]["rank"], 2]
    assert {one["size"] for one in after} == {3}


@everywhere
@pytest.mark.parametrize("rank", [0, 1])
def test_the_others_are_told_of_a_loss_whoever_it_was(start: Start, rank: int) -> None:
    nodes = [start(nodes="2:3") for _ in range(3)]
    meet(*nodes[:2])
    places = take_in(
        nodes[2], *nodes[:2]
    )  # all at once, a third that is slow to start would be left out of their round
    lost = next(node for node, own in zip(nodes, places, strict=True) if own["rank"] == rank)
    lost.kill()
    rest = [node for node in nodes if node is not lost]
    assert [node.ask("wanted", SOON_S)["number"] > 0 for node in rest] == [True, True]
    meet(*rest)


@everywhere
def test_when_one_shuts_down_the_run_is_closed_for_all(start: Start, place: tuple[str, str, str]) -> None:
    a, b = start(nodes="2"), start(nodes="2")
    meet(a, b)
    a.begin("shutdown")
    assert b.ask("wanted", SOON_S)["number"] > 0
    told = b.ask("next")
    assert told["error"] == "RendezvousClosedError"
    assert told["why"].startswith(f"the rendezvous '{place[2]}' is closed: a handler closed it (on node ")
    assert a.answer() == {"heard": True}
    assert a.ask("closed") == b.ask("closed") == {"closed": True}
    assert a.ask("next")["error"] == b.ask("next")["error"] == "RendezvousClosedError"


def test_all_that_shut_down_together_hear_of_each_other(start: Start) -> None:
    nodes = [start(nodes="3") for _ in range(3)]
    meet(*nodes)
    for node in nodes:
        node.begin("shutdown")
    assert [node.answer() for node in nodes] == [{"heard": True}] * 3


def test_a_run_that_is_closed_while_nodes_wait_for_more_is_closed_for_all_who_wait(start: Start) -> None:
    a, b = start(nodes="3"), start(nodes="3")
    a.begin("next_unless_closed", "2 of 3 nodes are here")
    b.begin("next")
    assert a.answer()["error"] == b.answer()["error"] == "RendezvousClosedError"


def test_a_run_that_is_closed_while_workers_run_asks_all_to_stop_and_then_ends(start: Start) -> None:
    a, b = start(nodes="2"), start(nodes="2")
    meet(a, b)
    a.ask("set_closed")
    assert a.ask("closed") == {"closed": True}
    assert [node.ask("wanted", SOON_S)["number"] > 0 for node in (a, b)] == [True, True]
    for node in (a, b):
        node.begin("next")
    assert {node.answer()["error"] for node in (a, b)} == {"RendezvousClosedError"}


def test_who_finds_too_few_others_is_told_so_in_time(start: Start) -> None:
    alone = start(nodes="2", join_timeout=1)
    assert alone.ask("next")["error"] == "RendezvousTimeoutError"
    assert alone.ask("closed") == {"closed": False}
    other = start(nodes="2")
    other.begin("next")
    while "error" in (found := alone.ask("next")):  # it may try again, as often as the other takes to start
        assert found["error"] == "RendezvousTimeoutError"
    assert {found["rank"], other.answer()["rank"]} == {0, 1}


def test_one_too_many_waits_for_a_place_and_is_told_when_its_time_is_over(start: Start) -> None:
    a, b = start(nodes="2"), start(nodes="2")
    meet(a, b)
    third = start(nodes="2", join_timeout=2)
    assert third.ask("next")["error"] == "RendezvousTimeoutError"
    assert [node.ask("wanted", 0)["number"] for node in (a, b)] == [0, 0]


def test_one_too_many_has_the_place_of_a_node_that_is_lost(start: Start) -> None:
    a, b = start(nodes="2"), start(nodes="2")
    meet(a, b)
    third = start(nodes="2")
    third.begin("next")
    assert third.is_silent_for(0.5)
    b.kill()
    assert a.ask("wanted", SOON_S)["number"] > 0
    a.begin("next")
    assert {a.answer()["size"], third.answer()["size"]} == {2}


def test_a_node_that_ends_without_a_word_to_its_handler_says_goodbye(start: Start) -> None:
    a, b = (start(nodes="1:2", last_call_timeout=60) for _ in range(2))  # however late one of them starts
    meet(a, b)
    b.close()
    assert b.process.returncode == 0
    assert a.ask("wanted", SOON_S)["number"] > 0
    assert a.ask("next")["size"] == 1


def test_a_static_rendezvous_gives_the_ranks_that_were_asked_for_and_agrees_on_restarts() -> None:
    port = free_port()
    nodes = [Node("static", f"127.0.0.1:{port}", "job", nodes="2", rank=rank) for rank in (1, 0)]
    try:
        assert [one["rank"] for one in meet(*nodes)] == [1, 0]
        nodes[0].begin("next")
        assert nodes[1].ask("wanted", SOON_S)["number"] > 0
        told = nodes[1].ask("next")
        assert (told["rank"], told["master"]) == (0, ["127.0.0.1", port])
        assert nodes[0].answer()["rank"] == 1
    finally:
        for node in nodes:
            node.close()


def test_who_has_another_token_stays_outside(start: Start) -> None:
    inside = [start(nodes="2:3", env={"PLANARIA_TOKEN": "s3cret"}) for _ in range(2)]
    meet(*inside)
    stranger = start(nodes="2:3", env={"PLANARIA_TOKEN": "guess"}, join_timeout=2)
    assert stranger.ask("next")["error"] == "RendezvousTimeoutError"
    assert [node.ask("wanted", 0)["number"] for node in inside] == [0, 0]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_with_certificates_rounds_and_stores_are_behind_tls(start: Start, tmp_path: Path) -> None:
    cert, key = str(tmp_path / "cert"), str(tmp_path / "key")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=job"]
    subprocess.run([*words, "-keyout", key, "-out", cert], check=True, capture_output=True)
    tls = {"tls_cert": cert, "tls_key": key, "tls_ca": cert}
    a, b = start(nodes="2", **tls), start(nodes="2", **tls)
    places = meet(a, b)
    for node, own in zip((a, b), places, strict=True):
        node.begin("synchronize", "x", own["rank"], 2, "k")
    assert [node.answer()["found"] for node in (a, b)] == [["x", "x"]] * 2


def test_a_wait_in_the_store_is_over_when_another_node_writes_when_time_is_up_and_when_its_round_ends(
    start: Start,
) -> None:
    a, b = start(nodes="2:3"), start(nodes="2:3")
    meet(a, b)
    a.begin("call", "get", 30, "late")
    assert a.is_silent_for(0.2)
    assert b.ask("call", "set", 5, "late", "value") == {"found": None}
    assert a.answer() == {"found": "value"}
    told = a.ask("call", "get", 0.2, "never")
    assert (told["error"], told["why"]) == ("StoreTimeout", "wait timeout after 200ms, keys: /never")
    a.begin("call", "get", 300, "never")
    b.kill()
    told = a.answer()
    assert (told["error"], "this store is over" in told["why"]) == ("DistStoreError", True)


@pytest.mark.parametrize("place", ["c10d", "etcd"], indirect=True)
def test_nodes_find_each_other_through_the_value_of_a_backend_under_torchs_names(start: Start) -> None:
    a = start(nodes="2:3", by_backend=True, last_call_timeout=1)
    a.begin("next")
    assert a.is_silent_for(0.5)
    b = start(nodes="2:3", by_backend=True, last_call_timeout=1)
    b.begin("next")
    assert {a.answer()["size"], b.answer()["size"]} == {2}
    c = start(nodes="2:3", by_backend=True, last_call_timeout=1)
    c.begin("next")
    assert [node.ask("wanted", SOON_S)["number"] > 0 for node in (a, b)] == [True, True]
    for node in (a, b):
        node.begin("next")
    assert [node.answer()["size"] for node in (a, b, c)] == [3, 3, 3]


def test_a_handler_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "from planaria.elastic.rendezvous import RendezvousHandler, RendezvousInfo\n"
        "class Theirs(RendezvousHandler):\n"
        "    def __init__(self, params): self.params = params\n"
        "    def get_backend(self): return self.params.backend\n"
        "    def next_rendezvous(self): return RendezvousInfo('a store', 0, 1, None)\n"
        "    def is_closed(self): return False\n"
        "    def set_closed(self): pass\n"
        "    def num_nodes_waiting(self): return 0\n"
        "    def get_run_id(self): return self.params.run_id\n"
        "    def shutdown(self): return True\n"
        "def creator(): return Theirs\n"
    )
    points = {"theirs": "theirs:creator", "broken": "not_there:creator", "static": "theirs:creator"}
    install(tmp_path, "theirs", {"torchrun.handlers": points})
    script = (
        "from planaria.elastic.rendezvous import RendezvousParameters as P\n"
        "from planaria.elastic.rendezvous.registry import get_rendezvous_handler as get\n"
        "handler = get(P('theirs', 'x', 'job', 1, 1))\n"
        "print(type(handler).__name__, handler.get_run_id(), handler.next_rendezvous().store)\n"
        "try: get(P('broken', 'x', 'job', 1, 1))\n"
        "except ValueError as problem: print(problem)\n"
        "print(type(get(P('static', 'x:1', 'job', 1, 1, rank=0))).__name__)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = [sys.executable, "-c", script]
    environ = clean_environment(PYTHONPATH=path)
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=True)
    theirs, broken, static = done.stdout.splitlines()
    assert (theirs, static) == ("Theirs job a store", "StaticTCPRendezvous")
    why = "ModuleNotFoundError: No module named 'not_there'"
    assert broken == f"The rendezvous backend 'broken' of not_there:creator cannot be loaded: {why}"
    assert "'static' of theirs:creator is not used" in done.stderr
