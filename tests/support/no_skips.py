"""Let nothing be skipped: with PLANARIA_TEST_ALL=1 whatever cannot run here fails, with the reason.

For a machine that is meant to have everything. Elsewhere tests that need what is missing (torch, etcd, root, containers,
Kubernetes) are skipped, and a run without half of the tests is as green as one with all of them.
"""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
IS_ON = os.environ.get("PLANARIA_TEST_ALL") == "1"


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after pytest's own, which tells an expected failure from a skip
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test into a failure."""
    return _failed((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into a failure."""
    return _failed((yield))


def _failed(report: Report) -> Report:
    if IS_ON and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} cannot run here, and PLANARIA_TEST_ALL=1 lets nothing be skipped: {why}"
    return report
