from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.base.value import as_dict, replace
from planaria.contract.failure import Failure, are_one_mistake, from_json, stopped
from planaria.contract.failure_json import LIMIT_CHARACTERS, failure_from_json, failures_as_json

PLAIN = Failure(rank=3, local_rank=1, host="h", pid=7, status=-11, at=12.5, age_s=3.25, kind="signal")
FULL = replace(
    PLAIN,
    kind="exception",
    type="E",
    bases=("E", "Exception"),
    message="E: \ud800 boom\n",
    traceback="Traceback",
    where="x.py:3",
    killer="oom",
    stopped_for=0,
    stderr_tail="tail",
    error_file="/x",
    log_files=("/a", "/b"),
    progressed=True,
)


@pytest.mark.parametrize("failure", [PLAIN, FULL])
def test_a_failure_arrives_as_it_was_sent(failure: Failure) -> None:
    (text,) = failures_as_json([failure])
    assert failure_from_json(text) == failure == from_json(text)


@given(st.lists(st.text(max_size=50), max_size=3), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_whatever_workers_say_can_be_sent(bases: list[str], message: str, at: float) -> None:
    failure = replace(PLAIN, bases=tuple(bases), message=message, at=at)
    assert failure_from_json(failures_as_json([failure])[0]) == failure


def test_evidence_travels_with_the_first_one_only_and_has_a_limit() -> None:
    talkative = replace(FULL, message="m" * 10**6, traceback="\ud800" * 10**6, stderr_tail="s" * 10**6)
    first, second = map(failure_from_json, failures_as_json([talkative, replace(talkative, rank=4)]))
    assert first.traceback.startswith("\ud800")
    assert "characters left out" in first.traceback
    assert (second.rank, second.traceback, second.stderr_tail, second.log_files) == (4, "", "", ())
    assert second.message.startswith("mmm")
    assert sum(map(len, failures_as_json([talkative] * 64))) < LIMIT_CHARACTERS


def test_a_field_that_a_later_version_adds_is_passed_over() -> None:
    assert failure_from_json(json.dumps({**as_dict(PLAIN), "mood": "bad"})) == PLAIN


@pytest.mark.parametrize("name", Failure._fields)
def test_every_field_is_needed(name: str) -> None:
    fields = as_dict(PLAIN)
    del fields[name]
    with pytest.raises(ValueError, match=name):
        failure_from_json(json.dumps(fields))


WRONG: list[object] = [[], {}, [1], 1.5, "x", True, 1 << 70, float("nan"), float("inf"), -1, None, [[]], {"a": 1}]
RIGHT: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("rank", "local_rank", "pid", "status"), (-1,)),
    **dict.fromkeys(("at", "age_s"), (-1, 1.5)),
    **dict.fromkeys(("host", "type", "message", "traceback", "where", "stderr_tail", "error_file"), ("x",)),
    **dict.fromkeys(("bases", "log_files"), ([],)),
    "stopped_for": (-1, None),
    "progressed": (True,),
    "kind": (),
    "killer": (),
}


@pytest.mark.parametrize("name", Failure._fields)
def test_a_field_of_another_type_is_refused(name: str) -> None:
    for value in WRONG:
        text = json.dumps({**as_dict(PLAIN), name: value})
        if any(type(value) is type(right) and value == right for right in RIGHT[name]):
            failure_from_json(text)
        else:
            with pytest.raises(ValueError, match=name):
                failure_from_json(text)
            assert from_json(text) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", "[" * 100_000, "9" * 5000, json.dumps(as_dict(PLAIN)) + " " * LIMIT_CHARACTERS]
)
def test_what_is_no_failure_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        failure_from_json(text)
    assert from_json(text) is None


@given(st.text())
def test_nonsense_is_nothing(text: str) -> None:
    assert from_json(text) is None


def test_one_mistake_takes_every_rank_early_and_alike() -> None:
    wrong = replace(PLAIN, kind="exception", bases=("ImportError",), status=1, where="x.py:1", age_s=0.5)
    world = (wrong, replace(wrong, rank=4))
    assert are_one_mistake(world, 2)
    assert not are_one_mistake(world, 3)
    assert not are_one_mistake((), 0)
    for change in ({"progressed": True}, {"age_s": 61.0}, {"where": "y.py:1"}):
        assert not are_one_mistake((wrong, replace(wrong, **change)), 2)
    assert not are_one_mistake((wrong, stopped(wrong, 3)), 2)
    assert not are_one_mistake([replace(one, bases=("RuntimeError",)) for one in world], 2)
