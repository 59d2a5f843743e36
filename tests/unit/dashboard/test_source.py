from __future__ import annotations

import errno
import json
import os
import threading
from typing import TYPE_CHECKING

import pytest
from journals import Node, failed_run
from listening import Listener

from planaria.base.value import replace
from planaria.dashboard.lookout import Lookout
from planaria.dashboard.source import FRESH_S, Seen
from planaria.insight.gather import GONE_S, AgentSource, FolderSource
from planaria.insight.picture import picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    from planaria.insight.model import NodeSeen, RunSeen
    from planaria.insight.recall import Recall


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += FRESH_S
        return self.now


def looking_at(folder: Path) -> Seen:
    return Seen(Lookout([], [str(folder)], list, lambda: 0.0), Time())


def test_the_runs_of_a_folder_are_told_apart_by_what_they_say(tmp_path: Path) -> None:
    for node in failed_run():
        node.write(tmp_path)
    Node("node-a", 0, run_id="a/b <i>").begins().starts(1.0, 1).write(tmp_path / "other" / "deep")
    (tmp_path / "other" / "deep" / "a" / "b <i>").rename(tmp_path / "strange")
    seen = looking_at(tmp_path)
    assert [(one["run_id"], one["state"], one["is_over"]) for one in seen.runs()] == [
        ("a/b <i>", "running", False),
        ("job7", "failed", True),
    ]
    found = seen.picture("job7")
    assert found is not None
    assert found["outcome"]["first_cause"]["rank"] == 3
    assert seen.picture("job8") is None


def test_a_run_that_cannot_be_read_or_drawn_is_told_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed_run()[0].write(tmp_path)
    Node("node-b", 0, run_id="hostile").begins().starts(1.0, 1).write(tmp_path)
    (tmp_path / "closed" / "node-c" / "journal.jsonl").mkdir(parents=True)

    def draw(nodes: Sequence[NodeSeen], recall: Recall) -> RunSeen:
        if nodes[0].node.startswith("node-b"):
            raise OverflowError("\x1b[2Jtoo large")
        return picture(nodes, recall)

    monkeypatch.setattr("planaria.dashboard.source.picture", draw)
    good, *bad = looking_at(tmp_path).runs()
    assert good == {"run_id": "job7", "state": "failed", "is_over": True}
    told = {str(one["run_id"]): (one["state"], str(one["why"])) for one in bad}
    assert told["hostile"] == ("unreadable", "this is a bug of planaria's: OverflowError('\\x1b[2Jtoo large')")
    assert told["closed"][0] == "unreadable"
    assert told["closed"][1].startswith("cannot read the journal in ")


def test_one_look_is_one_picture_whoever_asks_and_what_has_not_changed_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def draw(nodes: Sequence[NodeSeen], recall: Recall) -> RunSeen:
        drawn.append(nodes[0].node)
        return picture(nodes, recall)

    monkeypatch.setattr("planaria.dashboard.source.picture", draw)
    Node("node-a", 0, run_id="live").begins().starts(1.0, 1, nodes=1).steps(2.0, 1, 5).write(tmp_path)
    over = Node("node-b", 0, run_id="over").begins().ends(1.0, "done", 0)
    over.report = {"run_id": "over"}
    over.write(tmp_path)
    now = [0.0]
    seen = Seen(Lookout([], [str(tmp_path)], list, lambda: 0.0), lambda: now[0])
    for _ in range(2):
        seen.runs()
        for run_id in ("live", "over"):
            assert seen.picture(run_id) is not None
    assert sorted(drawn) == ["node-a-0a1b2c3d", "node-b-0a1b2c3d"]
    drawn.clear()
    now[0] += FRESH_S
    for run_id in ("live", "over"):
        assert seen.picture(run_id) is not None
    assert drawn == ["node-a-0a1b2c3d"], "nothing is written to the other any more"


def test_a_run_whose_agent_was_killed_is_over_though_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Node("node-a", 0).begins().starts(1.0, 1, nodes=1).write(tmp_path)
    alive = [True]
    look = FolderSource.look
    monkeypatch.setattr(
        FolderSource, "look", lambda self: [replace(one, is_alive=alive[0], age_s=9.0) for one in look(self)]
    )
    seen = looking_at(tmp_path)
    assert [(one["state"], one["is_over"]) for one in seen.runs()] == [("running", False)]
    alive[0] = False
    assert [(one["state"], one["is_over"]) for one in seen.runs()] == [("gone", True)]


def test_a_folder_whose_reader_fails_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_run()[0].write(tmp_path)
    Node("node-b", 0, run_id="hostile").begins().write(tmp_path)
    look = FolderSource.look

    def fail(self: FolderSource) -> list[NodeSeen]:
        if self.path.endswith("hostile"):
            raise MemoryError("too much")
        return look(self)

    monkeypatch.setattr(FolderSource, "look", fail)
    good, bad = looking_at(tmp_path).runs()
    assert good["run_id"] == "job7"
    assert (bad["run_id"], bad["state"]) == ("hostile", "unreadable")
    assert str(bad["why"]).endswith("hostile cannot be read: MemoryError('too much')")


def test_a_run_that_has_ended_is_not_read_again_until_it_is_written_to(tmp_path: Path) -> None:
    nodes = failed_run()
    folders = []
    for node in nodes:
        node.report = {"run_id": "job7"}
        folders.append(node.write(tmp_path))
    seen = looking_at(tmp_path)
    first = seen.nodes("job7")
    assert all(one.seen is other.seen for one, other in zip(seen.nodes("job7"), first, strict=True))
    with (folders[0] / "journal.jsonl").open("a") as file:
        file.write(json.dumps(nodes[0].tell(99.0, "hang", sentence="late").events[-1]) + "\n")
    assert len(seen.nodes("job7")[0].seen.events) == len(first[0].seen.events) + 1


def test_evidence_is_what_a_node_lists_and_nothing_else(tmp_path: Path) -> None:
    folder = failed_run()[0].write(tmp_path)
    (folder / "evidence" / "hang-1").mkdir(parents=True)
    (folder / "evidence" / "hang-1" / "host.txt").write_text("load 7\n")
    seen = looking_at(tmp_path)
    found = seen.evidence("job7", folder.name, "hang-1", "host.txt")
    assert found is not None
    assert not isinstance(found, str)
    with found:
        assert found.read() == b"load 7\n"
    for name, file in (("hang-1", "../../journal.jsonl"), ("..", "journal.jsonl"), ("hang-1", "none"), (".", "hang-1")):
        assert seen.evidence("job7", folder.name, name, file) is None
    assert seen.evidence("job7", "other", "hang-1", "host.txt") is None


def test_evidence_that_cannot_be_put_aside_is_not_told_to_be_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> BinaryIO:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Listener("a-1", Node("a", 0).begins().events) as listener:
        listener.evidence = {"host.txt": b"load 7\n"}
        seen = Seen(Lookout([AgentSource(listener.target)], [], list, lambda: 0.0), Time())
        found = seen.evidence("job7", "a-1", "hang-1", "host.txt")
        assert found is not None
        assert not isinstance(found, str)
        with found:
            found.seek(0)
            assert found.read() == b"load 7\n"
        monkeypatch.setattr("planaria.dashboard.source.TemporaryFile", full)
        said = seen.evidence("job7", "a-1", "hang-1", "host.txt")
    why = "the file cannot be put aside for sending: No space left on device; TMPDIR has to have room for it"
    assert said == why


@pytest.mark.parametrize("hosts", ["ab", "ba"])
def test_the_log_of_a_rank_is_that_of_the_newest_round_whoever_had_the_rank_before(tmp_path: Path, hosts: str) -> None:
    left, stays = (Node(host, 0, workers=1).begins() for host in hosts)
    for node, number, rank in ((left, 0, 0), (stays, 0, 1), (stays, 1, 0)):
        path = tmp_path / f"{node.host}-{number}" / "stdout.log"
        path.parent.mkdir()
        path.write_text(f"rank {rank} of round {number}\n")
        at_s = 1.0 + 10 * number
        node.tell(at_s, "round.started", round=number, nodes=2 - number, world_size=2 - number)
        node.tell(at_s, "worker.started", round=number, rank=rank, local_rank=0, pid=5, log_files=[str(path)])
    for node in (left.ends(9.0, "signal", 143), stays):
        node.write(tmp_path / "runs")
    seen = looking_at(tmp_path / "runs")
    assert seen.log_tail("job7", 0, "stdout") == {"text": "rank 0 of round 1\n", "why": ""}
    found = seen.log_tail("job7", 1, "stdout")
    assert found is not None
    assert str(found["why"]).startswith("the stdout of rank 1 is in no file that is known here")


def test_an_agent_whose_workers_have_another_life_by_now_tells_nothing_of_the_one_before() -> None:
    worker = {"round": 0, "rank": 0, "local_rank": 0, "pid": 5, "log_files": ["/nowhere/stdout.log"]}
    events = Node("a", 0).begins().tell(1.0, "round.started", round=0).tell(1.0, "worker.started", **worker).events
    with Listener("a-1", events) as listener:
        listener.log = b"hello\n"
        seen = Seen(Lookout([AgentSource(listener.target)], [], list, lambda: 0.0), Time())
        assert seen.log_tail("job7", 0, "stdout") == {"text": "hello\n", "why": ""}
        listener.round = 1
        found = seen.log_tail("job7", 0, "stdout")
    assert found is not None
    assert found["text"] == ""
    assert str(found["why"]).startswith("the stdout of rank 0 cannot be read now")


def test_an_agent_that_does_not_answer_for_a_moment_is_away_and_one_that_refuses_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("planaria.launch.owner_http.ANSWER_S", 0.05)
    monkeypatch.setattr("planaria.dashboard.lookout.PATIENCE_S", 60.0)
    may_answer = threading.Event()
    with Listener("a-1", Node("a", 0).begins().starts(1.0, 0, nodes=1).events) as listener:
        moments = [0.0]
        seen = Seen(Lookout([AgentSource(listener.target, now=lambda: moments[0])], [], list, lambda: 0.0), Time())
        seen.runs()
        listener.before = may_answer.wait
        assert [(one["state"], one["is_over"]) for one in seen.runs()] == [("away", False)]
        moments[0] = GONE_S
        assert [(one["state"], one["is_over"]) for one in seen.runs()] == [("gone", True)]
        may_answer.set()
        monkeypatch.setattr("planaria.launch.owner_http.ANSWER_S", 60.0)
        assert [(one["state"], one["is_over"]) for one in seen.runs()] == [("running", False)]
        listener.close()
        assert [(one["state"], one["is_over"]) for one in seen.runs()] == [("gone", True)]


def test_a_pipe_among_the_evidence_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = failed_run()[0].write(tmp_path)
    (folder / "evidence" / "hang-1").mkdir(parents=True)
    os.mkfifo(folder / "evidence" / "hang-1" / "pipe")
    assert looking_at(tmp_path).evidence("job7", folder.name, "hang-1", "pipe") is None


def test_without_an_agent_nobody_can_be_told_anything(tmp_path: Path) -> None:
    failed_run()[0].write(tmp_path)
    told, sentence = looking_at(tmp_path).order("job7", "stop", "")
    assert not told
    assert sentence == "no agent that can be reached answers for it"
