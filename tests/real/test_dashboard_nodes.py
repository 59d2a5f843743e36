"""The dashboard of several nodes on one machine, all of them seen through sockets: each rank has its own log."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

from crew import Crew
from harness import wait_until
from served import dashboard

if TYPE_CHECKING:
    from harness import Room

JOB = """
from notes import *
print(f"rank {RANK} on {NODE} in round {ROUND}", flush=True)
note("met")
signal.pause()
"""


def test_each_rank_of_two_nodes_on_one_machine_has_its_own_log(room: Room) -> None:
    run_id = f"logs-{os.path.basename(room.root)}"
    crew = Crew(room, "--tee=3", f"--log-dir={room.path('logs')}", nodes="2", job=JOB, run_id=run_id)
    crew.add_all("a", "b")
    world = crew.wait_world("a", "b")
    ask = build_opener(ProxyHandler({})).open
    with dashboard(TMPDIR=room.tmp) as (_, url):

        def said(rank: int) -> str:
            with ask(f"{url}api/run/{run_id}/logs/{rank}/stdout") as answer:
                return str(json.load(answer)["text"])

        for name, (rank,) in world.ranks.items():
            wait_until(lambda rank=rank: said(rank), f"a line of rank {rank}", between_s=0.1)
            assert said(rank) == f"rank {rank} on {name} in round {world.round}\n"
    for node in crew.nodes.values():
        node.signal(signal.SIGTERM)
    assert [node.wait().status for node in crew.nodes.values()] == [143, 143], crew.story()
