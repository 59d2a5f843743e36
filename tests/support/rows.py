"""Servers for several tests in a row: fixtures of a session that end behind the last test that has use for them.

They are processes and descriptors, which tests of those would come upon. `tests/conftest.py` gives all tests with one of them
to one worker of pytest-xdist, and calls `end`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pytest

SERVERS = ("engine", "aws", "kube_api", "kube_cluster")
_RUNNING: dict[str, Callable[[], object]] = {}  # how each of them is ended


def begun(request: pytest.FixtureRequest) -> None:
    """Take note of a fixture, which calls this when it begins."""
    assert request.fixturename in SERVERS
    definition = request._fixturedef  # type: ignore[attr-defined]  # pytest has no other way to end one early
    _RUNNING[request.fixturename] = functools.partial(definition.finish, request)


def end(wanted: Collection[str]) -> None:
    """End those that are not wanted by the next test, with whatever depends on them."""
    for name in [*_RUNNING]:
        if name not in wanted:
            _RUNNING.pop(name)()
