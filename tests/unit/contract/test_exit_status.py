from __future__ import annotations

import pytest

from planaria.contract import exit_status


def test_the_table_has_each_status_once_and_a_word_on_each() -> None:
    numbers = [row.status for row in exit_status.TABLE]
    assert len(set(numbers)) == len(numbers)
    assert all(row.name and row.meaning for row in exit_status.TABLE)
    assert [row.status for row in exit_status.TABLE if row.retry] == [69, 71, 75, 124]


def test_the_numbers_are_those_the_design_promises() -> None:
    assert [row.status for row in exit_status.TABLE] == [0, 1, 2, 69, 70, 71, 75, 124]


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (3, 3), (-9, 137), (-15, 143), (255, 255)])
def test_a_worker_s_status_is_told_as_a_shell_does(status: int, expected: int) -> None:
    assert exit_status.of_worker(status) == expected


def test_a_signal_adds_128() -> None:
    assert exit_status.by_signal(15) == 143
