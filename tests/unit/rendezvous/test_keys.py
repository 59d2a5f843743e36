"""What the store holds of a run comes back as it was written; anything else is as good as nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.base.value import replace
from planaria.contract.failure import Failure, from_json
from planaria.contract.failure_json import failures_as_json
from planaria.rendezvous import keys
from planaria.rendezvous.keys import LeaderRecord
from planaria.rendezvous.messages import Ended
from planaria.rendezvous.model import Deputy, Settings, Standing
from planaria.store.model import Put, why_refused

CAREFUL = settings(max_examples=25, database=None)
COUNTS = st.integers(0, 1 << 60)
TEXTS = st.text(max_size=8)
NODES = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), min_size=1, max_size=8)
ADDRESSES = st.sampled_from(["h0:29400", "a:1", "[::1]:29400", "10.0.0.1:65535"])
DEPUTIES = st.lists(st.builds(Deputy, NODES, ADDRESSES), max_size=3).map(tuple)


@CAREFUL
@given(node=NODES, address=ADDRESSES)
def test_a_leader_is_read_as_it_was_written(node: str, address: str) -> None:
    text = keys.leader_record(Settings(node, "host", address, 1))
    assert keys.read_leader(text) == LeaderRecord(node, address)


@CAREFUL
@given(
    standing=st.builds(
        Standing,
        epoch=NODES,
        term=COUNTS,
        round=COUNTS,
        size=COUNTS,
        restart_count=COUNTS,
        deputies=DEPUTIES,
        next_round=COUNTS,
    ),
)
def test_a_round_is_read_as_an_outsider_knows_it(standing: Standing) -> None:
    assert keys.read_round(keys.round_record(standing)) == replace(standing, begun=standing.round)


def test_an_outsider_has_no_place_in_a_round() -> None:
    inside = Standing("e", 1, 2, 3, 1, 0, (Deputy("a", "h:1", in_base=True),), 3, home=1, ran=2, base=3, in_base=True)
    read = keys.read_round(keys.round_record(inside))
    assert read == Standing("e", 1, 2, 3, None, 0, (Deputy("a", "h:1"),), 3, begun=2)


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
    assert read.failures == texts[: keys.LONGEST_OUTCOME // 1006]  # with the quotes around each, and around those


def test_an_outcome_that_just_fits_is_kept_as_it_is() -> None:
    text = "x" * (keys.LONGEST_OUTCOME - 6)  # with the quotes around it, and around those
    read = keys.read_outcome(keys.outcome_record(Ended("failed", 1, "", (text, "another"), 0), "e"))
    assert read is not None
    assert read.failures == (text,)


def test_a_round_that_ended_the_run_is_read_with_its_outcome() -> None:
    standing, outcome = (
        Standing("e", 1, 2, 3, None, 0, (), 3, begun=2),
        keys.outcome_record(Ended("done", 0, "", (), 0), "e"),
    )
    ended = keys.round_record(standing, outcome)
    assert keys.read_round(ended) == standing
    assert keys.outcome_in_round(ended) == outcome


@pytest.mark.parametrize("text", [None, "{", '{"outcome": 1}', keys.round_record(Standing("e", 1, 2, 3))])
def test_a_round_that_did_not_end_the_run_has_no_outcome(text: str | None) -> None:
    assert keys.outcome_in_round(text) is None


ELSEWHERE = Failure(3, 1, "host", 42, 1, 5.0, 0.5, "exception", "ValueError", ("ValueError", "Exception"))


def fits(record: str) -> bool:
    """Tell whether a store takes a record of an outcome, alone and in the round that it ended."""
    deputies = tuple(Deputy(f"{'n' * 64}-{index:08}", f"{'h' * 253}:65535") for index in range(8))
    ended = keys.round_record(Standing("n" * 73, 1 << 40, 1 << 40, 8, None, 0, deputies, 1 << 40), record)
    return not any(why_refused(Put("planaria/run/key", text.encode())) for text in (record, ended))


@pytest.mark.parametrize("letter", ["x", "█", "漢", "😀", "\0", '"', "\\"])
def test_an_outcome_is_never_without_its_first_cause_and_fits_into_a_store(letter: str) -> None:
    long = letter * 6000
    cause = replace(ELSEWHERE, message=long, traceback=long, stderr_tail=long)
    texts = (*failures_as_json([cause, ELSEWHERE]), "another")
    record = keys.outcome_record(Ended("failed", 1, letter * 6000, texts, 0), letter * 255)
    assert fits(record)
    read = keys.read_outcome(record)
    assert read is not None
    first = from_json(read.failures[0])
    assert first is not None
    assert (first.rank, first.kind, first.host, first.bases) == (3, "exception", "host", ELSEWHERE.bases)
    assert all(found and long.endswith(found) for found in (first.message, first.traceback, first.stderr_tail))


def test_a_failure_that_is_all_long_paths_is_kept_too() -> None:
    path = "漢" * 4000
    cause = replace(ELSEWHERE, error_file=path, log_files=(path,) * 100, where=path, bases=(path,) * 100)
    record = keys.outcome_record(Ended("failed", 1, "", failures_as_json([cause]), 0), "e")
    assert fits(record)
    read = keys.read_outcome(record)
    assert read is not None
    assert from_json(read.failures[0]) is not None


def test_a_failure_that_fits_is_kept_as_it_is() -> None:
    texts = failures_as_json([replace(ELSEWHERE, stderr_tail="█" * 4000)])
    read = keys.read_outcome(keys.outcome_record(Ended("failed", 1, "", texts, 0), "e"))
    assert read is not None
    assert read.failures == texts


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
        {"node": "a", "address": ""},
        {"node": "a", "address": "/\ud800"},
        {"node": "a", "address": "/tmp/socket"},
        {"node": "a", "address": "h:00000099999999999999999999"},
        {"node": "a\0", "address": "h:1"},
        {"node": "a" * 256, "address": "h:1"},
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
        GOOD_ROUND | {"deputies": [["a", "/tmp/socket"]]},
        GOOD_ROUND | {"deputies": [["a", "/\ud800"]]},
        GOOD_ROUND | {"deputies": [["a", 1]]},
        GOOD_ROUND | {"deputies": [["a\ud800", "h:1"]]},
        GOOD_ROUND | {"round": ["e\0", 1, 2, 3, 0, 3]},
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
