"""The hand that strikes, where a real campaign does not come to."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from planaria.chaos.hand import Hand, NotNow, Stuck
from planaria.chaos.model import Fault
from planaria.chaos.watch import Watch
from planaria.contract import chaos as orders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTENS = "import sys; from planaria.worker import chaos; chaos.listen(sys.argv[1])"
WAITS = "print(flush=True); input()"


@pytest.fixture
def child(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    program = f"{request.param}; {WAITS}" if request.param else WAITS
    words = [sys.executable, "-c", program, str(tmp_path)]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    started.stdout.readline()
    yield started
    started.kill()
    started.communicate()


def hand(folder: Path, status: dict[str, Any] | None) -> Hand:
    job = SimpleNamespace(nodes=[SimpleNamespace(status=lambda: status)])
    return Hand(cast("Any", job), Watch(), cast("Any", None), str(folder))


def worker(pid: int) -> dict[str, Any]:
    return {"workers": [{"local_rank": 0, "pid": pid, "state": "running"}]}


@pytest.mark.parametrize("child", [""], indirect=True)
def test_a_worker_that_does_not_listen_is_let_be(child: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(NotNow, match="does not listen"):
        hand(tmp_path, worker(child.pid)).strike(Fault(1, "hang", "", 0, 0, 1, 0.1))
    assert child.poll() is None
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("child", [LISTENS], indirect=True)
def test_a_worker_that_listens_hears_its_order(child: subprocess.Popen[str], tmp_path: Path) -> None:
    hand(tmp_path, worker(child.pid)).strike(Fault(1, orders.HOLD_GIL, "", 0, 0, 1, 0.1))
    assert os.listdir(tmp_path) == []
    assert child.poll() is None


class Late(Watch):
    """Somebody for whom the time is over when the answer comes."""

    def wait(self, found: Any, timeout_s: float) -> None:
        super().wait(found, timeout_s)


@pytest.mark.parametrize("child", [LISTENS], indirect=True)
def test_an_order_that_is_heard_in_the_last_moment_counts(child: subprocess.Popen[str], tmp_path: Path) -> None:
    job = SimpleNamespace(nodes=[SimpleNamespace(status=lambda: worker(child.pid))])
    Hand(cast("Any", job), Late(), cast("Any", None), str(tmp_path)).strike(Fault(1, orders.HOLD_GIL, "", 0, 0, 1))


@pytest.mark.parametrize(
    ("fill", "empty", "problem"),
    [("no mount", "", NotNow), ("", "busy", Stuck)],
)
def test_a_disk_that_does_not_obey_is_told(fill: str, empty: str, problem: type[Exception]) -> None:
    disk = SimpleNamespace(step=lambda: 3, fill=lambda: fill, empty=lambda: empty)
    with pytest.raises(problem, match=fill or empty):
        Hand(cast("Any", None), Watch(), cast("Any", disk), "").strike(Fault(1, "fill-disk", "", 0, -1, 1))


def test_a_node_that_is_silent_has_nothing_to_strike(tmp_path: Path) -> None:
    for kind in ("kill-worker", "kill-agent", "pause-node", "pause-worker"):
        with pytest.raises(NotNow):
            hand(tmp_path, None).strike(Fault(1, kind, "", 0, 0, 1))
