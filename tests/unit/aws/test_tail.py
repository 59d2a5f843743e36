from __future__ import annotations

import re
from importlib import resources

from planaria.aws.tail import LATE_MS, Tail, is_of_rank
from planaria.process.lines import line_prefix


def event(name: str, at_ms: int) -> dict[str, object]:
    return {"eventId": name, "timestamp": at_ms}


def test_a_line_that_comes_behind_newer_ones_is_new_and_is_asked_for() -> None:
    tail = Tail()
    assert tail.start() == {}
    assert tail.is_new(event("newer", 1_000_000))
    assert tail.start() == {"startTime": 1_000_000 - LATE_MS}
    assert tail.is_new(event("late", 1_000_000 - LATE_MS))
    assert tail.start() == {"startTime": 1_000_000 - LATE_MS}


def test_no_line_is_shown_twice_however_often_it_is_seen() -> None:
    tail = Tail()
    lines = [event(str(number), 1_000_000 + number) for number in range(30_000)]
    assert all(tail.is_new(line) for line in lines)
    assert not any(tail.is_new(line) for line in lines)


def test_lines_that_cannot_come_again_are_forgotten() -> None:
    tail = Tail()
    for number in range(100_000):
        tail.is_new(event(str(number), number * 1_000))
    assert len(tail._shown) < 20_000


def test_a_rank_is_told_from_others_by_the_prefix_that_hosts_ask_the_launcher_for() -> None:
    script = resources.files("planaria.aws").joinpath("templates", "worker.sh").read_text()
    [template] = re.findall(r"LOG_LINE_PREFIX_TEMPLATE=(.*)\"$", script, re.MULTILINE)

    def line(role: str, rank: int) -> str:
        prefix = line_prefix(template.replace("\\$", "$"), role=role, local_rank=0, rank=rank)
        return prefix.decode() + "loss 0.1 [default 0]:"

    assert is_of_rank(line("default", 0), 0)
    assert is_of_rank(line("trainer2", 10), 10)
    assert not is_of_rank(line("trainer1", 0), 10)
    assert not is_of_rank(line("default", 10), 0)
    assert not is_of_rank("planaria: restart of [default 0]:", 0)
