from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_story import Story

from planaria.base.value import replace
from planaria.kube.evidence import (
    FIGURE_LIMIT,
    RATES,
    SIZE_LIMIT_BYTES,
    STEP_LIMIT,
    TEXT_LIMIT,
    WINDOW_LIMIT,
    decode,
    encode,
)
from planaria.kube.measuring import with_figure
from planaria.kube.scaling_model import Corrupt, Evidence, Figure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@cache
def full() -> Evidence:
    """Return evidence with something in every field."""
    story = Story(1, most=8)
    story.measure(100.0)
    story.measure(190.0)
    story.crowd(placed=3)
    return story.see(samples=story.samples(4, 180.0), room=True).evidence


def kept() -> dict[str, Any]:
    return encode(full())


def test_nothing_is_lost_in_json() -> None:
    assert decode(json.loads(json.dumps(kept()))) == full()


def test_whole_floats_that_come_back_as_integers_are_the_same() -> None:
    def as_go_writes_it(item: Any) -> Any:
        if isinstance(item, float) and item.is_integer():
            return int(item)
        if isinstance(item, list):
            return [*map(as_go_writes_it, item)]
        return {name: as_go_writes_it(one) for name, one in item.items()} if isinstance(item, dict) else item

    assert decode(as_go_writes_it(kept())) == full()


def test_no_field_is_ever_absent_or_null_so_that_a_merge_leaves_nothing_old() -> None:
    first = encode(Story(1).verdict.evidence)
    assert first.keys() == kept().keys()
    assert "null" not in json.dumps(first) + json.dumps(kept())


def test_the_largest_evidence_is_bounded() -> None:
    huge = replace(
        full(),
        window=((STEP_LIMIT, STEP_LIMIT, 123456.78901234567),) * WINDOW_LIMIT,
        skipped=((STEP_LIMIT, STEP_LIMIT),) * WINDOW_LIMIT,
    )
    for size in range(1, 10 * FIGURE_LIMIT):
        huge = with_figure(huge, Figure(size, 123456.78901234567, 1_700_000_000.123456), is_return=False)
    huge = replace(huge, elastic=replace(huge.elastic, message="m" * TEXT_LIMIT), reason="r" * TEXT_LIMIT)
    written = json.dumps(encode(huge))
    assert len(written) < SIZE_LIMIT_BYTES
    assert decode(json.loads(written)) == huge


def test_no_evidence_is_a_new_job_and_not_a_corrupt_one() -> None:
    assert decode(None) is None
    assert decode({}) is None


@pytest.mark.parametrize("name", sorted(kept()))
@pytest.mark.parametrize(
    "wrong", [None, "x" * (TEXT_LIMIT + 1), -2, float("nan"), [1], [[1, 2, 3, 4]], {"a": 1}], ids=repr
)
def test_a_field_that_is_wrong_makes_evidence_corrupt_and_says_which(name: str, wrong: object) -> None:
    found = decode({**kept(), name: wrong})
    numbers_may_be_negative = wrong == -2 and name in ("since", "changed", "ready", "refusedAt")
    if numbers_may_be_negative:
        assert isinstance(found, Evidence)
    else:
        assert isinstance(found, Corrupt)
        assert name in found.why


@pytest.mark.parametrize("name", sorted(kept()))
def test_a_field_that_is_missing_makes_evidence_corrupt(name: str) -> None:
    without = kept()
    del without[name]
    assert isinstance(decode(without), Corrupt)


def test_the_slowest_and_the_fastest_rate_that_can_be_measured_can_be_read() -> None:
    figures = [[1, rate, at_s] for rate, at_s in zip(RATES, (1e300, -1e300), strict=True)]
    found = decode({**kept(), "figures": figures})
    assert not isinstance(found, Corrupt)
    assert found is not None
    assert [[figure.size, figure.rate, figure.at_s] for figure in found.figures] == figures


def test_a_good_size_above_the_current_one_is_corrupt() -> None:
    assert decode({**kept(), "good": 99}) == Corrupt("'good' is missing or is not what it should be")


def test_evidence_of_a_later_version_is_not_guessed_at() -> None:
    assert decode({**kept(), "version": 2}) == Corrupt("it is of another version")


@settings(max_examples=200, derandomize=True, deadline=None)
@given(name=st.sampled_from(sorted(kept())), wrong=JSON)
def test_whatever_is_in_a_field_reading_never_fails(name: str, wrong: object) -> None:
    found = decode({**kept(), name: wrong})
    if isinstance(found, Evidence):
        assert decode(json.loads(json.dumps(encode(found)))) == found


@settings(max_examples=100, derandomize=True, deadline=None)
@given(JSON)
def test_whatever_is_in_the_status_reading_never_fails(found: object) -> None:
    assert found in (None, {}) or isinstance(decode(found), Corrupt)
