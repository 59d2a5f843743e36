"""Thousands of clusters in virtual time: whatever happens to them, every promise of the protocol holds.

A seed that fails is shrunk and told as a story. `PLANARIA_SIM_CLUSTERS` says how many there are, 500 by default.
"""

import hashlib
import os

import pytest
from clustersim import draw, explain
from clustersim.bugs import BUGS
from clustersim.story import run

CLUSTERS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500"))
SHARES = 10  # so that several processes have something to do
WITHIN = 1000
"""How many clusters may pass before a planted bug is noticed. Most need a few dozen."""


RACES = {
    3125: ("c754009b", "a stale node that got a lease took its old round for the newest"),
    3464: ("fca3d47b", "the heir of a leader that left while it placed a round did not count its goodbye"),
    4862: ("02080b9d", "a spectator whose leader died before its first renewal held for ever"),
    5142: ("112ae92c", "a spectator that had a vote renewed too seldom to give it"),
    5531: ("009433cf", "a member that left before it was done was taken for done"),
    6785: ("d99f307b", "a node that had been fenced since was believed that a round never started"),
    7084: ("c395f37d", "who knew the end and lost its leader by silence began another round"),
    11743: ("e9c02e69", "a member that was done and left excused the failure of another"),
    12051: ("a6540c0c", "who came while a round was stopped could never lead"),
    12093: ("ed1eda79", "a leader without a round ended the run of another that had one"),
    13808: ("bf3b32c7", "a leader that nobody had heard ended a run that others went on with"),
    16328: ("d3648c9a", "a leader that had lost its key led on in its old term"),
    31187: ("73723b64", "a leader that was no longer valid ended a run that another led"),
    31948: ("1bf41393", "proofs of death of a node that had missed a round were counted"),
    52150: ("04f1b964", "the dead predecessor at a node's own address was waited for"),
    52471: ("2aae1dbc", "who knew of the newest round and who was first in line waited for each other"),
    53089: ("8efd3cdc", "who knew the end, and whose leader left while it told it, went on"),
    84977: ("2f4c7846", "a node of a run that had ended, and that another had followed, began it again"),
}
"""Seeds that found a race, the digest of the cluster that each stood for, and what the race was.

Whoever changes how clusters are drawn gives all these seeds other clusters: the races have to be looked for again, with the
fix undone, before the digests are replaced.
"""


def digest_of(plan):
    """Return a few letters that are other ones for every other cluster."""
    return hashlib.sha256(repr(plan).encode()).hexdigest()[:8]


@pytest.mark.parametrize("share", range(SHARES))
def test_no_cluster_breaks_a_promise(share):
    for seed in range(share, CLUSTERS, SHARES):
        plan = draw(seed)
        if run(plan)[1] is not None:
            pytest.fail(explain(plan), pytrace=False)


@pytest.mark.parametrize("seed", RACES)
def test_a_race_that_was_fixed_stays_fixed(seed):
    plan = draw(seed)
    digest, what = RACES[seed]
    assert digest_of(plan) == digest, f"this seed is another cluster now; it was one where {what}"
    if run(plan)[1] is not None:
        pytest.fail(explain(plan), pytrace=False)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_noticed(name, monkeypatch):
    for seed in range(WITHIN):
        plan = draw(seed)
        with monkeypatch.context() as patch:
            BUGS[name](patch)
            noticed = run(plan)[1] is not None
        if noticed and run(plan)[1] is None:  # and it is the bug that did it
            return
    pytest.fail(f"{WITHIN} clusters did not notice that {name}", pytrace=False)


def test_the_same_seed_gives_the_same_cluster():
    first, second = (run(draw(7))[0] for _ in range(2))
    assert first.count == second.count
    assert first.now == second.now
    assert [world.key for world in first.checks.order] == [world.key for world in second.checks.order]


def test_a_failing_cluster_shrinks_to_a_short_story(monkeypatch):
    BUGS["no wait after a proof of death"](monkeypatch)
    plan = next(draw(seed) for seed in range(WITHIN) if run(draw(seed))[1] is not None)
    story = explain(plan)
    assert story.startswith(f"seed {plan.seed}: ")
    assert len(story.splitlines()) <= 64
    assert "***" in story, "the fault that did it is told"
