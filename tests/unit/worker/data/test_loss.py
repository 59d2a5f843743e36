from __future__ import annotations

from contextlib import nullcontext

from planaria.worker.data import Portion, accumulating, weighted
from planaria.worker.data.counted import emptied


def portion(size: int, *, closes: bool = True) -> Portion:
    return Portion(start=0, size=size, repeats=0, of=10, world_size=4, reach=10, closes=closes)


class Model:
    def no_sync(self) -> nullcontext[str]:
        return nullcontext("apart")


def test_a_loss_weighs_as_much_as_its_samples() -> None:
    assert weighted(2.0, portion(5)) == 4.0
    assert weighted(float("nan"), portion(0)) == 0.0


def test_gradients_meet_in_the_last_turn_of_a_step() -> None:
    with accumulating(Model(), portion(1, closes=False)) as where:
        assert where == "apart"
    with accumulating(Model(), portion(1)) as where:
        assert where is None


def test_an_emptied_batch_has_the_fields_of_a_full_one() -> None:
    class Array:
        shape = (1, 3)

        def __getitem__(self, rows: slice) -> str:
            return f"{rows.stop} rows"

    assert emptied({"x": Array(), "name": ["a"], "pair": (Array(), Array())}) == {
        "x": "0 rows",
        "name": [],
        "pair": ("0 rows", "0 rows"),
    }
    opaque = object()
    assert emptied([opaque]) == [opaque]
