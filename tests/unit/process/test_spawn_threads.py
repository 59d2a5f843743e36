"""Workers are forked beside a thread that answers probes: Python's warning of that is not shown, and any other is."""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from planaria.process import spawn
from planaria.process.spawn import Start, fork

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHONS_WORDS = "This process (pid={pid}) is multi-threaded, use of fork() may lead to deadlocks in the child."


@pytest.fixture
def _beside_a_thread() -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join(30)


def forking_with(words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fork as Python 3.12 does, with these words of warning; return what was shown."""
    honest = os.fork

    def fork_and_warn() -> int:
        warnings.warn(words.format(pid=os.getpid()), DeprecationWarning, stacklevel=2)
        return honest()

    monkeypatch.setattr(spawn.os, "fork", fork_and_warn)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        pid = fork(Start(("x",), {}, black_box_fd=2), lambda: 7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    return [str(one.message) for one in shown if "may lead to" in str(one.message)]


@pytest.mark.usefixtures("_beside_a_thread")
def test_the_warning_of_other_threads_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forking_with(PYTHONS_WORDS, monkeypatch) == []


@pytest.mark.usefixtures("_beside_a_thread")
def test_any_other_warning_is(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "fork() may lead to something else"
    assert forking_with(words, monkeypatch) == [words]
