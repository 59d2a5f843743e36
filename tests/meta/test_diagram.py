"""The state diagrams in docs/architecture.md are drawn from the machine; `PLANARIA_REWRITE=1 pytest` rewrites them."""

import os
from pathlib import Path

import groupsim
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "architecture.md"
END = "<!-- end of state diagram -->"
DRAWN = {
    "agent/machine.py": (groupsim.random_run, "starting"),
    "agent/member.py": (groupsim.random_member, "waiting"),
}
ORDER = (
    "waiting",
    "starting",
    "running",
    "settling",
    "resizing",
    "stopping",
    "restarting",
    "draining",
    "finishing",
    "leaving",
    "done",
)


def transitions(random_run):
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
            random_run(seed).run()
    finally:
        groupsim.step = honest
    return found


def diagram(random_run, first):
    rows = sorted(transitions(random_run).items(), key=lambda item: [ORDER.index(phase) for phase in item[0]])
    lines = [f"    {before} --> {after}: {', '.join(sorted(events))}" for (before, after), events in rows]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *lines, "    done --> [*]", "```"])


def test_the_state_diagrams_in_the_docs_are_what_the_machine_does():
    expected = text = DOCUMENT.read_text()
    for file, drawn in DRAWN.items():
        begin = f"<!-- state diagram: generated from {file} by tests/meta/test_diagram.py -->"
        head, _, rest = expected.partition(begin)
        _, _, tail = rest.partition(END)
        expected = f"{head}{begin}\n\n{diagram(*drawn)}\n\n{END}{tail}"
    if os.environ.get("PLANARIA_REWRITE"):
        DOCUMENT.write_text(expected)
    elif text != expected:
        pytest.fail("docs/architecture.md is stale: run PLANARIA_REWRITE=1 sh scripts/test tests/meta/test_diagram.py")
