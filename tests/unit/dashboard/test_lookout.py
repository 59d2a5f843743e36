from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING

from journals import Node

from planaria.dashboard import lookout as lookouts
from planaria.dashboard.lookout import LIST_S, Lookout
from planaria.insight.gather import AgentSource, run_folders
from planaria.insight.model import NodeSeen
from planaria.launch.owner_http import Door

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Agent(AgentSource):
    """An agent of a story: it tells what it is given, and may take its time."""

    def __init__(self, node: str, *, run_id: str = "job7") -> None:
        super().__init__((node, 8080))
        self.status: dict[str, object] | None = {"job": {"run_id": run_id, "host": node}}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.node = node
        self.events: tuple[dict[str, object], ...] = ()

    def look(self) -> list[NodeSeen]:
        self.may_answer.wait(60)
        return [NodeSeen(self.node, self.name, self.status, self.events)]


def statuses(lookout: Lookout, run_id: str = "job7") -> dict[str, bool]:
    return {one.seen.node: one.answers for one in lookout.look().get(run_id, ())}


def test_nodes_are_grouped_by_the_run_that_they_name() -> None:
    agents = [Agent("a"), Agent("b"), Agent("c", run_id="other")]
    lookout = Lookout(agents, [], list, lambda: 0.0)
    assert statuses(lookout) == {"a": True, "b": True}
    assert statuses(lookout, "other") == {"c": True}


def test_an_agent_that_cannot_be_understood_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = Agent("a"), Agent("b")

    def fail() -> list[NodeSeen]:
        raise OverflowError("too large")

    monkeypatch.setattr(bad, "look", fail)
    assert statuses(Lookout([good, bad], [], list, lambda: 0.0)) == {"a": True}


def test_an_agent_that_is_slow_keeps_nobody_waiting_and_counts_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = Agent("a"), Agent("b")
    lookout = Lookout([quick, slow], [], list, lambda: 0.0)
    assert statuses(lookout) == {"a": True, "b": True}
    slow.may_answer.clear()
    monkeypatch.setattr("planaria.dashboard.lookout.PATIENCE_S", 0.01)
    quick.status = None
    found = lookout.look()["job7"]
    assert [(one.seen.node, one.answers) for one in found if one.seen.node == "b"] == [("b", True)]
    slow.status = None
    slow.events = tuple(Node("b", 0).begins().events)
    slow.may_answer.set()
    monkeypatch.setattr("planaria.dashboard.lookout.PATIENCE_S", 60.0)
    assert statuses(lookout) == {"b": False}


def test_a_folder_of_many_runs_is_listed_again_when_one_was_added_or_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments, lists = [0.0], []
    monkeypatch.setattr(lookouts, "run_folders", lambda path: lists.append(path) or run_folders(path))
    Node("node-a", 0).begins().write(tmp_path)
    lookout = Lookout([], [str(tmp_path)], list, lambda: moments[0])
    assert list(lookout.look()) == list(lookout.look()) == ["job7"]
    assert len(lists) == 1
    Node("node-a", 0, run_id="job8").begins().write(tmp_path)
    os.utime(tmp_path, ns=(1, 1))  # as the kernel does it, whose clock may not have moved
    assert set(lookout.look()) == {"job7", "job8"}
    assert len(lists) == 2
    moments[0] += LIST_S
    lookout.look()
    assert len(lists) == 3


def test_what_no_look_lists_any_more_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planaria.dashboard.lookout.MOST_NAMED", 2)
    runs = []
    for number in range(4):
        node = Node("node-a", 0, run_id=f"job{number}").begins().ends(5.0, "done", 0)
        node.report = {"run_id": node.run_id}
        runs.append(node.write(tmp_path).parent)
    folders = Lookout([], [], list, lambda: 0.0)._folders
    for run in runs:
        folders.add([str(run)])
        folders.look()
    folders.add([str(runs[2])])  # which is named again, and stays
    folders.add([str(runs[0])])
    folders.look()
    kept = [str(runs[2]), str(runs[0])]
    assert [list(folders._named), list(folders._sources), list(folders._settled)] == [kept, kept, kept]
    shutil.rmtree(runs[0])
    folders.add([])
    folders.look()
    assert [list(folders._named), list(folders._sources), list(folders._settled)] == [kept[:1]] * 3


def test_of_an_agent_that_has_ended_its_folder_tells_the_story(tmp_path: Path) -> None:
    node = Node("node-a", 0).begins().starts(1.0, 1)
    folder = node.write(tmp_path)
    agent = Agent(folder.name)
    agent.status = {"job": {"run_id": "job7", "run_folder": str(folder.parent)}}
    lookout = Lookout([agent], [], list, lambda: 0.0)
    assert [one.agent is None for one in lookout.look()["job7"]] == [False], (
        "another machine's word is not ours to follow"
    )
    agent.target = Door("/tmp/planaria-x/http", os.geteuid())
    assert [(one.agent is None, one.answers) for one in lookout.look()["job7"]] == [(False, True), (True, False)]
    agent.status = None
    assert [one.agent is None for one in lookout.look()["job7"]] == [True]
