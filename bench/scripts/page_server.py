"""Answer the three questions of the page's turn for a run of 1,000 ranks, again and again: what each turn costs, in ms of CPU.

page_server.py ROUNDS TURNS
"""

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from journals import Node

from planaria.dashboard.answers import Answers
from planaria.dashboard.lookout import Found
from planaria.dashboard.source import FRESH_S, Seen
from planaria.insight.model import NodeSeen
from planaria.observe.notebook import Notebook
from planaria.observe.request import Request

ROUNDS, TURNS = int(sys.argv[1]), int(sys.argv[2])
NODES, WORKERS = 125, 8
PATHS = ("/api/runs", "/api/run/job7", "/api/run/job7/logs/3/stdout")


class Agent:
    """A node as its agent tells of it: how it is, and a journal that gets one more line of progress with every look."""

    def __init__(self, number: int) -> None:
        self._node = Node(f"gpu-{number:03d}", number * WORKERS, workers=WORKERS).begins(0.0, 100)
        self._notebook = Notebook(20_000)
        self._step = 0
        for one in range(ROUNDS):
            self._live(one, is_first_to_fail=number == one % NODES)
        for event in self._node.events:
            self._notebook.take(event)

    def _live(self, number: int, *, is_first_to_fail: bool) -> None:
        node, at_s = self._node, 60.0 * number
        node.starts(at_s, number, nodes=NODES, reason="rank 3 failed" if number else "", count=number)
        if number:
            node.restarts(at_s + 0.3, number, "rank 3 failed", detect_s=0.01, rendezvous_s=0.2, ready_s=0.1)
        for tier in ("node", "disk"):
            node.tell(at_s + 50, "commit", tier=tier, run=1, round=number, step=10 * number, generation=number)
        node.steps(at_s + 51, number, 10 * number + 9, first=10 * number)
        if number + 1 < ROUNDS:
            if is_first_to_fail:
                node.exits(at_s + 55, number, 3)
            node.is_stopped(at_s + 55.1, number)

    def look(self) -> NodeSeen:
        self._step += 1
        at_s, step = 60.0 * ROUNDS + self._step, 10 * ROUNDS + self._step
        self._notebook.take(self._node.steps(at_s, ROUNDS - 1, step).events[-1])
        first, last = self._node.first_rank, ROUNDS - 1
        progress = {"step": step, "samples": 32.0 * step, "rate": 10.0, "samples_rate": 320.0, "phase": "step"}
        return NodeSeen(
            self._node.name,
            "socket",
            {
                "state": "running",
                "job": {"run_id": "job7", "host": self._node.host, "node": self._node.name},
                "round": {"number": last, "world_size": NODES * WORKERS},
                "members": {"count": NODES},
                "workers": [
                    {"rank": first + one, "local_rank": one, "pid": 5000 + one, "state": "running"}
                    for one in range(WORKERS)
                ],
                "progress": {str(first + one): {**progress, "age_s": 0.05 + one / 100} for one in range(WORKERS)},
                "restarts": {"used": last, "allowed": 100},
                "started_at": 1.79e9,
                "uptime_s": at_s,
                "trained_s": at_s * 0.9,
                "steps_reported": True,
            },
            self._notebook.events,
            age_s=0.0,
        )


class Crowd:
    """All agents, as one look at them finds them: what asking them takes is not measured here."""

    def __init__(self) -> None:
        self._agents = [Agent(number) for number in range(NODES)]
        self.found: dict[str, list[Found]] = {}

    def go_on(self) -> None:
        self.found = {"job7": [Found(agent.look(), None) for agent in self._agents]}

    def look(self) -> dict[str, list[Found]]:
        return self.found


async def main() -> None:
    crowd, now = Crowd(), [0.0]
    answers = Answers(Seen(crowd, lambda: now[0]), None, "127.0.0.1", lambda: now[0])  # type: ignore[arg-type]  # it looks
    headers = {"host": "127.0.0.1", "accept-encoding": "gzip"}
    for turn in range(-2, TURNS):  # two that do not count: the first reads everything
        crowd.go_on()
        now[0] += FRESH_S
        began = time.process_time()
        replies = [await answers.answer(Request("GET", path, headers), True) for path in PATHS]
        spent_ms = (time.process_time() - began) * 1000
        if turn >= 0:
            size = len(replies[1].body)  # type: ignore[union-attr]  # no file
            print(json.dumps({"ms": spent_ms, "bytes": size, "statuses": [one.status for one in replies]}), flush=True)  # type: ignore[union-attr]


asyncio.run(main())
