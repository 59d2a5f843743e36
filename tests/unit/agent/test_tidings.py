from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from rounds import LIFE

from planaria.agent.tidings import APART_S, Standing, Tidings
from planaria.base.value import replace
from planaria.contract.control import Progress
from planaria.contract.env import Round

if TYPE_CHECKING:
    from collections.abc import Mapping


def standing(
    reports: Mapping[int, tuple[Progress, float]], *, leads: bool = True, life: Round | None = LIFE
) -> Standing:
    return Standing(leads, life, reports)


def progress(step: int, **values: float) -> Progress:
    return Progress(step, tuple(values.items()))


def told(news: str | None) -> dict[str, object]:
    assert news is not None
    found = json.loads(news)
    assert isinstance(found, dict)
    return found


def test_the_first_record_announces_the_agent_before_any_progress() -> None:
    record = told(Tidings("planaria 1.2").news(standing({}), 100.0))
    assert record == {
        "version": 1,
        "agent": "planaria 1.2",
        "round": 3,
        "nodes": 2,
        "world": 4,
        "step": None,
        "samples": None,
        "seconds": 0.0,
    }


def test_two_records_of_a_round_tell_how_fast_it_is_by_the_clock_of_the_reports() -> None:
    tidings = Tidings("a")
    tidings.news(standing({}), 100.0)
    one = told(tidings.news(standing({0: (progress(5, samples=320), 109.5), 1: (progress(4), 109.9)}), 110.0))
    other = told(tidings.news(standing({0: (progress(10, samples=640.0), 119.5)}), 120.0))
    assert (one["step"], one["samples"], one["seconds"]) == (5, 320, 9.5)
    assert (other["step"], other["samples"], other["seconds"]) == (10, 640, 19.5)


def test_there_is_at_most_one_record_in_ten_seconds_whatever_happens() -> None:
    tidings = Tidings("a")
    written = []
    for number in range(1000):
        now = number * 0.1
        life = replace(LIFE, number=number // 7)
        if tidings.news(standing({0: (progress(number), now)}, life=life), now) is not None:
            written.append(now)
    assert len(written) == 10
    assert all(later - sooner >= APART_S for sooner, later in pairwise(written))


def test_what_has_not_changed_is_not_written_again() -> None:
    tidings = Tidings("a")
    reports = {0: (progress(5, samples=320), 99.0)}
    assert tidings.news(standing(reports), 100.0)
    assert tidings.news(standing(reports), 200.0) is None


def test_only_who_leads_a_round_tells_of_it() -> None:
    tidings = Tidings("a")
    assert tidings.news(standing({}, leads=False), 0.0) is None
    assert tidings.news(standing({}, life=None), 1.0) is None
    assert told(tidings.news(standing({}), 2.0))["round"] == 3


def test_who_begins_to_lead_counts_from_the_beginning_of_the_round() -> None:
    tidings = Tidings("a")
    tidings.news(standing({}, leads=False), 10.0)
    assert told(tidings.news(standing({0: (progress(1), 30.0)}), 31.0))["seconds"] == 20.0


def test_samples_that_are_no_number_are_not_told() -> None:
    for value in (float("nan"), float("inf")):
        assert told(Tidings("a").news(standing({0: (progress(1, samples=value), 0.0)}), 0.0))["samples"] is None


def test_what_happened_is_told_though_no_step_was_made() -> None:
    tidings = Tidings("a")
    before = replace(standing({0: (progress(5), 99.0)}), happened=7)
    assert tidings.news(before, 100.0)
    assert tidings.news(before, 200.0) is None
    assert tidings.news(replace(before, happened=8), 201.0), "such as a hang"
    assert tidings.news(replace(before, happened=9), 202.0) is None, "not so soon"
