"""Jobs of several nodes on one machine: launchers started by the same command line, and whatever may happen to one of them.

Nobody here needs root. `ttl=30` means that only proof of death or a goodbye can be the reason for a new round; where a lease
has to run out, it is FENCE_TTL_S.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from crew import Crew
from crew_jobs import JOB
from harness import is_alive, kill, state_of, wait_gone, wait_until
from ports import free_port
from stopping import stop

if TYPE_CHECKING:
    from harness import Room

FENCE_TTL_S = 3.0
KEPT_TTL_S = 10.0  # where none may run out, and one has to be renewed
GUARDED_TTL_S = 11.0  # where the launcher kills: it may be two seconds late then

# The usual job, but who loses sight of a peer waits to be stopped: it tells of nothing by its end.
PATIENT = JOB.replace('sys.exit("Connection closed by peer [%s]" % peer)', "signal.pause()", 1)


def three(room: Room, *flags: str, nodes: str = "1:3", **settings: float | str) -> Crew:
    """Start a job on a, b and c, led by a, with `--max-restarts=0`: whatever costs a restart ends it."""
    crew = Crew(room, "--max-restarts=0", *flags, nodes=nodes, **settings)
    crew.add_first("a")
    crew.add_all("b", "c")
    crew.wait_world("a", "b", "c")
    return crew


@pytest.mark.parametrize("count", [2, 3])
def test_the_same_command_on_every_node_makes_one_world(room: Room, count: int) -> None:
    names = "abc"[:count]
    crew = Crew(room, "--nproc-per-node=2", nodes=str(count))
    crew.add_all(*names)
    world = crew.wait_world(*names)
    assert sorted(world.ranks.values()) == [(2 * node, 2 * node + 1) for node in range(count)]
    crew.end_well(*names)
    assert all(crew.nodes[name].wait().report["outcome"] == "done" for name in names)


def test_a_worker_crash_starts_all_again_with_one_restart_count(room: Room) -> None:
    crew = Crew(room, "--max-restarts=2", nodes="3")
    crew.add_all("a", "b", "c")
    for count, name in enumerate(("b", "c")):
        before = crew.wait_world("a", "b", "c")
        assert before.life == count
        kill(crew.nodes[name].workers()[0])
    after = crew.wait_world("a", "b", "c")
    assert (after.life, after.ranks) == (2, before.ranks)
    assert f"rank {after.ranks['c'][0]} failed" in after.reason
    ends = crew.finish_well("a", "b", "c")
    crew.check_one_world()
    assert {end.report["restarts"] for end in ends.values()} == {2}


def test_when_the_budget_is_spent_every_node_names_the_same_first_cause(room: Room) -> None:
    job = "from notes import *\nif RANK == 1 and LIFE == 1: raise ValueError('the cause')\n"
    job += "if LIFE == 0 and RANK == 2: sys.exit(3)\nsignal.pause()"
    crew = Crew(room, "--max-restarts=1", nodes="3", job="import sys\n" + job)
    crew.add_all("a", "b", "c")
    ends = [crew.nodes[name].wait() for name in "abc"]
    for end in ends:
        cause = end.report["first_cause"]
        assert (end.status, end.report["outcome"], end.report["restarts"]) == (1, "failed", 1)
        assert (cause["rank"], cause["message"]) == (1, "ValueError: the cause")
        assert cause == ends[0].report["first_cause"]
        assert "planaria: job failed: rank 1 " in end.err
        assert "raise ValueError('the cause')" in end.err
    wait_until(lambda: not room.leftovers(), "no process left")


def test_lives_without_progress_on_one_node_fail_the_run_on_all_of_them_with_the_same_first_cause(room: Room) -> None:
    job = "from notes import *\nfrom planaria import worker\nworker.report_progress(7)\n"
    job += "if RANK == 1: raise ValueError('the cause')\nsignal.pause()"
    crew = Crew(room, "--max-restarts=20", "--stall-restarts=2", nodes="2", job=job)
    crew.add_all("a", "b")
    for name in "ab":
        end = crew.nodes[name].wait()
        assert (end.status, end.report["outcome"], end.report["restarts"]) == (1, "failed", 2), end.err
        assert (end.report["first_cause"]["rank"], end.report["first_cause"]["message"]) == (1, "ValueError: the cause")
        assert end.report["explanation"].startswith("2 lives in a row have ended without getting beyond step 7")


VICTIMS = {
    "agent": lambda node: [node.agent()],
    "launcher": lambda node: [node.pid],
    "launcher and agent": lambda node: [node.pid, node.agent()],
    "everything": lambda node: node.processes(),
}


@pytest.mark.parametrize("what", VICTIMS)
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_the_others_go_on_when_a_node_is_killed(room: Room, who: str, what: str) -> None:
    crew = three(room)
    victim = crew.nodes["a" if who == "leader" else "b"]
    workers = victim.workers()
    victim.strike(VICTIMS[what](victim))
    rest = [name for name in "abc" if name != victim.name]
    world = crew.wait_world(*rest)
    assert world.life == 0
    wait_gone([victim.pid, victim.agent(), *workers])
    assert victim.wait().status != 0
    crew.end_well(*rest)


def test_a_job_survives_the_loss_of_its_leader_until_one_node_is_left(room: Room) -> None:
    crew = three(room)
    crew.nodes["a"].kill()
    world = crew.wait_world("b", "c")
    leader = min(world.ranks, key=lambda name: world.ranks[name])
    crew.nodes[leader].kill()
    rest = "b" if leader == "c" else "c"
    assert crew.wait_world(rest).life == 0
    crew.add("d")
    crew.wait_world(rest, "d")
    crew.end_well(rest, "d")


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_node_that_is_asked_to_stop_leaves_and_the_others_go_on(
    room: Room, who: str, number: int, status: int
) -> None:
    crew = three(room, job=PATIENT)
    leaving = crew.nodes["a" if who == "leader" else "b"]
    leaving.signal(number)
    rest = [name for name in "abc" if name != leaving.name]
    world = crew.wait_world(*rest)
    assert world.life == 0
    assert "leaving" in world.reason or "left" in world.reason
    end = leaving.wait()
    assert (end.status, end.report["outcome"]) == (status, "signal")
    assert not [line for name in "abc" for line in crew.nodes[name].said() if "closed" in line]
    crew.end_well(*rest)


def test_a_node_that_joins_is_taken_in_and_the_others_keep_their_ranks(room: Room) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="1:3")
    crew.add_all("a", "b")
    before = crew.wait_world("a", "b")
    crew.add("c")
    after = crew.wait_world("a", "b", "c")
    assert after.ranks == {**before.ranks, "c": (2,)}
    assert (after.life, after.round) == (0, before.round + 1)
    assert "joined" in after.reason
    crew.end_well("a", "b", "c")


def test_a_node_over_the_maximum_waits_disturbs_nobody_and_takes_over_after_a_loss(room: Room) -> None:
    crew = Crew(room, "--max-restarts=0", "--nproc-per-node=2", nodes="2:2")
    crew.add_all("a", "b")
    before = crew.wait_world("a", "b")
    spare = crew.add("c")
    spare.wait_said("waiting for a place")
    assert spare.workers() == []
    lost = crew.nodes["b"]
    lost.kill()
    after = crew.wait_world("a", "c")
    assert after.round == before.round + 1
    assert after.ranks == {"a": before.ranks["a"], "c": before.ranks["b"]}
    crew.end_well("a", "c")


def test_a_replacement_inherits_the_ranks_of_the_node_it_replaces(room: Room) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="3")
    crew.add("a", "--nproc-per-node=1")
    crew.add("b", "--nproc-per-node=2")
    crew.add("c", "--nproc-per-node=1")
    before = crew.wait_world("a", "b", "c")
    crew.nodes["b"].kill()
    crew.add("d", "--nproc-per-node=2")
    after = crew.wait_world("a", "c", "d")
    assert after.ranks == {"a": before.ranks["a"], "c": before.ranks["c"], "d": before.ranks["b"]}
    crew.end_well("a", "c", "d")


@pytest.mark.parametrize("delay", ["at once", "after the loss was noticed"])
def test_a_replacement_at_the_dead_leaders_address_joins_and_never_makes_a_second_world(room: Room, delay: str) -> None:
    crew = three(room)
    crew.nodes["a"].kill()
    if delay != "at once":
        crew.wait_world("b", "c")
    crew.add("d")
    assert crew.wait_world("b", "c", "d").life == 0
    crew.end_well("b", "c", "d")


def test_too_few_nodes_in_time_end_all_of_them_with_124(room: Room) -> None:
    crew = Crew(room, nodes="3", conf="join_timeout=2")
    crew.add_all("a", "b")
    for name in "ab":
        end = crew.nodes[name].wait()
        assert (end.status, end.report["outcome"]) == (124, "timeout")
        assert "planaria: no round: " in end.err
    assert crew.log() == []


def test_a_node_with_a_wrong_token_says_so_from_the_first_line_to_the_last(room: Room) -> None:
    crew = Crew(room, nodes="2")
    right = crew.add("a", env={"PLANARIA_TOKEN": "right"})
    right.wait_said("1 of 2 nodes are here")
    impatient = "--rdzv-conf=ttl=30,last_call_timeout=0.5,join_timeout=6"
    wrong = crew.add("b", impatient, env={"PLANARIA_TOKEN": "wrong"}).wait()
    right.signal(signal.SIGTERM)
    assert (wrong.status, right.wait().status) == (124, 143)
    first_line, *_, last = wrong.err.splitlines()
    assert "it has another token than this end" in first_line
    assert last.startswith("planaria: no round: no leader was found at ")
    assert "it has another token than this end" in last
    dropped = [line for line in right.err().splitlines() if "dropped a connection" in line]
    assert all("it has another token than this end" in line for line in dropped)
    assert 0 < len(dropped) <= 4  # in six seconds: at once, and after 1, 2, and 4
    assert any("more)" in line for line in dropped)


def static(room: Room, **settings: str) -> tuple[Crew, str]:
    """Return a job of two nodes with fixed ranks, at a port whose neighbour is free too."""
    port = free_port()
    return Crew(room, "--max-restarts=0", nodes="2", backend="static", endpoint=f"localhost:{port}", **settings), str(
        port
    )


def test_workers_of_a_static_run_get_the_master_address_as_it_was_given(room: Room) -> None:
    job = 'from told import *\ntell(f\'{RANK} {os.environ["MASTER_ADDR"]} {os.environ["MASTER_PORT"]}\')'
    crew, port = static(room, job=job)
    for rank, name in enumerate("ab"):
        crew.add(name, f"--node-rank={rank}")
    room.hear_many([f"{rank} localhost {port}" for rank in range(2)])
    assert [crew.nodes[name].wait().status for name in "ab"] == [0, 0]


def test_a_second_node_with_the_same_rank_ends_with_2_and_a_sentence_and_the_job_goes_on(room: Room) -> None:
    crew, _ = static(room)
    crew.add("a", "--node-rank=0")
    crew.add("b", "--node-rank=1")
    crew.wait_world("a", "b")
    end = crew.add("c", "--node-rank=1").wait()
    assert (end.status, end.report["outcome"]) == (2, "refused")
    assert end.err.splitlines()[-1].startswith("planaria: refused: --node-rank=1 is taken by ")
    crew.end_well("a", "b")


# Silence: nobody refuses a connection, nobody answers.


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_stopped_agent_loses_its_workers_before_the_others_begin_the_next_round(room: Room, who: str) -> None:
    crew = three(room, ttl_s=GUARDED_TTL_S)
    node = crew.nodes["a" if who == "leader" else "b"]
    workers = node.workers()
    stop(node.agent())
    rest = [name for name in "abc" if name != node.name]
    crew.wait_world(*rest)
    crew.check_one_world()
    assert not any(map(is_alive, workers))
    assert state_of(node.agent()) == "T"
    crew.wake([node.agent()])
    assert crew.wait_world("a", "b", "c").life == 0
    crew.end_well("a", "b", "c")


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_node_that_is_stopped_whole_is_replaced_and_stops_its_workers_when_it_wakes(room: Room, who: str) -> None:
    crew = three(room, ttl_s=FENCE_TTL_S)
    node = crew.nodes["a" if who == "leader" else "b"]
    workers, frozen = node.workers(), node.processes()
    stop(*frozen)
    rest = [name for name in "abc" if name != node.name]
    crew.wait_world(*rest)
    crew.check_one_world()
    crew.wake(frozen)
    wait_gone(workers)
    assert crew.wait_world("a", "b", "c").life == 0
    crew.end_well("a", "b", "c")


def test_stopped_workers_are_nobodys_loss_and_go_on_where_they_were(room: Room) -> None:
    crew = three(room, ttl_s=KEPT_TTL_S)
    workers = crew.nodes["b"].workers()
    stop(*workers)
    crew.nodes["b"].wait_renewal(time.monotonic(), KEPT_TTL_S)
    assert all(map(is_alive, workers))
    for pid in workers:
        kill(pid, signal.SIGCONT)
    crew.check_no_newer_world()
    crew.end_well("a", "b", "c")


def test_stopped_workers_do_not_survive_the_end_of_their_round(room: Room) -> None:
    crew = three(room, "--shutdown-timeout=1", ttl_s=FENCE_TTL_S)
    workers = crew.nodes["b"].workers()
    stop(*workers)
    crew.nodes["c"].kill()
    crew.wait_world("a", "b")
    assert not any(map(is_alive, workers))
    crew.end_well("a", "b")
