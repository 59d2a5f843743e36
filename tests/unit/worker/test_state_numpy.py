"""The elastic state with arrays, numbers and generators of NumPy."""

from __future__ import annotations

from typing import Any

import pytest

from planaria.errors import StateRefused
from planaria.worker.outcome import Commit
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault


def numpy() -> Any:
    return pytest.importorskip("numpy")


def test_arrays_are_restored_in_place_or_anew_when_they_are_different() -> None:
    np = numpy()
    vault = LocalVault()
    same, grown = np.arange(6.0).reshape(2, 3).T, np.arange(3)
    state = ElasticState(vault=vault, same=same, grown=grown, scalar=np.float32(0.1), inside=[{"w": np.ones(2, ">i4")}])
    state.commit()
    wanted = same.copy()
    same[...] = 0
    state.grown = np.zeros(9)
    state.scalar = None
    state.inside[0]["w"][:] = 7
    inside = state.inside[0]["w"]
    state.restore()
    assert state.same is same
    assert (same == wanted).all()
    assert (state.grown == [0, 1, 2]).all()
    assert type(state.scalar) is np.float32
    assert state.scalar == np.float32(0.1)
    assert state.inside[0]["w"] is inside
    assert inside.tolist() == [1, 1]
    assert inside.dtype == ">i4"


def test_restored_arrays_do_not_live_in_the_snapshot() -> None:
    np = numpy()
    vault = LocalVault()
    state = ElasticState(vault=vault, a=np.arange(4))
    state.commit()
    state.a = None
    state.restore()
    state.a[:] = 9
    state.restore()
    assert state.a.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda np: np.array([1, 2], dtype="M8[ns]"),
        lambda np: np.array(["ab", "c"]),
        lambda np: np.array([b"ab", b"c"]),
        lambda np: np.array([], dtype="f4").reshape(0, 3),
        lambda np: np.array(5, dtype=np.complex128),
        lambda np: np.array([True, False]),
        lambda np: np.float64(0.1),
        lambda np: np.arange(12)[::-2],
        lambda np: np.array([1.5], dtype=np.float16),
    ],
)
def test_arrays_of_every_plain_kind_come_back_as_they_were(make: Any) -> None:
    np = numpy()
    state = ElasticState(a=make(np))
    state.commit()
    state.a = None
    state.restore()
    assert type(state.a) is type(make(np))
    assert state.a.dtype == make(np).dtype
    assert state.a.shape == make(np).shape
    assert (state.a == make(np)).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda np: np.array([object()]),
        lambda np: np.zeros(2, dtype=[("a", "i4")]),
        lambda np: np.ma.array([1]),
    ],
)
def test_arrays_that_are_not_plain_are_refused(make: Any) -> None:
    with pytest.raises(StateRefused, match=r"^a\[0\] cannot be kept: it is an? "):
        ElasticState(a=[make(numpy())]).commit()


def test_numpy_s_random_numbers_go_on_where_they_were() -> None:
    np = numpy()
    state = ElasticState(own=np.random.default_rng(4))
    state.commit()
    wanted = [np.random.normal(), state.own.normal()]
    assert state.restore()
    assert [np.random.normal(), state.own.normal()] == wanted


def test_another_generator_that_numpy_was_given_goes_on_where_it_was() -> None:
    np = numpy()
    usual = np.random.get_bit_generator()
    try:
        for kind in (np.random.PCG64, np.random.Philox):
            np.random.set_bit_generator(kind(5))
            state = ElasticState(step=0)
            state.commit()
            wanted = np.random.rand(3).tolist()
            assert state.restore()
            assert np.random.rand(3).tolist() == wanted
    finally:
        np.random.set_bit_generator(usual)


def test_a_large_state_is_sealed_behind_the_caller_s_back_and_two_slots_take_turns() -> None:
    np = numpy()
    vault = LocalVault()
    state = ElasticState(vault=vault, a=np.zeros(1 << 20), step=0)
    for step in range(5):
        state.step = step
        state.a[:] = step
        found = state.commit()
        assert isinstance(found, Commit)
        state.a[:] = -1
    assert state.restore().step == 4  # type: ignore[union-attr]
    assert (state.a == 4).all()
    assert len(vault._slots) == 2


def test_a_generator_of_another_kind_is_refused_and_nothing_changed() -> None:
    np = numpy()
    vault = LocalVault()
    ElasticState(vault=vault, table=np.ones(3), own=np.random.Generator(np.random.PCG64(1))).commit()
    table = np.zeros(3)
    state = ElasticState(vault=vault, table=table, own=np.random.Generator(np.random.MT19937(1)))
    with pytest.raises(StateRefused, match="own does not take what the snapshot has"):
        state.restore()
    assert table.tolist() == [0, 0, 0]


def test_two_values_that_are_one_array_now_and_were_two_then_come_back_as_two() -> None:
    vault = LocalVault()
    state = ElasticState(vault=vault, weights=numpy().full(4, 2.0), best=numpy().full(4, 1.0), again=None)
    state.again = {"weights": state.weights}
    state.commit()
    weights = state.best = state.weights
    state.again = {"weights": weights}
    assert state.restore()
    assert state.weights is weights, "in place, as ever"
    assert [*weights, *state.best] == [2.0] * 4 + [1.0] * 4
    assert state.again["weights"] is weights, "what was one stays one"
    begun = numpy().zeros(4)
    other = ElasticState(vault=vault, best=begun, weights=begun[::-1], again={"weights": begun})
    assert other.restore()
    assert [*other.weights, *other.best, *other.again["weights"]] == [2.0] * 4 + [1.0] * 4 + [2.0] * 4
