from __future__ import annotations

import threading

import pytest
from call_targets import Point
from hypothesis import given
from hypothesis import strategies as st

from planaria.process.pickling import NotPicklable, dump, load

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(VALUES)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    assert load(dump(value)) == value


def test_instances_of_importable_classes_come_back() -> None:
    assert load(dump([Point(3)])) == [Point(3)]


def test_the_part_that_cannot_be_pickled_is_named_with_the_way_to_it() -> None:
    point = Point(1)
    point.x = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(NotPicklable, match=r"a value of type dict, whose part \['a'\]\[1\]\.x is a value of type lock"):
        dump({"fine": 1, "a": (0, point)})


def test_a_local_function_is_named_as_such() -> None:
    with pytest.raises(NotPicklable, match=r"the function .*<lambda> cannot be pickled"):
        dump(lambda: 1)


def test_a_value_that_contains_itself_too_deeply_is_refused_and_not_searched_for_ever() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(NotPicklable, match="recursion"):
        dump(nested)
