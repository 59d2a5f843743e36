"""The scaling policy on a simulated cluster: whole jobs in virtual time, hundreds of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalesim import Curve, Sim, Weather, amdahl, flat, peaked, policy_for_sim

from planaria.kube.evidence import decode, encode
from planaria.kube.scaling import scale
from planaria.kube.scaling_model import Policy, Sample, Situation
from planaria.kube.sizes import above, fit, sizes_of

HORIZON_S = 2700.0
CHUNKS = 10
SEEDS_PER_CHUNK = 40
CALM_CHANGES = 10  # in the last third: two retries, each there and back, and what they lead to


def any_policy(rng: random.Random) -> Policy:
    least = rng.randint(1, 3)
    most = least + rng.randint(0, 13)
    allowed = tuple(sorted(rng.sample(range(least, most + 1), rng.randint(1, most - least + 1))))
    return policy_for_sim(
        min=least,
        max=most,
        allowed=rng.choice(((), (), allowed)),
        min_efficiency=rng.choice((0.4, 0.6, 0.8)),
        window=rng.choice((3, 5, 8)),
        warm_up=rng.choice((2, 3)),
        batch=rng.choice(("worker", "global")),
    )


def any_curve(rng: random.Random) -> Curve:
    return rng.choice((amdahl(rng.choice((0.0, 0.02, 0.1, 0.3))), flat(), peaked(rng.randint(1, 12))))


def coming_and_going(rng: random.Random) -> Callable[[float], int]:
    rooms = [rng.randint(0, 16) for _ in range(8)]
    every_s = rng.choice((200.0, 600.0, 1500.0))
    return lambda age_s: rooms[int(age_s / every_s) % len(rooms)]


def least_expected(policy: Policy, start: int, curve: Curve, room: int) -> int:
    """Return the size that the search has to reach: as long as the gain is clearly worth it, and there is room."""
    sizes = sizes_of(policy)
    size = fit(sizes, start)
    first = size
    while (up := above(sizes, size)) is not None and up <= room:
        gain = curve(up, 0.0) / curve(size, 0.0) - 1
        efficiency = curve(up, 0.0) / up / (curve(first, 0.0) / first)
        most = up / size - 1
        if (
            gain < (policy.min_gain if policy.min_gain < most - 1e-9 else most / 2) + 0.08
            or efficiency < policy.min_efficiency + 0.05
        ):
            break
        size = up
    return size


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_in_a_calm_cluster_a_job_ends_at_the_size_that_is_worth_it_and_stays_there(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        rng = random.Random(seed)
        policy, curve = any_policy(rng), any_curve(rng)
        room, start = rng.choice((99, 99, rng.randint(policy.min, policy.max))), rng.randint(1, policy.max + 2)
        weather = Weather(noise=0.02, lost=0.1, late=0.1, twice=0.1, away=rng.choice((0.0, 0.01)))
        sim = Sim(seed, policy, start, curve, lambda _, room=room: room, weather).run_until(HORIZON_S)
        assert sim.verdict is not None
        good, sizes, first = sim.verdict.evidence.good, sizes_of(policy), fit(sizes_of(policy), start)
        story = f"seed {seed}: {policy}, room {room}, {sim.changes}, {sim.reasons}"
        assert good <= max(room, sizes[0]), story
        if first <= room:
            assert good >= least_expected(policy, start, curve, room), story
            efficiency = curve(good, 0.0) / good / (curve(first, 0.0) / first)
            assert good == first or efficiency >= policy.min_efficiency - 0.05, story
            assert good == first or curve(good, 0.0) > curve(first, 0.0), story
        assert sim.changes_after(HORIZON_S * 2 / 3) <= CALM_CHANGES, story


@pytest.mark.parametrize("chunk", range(5))
def test_in_any_weather_the_size_stays_in_its_bounds_and_nothing_is_silent(chunk: int) -> None:
    """What has to hold at every moment is checked by the simulation itself."""
    for seed in range(chunk * 20, (chunk + 1) * 20):
        rng = random.Random(1_000_000 + seed)
        weather = Weather(noise=0.5, lost=0.3, late=0.3, twice=0.3, away=0.1)
        sim = Sim(seed, any_policy(rng), rng.randint(0, 20), any_curve(rng), coming_and_going(rng), weather)
        sim.run_until(HORIZON_S)
        assert len(sim.changes) < 90, f"seed {seed}: {sim.changes}"


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_says_nothing_stays_and_the_owner_is_told(seed: int) -> None:
    sim = Sim(seed, policy_for_sim(), 2, amdahl(0.0), lambda _: 99, Weather(lost=1.0)).run_until(HORIZON_S)
    assert sim.verdict is not None
    assert (sim.changes, sim.verdict.reason) == ([(0.0, 2)], "NoSamples")
    assert sim.verdict.elastic.message.startswith("Inconclusive: no samples")


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_becomes_slow_everywhere_ends_at_the_same_size(seed: int) -> None:
    def slower(size: int, age_s: float) -> float:
        return amdahl(0.05)(size, age_s) * (1.0 if age_s < 1200 else 0.3)

    sim = Sim(seed, policy_for_sim(), 1, slower, lambda _: 99, Weather(noise=0.03)).run_until(1100)
    assert sim.size == 8
    assert sim.run_until(HORIZON_S).size == 8


@pytest.mark.parametrize("seed", range(10))
def test_a_node_that_becomes_slow_makes_the_job_leave_it(seed: int) -> None:
    def slow_node(size: int, age_s: float) -> float:
        return 100.0 * size * (0.3 if age_s > 1200 and size > 4 else 1.0)

    sim = Sim(seed, policy_for_sim(), 1, slow_node, lambda _: 99, Weather(noise=0.03)).run_until(1100)
    assert sim.size == 8
    sim.run_until(HORIZON_S)
    assert sim.verdict is not None
    assert sim.verdict.evidence.good == 4


@pytest.mark.parametrize("seed", range(10))
def test_room_that_comes_back_is_used_again(seed: int) -> None:
    def room(age_s: float) -> int:
        return 8 if age_s < 900 or age_s > 1800 else 3

    sim = Sim(seed, policy_for_sim(), 1, amdahl(0.01), room, Weather(noise=0.03, away=0.02)).run_until(850)
    assert sim.size == 8
    sim.run_until(1200)
    assert sim.verdict is not None
    assert sim.verdict.evidence.good == 3
    assert sim.run_until(HORIZON_S).size == 8


NUMBERS = st.floats() | st.sampled_from((1e-320, 1e-16, 1e-9, 0.25, 1.0, 100.0, 1e9, 1e16, 1e301))
SAMPLES = st.builds(
    Sample,
    st.integers(0, 4),
    seconds=st.none() | NUMBERS,
    rate=st.none() | NUMBERS,
    step=st.none() | st.integers(),
    epoch=st.none() | st.integers(0, 3),
)
SITUATIONS = st.builds(
    Situation,
    st.sampled_from((1, 1, 1, 4)),
    st.integers(0, 9),
    st.integers(0, 9),
    is_started=st.booleans(),
    unschedulable_s=st.none() | st.floats(0, 1e5),
    refused_s=st.none() | st.floats(0, 1e5),
    room=st.booleans(),
    samples=st.lists(SAMPLES, max_size=8).map(tuple),
    watched_s=st.floats(0),
    trouble=st.sampled_from(("", "the pattern took too long")),
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    seen=st.lists(st.tuples(SITUATIONS, st.floats(-1e4, 1e5)), min_size=1, max_size=12),
    most=st.integers(1, 9),
    allowed=st.lists(st.integers(1, 9), max_size=4).map(tuple),
)
def test_whatever_is_seen_a_new_operator_decides_as_the_old_one_would_have(
    seen: list[tuple[Situation, float]], most: int, allowed: tuple[int, ...]
) -> None:
    policy = policy_for_sim(max=most, allowed=allowed, window=2, warm_up=1)
    now_s, old = 1e9, None
    for situation, pause_s in seen:
        now_s += pause_s
        verdict = scale(policy, old, situation, now_s)
        assert scale(policy, decode(encode(old)) if old else None, situation, now_s) == verdict
        assert verdict.target in sizes_of(policy)
        assert verdict.elastic.goes_on or verdict.elastic.message
        assert verdict.wake_after_s is None or verdict.wake_after_s > 0
        old = verdict.evidence
