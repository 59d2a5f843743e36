from __future__ import annotations

import re
from pathlib import Path

import pytest

from planaria.kube import moves, scaling
from planaria.kube.scaling_fields import FIELDS, Field, told

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scaling.md").read_text()
RULES = PAGE.partition("\n## Rules\n")[2].partition("\n## ")[0]


def test_every_rule_has_its_test_and_every_test_its_rule() -> None:
    files = sorted((ROOT / "tests/unit/kube").glob("test_scaling*.py"))
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)]
    rules = re.findall(r"^\| [^|]+ \| `(test_\w+)` \|$", RULES, re.MULTILINE)
    assert len(rules) == RULES.count("\n| ") - RULES.count("\n| rule |")
    assert sorted(rules) == sorted(tests)


def test_every_reason_has_its_row() -> None:
    sources = "".join((ROOT / f"src/planaria/kube/{name}.py").read_text() for name in ("scaling", "moves"))
    reasons = set(re.findall(r'"([A-Z]\w+)"', sources)) - {"Start", "Continue", "Stop"}
    reasons -= {"ReachMaxMetric", "ReachMaxReplicas"}
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("\n## Reasons\n")[2].partition("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted(reasons)
    assert {*scaling.INCONCLUSIVE} <= reasons


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_has_its_row(field: Field) -> None:
    default = f"{field.default:g}" if isinstance(field.default, (int, float)) else field.default or ""
    shown = "the format above" if field.name == "metric.pattern" else default
    assert f"| `{field.name}` | {told(field)} | {shown} | {field.meaning} |" in PAGE.splitlines()


def test_no_row_has_a_field_that_does_not_exist() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|", PAGE.partition("\n## Fields\n")[2].partition("\n## ")[0], re.MULTILINE)
    assert rows == [field.name for field in FIELDS]


@pytest.mark.parametrize("name", ["CONTINUES", "PENDING", "BEST", "FULL", "NO_ROOM"])
def test_every_message_has_its_row(name: str) -> None:
    assert f"| {getattr(moves, name)} |" in PAGE
