"""What is seen of nodes: their events, their lines, their processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stopping import stop

from planaria.chaos import processes
from planaria.chaos.nodes import surroundings
from planaria.chaos.watch import Watch

if TYPE_CHECKING:
    from planaria.chaos.nodes import Node


class Files:
    """A node as far as a watcher looks at it."""

    def __init__(self, folder: Path, name: str = "n1.1") -> None:
        self.name = name
        self.events, self.err = str(folder / "events"), str(folder / "err")
        self.is_silent = False

    def tell(self, name: str, **metadata: Any) -> None:
        with open(self.events, "a") as file:
            file.write(json.dumps({"name": f"planaria.{name}", "metadata": metadata}) + "\n")

    def say(self, text: str) -> None:
        with open(self.err, "a") as file:
            file.write(text)


def watched(node: Files, era: int = 0) -> Watch:
    watch = Watch()
    watch.add(cast("Node", node), era)
    return watch


def begin(node: Files, pid: int, round_: int = 2, count: int = 1) -> None:
    node.tell("round.started", round=round_, restart_count=count, world_size=3)
    node.tell("worker.started", round=round_, rank=1, pid=pid, at=1.5)


def test_a_worker_is_known_by_its_events_and_lives_as_long_as_it_is_seen(tmp_path: Path) -> None:
    node = Files(tmp_path)
    watch = watched(node, era=4)
    begin(node, os.getpid())
    before = time.monotonic()
    watch.look()
    (worker,) = watch.workers()
    assert (worker.node, worker.rank, worker.era, worker.round, worker.world_size) == ("n1.1", 1, 4, 2, 3)
    assert (worker.restart_count, worker.started_at) == (1, 1.5)
    assert before <= worker.last_alive_at <= time.monotonic()
    assert watch.charged == {4: 1}


def test_a_stopped_worker_is_not_alive_and_a_dead_one_is_kept(tmp_path: Path) -> None:
    node = Files(tmp_path)
    watch = watched(node)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        begin(node, child.pid)
        watch.look()
        stop(child.pid)
        watch.stopped([child.pid])
        (stopped,) = watch.workers()
        watch.look()
        (later,) = watch.workers()
        assert later.last_alive_at == stopped.last_alive_at
        assert later.stopped_at is not None
    finally:
        child.kill()
        child.communicate()
    watch.woken([child.pid])
    watch.rest(0.0)
    (dead,) = watch.workers()
    assert dead.last_alive_at == stopped.last_alive_at
    assert dead.woken_at is not None


def test_lines_are_read_whole_and_steps_are_taken_from_them(tmp_path: Path) -> None:
    node = Files(tmp_path)
    watch = watched(node)
    node.say("planaria: hello\n\titerat")
    watch.look()
    node.say("ion=17\n\tepoch=1/2\n")
    watch.look()
    assert [(said.text, said.step) for said in watch.said] == [
        ("planaria: hello", None),
        ("\titeration=17", 17),
        ("\tepoch=1/2", None),
    ]


def test_what_is_no_event_is_passed_over(tmp_path: Path) -> None:
    node = Files(tmp_path)
    Path(node.events).write_text('not json\n{"name": "planaria.round.started"}\n')
    watch = watched(node)
    watch.look()
    assert watch.workers() == []


def test_waiting_ends_with_the_first_answer_or_with_its_time(tmp_path: Path) -> None:
    watch = watched(Files(tmp_path))
    answers = iter([None, 0, 7])
    assert watch.wait(lambda: next(answers), 60.0) == 7
    assert watch.wait(lambda: None, 0.0) is None


def test_a_job_gets_our_surroundings_without_what_means_something_to_a_launcher() -> None:
    ours = {"PATH": "/bin", "PET_NNODES": "4", "RANK": "3", "PLANARIA_TOKEN": "old", "TORCHELASTIC_RUN_ID": "x"}
    ours |= {"TORCH_HOME": "/models"}
    assert surroundings(ours, {"PLANARIA_TOKEN": "new"}) == {
        "OMP_NUM_THREADS": "1",
        "PATH": "/bin",
        "TORCH_HOME": "/models",
        "PLANARIA_TOKEN": "new",
    }


def test_processes_are_found_by_their_mark() -> None:
    mark = f"test{os.getpid()}:"
    env = {**os.environ, processes.MARK: f"{mark}n1.1:"}
    child = subprocess.Popen([sys.executable, "-c", "print(); input()"], stdin=-1, stdout=-1, env=env)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert list(processes.marked(mark)) == [child.pid]
        assert list(processes.marked(f"{mark}n1.2:")) == []
        own, shared = processes.memory_kib(child.pid) or (0, -1)
        assert own > 1000
        assert shared >= 0
    finally:
        child.kill()
        child.communicate()
    assert processes.marked(mark) == {}
    assert processes.memory_kib(child.pid) is None
