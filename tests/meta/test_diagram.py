"""The state diagram in docs/architecture.md is drawn from the machine; `PLANARIA_REWRITE=1 pytest` rewrites it."""

import os
from pathlib import Path

import groupsim
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- state diagram: generated from agent/machine.py by tests/meta/test_diagram.py -->"
END = "<!-- end of state diagram -->"


def transitions():
    """Return every change of phase that 600 simulated jobs go through, as (from, to) -> names of events."""
    found = {}
    honest = groupsim.step

    def watched(group, event):
        after, effects = honest(group, event)
        if after.phase != group.phase:
            found.setdefault((group.phase, after.phase), set()).add(type(event).__name__)
        return after, effects

    groupsim.step = watched
    try:
        for seed in range(600):
            groupsim.random_run(seed).run()
    finally:
        groupsim.step = honest
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
