from __future__ import annotations

import json
from typing import Any

import pytest

from planaria.agent import council_messages as words
from planaria.agent.council_messages import Part, Source, decode, encode, order_of, part_of
from planaria.base.value import as_dict

PART = Part(1, 2, 3, 30, 2, 1, True, 5000)
ORDER = (1, 2, 3)
EACH = [
    words.Present(1, 2, 2, "b:1", 0, 4, (PART,), ORDER, (), ORDER),
    words.Ready(1),
    words.Sealed(1, ORDER, 30),
    words.Copied(7, "no room"),
    words.Written(7, True, ""),
    words.Damaged(ORDER, 1, 0),
    words.Seek(),
    words.Searched(ORDER, 30, 2, ORDER, ""),
    words.Search(()),
    words.Welcome(1),
    words.Plan(1, "memory", ORDER, 30, 2, 0, (), (Source(1, 0, "a:1", False, 5000),), ("c:1",), True, ""),
    words.Complete(ORDER, 30),
    words.Copy(7, ORDER, (0, 1, 2, 3)),
    words.Write(8, ORDER, ()),
    words.Reached("buddy", ORDER, 30, 2),
    words.Drop(ORDER, 1),
    words.Failed("disk", ORDER, False, "it is full"),
    words.Unsealed(1, ORDER, "different steps"),
    words.Void(ORDER, ""),
]


@pytest.mark.parametrize("message", EACH, ids=lambda one: type(one).__name__)
def test_every_message_comes_back_as_it_went(message: words.Message) -> None:
    assert decode(json.loads(json.dumps(encode(message)))) == message


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (EACH[1], {"version": -1}),
        (EACH[1], {"version": True}),
        (EACH[1], {"version": 1 << 63}),
        (EACH[1], {"version": 1.0}),
        (EACH[2], {"order": [1, 2]}),
        (EACH[2], {"order": "123"}),
        (EACH[2], {"more": 1}),
        (EACH[3], {"why": None}),
        (EACH[3], {"why": "x" * 2001}),
        (EACH[4], {"is_whole": 1}),
        (EACH[12], {"ranks": [0, "1"]}),
        (EACH[17], {"version": None}),
        (EACH[17], {"why": "x" * 2001}),
        (EACH[18], {"order": [1, 2]}),
        (EACH[18], {"why": 1}),
        (EACH[0], {"parts": [{**as_dict(PART), "rank": 2}]}),
        (EACH[0], {"parts": [{}]}),
        (EACH[0], {"parts": [7]}),
        (EACH[10], {"fetch": [as_dict(PART)]}),
    ],
)
def test_a_field_that_is_wrong_is_refused(message: words.Message, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not|no rank"):
        decode({**encode(message), **changes})


@pytest.mark.parametrize("found", [None, 7, [], {}, {"type": "part"}, {"type": 7}, {"type": "ready"}])
def test_what_is_no_message_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="not"):
        decode(found)


def test_a_part_by_itself_is_checked_alike() -> None:
    assert part_of(as_dict(PART)) == PART
    assert PART.order == ORDER
    with pytest.raises(ValueError, match="Part"):
        part_of([])


def test_no_order_is_none() -> None:
    assert order_of(()) is None
    assert order_of(ORDER) == ORDER
