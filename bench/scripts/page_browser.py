"""Show a run of 1,000 ranks in a headless Chromium, where every number moves: what the page's main thread takes for an update.

page_browser.py UPDATES
"""

import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import pictures
from browser import Browser
from dashboard_stage import Cast, Stage

UPDATES = int(sys.argv[1])
DRAWN = "performance.getEntriesByName('update').length"


def main() -> None:
    moments = itertools.count(60)
    cast = Cast(thousand=lambda: pictures.thousand(next(moments)))
    with Browser() as window, Stage(cast) as stage:
        window.go(stage.url)
        window.wait(f"{DRAWN} > 1")
        for _ in range(UPDATES):
            before_s, count = window.busy_s(), window.run(f"return {DRAWN}")
            window.wait(f"{DRAWN} > arguments[0]", count)
            more = window.run(f"return {DRAWN}") - count
            spent_ms = (window.busy_s() - before_s) * 1000 / more
            drawn_ms = window.run("return performance.getEntriesByName('update').at(-1).duration")
            print(json.dumps({"ms": spent_ms, "drawn_ms": drawn_ms}), flush=True)


main()
