"""Nodes of a job with a store that leave in waves, while others come and things go wrong.

`PLANARIA_SIM_CLUSTERS` says how many clusters there are of each sort, a tenth of it: 50 by default.
"""

import os

import pytest
from clustersim import Fault, Plan, Spec
from clustersim.farewells import Vacated, draw_farewells

from planaria.rendezvous.messages import Place
from planaria.rendezvous.model import Send

CLUSTERS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500")) // 10
PLAIN = {"endpoints": (), "external": True, "drift": 0.0, "coupled": False, "max_restarts": 0, "is_mild": False}
THREE = tuple(Spec(f"{name}-1", f"host-{name}", 29400, at) for name, at in (("a", 0.0), ("b", 0.1), ("c", 0.2)))
LATE = (Spec("x-1", "host-x", 29400, 20.0), Spec("y-1", "host-y", 29400, 20.5))


@pytest.mark.parametrize("is_wild", [False, True])
def test_whoever_is_there_at_last_is_one_world(is_wild):
    must = 0
    for seed in range(CLUSTERS):
        cluster = Vacated(draw_farewells(seed, is_wild=is_wild)).run()
        must += cluster.must_settle()
    assert must > CLUSTERS // 3, "too few of them have to settle"


@pytest.mark.parametrize("seed", [24])
def test_a_wave_whose_leader_was_away_when_the_others_left(seed):
    Vacated(draw_farewells(seed, is_wild=False)).run()


@pytest.mark.parametrize("kind", ["go", "leave"])
@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_is_cut_off_from_those_that_leave_reads_of_it_in_the_store(kind, seed):
    pairs = tuple(pair for other in "bc" for pair in (("host-a", f"host-{other}"), (f"host-{other}", "host-a")))
    faults = (Fault(6.0, "block", "", 9.0, pairs), Fault(6.1, kind, "b-1"), Fault(6.1, kind, "c-1"))
    check_all_late_come_in(Plan(seed=seed, specs=(*THREE, *LATE), faults=faults, **PLAIN, max_nodes=6))


@pytest.mark.parametrize(("lasting_s", "at"), [(3.0, 8.2), (4.0, 8.3), (4.5, 8.6), (6.0, 9.0)])
def test_a_leader_that_was_frozen_when_the_others_left_reads_of_it_in_the_store(lasting_s, at):
    faults = (Fault(6.0, "freeze", "a-1", lasting_s, True), Fault(at, "go", "b-1"), Fault(at, "go", "c-1"))
    check_all_late_come_in(Plan(seed=1, specs=(*THREE, *LATE), faults=faults, **PLAIN, max_nodes=6))


def check_all_late_come_in(plan):
    cluster = Vacated(plan).run()
    (ran,) = {agent.machine.standing.ran for agent in cluster.agents if agent.is_alive}
    assert ran > 0
    assert sum(agent.is_alive for agent in cluster.agents) == 3


@pytest.mark.parametrize("nodes", [3, 4, 9])
@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.002])
@pytest.mark.parametrize("seed", range(3))
def test_a_newcomer_does_not_wait_for_a_round_that_was_only_announced_to_it(nodes, after_s, seed):
    """All leave in the moment in which their leader announces the round with the newcomer: the store never has that round."""
    old = [Spec(f"a{place}-1", f"host-a{place}", 29400, 0.05 * place) for place in range(nodes)]
    specs = (*old, Spec("c-1", "host-c", 29400, 6.0), Spec("x-1", "host-x", 29400, 20.0))
    plan = Plan(seed=seed, specs=specs, faults=(), **PLAIN, max_nodes=2 * nodes + 4)
    announced = []

    def look_on(now, agent, _event, effects):
        places = [one for one in effects if isinstance(one, Send) and isinstance(one.message, Place)]
        if not announced and now > 6.0 and any(one.message.round > 0 for one in places) and agent.machine.is_leading:
            announced.append(now)
            for spec in old:
                cluster.after(after_s, cluster.find(spec.name).go_at_once)

    cluster = Vacated(plan, look_on, down_s=(0.02,))
    cluster.run()
    assert announced
    (ran,) = {agent.machine.standing.ran for agent in cluster.agents if agent.is_alive}
    assert ran > 0


def test_members_of_a_first_round_that_was_announced_and_never_written_may_leave():
    """A run as it was found: their leader was stopped for a second meanwhile, so that their goodbyes did not come to it."""
    comes = (0.552, 0.773, 1.835, 0.137, 0.773, 1.48, 0.17, 0.301, 0.231)
    later = (3.54, 3.605, 3.536, 4.912, 3.655, 3.46, 3.601)
    specs = [Spec(f"a{place}-1", f"h0x{place}", 29400, at) for place, at in enumerate(comes)]
    specs += [Spec(f"b{place}-1", f"h1x{place}", 29400, at) for place, at in enumerate(later)]
    going = (("go", 0), ("leave", 1), ("leave", 2), ("leave", 4), ("go", 5), ("leave", 6), ("leave", 7), ("go", 8))
    faults = (
        Fault(2.312, "pause", "a4-1", 4.5),
        Fault(3.015, "pause", "leader", 1.0),
        *(Fault(3.455, kind, f"a{place}-1") for kind, place in going),
        Fault(4.864, "lossy", "leader", 0.3),
        Fault(9.924, "ambush", "", 0.0, ("Redirect", 3, "isolate")),
    )
    plan = Plan(
        seed=6560,
        specs=tuple(specs),
        faults=faults,
        **{**PLAIN, "max_restarts": 3, "drift": 0.01},
        max_nodes=40,
        ttl_s=2.0,
        quiet_s=0.5,
        delay_s=0.0005,
    )
    (ran,) = {agent.machine.standing.ran for agent in Vacated(plan).run().agents if agent.is_alive}
    assert ran >= 0


def test_a_round_that_was_only_announced_does_not_beat_the_one_in_the_store():
    """A run as it was found: a leader whose own rounds the store had refused read there of another's, of a lower term."""
    specs = (
        ("a0-1", "h0x0", 0.184),
        ("a1-1", "h0x1", 0.085),
        ("a2-1", "h0x2", 3.305),
        ("b0-1", "h1x0", 6.67),
        ("b1-1", "h1x1", 7.513),
        ("b2-1", "h1x2", 8.236),
        ("c0-1", "h2x0", 12.267),
        ("d0-1", "h3x0", 18.769),
        ("d1-1", "h3x1", 18.786),
    )
    pairs = (("h1x0", "h0x0"), ("h1x0", "h0x1"), ("h1x0", "h0x2"), ("h1x0", "h1x2"))
    faults = (
        Fault(5.566, "pause", "a0-1", 1.0),
        Fault(6.254, "split", "", 1.0, ("h0x0", "store")),
        *(Fault(6.283, "leave", name) for name in ("a0-1", "a1-1", "a2-1")),
        Fault(6.364, "forget", "", 4.0),
        Fault(11.234, "split", "", 4.0, ("h1x1", "store")),
        Fault(12.314, "block", "", 12.0, tuple(both for pair in pairs for both in (pair, pair[::-1]))),
        Fault(13.1332, "leave", "b2-1"),
        Fault(13.135, "leave", "b0-1"),
        Fault(13.1351, "leave", "b1-1"),
        Fault(13.1355, "go", "a2-1"),
        Fault(13.178, "ambush", "", 0.0, ("Leave", 3, "snap")),
        Fault(17.109, "ambush", "", 0.0, ("Redirect", 3, "isolate")),
        Fault(19.2359, "leave", "b2-1"),
        Fault(19.3064, "leave", "a2-1"),
        Fault(20.0345, "leave", "c0-1"),
        Fault(20.4128, "leave", "a1-1"),
        Fault(20.6514, "leave", "b1-1"),
        Fault(27.35, "forget", "", 4.0),
        Fault(28.139, "forget", "", 4.0),
    )
    Vacated(
        Plan(
            seed=296,
            specs=tuple(Spec(name, host, 29400, at) for name, host, at in specs),
            faults=faults,
            endpoints=(),
            external=True,
            max_nodes=3,
            ttl_s=2.0,
            quiet_s=2.0,
            max_restarts=3,
            delay_s=0.03,
            drift=0.01,
            coupled=False,
            is_mild=False,
        )
    ).run()
