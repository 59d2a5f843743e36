from __future__ import annotations

import json

from journals import TRACEBACK, Node

from planaria.contract.glimpse import MOST_BYTES, read, write


def names(text: str) -> list[str]:
    return [str(one["name"]).removeprefix("planaria.") for one in read(text)[1]]


def test_what_repeats_itself_is_told_once_and_the_newest_of_it() -> None:
    node = Node("a", 0, workers=1).begins().starts(1.0, 1)
    for step in range(5):
        node.steps(2.0 + step, 1, step).tell(2.5 + step, "commit", tier="node", step=step)
        node.tell(2.6 + step, "straggler", ranks=[{"rank": step}])
    host, events = read(write("a", node.tell(9.0, "commit", tier="disk", step=1).events))
    assert host == "a"
    told = [str(one["name"]).removeprefix("planaria.") for one in events]
    assert told == ["run.started", "round.started", "worker.started", "progress", "commit", "straggler", "commit"]
    assert events[3]["metadata"]["ranks"]["0"]["step"] == 4  # type: ignore[index]  # it is JSON


def test_the_newest_are_told_if_not_all_fit_and_it_is_never_more_than_that() -> None:
    node = Node("a", 0, workers=8)
    for number in range(200):
        node.starts(number, number).restarts(number + 0.5, number, "rank 3 failed")
    text = write("a", node.events)
    assert MOST_BYTES - 1000 < len(text) < MOST_BYTES + 200
    assert read(text)[1][-1]["metadata"]["round"] == 199  # type: ignore[index]  # it is JSON
    assert names(write("a", node.events, most_bytes=10)) == []


def test_what_alone_is_too_large_hides_nothing_but_itself() -> None:
    node = Node("a", 0, workers=1).begins().starts(1.0, 1).steps(2.0, 1, 7)
    node.tell(3.0, "event", many={str(number): "x" * 290 for number in range(64)}, more=["y" * 290] * 64)
    huge = [{str(one): "x" * 290 for one in range(64)}] * 2
    node.tell(4.0, "progress", ranks=huge).tell(5.0, "commit", tier="disk", step=1)
    assert names(write("a", node.events)) == ["run.started", "round.started", "worker.started", "commit"], (
        "and what it has replaced is not told as the newest"
    )


def test_lines_of_a_worker_stay_where_logs_are_and_long_texts_are_cut() -> None:
    node = Node("a", 0).exits(
        1.0, 1, 0, traceback=TRACEBACK, stderr_tail="secret", message="x" * 5000, pids=list(range(999))
    )
    text = write("a", node.events)
    assert "label 1007" not in text
    assert "secret" not in text
    (event,) = read(text)[1]
    data = json.loads(json.dumps(event["metadata"]))
    assert (len(data["message"]), data["message"][-1], len(data["pids"])) == (300, "…", 64)


def test_what_cannot_be_read_is_nothing() -> None:
    for text in ("", "{", "7", "[]", '{"version": 2, "events": []}', '{"version": 1, "events": 7}', "[" * 90_000):
        assert read(text) == ("", ())
    assert read('{"version": 1, "host": 7, "events": [1, {}]}') == ("", ({},))
