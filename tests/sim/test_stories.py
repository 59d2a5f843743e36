"""Golden stories of whole clusters: who says what to whom. `PLANARIA_REWRITE=1 pytest` rewrites them; read the diff."""

import os
from pathlib import Path

import pytest
from clustersim import Fault, Plan, Spec
from clustersim.story import tell

from planaria.base.value import replace

FOLDER = Path(__file__).resolve().parents[1] / "transcripts" / "cluster"
THREE = tuple(Spec(f"{name}-1", f"host-{name}", 29400, at) for name, at in (("a", 0.0), ("b", 0.1), ("c", 0.2)))
PLAIN = Plan(
    seed=1, specs=THREE, faults=(), endpoints=("host-a:29400",), max_nodes=3, drift=0.0, coupled=False, max_restarts=3
)
STORIES = {
    "a worker crashes on three nodes": replace(PLAIN, faults=(Fault(5.0, "worker", "b-1"),)),
    "the leader is killed": replace(PLAIN, faults=(Fault(5.0, "kill", "a-1"),)),
    "a member falls silent": replace(PLAIN, faults=(Fault(5.0, "host", "c-1", 1000.0),)),
    "a node joins": replace(PLAIN, specs=(*THREE, Spec("d-1", "host-d", 29400, 5.0)), max_nodes=4),
    "the store is away": replace(
        PLAIN, endpoints=(), external=True, faults=(Fault(5.0, "outage", "", 30.0, False), Fault(30.0, "worker", "b-1"))
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_story_is_the_one_we_know(name):
    path = FOLDER / f"{name.replace(' ', '-')}.txt"
    lines, violation = tell(STORIES[name], sent_only=True)
    assert violation is None
    found = "\n".join([*lines, ""])
    if os.environ.get("PLANARIA_REWRITE"):
        path.write_text(found)
    assert found == path.read_text()
