"""The state diagram in docs/architecture.md is drawn from the machine; `PLANARIA_REWRITE=1 pytest` rewrites it."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- state diagram: generated from agent/machine.py by tests/meta/test_diagram.py -->"
END = "<!-- end of state diagram -->"


def groupsim():
    spec = importlib.util.spec_from_file_location("groupsim", ROOT / "tests/unit/agent/groupsim.py")
    module = sys.modules.setdefault("groupsim", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def transitions():
    """Return every change of phase that 600 simulated jobs go through, as (from, to) -> names of events."""
    found = {}
    sim_module = groupsim()
    honest = sim_module.step

    def watched(group, event):
        after, effects = honest(group, event)
        if after.phase != group.phase:
            found.setdefault((group.phase, after.phase), set()).add(type(event).__name__)
        return after, effects

    sim_module.step = watched
    try:
        for seed in range(600):
            sim_module.random_run(seed).run()
    finally:
        sim_module.step = honest
    return found


def diagram():
    order = ("starting", "running", "settling", "stopping", "restarting", "draining", "finishing", "done")
    rows = sorted(transitions().items(), key=lambda item: (order.index(item[0][0]), order.index(item[0][1])))
    lines = [f"    {before} --> {after}: {', '.join(sorted(events))}" for (before, after), events in rows]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> starting", *lines, "    done --> [*]", "```"])


def test_the_state_diagram_in_the_docs_is_what_the_machine_does():
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    expected = f"{head}{BEGIN}\n\n{diagram()}\n\n{END}{tail}"
    if os.environ.get("PLANARIA_REWRITE"):
        DOCUMENT.write_text(expected)
    elif text != expected:
        pytest.fail("docs/architecture.md is stale: run PLANARIA_REWRITE=1 sh scripts/test tests/meta/test_diagram.py")
