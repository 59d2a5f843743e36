from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract.control import (
    INTEGER_LIMIT,
    LONGEST_PHASE,
    Acquire,
    Drain,
    Look,
    Phase,
    Progress,
    Release,
    Resize,
    Stored,
    Witness,
    decode,
    encode,
)

NAMES = st.text(min_size=1, max_size=9).filter(lambda name: name not in ("type", "step"))
INTEGERS = st.integers(-INTEGER_LIMIT, INTEGER_LIMIT - 1)
NUMBERS = st.floats(allow_nan=False) | INTEGERS

COUNTS = st.integers(0, INTEGER_LIMIT - 1)
MOMENTS = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.builds(Progress, INTEGERS, st.dictionaries(NAMES, NUMBERS, max_size=5).map(lambda it: tuple(it.items())))
    | st.builds(Drain, st.text(), st.floats(allow_nan=False), MOMENTS)
    | st.builds(Resize, st.text(), st.floats(allow_nan=False), MOMENTS)
    | st.builds(
        Acquire,
        INTEGERS,
        st.text(),
        st.floats(min_value=0, exclude_min=True, allow_nan=False),
        st.floats(allow_nan=False, allow_infinity=False),
    )
    | st.builds(Release, INTEGERS)
    | st.builds(Phase, st.text(max_size=LONGEST_PHASE))
    | st.builds(Look, st.text())
    | st.builds(Stored, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
    | st.just(Witness())
)
def test_a_message_survives_the_wire(
    message: Progress | Phase | Look | Stored | Witness | Drain | Resize | Acquire | Release,
) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_a_number_called_type_or_step_does_not_change_the_message() -> None:
    assert decode(encode(Progress(3, (("type", 1.0), ("step", 2.0), ("x", 3.0))))) == Progress(3, (("x", 3.0),))


def test_what_is_not_finite_is_still_a_number() -> None:
    found = decode(encode(Progress(1, (("loss", math.nan), ("best", math.inf)))))
    assert isinstance(found, Progress)
    assert math.isnan(found.values[0][1])


@pytest.mark.parametrize("line", [b"{}", b'{"type": "news"}', b'{"type": ["progress"]}', b'{"type": null, "step": 1}'])
def test_messages_of_other_versions_are_passed_over(line: bytes) -> None:
    assert decode(line) is None


@given(
    st.binary()
    | st.sampled_from(
        ["progress", "phase", "look", "stored", "witness", "drain", "resize", "acquire", "release", "x"]
    ).flatmap(
        lambda kind: st.sampled_from(["[]", "null", "true", "9" * 400, "9" * 5000, '"x"', "1e999", "{}", "-1"]).map(
            lambda value: (
                f'{{"type": "{kind}", "step": {value}, "grace_s": {value}, "reason": {value}, '
                f'"id": {value}, "phase": {value}, "folder": {value}, "scope": {value}, "after_s": {value}, "at": {value}}}'
            ).encode()
        )
    )
)
def test_nonsense_is_a_value_error_or_nothing(line: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(
            decode(line), Progress | Phase | Look | Stored | Witness | Drain | Resize | Acquire | Release | None
        )


@pytest.mark.parametrize(
    "fields",
    [
        '"id": 1.5, "scope": "x", "after_s": 1.0, "at": 1.0',
        '"id": 1, "scope": 7, "after_s": 1.0, "at": 1.0',
        '"id": 1, "scope": "x", "after_s": 0.0, "at": 1.0',
        '"id": 1, "scope": "x", "after_s": -1.0, "at": 1.0',
        '"id": 1, "scope": "x", "after_s": NaN, "at": 1.0',
        '"id": 1, "scope": "x", "after_s": 1.0, "at": Infinity',
        '"id": 1, "scope": "x", "after_s": 1.0, "at": NaN',
        '"id": 1, "scope": "x", "after_s": 1.0',
        '"scope": "x", "after_s": 1.0, "at": 1.0',
    ],
)
def test_a_scope_without_a_proper_time_is_refused(fields: str) -> None:
    with pytest.raises(ValueError, match="a scope takes"):
        decode(f'{{"type": "acquire", {fields}}}'.encode())


@pytest.mark.parametrize(
    "fields",
    [
        '"state": 0, "run": 1, "generation": 2, "step": 3',
        '"state": 0, "run": 1, "generation": 2, "step": 3, "is_done": 1',
        '"state": 0, "run": 1, "generation": 2, "step": -1, "is_done": true',
        '"state": 0, "run": 1, "generation": 2, "step": 9223372036854775808, "is_done": true',
        '"state": 0, "run": 1.0, "generation": 2, "step": 3, "is_done": true',
        '"state": 0, "run": true, "generation": 2, "step": 3, "is_done": true',
        '"state": 0, "run": 1, "step": 3, "is_done": true',
        '"run": 1, "generation": 2, "step": 3, "is_done": true',
    ],
)
def test_what_is_stored_has_four_counts_and_is_done_or_not(fields: str) -> None:
    with pytest.raises(ValueError, match="a stored message takes"):
        decode(f'{{"type": "stored", {fields}}}'.encode())


def test_a_phase_has_a_short_name() -> None:
    with pytest.raises(ValueError, match="short text"):
        decode(encode(Phase("x" * (LONGEST_PHASE + 1))))


def test_nesting_without_end_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        decode(b"[" * 16_000)
