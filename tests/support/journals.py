"""Journals of nodes, as agents write them: for whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path

START_MS = 1_794_768_000_000
"""2026-11-15 18:40:00 UTC."""


class Node:
    """Writes what one node of a run would, at moments in seconds since the run began; its monotonic clock is its own."""

    def __init__(
        self, host: str, first_rank: int, *, workers: int = 2, boot_s: float = 1000.0, run_id: str = "job7"
    ) -> None:
        self.host = host
        self.name = f"{host}-0a1b2c3d"
        self.first_rank = first_rank
        self.workers = workers
        self.run_id = run_id
        self._boot_s = boot_s
        self.events: list[dict[str, object]] = []
        self.report: dict[str, object] | None = None

    def tell(self, at_s: float, name: str, **data: object) -> Node:
        common = {"run_id": self.run_id, "role": "default", "host": self.host, "at": self._boot_s + at_s}
        moment = START_MS + round(at_s * 1000)
        self.events.append(
            {"name": f"planaria.{name}", "source": "AGENT", "timestamp": moment, "metadata": common | data}
        )
        return self

    def begins(self, at_s: float = 0.0, max_restarts: int = 1) -> Node:
        return self.tell(at_s, "run.started", workers=self.workers, max_restarts=max_restarts, node=self.name)

    def starts(self, at_s: float, number: int, *, nodes: int = 3, reason: str = "", count: int = 0) -> Node:
        place = {"nodes": nodes, "first_rank": self.first_rank, "world_size": nodes * self.workers}
        self.tell(at_s, "round.started", round=number, restart_count=count, reason=reason, **place)
        for local_rank in range(self.workers):
            self.tell(at_s + 0.01, "worker.started", **self._worker(number, local_rank))
        return self

    def _worker(self, number: int, local_rank: int) -> dict[str, object]:
        rank = self.first_rank + local_rank
        return {"round": number, "rank": rank, "local_rank": local_rank, "pid": 5000 + 100 * number + rank}

    def steps(self, at_s: float, number: int, step: int, *, first: int = 1, trained_s: float = 0.0) -> Node:
        one = {"step": step, "first": first, "samples": step * 32, "age_s": 0.1, "rate": 2.0, "samples_rate": 64.0}
        ranks = {str(self.first_rank + local_rank): one for local_rank in range(self.workers)}
        return self.tell(at_s, "progress", round=number, ranks=ranks, trained_s=trained_s)

    def exits(self, at_s: float, number: int, local_rank: int, **data: object) -> Node:
        told = {
            "status": 1,
            "message": "exit status 1",
            "result": "failed",
            "kind": "exit",
            "killer": "",
            "age_s": at_s,
        }
        told["ended_at"] = self._boot_s + at_s - 0.02
        return self.tell(at_s, "worker.exited", **self._worker(number, local_rank) | told | data)

    def is_stopped(self, at_s: float, number: int) -> Node:
        for local_rank in range(self.workers):
            self.exits(
                at_s, number, local_rank, status=-15, message="SIGTERM (Terminated)", result="stopped", kind="signal"
            )
        return self

    def restarts(self, at_s: float, number: int, reason: str, *, kind: str = "failed", **phases: float) -> Node:
        lengths = dict.fromkeys(("detect_s", "decide_s", "stop_s", "rendezvous_s", "start_s", "ready_s"), 0.0) | phases
        total_s = round(sum(lengths.values()), 6)
        charged = kind == "failed"
        return self.tell(
            at_s, "restart", round=number, restart_count=int(charged), reason=reason, kind=kind, charged=charged,
            began_at=self._boot_s + at_s - total_s, signed=2, total_s=total_s, promoted=[], cold={}, **lengths,
        )  # fmt: skip

    def ends(self, at_s: float, outcome: str = "failed", status: int = 1, **data: object) -> Node:
        told: dict[str, object] = {
            "signal": None,
            "explanation": "",
            "restarts": 0,
            "duration_s": at_s,
            "first_cause": None,
        }
        return self.tell(at_s, "run.ended", outcome=outcome, status=status, **told | data)

    def write(self, parent: Path) -> Path:
        """Write the folder of this node below `parent/RUN_ID`."""
        folder = parent / self.run_id / self.name
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in self.events))
        if self.report is not None:
            (folder / "report.json").write_text(json.dumps(self.report))
        return folder


TRACEBACK = """\
Traceback (most recent call last):
  File "/home/you/train.py", line 41, in <module>
    loss = step(batch)
  File "/home/you/train.py", line 17, in step
    raise ValueError("label 1007 is out of range")
ValueError: label 1007 is out of range
"""


def failed_run() -> list[Node]:
    """Three nodes, two workers each. A GPU runs out of memory, all start again; then a label is wrong, and the budget spent."""
    cause = {"rank": 3, "local_rank": 1, "host": "node-b", "pid": 5203, "status": 1, "at": 2090.0, "age_s": 48.5}
    cause |= {"kind": "exception", "type": "ValueError", "message": "ValueError: label 1007 is out of range"}
    cause |= {"traceback": TRACEBACK, "where": "/home/you/train.py:17", "killer": "", "log_files": []}
    nodes = [Node("node-a", 0, boot_s=1000.0), Node("node-b", 2, boot_s=2000.0), Node("node-c", 4, boot_s=90.0)]
    for node in nodes:
        node.begins().starts(1.0, 1).steps(40.0, 1, 70, trained_s=35.0)
    nodes[2].exits(40.5, 1, 0, status=-9, message="SIGKILL (Killed)", kind="signal", killer="oom", age_s=39.5)
    nodes[2].exits(40.6, 1, 1, status=-15, message="SIGTERM (Terminated)", kind="signal", result="stopped")
    for node in (nodes[0], nodes[1]):
        node.is_stopped(40.6, 1)
    for number, node in enumerate(nodes):
        node.starts(41.0, 2, reason="rank 4 failed", count=1)
        node.restarts(
            41.2 + number / 100,
            2,
            "rank 4 failed",
            detect_s=0.02,
            stop_s=0.1,
            rendezvous_s=0.3,
            start_s=0.05,
            ready_s=0.2,
        )
        node.steps(41.5 + number / 100, 2, 61, first=61, trained_s=35.0).steps(89.0, 2, 150, first=61, trained_s=82.0)
    nodes[1].exits(
        90.0, 2, 1, traceback=TRACEBACK, **{key: cause[key] for key in ("message", "kind", "where", "age_s")}
    )
    nodes[0].exits(90.1, 2, 0, message="RuntimeError: Connection closed by peer [10.0.0.2]:41207", kind="exception")
    nodes[0].exits(90.2, 2, 1, status=-15, message="SIGTERM (Terminated)", kind="signal", result="stopped")
    nodes[1].exits(90.2, 2, 0, status=-15, message="SIGTERM (Terminated)", kind="signal", result="stopped")
    nodes[2].is_stopped(90.2, 2)
    said = "rank 3 failed; 1 of 1 restarts used"
    for number, node in enumerate(nodes):
        node.ends(90.5 + number / 10, explanation=said, first_cause=cause, trained_s=82.0, restarts=1)
    return nodes
