"""Which nodes are still there, which start is shown, and what is believed when several tell different things."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from journals import Node
from waiting import wait_until

from planaria.agent.journal import JOURNAL, Journal, make_folder
from planaria.agent.scribe import PROGRESS
from planaria.base.value import replace
from planaria.insight.flags import Asked
from planaria.insight.follow import follow
from planaria.insight.gather import FolderSource
from planaria.insight.heard import SILENT_S
from planaria.insight.model import NodeSeen, RunSeen
from planaria.insight.picture import picture
from planaria.insight.reading import LONGEST_LINE
from planaria.insight.sources import Found
from planaria.insight.why import why

WORKERS = [{"rank": 0, "local_rank": 0, "pid": 31, "state": "running"}]


def folder(node: Node, **found: object) -> NodeSeen:
    return replace(NodeSeen(node.name, f"/runs/job7/{node.name}", events=tuple(node.events), age_s=1.0), **found)


def answering(node: Node, number: int = 0, **changes: object) -> NodeSeen:
    job = {"run_id": "job7", "host": node.host, "node": node.name}
    status = {"job": job, "state": "running", "round": {"number": number, "world_size": 1}, "workers": WORKERS}
    return NodeSeen(node.name, "socket", status | changes, tuple(node.events), age_s=0.0)


def named(host: str, name: str, **settings: int) -> Node:
    node = Node(host, 0, workers=1, **settings)
    node.name = name
    return node


# A run that was killed.


def test_a_run_whose_agent_was_killed_is_gone_and_one_nobody_has_heard_of_is_silent() -> None:
    node = named("a", "a-1").begins().starts(1.0, 0, nodes=1).steps(9.0, 0, 5)
    lives = picture([folder(node, is_alive=True, age_s=9999.0)])
    assert (lives.state, lives.is_past, lives.ranks[0].rate) == ("running", False, 2.0)
    killed = picture([folder(node, is_alive=False)])
    assert (killed.state, killed.nodes[0].state, killed.is_past) == ("gone", "lost", True)
    silent = picture([folder(node, age_s=SILENT_S + 1)])
    assert (silent.state, silent.nodes[0].state, silent.is_past) == ("silent", "silent", True)
    for run in (killed, silent):
        (rank,) = run.ranks
        assert (rank.step, rank.rate, rank.samples_rate, rank.state) == (5, None, None, run.nodes[0].state)
    assert picture([folder(node, age_s=SILENT_S - 1)]).state == "running"


def test_a_killed_node_does_not_end_the_others_and_is_lost_among_them() -> None:
    killed, other = (named(host, f"{host}-1").begins().starts(1.0, 0, nodes=2) for host in "ab")
    run = picture([folder(killed, is_alive=False), folder(other, is_alive=True)])
    assert (run.state, [node.state for node in run.nodes]) == ("running", ["lost", "running"])
    other.ends(9.0, "signal", 143)
    over = picture([folder(killed, is_alive=False), folder(other)])
    assert (over.is_over, over.state) == (True, "signal")


WRITER = """
import sys
from planaria.agent.journal import Journal
journal = Journal("node", sys.argv[1], print)
told = {"run_id": "job7", "host": sys.argv[2], "at": 1.0, "workers": 1, "locked": journal.is_locked}
journal.take({"name": "planaria.run.started", "timestamp": 1, "metadata": told})
journal._scribe.keep("ready", b"")
sys.stdin.read()
"""


def look(path: str) -> RunSeen:
    return picture(FolderSource(path).look())


@pytest.mark.parametrize("host", [os.uname().nodename, "another"])
def test_an_agent_holds_its_folder_for_as_long_as_it_lives(tmp_path: Path, host: str) -> None:
    path = make_folder(str(tmp_path), "job7", "node")
    with Popen([sys.executable, "-c", WRITER, path, host], stdin=PIPE) as agent:
        wait_until(lambda: os.path.exists(os.path.join(path, "ready")) or agent.poll(), "a journal that is written to")
        assert agent.poll() is None
        os.utime(os.path.join(path, JOURNAL), (1, 1))  # it has said nothing for long, and lives
        os.utime(os.path.join(path, PROGRESS), (1, 1))
        assert look(path).state == "waiting"
        agent.kill()
        agent.wait()
    assert look(path).state == ("silent" if host == "another" else "gone")
    count, run = follow(Asked("logs", follow=True), Found([FolderSource(path)]), print)
    assert (count, run.is_past) == (0, True)  # it comes to an end


def test_a_writer_that_has_nothing_to_write_touches_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planaria.agent.scribe.BEAT_S", 0.01)
    path = make_folder(str(tmp_path), "job7", "node")
    journal = Journal("node", path, print)
    os.utime(os.path.join(path, JOURNAL), (1, 1))
    wait_until(lambda: os.stat(os.path.join(path, JOURNAL)).st_mtime != 1, "a journal that is touched")
    journal.close()


# A run that was started again.


def test_a_start_that_was_killed_does_not_hide_the_one_after_it() -> None:
    first = named("a", "a-1").begins().starts(1.0, 7, nodes=1)
    second = named("a", "a-2").begins(60.0).starts(61.0, 0, nodes=1)
    for seen in (answering(second), folder(second, is_alive=True)):
        run = picture([folder(first, is_alive=False), seen])
        assert [node.node for node in run.nodes] == ["a-2"]
        assert (run.state, [rank.node for rank in run.ranks]) == ("running", ["a-2"])
    both = picture([folder(first), answering(second)])  # nobody can tell whether the first one lives
    assert [rank.node for rank in both.ranks] == ["a-2"]
    assert (both.world_size, both.gaps) == (1, ())


def started(node: Node, start: str) -> Node:
    for event in node.events:
        data = event["metadata"]
        if event["name"] == "planaria.round.started" and isinstance(data, dict):
            data["start"] = start
    return node


def test_nodes_of_an_earlier_start_are_known_by_what_those_of_one_start_agreed_on() -> None:
    first = [started(named(host, f"{host}-1").begins().starts(1.0, 7, nodes=2), "e1") for host in "ab"]
    second = [started(named(host, f"{host}-2").begins(60.0).starts(61.0, 0, nodes=2), "e2") for host in "ab"]
    journals = [folder(node) for node in first]  # were they killed? From another machine nobody can tell yet
    for seen in ([answering(second[0]), folder(second[1])], [folder(node) for node in second]):
        assert [node.node for node in picture([*journals, *seen]).nodes] == ["a-2", "b-2"]
    assert [node.node for node in picture([*journals, folder(named("c", "c-1").begins(61.0))]).nodes] == [
        "a-1",
        "b-1",
        "c-1",
    ]


def test_an_agent_that_never_told_anything_does_not_keep_a_start_that_is_over() -> None:
    first = named("a", "a-1").begins().starts(1.0, 7, nodes=1).ends(5.0, "failed", 1)
    second = named("a", "a-2").begins(60.0).starts(61.0, 0, nodes=1)
    away = NodeSeen("b-1", "b:1", gap="the agent at b:1 does not answer")
    assert [node.node for node in picture([away, folder(first), folder(second)]).nodes] == ["a-2", "b-1"]


def test_who_waits_for_a_round_does_not_hide_those_who_are_in_one() -> None:
    waiting = named("a", "a-1").begins().starts(1.0, 0, nodes=2)
    working = named("b", "b-1").begins().starts(1.0, 0, nodes=2).starts(9.0, 1, nodes=1)
    run = picture([answering(waiting, workers=[], state="waiting"), folder(working)])
    assert [rank.node for rank in run.ranks] == ["b-1"]


# Hangs.


def test_a_hang_that_is_over_is_not_told_any_more() -> None:
    node = named("a", "a-1").begins().starts(1.0, 0, nodes=1)
    node.tell(9.0, "hang", round=0, ranks=[0], sentence="rank 0 hangs")
    assert picture([folder(node)]).hang is not None
    node.tell(12.0, "hang.over", rank=0)
    for seen in (folder(node), folder(node.ends(20.0, "done", 0))):
        assert picture([seen]).hang is None
    said = [moment.sentence for moment in picture([folder(node)]).timeline]
    assert "rank 0 goes on: what looked like a hang was none, or is over" in said


def test_a_hang_stands_until_one_of_its_own_ranks_ends_it() -> None:
    node = named("a", "a-1").begins().starts(1.0, 0, nodes=1)
    node.tell(9.0, "hang", round=0, ranks=[0], waiting=[1], sentence="rank 0 hangs")
    node.tell(10.0, "hang", round=0, ranks=[2], waiting=[], sentence="rank 2 hangs")
    node.tell(12.0, "hang.over", rank=0, how="has ended")
    run = picture([folder(node)])
    assert run.hang is not None
    assert run.hang["sentence"] == "rank 2 hangs"
    assert "rank 0 has ended: what looked like a hang was none, or is over" in [one.sentence for one in run.timeline]


def test_a_hang_of_an_earlier_round_is_over_and_one_that_ended_the_run_is_not() -> None:
    node = named("a", "a-1").begins().starts(1.0, 0, nodes=1)
    node.tell(9.0, "hang", round=0, ranks=[0], sentence="rank 0 hangs").ends(10.0, "failed", 1)
    assert picture([folder(node)]).hang is not None
    again = named("a", "a-1").begins().starts(1.0, 0, nodes=1)
    again.tell(9.0, "hang", round=0, ranks=[0], sentence="rank 0 hangs").starts(11.0, 1, nodes=1).ends(20.0, "done", 0)
    assert picture([folder(again)]).hang is None


def test_an_agent_that_answers_is_believed_before_journals() -> None:
    node, other = (named(host, f"{host}-1").begins().starts(1.0, 0, nodes=2) for host in "ab")
    other.tell(9.0, "hang", round=0, ranks=[1], sentence="rank 1 hangs")
    assert picture([answering(node), folder(other)]).hang is None


def test_of_several_hangs_the_one_is_told_that_names_a_rank_which_stands_differently() -> None:
    nodes = [named(host, f"{host}-1").begins().starts(1.0, 0, nodes=3) for host in "abc"]
    hangs = [
        {"ranks": [one], "elsewhere": one != 1, "sentence": f"rank {one}", "timestamp": 10 - one} for one in range(3)
    ]
    told = picture([answering(node, hang=hang) for node, hang in zip(nodes, hangs, strict=True)])
    assert told.hang is not None
    assert told.hang["sentence"] == "rank 1"


# A node that leaves.


def test_a_node_that_left_is_told_so_while_the_run_goes_on() -> None:
    left, stays = (named(host, f"{host}-1").begins().starts(1.0, 0, nodes=2) for host in "ab")
    left.ends(9.0, "signal", 143, signal="SIGTERM")
    stays.starts(10.0, 1, nodes=1, reason="node a is leaving")
    run = picture([folder(left), folder(stays)])
    assert [node.state for node in run.nodes] == ["left", "running"]
    assert "node a-1 left (SIGTERM)" in [moment.sentence for moment in run.timeline]
    over = picture([folder(left), folder(stays.ends(20.0, "done", 0))])
    assert (over.state, [node.state for node in over.nodes]) == ("done", ["left", "done"])
    stopped = [named(host, f"{host}-1").begins().starts(1.0, 0, nodes=2).ends(9.0, "signal", 143) for host in "ab"]
    assert [node.state for node in picture([folder(one) for one in stopped]).nodes] == ["signal", "signal"]


# The journal in the folder.


def write_all(journal: Journal, *events: dict[str, object]) -> None:
    scribe = journal._scribe
    assert scribe is not None
    for event in events:
        journal.take(event)
        wait_until(lambda: scribe._orders.qsize() <= 500, "a disk that keeps up")
    journal.close()
    scribe._thread.join()


def test_days_of_progress_do_not_push_out_how_a_run_began_and_why_it_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planaria.agent.scribe.HALF_BYTES", 20_000)
    monkeypatch.setattr("planaria.agent.scribe.HALF_PROGRESS_BYTES", 8_000)
    node = named("a", "node").begins().starts(0.5, 0, nodes=1).exits(1.0, 0, 0)
    node.starts(1.5, 1, nodes=1, reason="rank 0 failed", count=1).restarts(2.0, 1, "rank 0 failed", detect_s=1.0)
    for at in range(3, 1000):
        node.steps(float(at), 1, at, trained_s=at / 2)
    for event in node.events:
        if event["name"] == "planaria.progress":
            data = event["metadata"]
            assert isinstance(data, dict)
            data["uptime_s"] = data["at"] - 1000.0
    path = make_folder(str(tmp_path), "job7", "node")
    write_all(Journal("node", path, print), *node.events)
    assert sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path)) < 40_000
    run = look(path)
    assert [failure.round for failure in run.failures] == [0]
    assert [restart.round for restart in run.restarts] == [1]
    assert run.ranks[0].step == 999
    assert (run.effective.seconds, run.effective.share) == (999.0, 0.5)
    for name in (JOURNAL, "journal.1.jsonl"):  # and where it has: how long it ran is told with progress, too
        if os.path.exists(os.path.join(path, name)):
            os.truncate(os.path.join(path, name), 0)
    assert look(path).effective.seconds == 999.0


def test_a_share_that_cannot_be_is_not_hidden() -> None:
    node = named("a", "a-1").begins().starts(1.0, 0, nodes=1).steps(10.0, 0, 5, trained_s=20.0)
    assert picture([folder(node)]).effective.share == 2.0


def test_a_line_that_is_too_long_is_skipped_and_what_follows_is_read(tmp_path: Path) -> None:
    node = Node("a", 0).begins().exits(1.0, 0, 0, message="x" * (2 * LONGEST_LINE)).ends(5.0, "failed", 1)
    path = node.write(tmp_path)
    source = FolderSource(str(path))
    assert [event["name"] for event in source.look()[0].events] == ["planaria.run.started", "planaria.run.ended"]
    with (path / JOURNAL).open("ab") as file:
        file.write(b"y" * (LONGEST_LINE + 5))
        file.flush()
        source.look()
        file.write(b'z\n{"name": "x", "timestamp": 1}\n')
    assert [event["name"] for event in source.look()[0].events][-1] == "x"


def test_why_has_a_sentence_for_a_run_that_is_gone() -> None:
    node = named("a", "a-1").begins().starts(1.0, 0, nodes=1)
    reasons = why(picture([folder(node, is_alive=False)]))
    assert reasons is not None
    assert reasons.decision.sentence.startswith("nobody of the run is left, and no end was written")
