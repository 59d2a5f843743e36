from __future__ import annotations

import math
import struct
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress
from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.contract import plain
from planaria.errors import StateRefused

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**99), 2**99)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
)
KEYS = LEAVES | st.tuples(LEAVES, LEAVES) | st.frozensets(LEAVES, max_size=3)
VALUES = st.recursive(
    LEAVES | st.sets(KEYS, max_size=3) | st.dictionaries(KEYS, st.integers(), max_size=3).map(Counter),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict)
    ),
    max_leaves=20,
)


def types(value: object) -> object:
    """The types of a value and of all in it: 1, 1.0 and True are equal, but not the same."""
    if isinstance(value, dict):
        return type(value), [(types(key), types(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [types(item) for item in value]
    return type(value)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    found = plain.decode(plain.encode(value))
    assert found == value
    assert types(found) == types(value)


@pytest.mark.parametrize(
    "numbers",
    [[*range(100)], [2**63, *range(50)], [-(2**63)] * 20, [0.1] * 99, [1, *[0.5] * 30], [True] * 40, [0] * 15],
)
def test_long_lists_of_numbers_come_back_as_they_were(numbers: list[object]) -> None:
    for value in (numbers, tuple(numbers)):
        found = plain.decode(plain.encode(value))
        assert found == value
        assert types(found) == types(value)


def test_long_lists_of_numbers_take_eight_bytes_each() -> None:
    assert len(plain.encode([*range(1000)])) < 8020


def test_what_is_not_finite_comes_back_bit_by_bit() -> None:
    odd = struct.unpack("<d", b"\x01\x02\x03\0\0\0\xf8\xff")[0]
    found = plain.decode(plain.encode([math.inf, -math.inf, math.nan, odd, -0.0]))
    assert isinstance(found, list)
    assert struct.pack("<5d", *found) == struct.pack("<5d", math.inf, -math.inf, math.nan, odd, -0.0)


class Colour(IntEnum):
    RED = 1


class Path(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "place", "kind"),
    [
        ({"a": [0, {"f": len}]}, "state['a'][1]['f']", "builtins.builtin_function_or_method"),
        ([Colour.RED], "state[0]", "Colour"),
        ((Path("x"),), "state[0]", "Path"),
        ({"d": defaultdict(list)}, "state['d']", "collections.defaultdict"),
        ({Colour.RED: 1}, "state[<Colour.RED: 1>]", "Colour"),
        ({"x" * 100: object()}, "state['" + "x" * 76 + "...]", "builtins.object"),
    ],
)
def test_anything_else_is_refused_with_its_place_and_type(value: object, place: str, kind: str) -> None:
    with pytest.raises(StateRefused) as caught:
        plain.encode(value, name="state")
    assert caught.value.message.startswith(f"{place} cannot be kept: it is a ")
    assert caught.value.message.endswith(kind)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(StateRefused, match="nested more than 64 deep"):
        plain.encode(value)


def test_what_may_be_written_may_be_read_at_the_greatest_depth() -> None:
    value: object = 7
    for _ in range(plain.DEPTH_LIMIT):
        value = [value]
    assert plain.decode(plain.encode(value)) == value
    with pytest.raises(StateRefused):
        plain.encode([value])
    with pytest.raises(ValueError, match="not a value here"):
        plain.decode(b"l\x01\0\0\0" + plain.encode(value))


def test_what_is_too_long_is_refused_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SIZE_LIMIT_BYTES", 10)
    assert plain.encode(["x" * 10, [0] * 10])
    for value in ("x" * 11, b"x" * 11, [0] * 11, 1 << 88):
        with pytest.raises(StateRefused, match=r"^the value\['a'\] has \d+ bytes or items, more than 10"):
            plain.encode({"a": value})


def test_what_is_kept_elsewhere_is_a_number_here() -> None:
    met: list[tuple[object, str]] = []

    def keep(value: object, path: str) -> int:
        met.append((value, path))
        return len(met) - 1

    data = plain.encode({"a": 1j, "b": [2j]}, keep, "x")
    assert met == [(1j, "x['a']"), (2j, "x['b'][0]")]
    assert plain.decode(data, lambda number: f"kept {number}") == {"a": "kept 0", "b": ["kept 1"]}
    with pytest.raises(ValueError, match="not a value here"):
        plain.decode(data)


def test_a_keeper_says_why_it_does_not() -> None:
    def keep(value: object, path: str) -> int:
        raise ValueError("it is sparse")

    with pytest.raises(StateRefused, match=r"^m\['w'\] cannot be kept: it is sparse$"):
        plain.encode({"w": 1j}, keep, "m")


@settings(max_examples=400)
@given(st.binary(max_size=200) | st.tuples(VALUES, st.randoms(use_true_random=False)).map(lambda it: damaged(*it)))
def test_reading_anything_returns_a_value_or_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        plain.decode(data, lambda number: number)


def damaged(value: object, rng: object) -> bytes:
    data = bytearray(plain.encode(value))
    for _ in range(3):
        data[rng.randrange(len(data))] = rng.randrange(256)  # type: ignore[attr-defined]
    return bytes(data[: rng.randrange(len(data) + 1)])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"l\xff\xff\xff\xff",
        b"l\xff\xff\xff\xffq",
        b"d\xff\xff\xff\x7fn",
        b"u\xff\xff\xff\xffx",
        b"j\xff\xff\xff\xff",
        b"l\x01\0\0\0" * 100_000 + b"n",
        b"d\x01\0\0\0l\0\0\0\0n",
        b"s\x01\0\0\0d\0\0\0\0",
        b"nn",
        b"u\x01\0\0\0\xff",
        b"c\x01\0\0\0n",
    ],
    ids=range(12),
)
def test_hostile_bytes_cost_nothing_and_are_not_values(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        plain.decode(data)
