"""Commits of several nodes: workers, agents and whole nodes die, and all that goes on goes on from the same step.

Each rank draws random numbers and keeps what it drew, so that a part in another's place, or random numbers that were not
restored, show in the end.
"""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
from crew import Crew
from harness import kill, wait_until
from probes import needs_curl, status

from planaria.archive.shelf import Shelf
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import TIERS
from planaria.contract.env import CONTROL

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Room

    from planaria.contract.commit import Tier

pytestmark = pytest.mark.timeout(110)
PAUSE, END = 5, 8
JOB = """
from notes import *
import random, sys
from planaria.worker import ElasticState

TIER = sys.argv[1]
random.seed(RANK)
state = ElasticState(drawn=[], step=0)
note("met")
stamp_ = state.restore()
note("restored", step=state.step, drawn=state.drawn)
def hold():
    gate = {0: "/begin", 5: "/go"}.get(state.step)
    while gate and not os.path.exists(ROOM + gate):
        time.sleep(0.01)  # the test tells by a file
hold()
while state.step < 8:
    state.drawn.append(random.random())
    state.step += 1
    commit = state.commit(wait=TIER)
    note("committed", step=state.step, reached=commit.reached)
    hold()
note("end", drawn=state.drawn)
"""


def crew_of(room: Room, *flags: str, nodes: str, tier: Tier, names: str = "abc", each: int = 1) -> tuple[Crew, int]:
    """Start a job, and wait until all ranks stand at the pause with a commit that has reached this tier; tell the round.

    Nobody makes a step before all nodes are there: a smaller world would be ahead of the one that is wanted.
    """
    crew = Crew(room, f"--nproc-per-node={each}", *flags, nodes=nodes, job=JOB.replace("sys.argv[1]", repr(tier)))
    crew.add_first(names[0])
    crew.add_all(*names[1:])
    crew.wait_world(*names)
    room.write("begin", "")
    return crew, wait_paused(crew, each * len(names), tier)


def noted(crew: Crew, what: str, **fields: Any) -> list[dict[str, Any]]:
    return [line for line in crew.log() if line["what"] == what and fields.items() <= line.items()]


def wait_paused(crew: Crew, world: int, tier: Tier, after: int = -1) -> int:
    """Wait for a round, later than that one, whose ranks all stand at the pause; return it."""

    def paused() -> list[int]:
        found = [line for line in noted(crew, "committed", step=PAUSE, world=world) if line["round"] > after]
        rounds = [line["round"] for line in found if TIERS.index(line["reached"]) >= TIERS.index(tier)]
        return [number for number in rounds if rounds.count(number) == world]

    return int(wait_for(crew, paused, "all ranks at the pause")[0])


def wait_for(crew: Crew, predicate: Any, what: str) -> Any:
    try:
        return wait_until(predicate, what)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{crew.story()}") from None


def wait_restored(crew: Crew, world: int, after: int) -> list[dict[str, Any]]:
    """Wait until all ranks of a round after that one have restored; return what they noted, by rank."""

    def restored() -> list[dict[str, Any]]:
        later = [line["round"] for line in noted(crew, "restored", world=world) if line["round"] > after]
        found = noted(crew, "restored", round=max(later, default=0))
        return sorted(found, key=lambda line: line["rank"]) if later and len(found) == world else []

    found: list[dict[str, Any]] = wait_for(crew, restored, f"{world} ranks have restored")
    return found


def draws(rank: int, count: int) -> list[float]:
    rng = random.Random(rank)
    return [rng.random() for _ in range(count)]


def end_well(crew: Crew, *names: str, ranks: int, began: int = 0) -> None:
    """Let the job go on to its end; ranks that were there from the beginning drew as if nothing had happened."""
    crew.room.write("go", "")
    ends = {name: crew.nodes[name].wait() for name in names}
    assert {name: end.status for name, end in ends.items()} == dict.fromkeys(names, 0), crew.story()
    found = {line["rank"]: line["drawn"] for line in noted(crew, "end")}
    assert sorted(found) == [*range(ranks)], crew.story()
    for rank in range(began or ranks):
        assert found[rank] == draws(rank, END), f"rank {rank}"
    wait_until(lambda: not crew.room.leftovers(), "no process left")


def test_a_worker_that_dies_costs_no_complete_commit_on_any_node(room: Room) -> None:
    crew, paused = crew_of(room, "--max-restarts=1", nodes="2", tier="node", names="ab", each=2)
    kill(crew.nodes["b"].workers()[0])
    for rank, line in enumerate(wait_restored(crew, 4, after=paused)):
        assert (line["step"], line["drawn"]) == (PAUSE, draws(rank, PAUSE))
    end_well(crew, "a", "b", ranks=4)


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_node_that_is_lost_costs_nothing_that_had_reached_its_buddy(room: Room, victim: str) -> None:
    crew, paused = crew_of(room, nodes="3", tier="buddy")
    crew.nodes[victim].kill()
    crew.add("d")
    names = ["d", *(name for name in "abc" if name != victim)]
    for rank, line in enumerate(wait_restored(crew, 3, after=paused)):
        assert (line["step"], line["drawn"]) == (PAUSE, draws(rank, PAUSE)), crew.story()
    end_well(crew, *names, ranks=3)


@needs_curl
def test_two_nodes_are_lost_one_after_the_other(room: Room) -> None:
    """The first loss is made good by a new copy before the second."""
    crew, last = crew_of(room, nodes="3", tier="buddy")
    for victim, heir in (("b", "d"), ("c", "e")):
        crew.nodes[victim].kill()
        crew.add(heir)
        found = wait_restored(crew, 3, after=last)
        last = found[0]["round"]
        assert {line["step"] for line in found} == {PAUSE}
        wait_copied(crew, heir, PAUSE)  # which it can only have heard in this round
    end_well(crew, "a", "d", "e", ranks=3)


def wait_copied(crew: Crew, name: str, step: int) -> None:
    """Wait until a node knows that the commit of a step is on a second node in this round."""
    wait_for(crew, lambda: (newest(crew, name)["buddy"] or {}).get("step") == step, "a copy")


def newest(crew: Crew, name: str) -> dict[str, Any]:
    """Return the newest commit of each tier, as a node tells it at its owner's door."""
    with open(f"/proc/{crew.nodes[name].workers()[-1]}/environ", "rb") as file:
        environ = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if entry)
    scratch = os.path.dirname(environ[CONTROL.encode()].decode())
    found: dict[str, Any] = status(os.path.join(scratch, "http"))["newest_commit"]
    return found


def test_the_world_shrinks_by_a_loss_and_goes_on_from_the_same_step(room: Room) -> None:
    crew, paused = crew_of(room, nodes="1:3", tier="buddy")
    crew.nodes["b"].kill()
    found = wait_restored(crew, 2, after=paused)
    assert [line["step"] for line in found] == [PAUSE, PAUSE]
    assert [line["drawn"] for line in found] == [draws(rank, PAUSE) for rank in range(2)]
    end_well(crew, "a", "c", ranks=2)


def test_a_node_that_joins_gets_the_newest_commit_from_the_others(room: Room) -> None:
    crew, paused = crew_of(room, nodes="1:3", tier="buddy", names="ab")
    crew.add("c")
    found = wait_restored(crew, 3, after=paused)
    assert [line["step"] for line in found] == [PAUSE] * 3
    assert [line["drawn"] for line in found[:2]] == [draws(rank, PAUSE) for rank in range(2)]
    assert found[2]["drawn"] == draws(0, PAUSE), "what is shared"
    end_well(crew, "a", "b", "c", ranks=3, began=2)


def spoil(agent: int, rank: int, step: int) -> int:
    """Flip a bit of every snapshot of a rank's step in an agent's memory; return how many there were."""
    count = 0
    for name in os.listdir(f"/proc/{agent}/fd"):
        path = f"/proc/{agent}/fd/{name}"
        try:
            leads_to = os.readlink(path)
        except FileNotFoundError:  # it was closed meanwhile
            continue
        if "planaria-snapshot" not in leads_to:
            continue
        with open(path, "r+b", buffering=0) as file:
            found = snapshots.read(memoryview(file.read()))
            if found is not None and (found.stamp.rank, found.stamp.step) == (rank, step):
                file.seek(found.size_bytes - 1)
                last = file.read(1)[0]
                file.seek(found.size_bytes - 1)
                file.write(bytes([last ^ 1]))
                count += 1
    return count


def test_a_part_that_is_damaged_in_memory_is_taken_from_the_buddy(room: Room) -> None:
    crew, paused = crew_of(room, "--max-restarts=1", nodes="2", tier="buddy", names="ab")
    rank = noted(crew, "began", node="b")[0]["rank"]
    assert spoil(crew.nodes["b"].agent(), rank, PAUSE) == 1
    kill(crew.nodes["a"].workers()[0])
    found = wait_restored(crew, 2, after=paused)
    assert [(line["step"], line["drawn"]) for line in found] == [(PAUSE, draws(one, PAUSE)) for one in range(2)]
    assert "is damaged" in crew.nodes["b"].err()
    end_well(crew, "a", "b", ranks=2)


def test_what_is_on_disk_outlives_all_nodes(room: Room, tmp_path: Path) -> None:
    flags = f"--snapshot-dir={tmp_path}"
    crew, _ = crew_of(room, flags, nodes="2", tier="disk", names="ab")
    for name in "ab":
        crew.nodes[name].kill()
    later = Crew(room, flags, nodes="2", job=JOB.replace("sys.argv[1]", "'disk'"))
    later.add_all("c", "d")
    found = wait_restored(later, 2, after=-1)
    assert [(line["step"], line["drawn"]) for line in found] == [(PAUSE, draws(rank, PAUSE)) for rank in range(2)]
    end_well(later, "c", "d", ranks=2)
    newest = Shelf(str(tmp_path)).newest()
    assert newest is not None
    assert (newest.manifest.step, newest.manifest.run, newest.manifest.world_size) == (END, 2, 2)


@pytest.mark.parametrize("flags", [(), ("--snapshot-buddy=off", "--snapshot-dir=commits")])
def test_a_node_that_drains_hands_its_commit_over_first(room: Room, flags: tuple[str, ...]) -> None:
    crew, paused = crew_of(room, *flags, nodes="1:3", tier="node")
    crew.nodes["b"].signal(signal.SIGTERM)
    assert crew.nodes["b"].wait().status == 143
    found = wait_restored(crew, 2, after=paused)
    assert [(line["step"], line["drawn"]) for line in found] == [(PAUSE, draws(rank, PAUSE)) for rank in range(2)]
    end_well(crew, "a", "c", ranks=2)


def test_without_buddies_nothing_is_copied_and_a_wait_ends(room: Room) -> None:
    room.write("begin", "")
    crew = Crew(room, "--snapshot-buddy=off", nodes="2", job=JOB.replace("sys.argv[1]", "'buddy'"))
    crew.add_all("a", "b")
    wait_paused(crew, 2, "node")
    assert "has not reached buddy, only node" in crew.nodes["a"].err()
    end_well(crew, "a", "b", ranks=2)


@needs_curl
def test_status_tells_the_newest_commit_of_each_tier_on_every_node(room: Room, tmp_path: Path) -> None:
    crew, _ = crew_of(room, f"--snapshot-dir={tmp_path}", nodes="2", tier="disk", names="ab")
    for name in "ab":
        wait_copied(crew, name, PAUSE)
        found = newest(crew, name)
        assert {tier: commit and commit["step"] for tier, commit in found.items()} == dict.fromkeys(
            ("node", "buddy", "disk"), PAUSE
        )
    end_well(crew, "a", "b", ranks=2)
