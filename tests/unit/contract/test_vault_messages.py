from __future__ import annotations

import json

import pytest

from planaria.contract import control, vault

MESSAGES = [
    vault.Join(1),
    vault.Place(1, 1, 2, 3, 4, True),
    vault.Open(2, 1 << 40),
    vault.Slot(2, 9, False, (8, 9)),
    vault.Sealed(9, 1, 2, 3, 4, 5, 0),
    vault.Skipped(1, 2, 3),
    vault.Load(3, False),
    vault.Found(3, ("own", "shared"), (4, 2), "", ()),
    vault.Found(3, (), (), "/commits", (1, 2, 3)),
    vault.Await(4, 1, 2, 3, "disk", 600.0),
    vault.Reached(4, ""),
    vault.Refused(5, "too much", "take less"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: vault.Message) -> None:
    line = vault.encode(message)
    assert line.endswith(b"\n")
    assert vault.decode(line) == message
    assert control.decode(line) is None, "who knows nothing of snapshots passes over it"


def test_what_is_not_about_snapshots_is_passed_over() -> None:
    for line in (b'{"type": "progress", "step": 1}', b'{"type": "vault-what"}', b"[]", b"7"):
        assert vault.decode(line) is None


@pytest.mark.parametrize("line", [b"{}", b'{"type": ["progress"]}', b'{"type": {}}', b'{"type": null, "step": 1}'])
def test_a_type_that_is_no_text_is_passed_over(line: bytes) -> None:
    assert vault.decode(line) is None


@pytest.mark.parametrize(
    "changes",
    [{"size_bytes": -1}, {"size_bytes": 1 << 63}, {"size_bytes": True}, {"size_bytes": "1"}, {"more": 1}, {"id": None}],
)
def test_a_field_that_is_not_what_it_has_to_be_is_an_error(changes: dict[str, object]) -> None:
    fields = json.loads(vault.encode(vault.Open(1, 5))) | changes
    with pytest.raises(ValueError, match="Open"):
        vault.decode(json.dumps(fields).encode())


@pytest.mark.parametrize("timeout", ["NaN", "Infinity", "-1.0", "1"])
def test_a_time_is_a_number_of_seconds(timeout: str) -> None:
    line = vault.encode(vault.Await(4, 1, 2, 3, "disk", 600.0)).replace(b"600.0", timeout.encode())
    with pytest.raises(ValueError, match="Await"):
        vault.decode(line)


def test_a_list_of_something_else_is_an_error() -> None:
    line = vault.encode(vault.Slot(2, 9, False, (8, 9))).replace(b"[8, 9]", b'[8, "9"]')
    with pytest.raises(ValueError, match="Slot"):
        vault.decode(line)


def test_nesting_without_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="nested"):
        vault.decode(b"[" * 100_000)
