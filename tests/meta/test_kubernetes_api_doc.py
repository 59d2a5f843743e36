from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_what_the_code_says() -> None:
    render = runpy.run_path(str(ROOT / "tests/unit/kube/api_doc.py"))["render"]
    written = (ROOT / "docs/kubernetes-api.md").read_text()
    assert written == render(written), "stale: python tests/unit/kube/api_doc.py"
