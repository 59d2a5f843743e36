from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_bad_input_is_what_the_table_says() -> None:
    page = runpy.run_path(str(ROOT / "tests/unit/launch/bad_input.py"))["render"]()
    written = (ROOT / "docs/bad-input.md").read_text()
    assert written == page, "stale: python tests/unit/launch/bad_input.py > docs/bad-input.md"
