"""What the store holds of a run comes back as it was written; anything else is as good as nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.rendezvous import keys
from planaria.rendezvous.keys import LeaderRecord
from planaria.rendezvous.messages import Ended
from planaria.rendezvous.model import Deputy, Settings, Standing

CAREFUL = settings(derandomize=True, deadline=None, max_examples=25, database=None)
COUNTS = st.integers(0, 1 << 60)
TEXTS = st.text(max_size=8)
DEPUTIES = st.lists(st.builds(Deputy, TEXTS, TEXTS), max_size=3).map(tuple)


@CAREFUL
@given(node=TEXTS, address=TEXTS)
def test_a_leader_is_read_as_it_was_written(node: str, address: str) -> None:
    text = keys.leader_record(Settings(node, "host", address, 1))
    assert keys.read_leader(text) == LeaderRecord(node, address)


@CAREFUL
@given(
    standing=st.builds(
        Standing,
        epoch=TEXTS,
        term=COUNTS,
        round=COUNTS,
        size=COUNTS,
        restart_count=COUNTS,
        deputies=DEPUTIES,
        next_round=COUNTS,
    ),
)
def test_a_round_is_read_as_an_outsider_knows_it(standing: Standing) -> None:
    assert keys.read_round(keys.round_record(standing)) == standing


def test_an_outsider_has_no_place_in_a_round() -> None:
    inside = Standing("e", 1, 2, 3, 1, 0, (Deputy("a", "h:1", in_base=True),), 3, home=1, ran=2, base=3, in_base=True)
    read = keys.read_round(keys.round_record(inside))
    assert read == Standing("e", 1, 2, 3, None, 0, (Deputy("a", "h:1"),), 3)


@CAREFUL
@given(
    ended=st.builds(Ended, TEXTS, COUNTS, TEXTS, st.lists(TEXTS, max_size=3).map(tuple), COUNTS),
    epoch=TEXTS,
)
def test_an_outcome_is_read_as_it_was_written_with_its_epoch(ended: Ended, epoch: str) -> None:
    text = keys.outcome_record(ended, epoch)
    assert keys.read_outcome(text) == ended
    assert keys.epoch_of_outcome(text) == epoch


def test_an_outcome_keeps_the_first_causes_as_many_as_fit() -> None:
    texts = tuple(str(index) * 1000 for index in range(10)) * 5
    read = keys.read_outcome(keys.outcome_record(Ended("failed", 1, "", texts, 0), "e"))
    assert read is not None
    assert read.failures == texts[: keys.LONGEST_OUTCOME // 1000]


def test_an_outcome_is_never_without_its_first_cause() -> None:
    cause = json.dumps({"rank": 3, "message": "m" * 30_000, "traceback": "t" * 30_000, "stderr_tail": "s" * 30_000})
    read = keys.read_outcome(keys.outcome_record(Ended("failed", 1, "", (cause, "another"), 0), "e"))
    assert read is not None
    assert json.loads(read.failures[0])["rank"] == 3


def reads_nothing(text: str | None) -> None:
    assert keys.read_leader(text) is None
    assert keys.read_round(text) == Standing()
    assert keys.read_outcome(text) is None


GOOD_ROUND: dict[str, object] = {"round": ["e", 1, 2, 3, 0, 3], "deputies": [["a", "h:1"]]}
GOOD_END: dict[str, object] = {"ended": ["done", 0, "", [], 0]}


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"node": "a"},
        {"node": 1, "address": "h:1"},
        {"node": "a", "address": None},
        {"round": GOOD_ROUND["round"]},
        GOOD_ROUND | {"round": None},
        GOOD_ROUND | {"round": []},
        GOOD_ROUND | {"round": {}},
        GOOD_ROUND | {"round": ["e", 1, 2, 3, 0]},
        GOOD_ROUND | {"round": ["e", 1, 2, 3, 0, 3, 4]},
        GOOD_ROUND | {"round": ["e", 1, 2, 3, 0, "x"]},
        GOOD_ROUND | {"round": ["e", 1, 2, None, 0, 3]},
        GOOD_ROUND | {"round": ["e", 1, 2, True, 0, 3]},
        GOOD_ROUND | {"round": ["e", 1, 2, 1.5, 0, 3]},
        GOOD_ROUND | {"deputies": None},
        GOOD_ROUND | {"deputies": ["ab"]},
        GOOD_ROUND | {"deputies": [["a"]]},
        GOOD_ROUND | {"deputies": [["a", "h:1", "x"]]},
        {"ended": None},
        {"ended": []},
        {"ended": ["done", 0, "", []]},
        {"ended": ["done", "x", "", [], 0]},
        {"ended": ["done", 0, "", "texts", 0]},
        {"ended": ["done", 0, "", [], None]},
    ],
)
def test_a_record_that_is_not_whole_is_none(found: dict[str, object]) -> None:
    reads_nothing(json.dumps(found))


def test_the_records_that_the_broken_ones_are_made_of_are_whole() -> None:
    assert keys.read_round(json.dumps(GOOD_ROUND)).round == 2
    assert keys.read_outcome(json.dumps(GOOD_END)) == Ended("done", 0, "", (), 0)


@pytest.mark.parametrize("text", [None, "", "x", "null", "[]", "1", '"x"', "{", "[" * 100_000, "9" * 5000, "\x00"])
def test_what_is_no_record_is_none(text: str | None) -> None:
    reads_nothing(text)
    assert keys.epoch_of_outcome(text) == ""


@CAREFUL
@given(text=st.text(max_size=30) | st.dictionaries(TEXTS, st.none() | COUNTS | TEXTS, max_size=3).map(json.dumps))
def test_any_text_is_read_without_an_error(text: str) -> None:
    reads_nothing(text)
    keys.epoch_of_outcome(text)
