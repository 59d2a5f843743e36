"""All or none: what happens to the parts that were loaded when a later one refuses."""

from __future__ import annotations

import pytest

from planaria.errors import StateRefused
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault


class Part:
    """Has a number, and refuses those of `no`."""

    def __init__(self, number: int, *no: int) -> None:
        self.number = number
        self.no = no

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if state["number"] in self.no:
            raise LookupError(f"{state['number']} is refused")
        self.number = state["number"]


def test_a_part_that_does_not_take_back_what_it_had_is_named_and_the_others_are_put_back() -> None:
    vault = LocalVault()
    ElasticState(vault=vault, a=Part(7), b=Part(7), c=Part(7), step=3).commit()
    a, b, c = Part(1), Part(2, 2), Part(3, 7)
    with pytest.raises(StateRefused) as said:
        ElasticState(vault=vault, a=a, b=b, c=c, step=0).restore()
    assert str(said.value).startswith(
        "c does not take what the snapshot has: 7 is refused; "
        "b does not take back what it had (2 is refused), and may be changed"
    )
    assert (a.number, b.number, c.number) == (1, 7, 3)


def test_what_was_put_back_is_not_put_back_once_more() -> None:
    vault = LocalVault()
    ElasticState(vault=vault, a=Part(7), c=Part(7), step=3).commit()
    a, c = Part(1), Part(3, 7)
    state = ElasticState(vault=vault, a=a, c=c, step=0)
    with pytest.raises(StateRefused):
        state.restore()
    c.no = ()
    state.restore()
    assert (a.number, c.number) == (7, 7)
