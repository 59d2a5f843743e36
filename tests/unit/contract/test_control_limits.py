"""Numbers on the control socket have limits: what no counter can hold ends the connection, and nothing else."""

from __future__ import annotations

import pytest

from planaria.contract.control import INTEGER_LIMIT, Acquire, Progress, decode


@pytest.mark.parametrize("number", [INTEGER_LIMIT, -INTEGER_LIMIT - 1, 10**400], ids=["above", "below", "huge"])
@pytest.mark.parametrize("message", ['"progress", "step": %d', '"progress", "step": 1, "x": %d', '"release", "id": %d'])
def test_integers_of_more_than_64_bits_are_refused(message: str, number: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        decode(f'{{"type": {message % number}}}'.encode())


@pytest.mark.parametrize("number", [INTEGER_LIMIT - 1, -INTEGER_LIMIT])
def test_integers_of_64_bits_are_taken(number: int) -> None:
    assert decode(b'{"type": "progress", "step": %d}' % number) == Progress(number)


@pytest.mark.parametrize("moment", ["-Infinity", "Infinity", "NaN"])
def test_a_scope_begins_at_a_moment(moment: str) -> None:
    with pytest.raises(ValueError, match="moment"):
        decode(f'{{"type": "acquire", "id": 1, "scope": "x", "after_s": 1.0, "at": {moment}}}'.encode())
    forever = b'{"type": "acquire", "id": 1, "scope": "x", "after_s": Infinity, "at": 5.0}'
    assert decode(forever) == Acquire(1, "x", float("inf"), 5.0)
