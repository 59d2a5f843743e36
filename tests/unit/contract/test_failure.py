from __future__ import annotations

from itertools import permutations

import pytest

from planaria.base.value import replace
from planaria.contract.failure import MISTAKES, Failure, are_alike, first_cause_first, is_mistake, stopped


def failure(rank: int = 0, at: float = 1.0, **changes: object) -> Failure:
    plain = Failure(rank=rank, local_rank=rank, host="h", pid=100 + rank, status=1, at=at, age_s=1.0, kind="exit")
    return replace(plain, **changes)


def test_the_first_of_the_workers_own_failures_comes_first() -> None:
    caused = stopped(failure(3, at=0.5), 1)
    given = (failure(2, at=3.0), failure(1, at=2.0), failure(0, at=2.0), caused)
    for order in permutations(given):
        assert [one.rank for one in first_cause_first(order)] == [0, 1, 2, 3]


def test_a_stop_names_who_made_us_stop() -> None:
    assert stopped(failure(3), 1).stopped_for == 1
    assert failure(3).stopped_for is None


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_an_error_of_the_program_is_a_mistake_by_any_of_its_bases(name: str) -> None:
    assert is_mistake(failure(kind="exception", bases=("mine.Error", name, "Exception", "BaseException", "object")))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": "exception", "bases": ("RuntimeError", "Exception")}, False),
        ({"kind": "exception", "bases": ("ConnectionError", "OSError", "Exception")}, False),
        ({"kind": "exception", "bases": ()}, False),
        ({"kind": "exit", "status": 2}, True),
        ({"kind": "exit", "status": 1}, False),
        ({"kind": "signal", "status": -11}, False),
        ({"kind": "spawn", "status": 127}, True),
    ],
)
def test_what_may_pass_by_itself_is_no_mistake(changes: dict[str, object], expected: bool) -> None:
    assert is_mistake(failure(**changes)) is expected


def test_failures_are_alike_when_kind_type_place_and_status_are() -> None:
    one = failure(0, kind="exception", type="E", where="x.py:3")
    assert are_alike([])
    assert are_alike([one, replace(one, rank=1, at=9.0, message="other words")])
    for change in ({"where": "x.py:4"}, {"type": "F"}, {"status": 3}, {"kind": "exit"}):
        assert not are_alike([one, replace(one, **change)])
