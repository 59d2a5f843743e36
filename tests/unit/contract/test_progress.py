from __future__ import annotations

import json

import pytest

from planaria.base.value import replace
from planaria.contract.progress import Record, read, write

WHOLE = {
    "version": 1,
    "agent": "planaria 0.1",
    "round": 3,
    "nodes": 2,
    "world": 4,
    "step": 70,
    "samples": 4480,
    "seconds": 9.5,
}


RECORD = Record("planaria 0.1", 3, 2, 4, 70, 4480.0, 9.5)


def test_what_an_agent_pushes_is_read_as_it_was_written() -> None:
    assert read(write(RECORD)) == RECORD
    assert json.loads(write(RECORD)) == WHOLE
    assert read(json.dumps(WHOLE)) == RECORD
    assert read(json.dumps(WHOLE | {"samples": None, "step": None})) == replace(RECORD, samples=None, step=None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"version": 1}', json.dumps(WHOLE | {"nodes": "x"}), "{" * 5000, "[" * 5000]
)
def test_what_cannot_be_read_is_a_sentence(text: str) -> None:
    assert read(text) == "what the agents pushed as progress cannot be read"


def test_another_version_is_named() -> None:
    assert read(json.dumps(WHOLE | {"version": 2})) == "the agents push progress of version 2, expected 1"
