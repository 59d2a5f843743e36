from __future__ import annotations

import io
import sys

import pytest

from planaria.launch import asked


def test_what_was_written_is_shown_where_a_stream_is_missing_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        shown: list[str] = []
        other = io.StringIO()
        monkeypatch.setattr(other, "flush", lambda shown=shown: shown.append("flushed"))
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", other)
        asked._flush()
        assert shown == ["flushed"]
