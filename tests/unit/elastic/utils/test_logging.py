from __future__ import annotations

import logging

import pytest

from planaria.elastic.utils.log_level import get_log_level
from planaria.elastic.utils.logging import get_logger


def test_the_level_is_warning_unless_the_variable_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGLEVEL", raising=False)
    assert get_logger("test.level").level == logging.WARNING == getattr(logging, get_log_level())
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    assert get_logger("test.level").level == logging.DEBUG
    monkeypatch.setenv("LOGLEVEL", "35")
    assert get_logger("test.level").level == 35


def test_a_logger_without_a_name_has_its_caller_s() -> None:
    assert get_logger().name == __name__


def test_a_level_that_is_none_is_told_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGLEVEL", "loud")
    with pytest.warns(UserWarning, match="LOGLEVEL expects a level such as INFO, got 'loud': WARNING is used"):
        assert get_logger("test.loud").level == logging.WARNING
