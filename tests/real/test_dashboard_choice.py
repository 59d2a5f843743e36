"""The web page in a real browser: what is shown is what is chosen, whenever its answer comes."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pictures
from dashboard_stage import Cast
from waiting import wait_until
from windows import choose, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from browser import Browser

WATCH = """
window.drawn = [];
const note = () => drawn.push(document.querySelector('#verdict-kicker').textContent);
const all = { subtree: true, childList: true, characterData: true };
new MutationObserver(note).observe(document.querySelector('#verdict'), all);
"""


def test_the_log_is_that_of_the_rank_that_is_chosen_also_when_it_was_shown_before(window: Browser) -> None:
    with shown(window, Cast(live=pictures.live)):
        for rank in (0, 3, 0, 3):
            window.wait("document.querySelector(`#table .rank[data-rank='${arguments[0]}']`)", rank)
            window.click(f"#table .rank[data-rank='{rank}']")
            window.wait_for_text("#log", f"rank {rank}\nstep 0")
        window.run("document.querySelector('#log-rank').value = 99")
        window.wait_for_text("#log", "there is no such rank")
        window.click("#table .rank[data-rank='3']")
        window.wait_for_text("#log", "rank 3\nstep 0")
        window.complaints()  # the browser notes that there was no such rank


class Slow(Cast):
    """Runs of which one is looked at for as long as a test likes."""

    def __init__(self, slow: str, **runs: Callable[[], dict[str, Any]]) -> None:
        super().__init__(**runs)
        self.slow = slow
        self.may_answer, self.is_asked = threading.Event(), threading.Event()
        self.may_answer.set()
        self.others = 0  # pictures of the other runs

    def picture(self, run_id: str) -> dict[str, Any] | None:
        if run_id == self.slow and not self.may_answer.is_set():
            self.is_asked.set()
            self.may_answer.wait(60)
        self.others += run_id != self.slow
        return super().picture(run_id)


def test_a_late_answer_does_not_take_the_place_of_the_run_that_was_chosen_meanwhile(window: Browser) -> None:
    """The page asks for one thing after the other: when it asks for a run in its turn, it is done with the late answer."""
    moments = itertools.count(180)
    cast = Slow("first", first=lambda: pictures.live(next(moments), run_id="first"), second=pictures.failed)
    with shown(window, cast):
        choose(window, "first")
        window.wait_for_text("#verdict-kicker", "Run first")
        window.wait_for_text("#verdict-line", "6 workers on 3 nodes at work")
        cast.may_answer.clear()
        assert cast.is_asked.wait(60)
        choose(window, "vision-finetune")
        assert "at work" not in window.text("#verdict-line"), "what is shown is not of the run that is chosen"
        window.wait_for_text("#verdict-line", "Rank 2 on node-b failed")
        window.run(WATCH)
        count = cast.others
        cast.may_answer.set()
        wait_until(lambda: cast.others > count + 1, "two more turns of the page")
        assert window.run("return drawn") == []
        assert window.text("#verdict-line").startswith("Rank 2 on node-b failed")


def test_a_long_line_and_a_progress_bar_are_made_plain_in_no_time(window: Browser) -> None:
    """A line of four million characters, each of which might begin what is dropped, would take hours otherwise."""
    made = "return import('/dom.js').then((dom) => dom.plain(arguments[0].repeat(arguments[1])))"
    with shown(window, Cast(live=pictures.live)):
        assert len(window.run(f"{made}.then((text) => 'x'.repeat(text.length === arguments[1]))", "x", 4 << 20)) == 1
        assert window.run(made, "10 %\r50 %\r100 %\r\r\nnext\n\r\rlast\r", 1) == "100 %\nnext\nlast"
