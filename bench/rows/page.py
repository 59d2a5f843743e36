"""The web page of a run of 1,000 ranks: what one update costs the server, and what it costs the browser."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec

from harness.children import Child
from harness.model import Bench, Metric, Sample

from rows.launch import script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_GOAL_MS = 100.0
_MANY = 20
_TURNS = 3
_SUPPORT = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "support")


def _said(settings: Settings, name: str, *words: str, count: int) -> list[dict[str, float]]:
    with Child((settings.python, script(settings, name), *words), settings.scratch) as child:
        found = [json.loads(child.next_line()[1]) for _ in range(count)]
        child.expect_success()
    return found


def _server(_: Launcher, settings: Settings) -> Sample:
    values: dict[str, list[float]] = {}
    for key, rounds in (("young", 1), ("old", _MANY)):
        turns = _said(settings, "page_server.py", str(rounds), str(_TURNS), count=_TURNS)
        values[key] = [turn["ms"] for turn in turns]
        values[f"{key}_bytes"] = [turn["bytes"] / 1000 for turn in turns]
    return Sample(values)


def _browser(_: Launcher, settings: Settings) -> Sample:
    updates = _said(settings, "page_browser.py", str(_TURNS), count=_TURNS)
    return Sample({"busy": [one["ms"] for one in updates], "drawn": [one["drawn_ms"] for one in updates]})


def _why_no_page(_: Settings) -> str | None:
    return (
        None
        if os.path.isdir(_SUPPORT) and find_spec("planaria")
        else "it needs the source tree, and planaria installed"
    )


def _why_no_browser(settings: Settings) -> str | None:
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return _why_no_page(settings) or (f"{' and '.join(missing)} cannot be had here" if missing else None)


BENCHES = (
    Bench(
        name="page-server",
        title="page of 1,000 ranks, the server's part of an update",
        method="125 nodes of 8 workers, each with a journal as agents write it, of one round and of "
        f"{_MANY}; between two turns every node reports new steps. CPU time for the three answers of a turn (the list of "
        "runs, the picture, the end of a log), JSON and gzip included. Asking agents and reading folders is not in it.",
        metrics=(
            Metric("young", "page of 1,000 ranks: CPU of the server for an update, first round", "ms", goal=_GOAL_MS),
            Metric("old", f"… after {_MANY} rounds", "ms", goal=_GOAL_MS),
            Metric("young_bytes", "page of 1,000 ranks: a picture on the wire, first round", "kB"),
            Metric("old_bytes", f"… after {_MANY} rounds", "kB"),
        ),
        measure=_server,
        only=frozenset({"planaria"}),
        skip_reason=_why_no_page,
    ),
    Bench(
        name="page-browser",
        title="page of 1,000 ranks, the browser's part of an update",
        method="headless Chromium shows a run of 1,000 ranks in which every number moves with every update. CPU time of the "
        "page's main thread between two updates (`TaskDuration` by thread ticks: layout and painting included), and what the "
        "page itself measures for drawing.",
        metrics=(
            Metric("busy", "page of 1,000 ranks: main thread of the browser for an update", "ms", goal=_GOAL_MS),
            Metric("drawn", "… of this for drawing it", "ms"),
        ),
        measure=_browser,
        only=frozenset({"planaria"}),
        skip_reason=_why_no_browser,
    ),
)
