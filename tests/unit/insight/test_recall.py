"""What a look leaves to the next one changes no picture, and is not read again."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from journals import Node, failed_run

from planaria.base.value import replace
from planaria.insight import recall as recall_module
from planaria.insight import story
from planaria.insight.fields import told
from planaria.insight.loglines import places
from planaria.insight.model import NodeSeen
from planaria.insight.picture import picture
from planaria.insight.recall import Recall
from planaria.observe.notebook import Notebook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.insight.fields import Told


class Watched:
    """A node whose events come one after the other, as a source keeps them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rest = list(node.events)
        self._notebook = Notebook(1000)

    def goes_on(self, count: int) -> bool:
        for event in self._rest[:count]:
            self._notebook.take(event)
        del self._rest[:count]
        return bool(self._rest)

    def seen(self, *, answers: bool) -> NodeSeen:
        job = {"run_id": "job7", "host": self._node.host, "node": self._node.name}
        status = {"job": job, "state": "running", "newest_commit": {"node": {"step": 3, "round": 1, "generation": 2}}}
        return NodeSeen(self._node.name, "socket", status if answers else None, self._notebook.events)


def many_rounds(rounds: int, rng: random.Random) -> list[Node]:
    nodes = [Node(f"node-{n}", 2 * n, boot_s=rng.choice([0.0, 500.0])).begins(rng.random(), 9) for n in range(3)]
    for number in range(rounds):
        for node in nodes:
            at_s = 100.0 * number + rng.random()
            node.starts(at_s, number, reason="rank 3 failed" if number else "", count=number)
            if number:
                node.restarts(at_s + 1, number, "rank 3 failed", detect_s=rng.random())
            for step in range(rng.randrange(4)):
                node.steps(at_s + 10 + step, number, number * 10 + step, first=number * 10)
                commit = {"run": 1, "round": number, "step": step, "generation": rng.randrange(3)}
                node.tell(at_s + 10.5 + step, "commit", tier=rng.choice(["node", "disk", "odd"]), **commit)
            if rng.random() < 0.3:
                node.tell(at_s + 40, "hang", round=number, ranks=[node.first_rank], sentence="it hangs")
        rng.choice(nodes).exits(100.0 * number + 60, number, rng.randrange(2))
        for node in nodes:
            node.is_stopped(100.0 * number + 61, number)
    if rng.random() < 0.5:
        for node in nodes:
            node.ends(100.0 * rounds + rng.random(), explanation="no restart was left", trained_s=3.0)
    return nodes


@pytest.mark.parametrize("seed", range(40))
def test_a_picture_is_the_same_whether_there_was_one_before_or_not(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [Watched(node) for node in many_rounds(rng.randrange(1, 5), rng)]
    recall = Recall()
    goes_on = True
    while goes_on:
        goes_on = sum(node.goes_on(rng.randrange(12)) for node in nodes) > 0
        seen = [node.seen(answers=rng.random() < 0.5) for node in nodes if rng.random() < 0.9]
        rng.shuffle(seen)
        assert picture(seen, recall) == picture(seen)
        assert places(seen, None, ("stdout",), recall) == places(seen, None, ("stdout",))


def test_a_run_that_failed_is_the_same_with_every_event_that_is_added() -> None:
    nodes = failed_run()
    recall = Recall()
    for count in range(1, max(len(node.events) for node in nodes) + 1):
        seen = [NodeSeen(node.name, "/runs", events=tuple(node.events[:count])) for node in nodes]
        assert picture(seen, recall) == picture(seen)


def test_an_event_is_read_once_and_a_story_is_told_when_something_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what keeps the page of a thousand workers quick: they step every second, and restart now and then."""
    read: list[Mapping[str, object]] = []
    tales: list[Sequence[Told]] = []

    def reading(event: Mapping[str, object], node: str) -> Told | None:
        read.append(event)
        return told(event, node)

    def telling(events: Sequence[Told], left: frozenset[str]) -> story.Tale:
        tales.append(events)
        return tale(events, left)

    tale = story.tale
    monkeypatch.setattr(recall_module, "told", reading)
    monkeypatch.setattr(story, "tale", telling)
    node = Node("node-a", 0).begins().starts(1.0, 0, nodes=1).steps(2.0, 0, 5)
    node.starts(10.0, 1, nodes=1, count=1).restarts(10.5, 1, "rank 0 failed").steps(11.0, 1, 6)
    seen = NodeSeen(node.name, "socket", events=tuple(node.events))
    recall = Recall()
    picture([seen], recall)
    assert (len(read), len(tales)) == (len(node.events), 1)
    later = replace(seen, events=(*seen.events[:-1], node.steps(12.0, 1, 7).events[-1]))
    assert picture([later], recall).ranks[0].step == 7
    assert places([later], None, ("stdout",), recall) == []
    assert (len(read), len(tales)) == (len(seen.events) + 1, 1)
    assert picture([replace(later, events=(*later.events, node.exits(13.0, 1, 0).events[-1]))], recall).failures
    assert (len(read), len(tales)) == (len(seen.events) + 2, 2)
    assert picture([replace(later, events=tuple(json.loads(json.dumps(later.events))))], recall) == picture([later])
