"""What docs/operator.md says of permissions, flags and metrics is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from planaria.kube.flags import _parser
from planaria.kube.installation import RULES
from planaria.kube.operator import Meters

TEXT = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_permission_has_its_row() -> None:
    wanted = []
    for group, names, verbs, why in RULES:
        shown = f"`{group}` {', '.join(names)}" if group else ", ".join(names)
        wanted.append(f"| {shown} | {', '.join(verbs)} | {why} |")
    assert re.findall(r"^\| .*$", section("What it may"), re.MULTILINE)[1:] == wanted


def test_every_flag_of_run_has_its_row() -> None:
    told = set(re.findall(r"`(--[a-z-]+)", "\n".join(re.findall(r"^\| `--.*?\|", section("Flags"), re.MULTILINE))))
    assert told == {option for action in _parser("run")._actions for option in action.option_strings}


def test_every_metric_has_its_row() -> None:
    told = re.findall(r"^\| `(planaria_operator_[a-z_]+)", section("Health and metrics of the operator"), re.MULTILINE)
    assert told == list(Meters().registry._metrics)
