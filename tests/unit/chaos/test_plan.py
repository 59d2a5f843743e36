"""Which fault comes when."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from planaria.chaos.hand import Hand
from planaria.chaos.kinds import NAMES
from planaria.chaos.model import Facts, Fault
from planaria.chaos.plan import as_text, plan
from planaria.errors import UsageError

FACTS = Facts(nodes=3, nproc=2, ttl_s=3.0)


def faults(count: int, *kinds: str, facts: Facts = FACTS, seed: int = 0) -> tuple[Fault, ...]:
    return plan(random.Random(seed), count, kinds or NAMES, facts).faults


def test_there_is_a_hand_for_every_kind() -> None:
    assert all(hasattr(Hand, f"_{name.replace('-', '_')}") for name in NAMES)


def test_a_seed_is_a_plan() -> None:
    assert faults(50, seed=5) == faults(50, seed=5)
    assert faults(50, seed=5) != faults(50, seed=6)


def test_faults_are_numbered_from_one_and_come_some_steps_apart() -> None:
    found = faults(30)
    assert [fault.number for fault in found] == [*range(1, 31)]
    assert {fault.after_steps for fault in found} <= {1, 2, 3, 4}


@pytest.mark.parametrize("seed", range(20))
def test_twenty_faults_have_every_kind(seed: int) -> None:
    assert {fault.kind for fault in faults(20, seed=seed)} == set(NAMES)


def test_all_nodes_are_lost_once_in_a_hundred_faults() -> None:
    assert Counter(fault.kind for fault in faults(300))["lose-all"] == 3
    assert Counter(fault.kind for fault in faults(2, "lose-all", "kill-worker"))["lose-all"] == 1
    assert {fault.kind for fault in faults(2, "lose-all")} == {"lose-all"}


@pytest.mark.parametrize("count", [1, 2, 5, 30, 300])
def test_all_nodes_are_lost_only_in_the_first_half_so_that_agents_grow_old(count: int) -> None:
    for seed in range(50):
        lost = [fault.number for fault in faults(count, seed=seed) if fault.loss == "all"]
        assert lost, "at least once"
        assert max(lost) <= max(count // 2, 1)


@pytest.mark.parametrize("count", [30, 300])
def test_commits_are_damaged_with_the_loss_of_all_nodes_and_later_without(count: int) -> None:
    for seed in range(5):
        found = [fault for fault in faults(count, seed=seed) if fault.kind == "corrupt-snapshot"]
        assert [fault.loss == "all" for fault in found] == [fault.number <= count // 2 for fault in found]
    assert {fault.loss for fault in faults(count, "corrupt-snapshot")} == {"all", "nothing"}


def test_a_kind_that_cannot_be_is_skipped_with_its_reason() -> None:
    found = plan(random.Random(1), 40, NAMES, Facts(cannot={"cut-network": "no cable"}))
    assert found.skipped == {"cut-network": "no cable"}
    assert "cut-network" not in {fault.kind for fault in found.faults}
    assert "skipped: cut-network: no cable\n" in as_text(found)


def test_nothing_that_can_be_done_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing that can be done here: cut-network: no cable"):
        plan(random.Random(1), 4, ["cut-network"], Facts(cannot={"cut-network": "no cable"}))


def test_the_last_node_keeps_its_agent() -> None:
    struck = {fault.node for fault in faults(200, "kill-agent")}
    assert struck == {0, 1}
    assert {fault.node for fault in faults(200, "kill-worker")} == {0, 1, 2}


def test_agents_die_in_all_ways() -> None:
    assert {fault.variant for fault in faults(60, "kill-agent")} == {"agent", "launcher", "agent and launcher"}


def test_a_long_pause_outlasts_the_lease_and_a_short_one_does_not() -> None:
    for fault in faults(200, "pause-node", "cut-network"):
        if "long" in fault.variant:
            assert fault.lasts_s > FACTS.ttl_s * 1.1
        else:
            assert fault.lasts_s < FACTS.ttl_s - 1
    assert {fault.variant for fault in faults(200, "pause-node")} == {
        "short",
        "long",
        "agent alone, short",
        "agent alone, long",
    }


def test_a_hang_is_for_ever_only_where_somebody_finds_it() -> None:
    assert all(fault.lasts_s > 0 and not fault.is_charged for fault in faults(20, "hang"))
    found = faults(20, "hang", facts=Facts(finds_hangs=True))
    assert all(fault.variant == "for ever" and fault.is_charged for fault in found)


def test_only_deaths_of_workers_alone_are_charged() -> None:
    charged = {fault.kind for fault in faults(300) if fault.is_charged}
    assert charged == {"kill-worker"}


def test_the_text_has_a_line_for_each() -> None:
    text = as_text(plan(random.Random(3), 5, NAMES, FACTS))
    assert len(text.splitlines()) == 5
    assert "    1  " in text
