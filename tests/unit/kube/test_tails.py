from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from planaria.kube.tails import LIMIT_BYTES, MOST_BYTES, Tails, newest

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACE = ("team", "resnet-worker-0", "pytorch")


class Kubelet:
    """Gives of the last lines that are asked for the first bytes, as a real one does."""

    def __init__(self, printed: list[str]) -> None:
        self._printed = printed
        self.asked: list[int] = []

    async def log(self, _namespace: str, _pod: str, _container: str, query: Mapping[str, str]) -> str:
        lines = int(query["tailLines"])
        self.asked.append(lines)
        raw = "".join(f"{line}\n" for line in self._printed[-lines:]).encode()
        return raw[: int(query["limitBytes"])].decode("utf-8", "replace")


def seen(kubelet: Kubelet) -> str:
    async def story() -> str:
        tails = Tails(kubelet, lambda: 0.0)  # type: ignore[arg-type]  # as far as it is asked
        tails.tail(PLACE)
        await asyncio.gather(*tails._tasks.values())
        text, why = tails.tail(PLACE)
        assert not why
        return text

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("length", "asked"),
    [(10, [400]), (2_000, [400]), (20_000, [400, 40]), (200_000, [400, 40, 4])],
    ids=["short", "long", "longer", "longest"],
)
def test_the_newest_line_is_shown_however_long_lines_are(length: int, asked: list[int]) -> None:
    kubelet = Kubelet([f"step {number} {'x' * length}" for number in range(500)])
    text = seen(kubelet)
    assert kubelet.asked == asked
    assert len(text) <= MOST_BYTES
    if length < MOST_BYTES:
        lines = text.splitlines()
        assert lines[-1].startswith("step 499 ")
        assert all(line.startswith("step ") for line in lines), "lines are whole"
    else:
        assert text == "x" * (MOST_BYTES - 1) + "\n"


def test_an_answer_that_just_reaches_the_limit_may_have_lost_its_end() -> None:
    line = "x" * (LIMIT_BYTES // 400 - 1)
    assert LIMIT_BYTES % 400 != 0
    assert seen(kubelet := Kubelet([line] * 400)).endswith("x\n")
    assert kubelet.asked == [400], "it is a little less"
    short = LIMIT_BYTES - 399 * (len(line) + 1) - 1
    assert seen(kubelet := Kubelet([line] * 399 + ["y" * short])).endswith("y\n")
    assert kubelet.asked == [400, 40]


def test_the_end_of_a_text_is_whole_lines_that_fit_or_the_end_of_one() -> None:
    assert newest("one\ntwo\n", 8) == "one\ntwo\n"
    assert newest("one\ntwo\n", 7) == "two\n"
    assert newest("one\ntwo\n", 4) == "two\n"
    assert newest("one\ntwo\n", 3) == "wo\n"
    assert newest("one\ntwo", 5) == "two"
    assert newest("\u00e4\u00e4", 3) == "\u00e4", "half a letter is none"
