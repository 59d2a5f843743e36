"""Screens: what fits is shown, what is urgent comes first, and a narrow terminal cuts lines without cutting colours."""

from __future__ import annotations

import pytest
from journals import failed_run

from planaria.base.colours import COLOURS, Style
from planaria.base.value import replace
from planaria.insight.fields import Told
from planaria.insight.model import NodeSeen, Rank, RunSeen
from planaria.insight.picture import picture
from planaria.insight.sentences import clock, date, meaning, sentence, span
from planaria.insight.show import Room, fitted, status_lines, top_lines


def run() -> RunSeen:
    return picture([NodeSeen(node.name, "folder", events=tuple(node.events)) for node in failed_run()])


def many(count: int) -> RunSeen:
    ranks = tuple(
        Rank(rank, f"node-{rank // 8}", "n", rank % 8, 1000 + rank, step=5, rate=1.0) for rank in range(count)
    )
    return replace(run(), ranks=(*ranks[:-1], replace(ranks[-1], behind=True)))


def test_of_many_ranks_the_one_that_is_behind_is_shown() -> None:
    lines = status_lines(many(1000), Style(), Room(ranks=10))
    assert any(line.split()[0] == "999" and line.endswith("behind") for line in lines)
    assert "  and 990 more ranks" in lines


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 3), (200, 60), (1, 1)])
@pytest.mark.parametrize("style", [Style(), COLOURS], ids=["plain", "coloured"])
def test_a_screen_is_never_larger_than_the_terminal(size: tuple[int, int], style: Style) -> None:
    rows = top_lines(many(100), style, *size)
    assert len(rows) <= size[1]
    for row in rows:
        bare = row
        for code in (COLOURS.bold, COLOURS.red, COLOURS.green, COLOURS.dim, COLOURS.plain):
            bare = bare.replace(code, "")
        assert len(bare) <= size[0]


def test_a_line_that_is_cut_still_ends_its_colour() -> None:
    assert fitted(["\x1b[31mred and long\x1b[0m"], 3, 1) == ["\x1b[31mred\x1b[0m"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.0507, "51 ms"), (1.04, "1.0 s"), (61, "1 min 1 s"), (7322, "2 h 2 min"), (3599.9, "1 h 0 min")],
)
def test_lengths_of_time_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("status", "killer", "text"),
    [
        (3, "", "exit status 3"),
        (139, "", "exit status 139, as a shell says for SIGSEGV"),
        (-11, "", "SIGSEGV (Segmentation fault)"),
        (-9, "oom", "SIGKILL (Killed), by the kernel: out of memory"),
        (-9, "us", "SIGKILL (Killed), by its agent"),
    ],
)
def test_a_status_is_decoded(status: int, killer: str, text: str) -> None:
    assert meaning(status, killer) == text


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "preflight",
            {"findings": [{"ok": True}, {"ok": False, "sentence": "port 29400 is shut"}]},
            "a check of this node failed: port 29400 is shut",
        ),
        ("preflight", {"findings": [{"ok": True}]}, ""),
        (
            "straggler",
            {"ranks": [{"rank": 3, "host": "node-b", "slower_by": 1.5}]},
            "slower than the others: rank 3 on node-b",
        ),
        ("straggler", {"ranks": []}, "no rank is slower than the others any more"),
        ("hang", {"sentence": "rank 3 hangs\x1b"}, "rank 3 hangs\x1b"),
        ("stalled", {"lives": 3, "sentence": "3 lives without a step"}, "3 lives without a step"),
        ("progress", {"ranks": {}}, ""),
    ],
)
def test_an_event_is_told_in_one_line_or_not_at_all(name: str, data: dict[str, object], said: str) -> None:
    assert sentence(Told(f"planaria.{name}", 0, "node-a", 0.0, "n", data)) == said


def test_a_moment_that_no_calendar_has_is_no_error() -> None:
    assert (clock(10**30), date(-(10**30))) == ("?", "?")
    assert (clock(1_794_768_000_123), date(1_794_768_000_123)) == ("18:40:00.123", "2026-11-15 18:40:00Z")
