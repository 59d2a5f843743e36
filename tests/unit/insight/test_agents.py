"""Agents that are asked: several at once, others than before at the same place, and those that do not answer for a while."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from journals import Node
from listening import Listener

from planaria.base.value import replace
from planaria.insight import main
from planaria.insight.flags import Asked
from planaria.insight.follow import follow
from planaria.insight.gather import GONE_S, AgentSource, FolderSource
from planaria.insight.loglines import Place
from planaria.insight.model import NodeSeen
from planaria.insight.picture import picture
from planaria.insight.sources import Found
from planaria.insight.tail import AgentTail

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planaria.insight.loglines import Line


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener("a-1", Node("a", 0, workers=1).begins().starts(1.0, 0, nodes=1).events) as found:
        yield found


def names(source: AgentSource) -> list[object]:
    (seen,) = source.look()
    return [event["name"] for event in seen.events]


def test_agents_are_asked_at_the_same_time_and_told_in_their_order() -> None:
    all_asked = threading.Barrier(3)
    listeners = [Listener(node) for node in "cab"]
    try:
        for one in listeners:
            one.before = lambda: all_asked.wait(60)
        found = Found([AgentSource(one.target) for one in listeners])
        assert [node.node for node in found.look()] == ["c", "a", "b"]
        assert found.agents["a"].target == listeners[1].target
    finally:
        for one in listeners:
            one.close()


def test_another_agent_at_the_same_place_is_read_from_its_beginning(listener: Listener) -> None:
    source = AgentSource(listener.target)
    assert names(source) == ["planaria.run.started", "planaria.round.started", "planaria.worker.started"]
    listener.begin("a-2", Node("a", 0).begins().events)
    assert names(source) == ["planaria.run.started"]
    assert source.node == "a-2"


# Who does not answer.


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_silence_is_no_end_several_are_and_so_is_a_refusal(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planaria.launch.owner_http.ANSWER_S", 0.05)
    may_answer, clock = threading.Event(), Time()
    source = AgentSource(listener.target, now=clock)
    source.look()
    listener.before = may_answer.wait
    for clock.now in (100.0, 100.0 + GONE_S - 1):
        away = picture(source.look())
        assert (away.state, away.nodes[0].state, away.is_past) == ("away", "away", False)
    clock.now = 100.0 + GONE_S
    assert picture(source.look()).state == "gone"
    may_answer.set()
    monkeypatch.setattr("planaria.launch.owner_http.ANSWER_S", 60.0)
    assert picture(source.look()).state == "running"
    listener.close()
    gone = picture(source.look())
    assert (gone.state, gone.nodes[0].state, gone.is_past) == ("gone", "gone", True)


@pytest.mark.parametrize(("is_alive", "state"), [(True, "away"), (None, "away"), (False, "gone")])
def test_of_an_agent_that_is_gone_its_folder_says_whether_it_lives(*, is_alive: bool | None, state: str) -> None:
    node = Node("a", 0).begins().starts(1.0, 0, nodes=1)
    away = NodeSeen(node.name, "socket", events=tuple(node.events), gap="it does not answer", is_gone=True)
    folder = NodeSeen(node.name, "/runs/job7/a", events=tuple(node.events), age_s=1.0, is_alive=is_alive)
    for nodes in ([away, folder], [folder, away]):
        assert picture(nodes).state == state
    assert picture([replace(away, is_alive=True)]).state == "away"


class Story:
    """A source that tells one thing after the other."""

    def __init__(self, *looks: NodeSeen) -> None:
        self.looks = list(looks)

    def look(self) -> list[NodeSeen]:
        return [self.looks.pop(0)]


def test_a_follower_goes_on_through_a_silence_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planaria.insight.follow.wait_for_any", lambda *_: None)
    node = Node("a", 0, workers=1).begins().starts(1.0, 0, nodes=1)
    lives = NodeSeen("a-1", "socket", {"job": {"run_id": "job7", "node": "a-1"}}, tuple(node.events))
    away = NodeSeen("a-1", "socket", None, tuple(node.events), gap="it does not answer")
    ended = NodeSeen("a-1", str(tmp_path), None, tuple(node.ends(9.0, "done", 0).events))
    story = Story(lives, away, lives, ended)
    _, run = follow(Asked("logs", follow=True), Found([story]), print)
    assert (run.state, story.looks) == ("done", [])


DEAD = [["status"], ["status", "--json"], ["top"], ["top", "--json"], ["why"], ["logs"], ["logs", "-f"]]


@pytest.mark.parametrize("words", DEAD, ids=" ".join)
def test_where_no_agent_answers_every_command_says_so_and_fails(
    listener: Listener, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    listener.close()
    host, port = listener.target
    assert main.look(words[0], [*words[1:], f"--at={host}:{port}"]) == 1
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"planaria: the agent at {host}:{port} does not answer: Connection refused\n")


@pytest.mark.parametrize("words", [["status", "--watch"], ["top"]], ids=" ".join)
def test_watching_for_a_program_goes_on_until_nobody_is_left(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "wait_for_any", lambda *_: None)
    with Listener("a-1", Node("a", 0).begins().events, answers=7) as found:  # status, journal and evidence
        host, port = found.target
        assert main.look(words[0], [*words[1:], "--json", f"--at={host}:{port}"]) == 0
    states = [json.loads(line)["state"] for line in capfd.readouterr().out.splitlines()]
    assert states[0] == "running"
    assert len(states) > 2
    assert states[-1] == "gone"


def test_a_follower_says_why_it_ended(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("planaria.insight.follow.wait_for_any", lambda *_: listener.close())
    host, port = listener.target
    assert main.look("logs", ["-f", f"--at={host}:{port}"]) == 1
    said = capfd.readouterr().err.splitlines()
    assert said[0].startswith("planaria: no worker that was asked for writes to a file; ")
    assert said[1].startswith("planaria: nobody of the run is left, and no end was written: ")
    assert said[2].startswith(f"planaria: not seen: the agent at {host}:{port} does not answer: ")


# What workers wrote.


def tail_of(listener: Listener, lines: int, **changes: object) -> bytes:
    source = AgentSource(listener.target)
    source.look()
    place = Place("a-1", source.name, "a", 0, 0, 0, "stdout")
    return AgentTail(source, replace(place, **changes), lines).read_on()


def test_a_progress_bar_of_another_machine_is_one_line_as_it_is_here(listener: Listener) -> None:
    listener.log = b"first\n10 %\r50 %\r100 %\nlast \x0bone\n"
    assert tail_of(listener, 2) == b"10 %\r50 %\r100 %\nlast \x0bone\n"
    assert tail_of(listener, 1) == b"last \x0bone\n"
    assert tail_of(listener, 9) == tail_of(listener, 3) == listener.log
    listener.log = b"first\nno end"
    assert tail_of(listener, 1) == b"no end"
    listener.log = b""
    assert tail_of(listener, 1) == b""


def test_an_agent_of_another_round_or_node_is_not_asked_for_what_it_does_not_have(listener: Listener) -> None:
    listener.log = b"mine\n"
    assert tail_of(listener, 1) == b"mine\n"
    assert tail_of(listener, 1, round=1) == b""
    assert tail_of(listener, 1, node="a-0") == b""


def test_a_node_that_left_has_no_lines_in_the_newest_round(tmp_path: Path) -> None:
    left, stays = Node("a", 0, workers=1).begins(), Node("b", 1, workers=1).begins()
    for node, number, rank in ((left, 0, 0), (stays, 0, 1), (stays, 1, 0)):
        path = tmp_path / f"{node.host}-{number}" / "stdout.log"
        path.parent.mkdir()
        path.write_text(f"rank {rank} of round {number}\n")
        at_s = 1.0 + 10 * number
        node.tell(at_s, "round.started", round=number, nodes=2 - number, world_size=2 - number)
        node.tell(at_s, "worker.started", round=number, rank=rank, local_rank=0, pid=5, log_files=[str(path)])
        if node is left:
            left.ends(9.0, "signal", 143)
    for node in (left, stays):
        node.write(tmp_path / "runs")
    said: list[Line] = []
    follow(Asked("logs"), Found([FolderSource(str(tmp_path / "runs" / "job7"))]), said.append)
    assert [str(line) for line in said] == ["b:0 | rank 0 of round 1"]
