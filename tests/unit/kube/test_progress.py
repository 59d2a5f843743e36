from __future__ import annotations

import pytest

from planaria.contract.progress import Record
from planaria.kube.progress import between, fresh_lines, whole_lines
from planaria.kube.scaling_model import Sample


def pushed(number: int, nodes: int, step: int | None, seconds: float, samples: float | None = None) -> Record:
    return Record("planaria 0.1", number, nodes, 2 * nodes, step, samples, seconds)


def test_a_sample_is_the_difference_of_two_messages_of_one_round() -> None:
    before, after = pushed(3, 2, 70, 10.0, 4000.0), pushed(3, 2, 80, 14.0, 4800.0)
    assert between(before, after) == Sample(2, rate=200.0, step=80)
    assert between(None, after) is None


@pytest.mark.parametrize(
    "before",
    [
        pushed(2, 2, 70, 10.0, 4000.0),  # another round
        pushed(3, 1, 70, 10.0, 4000.0),  # other nodes
        pushed(3, 2, 80, 14.0, 4800.0),  # the same message
        pushed(3, 2, 90, 15.0, 5000.0),  # one that comes late
    ],
)
def test_messages_that_do_not_belong_together_are_no_sample(before: Record) -> None:
    assert between(before, pushed(3, 2, 80, 14.0, 4800.0)) is None


def test_where_nobody_counts_samples_the_time_of_a_step_is_taken() -> None:
    assert between(pushed(3, 2, 70, 10.0), pushed(3, 2, 80, 14.0)) == Sample(2, seconds=0.4, step=80)
    assert between(pushed(3, 2, 70, 10.0), pushed(3, 2, 70, 14.0)) is None


T = "2022-09-11T12:08:{:02}.000000000Z {}"


def test_only_lines_that_are_newer_than_the_last_look_are_new() -> None:
    text = "\n".join(T.format(second, f"line {second}") for second in (1, 2, 3))
    assert fresh_lines(text, "") == (["line 1", "line 2", "line 3"], "2022-09-11T12:08:03.000000000Z")
    assert fresh_lines(text, "2022-09-11T12:08:02.000000000Z")[0] == ["line 3"]
    assert fresh_lines("", "x") == ([], "x")


def test_a_clock_that_was_set_back_costs_one_look() -> None:
    lines, cursor = fresh_lines(T.format(1, "early"), "2022-09-11T12:08:40.000000000Z")
    assert lines == []
    assert fresh_lines(T.format(2, "later"), cursor)[0] == ["later"]


def test_a_line_that_was_cut_off_is_left_for_the_next_look() -> None:
    text = T.format(1, "Time 0.5") + "\n" + T.format(2, "Time 0.2")
    assert whole_lines(text, len(text) + 1) == text
    assert fresh_lines(whole_lines(text, len(text)), "") == (["Time 0.5"], "2022-09-11T12:08:01.000000000Z")
    assert whole_lines("one long line", 4) == ""
    assert whole_lines("\u00e9" * 4, 8) == "", "bytes are counted, not letters"
