"""Jobs of several nodes that meet through a real Kubernetes API server: a node may be lost, or the API server itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from crew import Crew
from crew_jobs import JOB
from harness import wait_until
from kube_place import NAMESPACE, Place

if TYPE_CHECKING:
    from harness import Room

AWAY_TTL_S = 5.0  # none may run out while its holder has to wait for a processor
AWAY_S = 20.0
STEADY_S = 12.0  # a record of progress comes every 10 s

# The usual job, which also tells its progress.
REPORTING = JOB.replace(
    "keep_stamping()\n",
    """keep_stamping()
from planaria import worker

def tell():
    step = 0
    while True:
        step += 1
        worker.report_progress(step, samples=step * 64)
        time.sleep(0.05)  # what a step would take

threading.Thread(target=tell, daemon=True).start()
""",
    1,
)


def crew_at(room: Room, place: Place, *flags: str, nodes: str = "1:3", ttl_s: float = 30, **more: str) -> Crew:
    return Crew(room, "--max-restarts=0", *flags, nodes=nodes, ttl_s=ttl_s, **place.flags, **more)


def test_two_nodes_meet_one_is_killed_and_the_other_goes_on(room: Room, place: Place) -> None:
    crew = crew_at(room, place, nodes="1:2", ttl_s=5)
    nowhere = {"PLANARIA_KUBE_PROGRESS": "nowhere"}  # what cannot be told costs nothing
    crew.add_all("a", "b", env=nowhere)
    crew.wait_world("a", "b")
    crew.nodes["a"].kill()
    assert crew.wait_world("b").life == 0
    crew.add("c", env=nowhere)
    crew.wait_world("b", "c")
    crew.end_well("b", "c")


def test_a_node_without_rights_ends_at_once_and_says_why(room: Room, place: Place) -> None:
    where = {**place.flags, "endpoint": f"{NAMESPACE}/not-mine"}
    node = Crew(room, nodes="1:2", **where).add("a")
    assert node.wait().status == 2
    assert 'configmaps "not-mine" is forbidden' in node.err()


def is_told(crew: Crew, place: Place) -> bool:
    newest = crew.worlds()[-1]
    return newest.nodes == {"a", "b", "c"} and place.told().get("round") == newest.round


def test_a_steady_job_of_three_nodes_writes_less_than_once_a_second(room: Room, place: Place) -> None:
    crew = crew_at(room, place, ttl_s=3, job=REPORTING)
    crew.add_all("a", "b", "c", env={"PLANARIA_KUBE_PROGRESS": place.progress})
    crew.wait_world("a", "b", "c")
    is_steady = False
    while not is_steady:  # a lease that ran out in bad weather is not what is counted
        wait_until(lambda: is_told(crew, place), "the newest round is of all, and told")
        noted, before, began = len(crew.log()), place.writes(), time.monotonic()
        time.sleep(STEADY_S)  # what is counted is what happens while nothing does
        written, took_s = place.writes() - before, time.monotonic() - began
        told, is_steady = place.told(), len(crew.log()) == noted
    crew.end_well("a", "b", "c")
    assert (told["nodes"], told["world"], told["samples"]) == (3, 3, told["step"] * 64)
    assert told["step"] > 0
    assert 0 < told["seconds"] < took_s + 60
    assert 0 < written <= took_s, f"{written} writes in {took_s:.1f} s"


def test_the_api_server_away_for_four_leases_costs_no_restart_and_is_found_again(room: Room, place: Place) -> None:
    crew = crew_at(room, place, ttl_s=AWAY_TTL_S)
    crew.add_all("a", "b", "c", env={"PLANARIA_KUBE_PROGRESS": place.progress})
    crew.wait_world("a", "b", "c")
    place.cluster.stop_api()
    try:
        time.sleep(AWAY_S)  # what must not happen has no event to wait for
        crew.check_no_newer_world()
    finally:
        place.cluster.start_api()
    crew.nodes["b"].kill()
    assert crew.wait_world("a", "c").life == 0
    crew.end_well("a", "c")
