"""Agents and workers of one node and of three that die at points of commit, replicate, persist and restore, in a row.

The newest commit of the promised tier is always there, the same for all ranks and whole: what workers alone lose is nothing
that was complete, what an agent loses is nothing that had reached `buddy`. The points are calls and returns of all functions
that have to do with commits, found while the job runs (`mortals.py`); those at which nobody has died yet come first. Some are
passed now and then only: who is to die there is waited for, twice, and then killed anywhere.

By day all 25 deaths are among nodes that have a disk, where most can happen; the other jobs have 10.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from mortals import IS_SWEEP, KILLS, MISSES, MOST_DEATHS, SEED, Mortals

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Room

FEWER_KILLS = KILLS if KILLS > 25 else min(KILLS, 10)
NODES = 3
pytestmark = pytest.mark.timeout(120 + 10 * KILLS * (MOST_DEATHS if IS_SWEEP else 1))


def test_workers_of_one_node_that_die_anywhere(room: Room) -> None:
    rng = random.Random(SEED)
    flags = ("--nproc-per-node=2", f"--max-restarts={2 * MOST_DEATHS * FEWER_KILLS}")
    job = Mortals(room, rng, "--waits=none,node", nodes="1", flags=flags)
    job.add()
    strikes = [job.strike_worker, job.strike_restoring_worker, *([job.strike_first_commits] if IS_SWEEP else [])]
    while job.goes_on(FEWER_KILLS):
        job.strike_one(strikes)
    job.end()
    assert job.missed < MISSES * job.deaths, job.told


def test_the_agent_of_one_node_that_dies_anywhere(room: Room, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    flags = ("--nproc-per-node=2", f"--snapshot-dir={tmp_path}")
    job = Mortals(room, rng, "--waits=none,disk,node", nodes="1", flags=flags)
    job.add()
    while job.goes_on(FEWER_KILLS):
        job.strike_one((job.strike_lone_agent, job.strike_beginning_agent))
    job.end()
    assert job.missed < MISSES * job.deaths, job.told


@pytest.mark.parametrize(("tier", "kills"), [("buddy", FEWER_KILLS), ("disk", KILLS)], ids=["buddy", "disk"])
def test_agents_and_workers_of_many_nodes_that_die_anywhere(room: Room, tmp_path: Path, tier: str, kills: int) -> None:
    rng = random.Random(SEED)
    flags = ["--nproc-per-node=1", f"--max-restarts={2 * MOST_DEATHS * kills}"]
    flags += [f"--snapshot-dir={tmp_path}"] if tier == "disk" else []
    job = Mortals(
        room, rng, f"--waits=none,none,none,node,buddy,{tier}", "--size=3000000", nodes=str(NODES), flags=flags
    )
    for _ in range(NODES):
        job.add()
    strikes = [job.strike_agent, job.strike_agent, job.strike_newcomer, job.strike_worker, job.strike_restoring_worker]
    strikes += [job.strike_all_agents] if tier == "disk" else []
    strikes += [job.strike_first_commits] if IS_SWEEP else []
    while job.goes_on(kills):
        job.strike_one(strikes)
    job.end()
    assert job.missed < MISSES * job.deaths, job.told
