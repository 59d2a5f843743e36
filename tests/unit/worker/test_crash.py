from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract import blackbox
from planaria.worker import crash

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = st.text(st.characters(), max_size=60) | st.text(
    '\ud800\udfff\udc80\x00\x1e\n"\\\x7f\u2028\U0001f600', max_size=20
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ITEMS = st.recursive(
    TEXT | NUMBERS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)


@pytest.fixture
def box() -> Iterator[int]:
    descriptor = os.memfd_create("box")
    yield descriptor
    os.close(descriptor)


def content(descriptor: int) -> blackbox.BlackBox:
    return blackbox.read(os.pread(descriptor, blackbox.LIMIT_BYTES, 0))


def raised(error: BaseException) -> None:
    raise error


def caught(error: Exception) -> Exception:
    """Return an exception with a traceback."""
    with pytest.raises(type(error)) as found:
        raised(error)
    return found.value


@given(ITEMS)
def test_json_written_by_hand_is_what_json_reads(item: object) -> None:
    written = crash._json(item)
    assert written.isascii()
    assert "\n" not in written
    assert "\x1e" not in written
    # A pair of surrogates in the input is the character it stands for; json itself writes and reads it the same way.
    assert json.loads(written) == json.loads(json.dumps(item))


@given(TEXT)
def test_any_message_comes_back_whole(message: str) -> None:
    box = os.memfd_create("box")
    try:
        error = caught(ValueError(message))
        crash.record(box, error, error.__traceback__)
        ending = content(box).ending
    finally:
        os.close(box)
    assert ending is not None
    assert ending.message == json.loads(json.dumps(message))
    assert ending.type == "ValueError"
    assert ending.bases == ("ValueError", "Exception", "BaseException", "object")
    assert ending.where.startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("code", "message"),
    [(3, "3"), (-1, "-1"), (True, "1"), ("words", "words"), (0.0, "0.0"), ((1, 2), "(1, 2)"), (2**70, str(2**70))],
)
def test_leaving_with_a_status_or_words_is_recorded(box: int, code: object, message: str) -> None:
    assert not crash.record(box, SystemExit(code), None)
    ending = content(box).ending
    assert ending is not None
    assert (ending.kind, ending.message, ending.where) == ("exit", message, "")


@pytest.mark.parametrize("code", [0, None, False])
def test_leaving_well_is_told_and_not_recorded(box: int, code: object) -> None:
    assert crash.record(box, SystemExit(code), None)
    assert content(box) == blackbox.BlackBox()


def test_the_longest_record_fits_what_the_agent_reads(box: int) -> None:
    error = caught(ValueError("\U0001f600" * 10 * crash.LIMIT_CHARACTERS))
    os.write(box, b"x" * 1_000_000)  # the stacks of many threads, dumped before
    crash.record(box, error, error.__traceback__)
    assert os.fstat(box).st_size <= blackbox.LIMIT_BYTES
    ending = content(box).ending
    assert ending is not None
    assert len(ending.message) == crash.LIMIT_CHARACTERS
    assert "characters left out" in ending.traceback


@pytest.mark.parametrize("wrong", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_an_exception_that_cannot_be_shown_is_recorded(box: int, wrong: type[BaseException]) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise wrong

    error = caught(Odd())
    crash.record(box, error, error.__traceback__)
    ending = content(box).ending
    assert ending is not None
    assert ending.message == "<Odd whose text cannot be made>"
    assert ending.type.endswith("Odd")


def test_a_users_traceback_module_does_not_hide_where_it_failed(box: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "traceback", __import__("types"))
    error = caught(ValueError("no"))
    crash.record(box, error, error.__traceback__)
    ending = content(box).ending
    assert ending is not None
    assert ending.traceback.startswith('Traceback (most recent call last):\n  File "')
    assert ending.traceback.endswith(", in raised\nValueError: no\n")


def test_types_of_the_main_program_and_of_modules_are_named_apart() -> None:
    assert crash._type_name(ValueError) == "ValueError"
    assert crash._type_name(json.JSONDecodeError) == "json.decoder.JSONDecodeError"
    assert crash._type_name(type("Mine", (Exception,), {"__module__": "__main__"})) == "Mine"
