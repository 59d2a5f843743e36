from __future__ import annotations

import pytest

from planaria import errors
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


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (errors.UsageError("x"), 2),
        (errors.CodeRefused("x"), 2),
        (errors.FetchFailed("x"), 69),
        (errors.AwsError("x"), 69),
        (errors.KubeError("x"), 69),
        (errors.InvalidTransition("running", "x"), 70),
        (errors.SpawnFailed("x"), 71),
        (OSError("x"), 71),
    ],
)
def test_an_error_ends_every_command_with_the_same_status(problem: errors.PlanariaError | OSError, status: int) -> None:
    assert exit_status.of_error(problem) == status
