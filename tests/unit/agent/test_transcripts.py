"""Golden stories of the machine: what happens, event by event. `PLANARIA_REWRITE=1 pytest` rewrites them; read the diff."""

import os
from pathlib import Path

import groupsim
import pytest

from planaria.agent.model import BlameWorker, Group, LauncherDied, ScopeExpired, StopRequested, WorkerExited
from planaria.base.value import Value

FOLDER = Path(__file__).resolve().parents[2] / "transcripts" / "agent"


def told(item: object) -> str:
    """Tell an event or effect in a few words."""
    if isinstance(item, WorkerExited):
        bad = item.failure
        return f"rank {item.local_rank} exits " + (
            "well" if bad is None else f"with {bad.status} ({bad.kind} {bad.type})"
        )
    if isinstance(item, ScopeExpired | BlameWorker):
        return f"{type(item).__name__}(rank {item.failure.rank}, pid {item.pid})"
    if isinstance(item, Value):
        hidden = ("at", "clean", "by_owner", *(("only",) if getattr(item, "only", ()) is None else ()))
        fields = [repr(getattr(item, name)) for name in type(item)._fields if name not in hidden]
        return f"{type(item).__name__}({', '.join(fields)})"
    return repr(item)


def story(sim, events):
    """Run a simulated job and return its transcript."""
    honest, lines = groupsim.step, []

    def watched(group, event):
        after, effects = honest(group, event)
        change = group.phase if group.phase == after.phase else f"{group.phase} -> {after.phase}"
        lines.append(f"{sim.now:7.3f} s  {told(event):<44} {change:<24} {'; '.join(map(told, effects))}".rstrip())
        return after, effects

    for when, event in events:
        sim.at(when, event)
    groupsim.step = watched
    try:
        sim.run()
    finally:
        groupsim.step = honest
    return "\n".join([*lines, f"ends with status {sim.finished.status}", ""])


def lives(*rows):
    """Behave as listed: one row a life, one (seconds, kind, deaf to signals) a rank."""
    return lambda round_number, rank, _rng: rows[min(round_number, len(rows) - 1)][rank]


FOREVER, WELL = (10_000_000.0, None, False), (60.0, None, False)
STORIES = {
    "a crash and a recovery": ({}, lives([FOREVER, (7.0, "segfault", False)], [WELL, WELL]), ()),
    "a mistake of every rank": ({}, lives([(0.4, "ImportError", False), (0.5, "ImportError", False)]), ()),
    "a mistake of one rank": ({}, lives([(0.4, "ImportError", False), FOREVER], [WELL, WELL]), ()),
    "a worker that does not stop": ({}, lives([(7.0, "exit3", False), (10_000_000.0, None, True)], [WELL, WELL]), ()),
    "a budget that is spent": ({"max_restarts": 1}, lives([(70.0, "RuntimeError", False), FOREVER]), ()),
    "a drain": ({}, lives([FOREVER, FOREVER]), ((9.0, StopRequested(15, 9.0)),)),
    "two Ctrl-C and a deaf worker": (
        {},
        lives([FOREVER, (10_000_000.0, None, True)]),
        ((9.0, StopRequested(2, 9.0)), (9.5, StopRequested(2, 9.5))),
    ),
    "a scope that expires": ({}, lives([FOREVER, FOREVER], [WELL, WELL]), ((9.0, groupsim.hang(1, 9)),)),
    "a launcher that is killed": ({}, lives([FOREVER, FOREVER]), ((9.0, LauncherDied(9.0)),)),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_story_is_the_one_we_know(name):
    settings, behave, events = STORIES[name]
    group = Group(**({"size": 2, "max_restarts": 3, "grace_s": 30.0} | settings))
    path = FOLDER / f"{name.replace(' ', '-').lower()}.txt"
    found = story(groupsim.GroupSim(group, behave), events)
    if os.environ.get("PLANARIA_REWRITE"):
        path.write_text(found)
    assert found == path.read_text()
