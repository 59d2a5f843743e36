"""Lines of the worker library in a process whose stderr is missing, closed, or read by nobody."""

from __future__ import annotations

import io
import os
import sys

import pytest

from planaria.worker.vault import say


def test_a_line_is_shown_at_once_and_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []

    class Shown(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

        def flush(self) -> None:
            pieces.append("flushed")

    monkeypatch.setattr(sys, "stderr", Shown())
    say("hello")
    assert pieces == ["planaria: hello\n", "flushed"]


def test_a_process_without_stderr_has_nobody_to_tell_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    say("hello")


def test_a_stderr_that_is_closed_or_that_nobody_reads_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    say("hello")
    read, write = os.pipe()
    os.close(read)
    with io.TextIOWrapper(io.FileIO(write, "w"), write_through=True) as unread:
        monkeypatch.setattr(sys, "stderr", unread)
        say("hello")
