from __future__ import annotations

import copy
import pickle

import pytest

from planaria.base.value import Value, as_dict, replace


class Point(Value):
    """Two numbers."""

    x: int
    y: int = 7


class Named(Point):
    """A point with a name."""

    name: str = ""
    _hidden: int
    tags: tuple[Point, ...] = ()


def test_fields_are_given_by_position_or_name_and_have_defaults() -> None:
    assert (Point(1).x, Point(1).y) == (1, 7)
    assert Point(1, 2) == Point(y=2, x=1) == Point(1, y=2)
    named = Named(1, 2, "a", (Point(3),))
    assert (named.x, named.y, named.name, named.tags) == (1, 2, "a", (Point(3, 7),))


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "misses the field 'x'"),
        ((), {"y": 1}, "misses the field 'x'"),
        ((1, 2, 3), {}, "takes 2 values, got 3"),
        ((1,), {"x": 2}, "unexpected or repeated field 'x'"),
        ((1,), {"z": 2}, "unexpected or repeated field 'z'"),
    ],
)
def test_wrong_fields_are_refused(args: tuple[int, ...], kwargs: dict[str, int], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Point(*args, **kwargs)


def test_a_value_cannot_be_changed() -> None:
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "z", 2), lambda: delattr(point, "x")):
        with pytest.raises(AttributeError, match="immutable"):
            change()
    assert not hasattr(point, "__dict__")


def test_equal_means_same_type_and_same_fields() -> None:
    assert Point(1) == Point(1)
    assert Point(1) != Point(2)
    assert Point(1) != (1, 7)
    assert Named(1) != Point(1)
    assert hash(Point(1)) == hash(Point(1))
    assert {Point(1): "a"}[Point(1, 7)] == "a"


def test_a_value_shows_its_fields() -> None:
    assert repr(Named(1, name="n")) == "Named(x=1, y=7, name='n', tags=())"


def test_a_value_is_matched_by_position() -> None:
    match Named(1, 2, "n"):
        case Named(1, y, name=name):
            assert (y, name) == (2, "n")
        case _:
            pytest.fail("not matched")


def test_replace_changes_some_fields_and_refuses_others() -> None:
    assert replace(Named(1), y=3, name="n") == Named(1, 3, "n")
    with pytest.raises(TypeError, match="unexpected"):
        replace(Point(1), z=3)


def test_a_value_is_copied_and_pickled_as_itself() -> None:
    value = Named(1, tags=(Point(2),))
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value


def test_a_value_becomes_plain_data() -> None:
    class Holder(Value):
        """Everything there is."""

        inner: Named
        items: list[Point]
        table: dict[int, Point]

    found = as_dict(Holder(Named(1), [Point(2)], {3: Point(4)}))
    assert found == {
        "inner": {"x": 1, "y": 7, "name": "", "tags": []},
        "items": [{"x": 2, "y": 7}],
        "table": {"3": {"x": 4, "y": 7}},
    }
