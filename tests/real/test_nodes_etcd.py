"""Jobs of several nodes that meet through a real etcd: what is lost then may be a node, or etcd itself."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from typing import TYPE_CHECKING

import etcd_server
import pytest
from crew import Crew
from etcd_server import Etcd
from harness import kill, wait_gone, wait_until
from ports import free_port
from stopping import stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Room

if etcd_server.program() is None or importlib.util.find_spec("etcd3gw") is None:
    pytest.skip("these jobs need an etcd and etcd3gw", allow_module_level=True)

TTL_S = 2.0
AWAY_TTL_S = 5.0  # where none may run out while its holder has to wait for a processor
AWAY_S = 20.0
GUARDED_TTL_S = 11.0  # where the launcher kills: it may be two seconds late then


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path)
    yield server
    server.close()


def crew_at(room: Room, etcd: Etcd, *flags: str, nodes: str = "1:3", ttl_s: float = 30) -> Crew:
    return Crew(room, *flags, nodes=nodes, backend="etcd", endpoint=etcd.endpoints[0], ttl_s=ttl_s)


def test_two_nodes_meet_through_etcd_and_a_third_joins(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0")
    crew.add_all("a", "b")
    before = crew.wait_world("a", "b")
    crew.add("c")
    after = crew.wait_world("a", "b", "c")
    assert after.ranks == {**before.ranks, "c": (2,)}
    crew.end_well("a", "b", "c")


def test_the_url_of_old_command_lines_is_understood(room: Room, etcd: Etcd) -> None:
    url = f"etcd://{etcd.endpoints[0]}/old-job?min_workers=2&max_workers=2&last_call_timeout=1"
    crew = Crew(room, nodes="2", endpoint=url, backend="etcd")
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    crew.end_well("a", "b")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_others_go_on_when_a_node_ends_whoever_it_is(room: Room, etcd: Etcd, number: int) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0")
    crew.add_all("a", "b", "c")
    crew.wait_world("a", "b", "c")
    rest = {"a", "b", "c"}
    for name in ("a", "b"):  # one of them leads
        if number == signal.SIGKILL:
            crew.nodes[name].kill()
        else:
            crew.nodes[name].signal(number)
            assert crew.nodes[name].wait().status == 143
        rest.remove(name)
        assert crew.wait_world(*rest).life == 0
    crew.add("d")
    crew.wait_world("c", "d")
    crew.end_well("c", "d")


def test_etcd_away_for_four_leases_costs_no_restart_and_is_found_again(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0", ttl_s=AWAY_TTL_S)
    crew.add_all("a", "b", "c")
    crew.wait_world("a", "b", "c")
    etcd.kill()
    time.sleep(AWAY_S)  # what must not happen has no event to wait for
    crew.check_no_newer_world()
    etcd.start()
    crew.nodes["b"].kill()
    assert crew.wait_world("a", "c").life == 0
    crew.end_well("a", "c")


def test_an_etcd_that_has_lost_its_memory_is_filled_again(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0", ttl_s=TTL_S)
    crew.add_all("a", "b", "c")
    before = crew.wait_world("a", "b", "c")
    etcd.kill()
    etcd.forget()
    etcd.start()
    crew.nodes["b"].kill()
    assert crew.wait_world("a", "c").life == 0
    crew.add("d")
    assert crew.wait_world("a", "c", "d").round > before.round
    crew.end_well("a", "c", "d")


def test_a_node_that_comes_back_to_an_etcd_set_up_anew_does_not_go_by_the_old_one(room: Room, etcd: Etcd) -> None:
    """Its leader has filled that etcd again and is lost. By its revision alone the new one cannot be told from the old."""
    crew = crew_at(room, etcd, "--max-restarts=1")
    for name in ("a", "b"):
        crew.add(name)
        crew.wait_world(*"ab"[: "ab".index(name) + 1])
    lead, rest = crew.nodes["a"], crew.nodes["b"]
    stop(rest.agent())
    etcd.kill()
    etcd.forget()
    etcd.start()
    lead.wait_said("it knows round")
    for _ in range(100):
        assert etcd.post("/v3/kv/put", {"key": "YQ==", "value": "YQ=="}) is not None
    kill(rest.workers()[0])
    lead.kill()
    kill(rest.agent(), signal.SIGCONT)
    crew.wait_world("b")
    crew.end_well("b")


def test_a_crash_while_etcd_is_away_waits_for_it(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=1", ttl_s=TTL_S)
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    etcd.kill()
    kill(crew.nodes["b"].workers()[0])
    wait_until(lambda: not crew.nodes["a"].workers() and not crew.nodes["b"].workers(), "no worker lives")
    told = "the next round waits for the store: etcd at "
    wait_until(lambda: any(told in crew.nodes[name].err() for name in ("a", "b")), "it says what it waits for")
    etcd.start()
    assert crew.wait_world("a", "b").life == 1
    crew.finish_well("a", "b")
    crew.check_one_world()


def test_a_stopped_agent_loses_its_workers_before_the_others_begin_the_next_round(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0", ttl_s=GUARDED_TTL_S)
    crew.add_all("a", "b", "c")
    crew.wait_world("a", "b", "c")
    for name in ("a", "b"):
        node = crew.nodes[name]
        stop(node.agent())
        crew.wait_world(*({"a", "b", "c"} - {name}))
        crew.check_one_world()
        kill(node.agent(), signal.SIGCONT)
        crew.wait_world("a", "b", "c")
    crew.end_well("a", "b", "c")


def test_a_node_that_is_cut_off_while_etcd_is_away_stops_too(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0", ttl_s=3)
    crew.add_all("a", "b", "c")
    crew.wait_world("a", "b", "c")
    etcd.kill()
    node = crew.nodes["b"]
    workers = node.workers()
    stop(node.agent())
    wait_gone(workers)
    etcd.start()
    crew.wait_world("a", "c")
    crew.check_one_world()
    kill(node.agent(), signal.SIGCONT)
    crew.wait_world("a", "b", "c")
    crew.end_well("a", "b", "c")


@pytest.mark.parametrize(
    ("password", "said"), [("guessed", "etcd does not let 'rob' in"), ("hunter2", "permission denied")]
)
def test_a_node_that_etcd_refuses_ends_at_once_and_says_why(room: Room, etcd: Etcd, password: str, said: str) -> None:
    etcd.grant_users("rob", "hunter2", prefix="planaria/", writes=False)
    crew = Crew(room, nodes="1:2", backend="etcd", endpoint=etcd.endpoints[0], conf="username=rob")
    node = crew.add("a", env={"PLANARIA_ETCD_PASSWORD": password})
    assert node.wait().status == 2
    assert said in node.err()
    assert password not in node.err()


def test_a_node_that_nobody_answers_says_where_it_looks_and_what_it_meets(room: Room) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    crew = Crew(room, nodes="1:2", backend="etcd", endpoint=endpoint, conf="join_timeout=10")
    node = crew.add("a")
    assert node.wait().status == 124
    said = [line for line in node.err().splitlines() if f"etcd at http://{endpoint}: Connection refused" in line]
    assert len(said) == 2, "once while it lasts, and once as the reason of the end"
    assert "the store last said" in said[1]


def test_a_run_id_that_is_used_again_begins_anew(room: Room, etcd: Etcd) -> None:
    crew = crew_at(room, etcd, "--max-restarts=0", nodes="2")
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    crew.end_well("a", "b")
    os.unlink(room.path("stop"))
    again = crew_at(room, etcd, "--max-restarts=0", nodes="2")
    again.add_all("c", "d")
    assert again.wait_world("c", "d").life == 0
    again.end_well("c", "d")
