"""What an ElasticState cannot be made of is said when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from planaria.contract.commit import Origin
from planaria.errors import StateRefused
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault


class Net:
    """Something with a state of its own."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take it."""


class Older(LocalVault):
    """A vault that does not hear of commits that are not made."""

    skipped = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Older()"


class Nowhere:
    """A vault that does not say where its commits come from."""

    begin_open = open = sealed = skipped = wait = load = print

    def __repr__(self) -> str:
        return "Nowhere()"


class Late(LocalVault):
    """A vault that knows where its commits come from when all nodes are there, as that of an agent."""

    @property
    def origin(self) -> Origin:
        raise RuntimeError("not yet")

    @origin.setter
    def origin(self, _origin: Origin) -> None: ...


class Wrapper:
    """A vault around another one."""

    def __init__(self, inside: LocalVault) -> None:
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


@pytest.mark.parametrize("vault", [Late(), Wrapper(LocalVault())])
def test_a_vault_is_asked_nothing_when_a_state_is_made(vault: Any) -> None:
    ElasticState(vault=vault, step=0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": Net}, "model is the class Net, not an object of it"),
        ({"mine": Net}, "mine is the class Net, not an object of it"),
        (
            {"optimizer": "adam"},
            r"optimizer expects an object with state_dict\(\) and load_state_dict\(\), or arrays, got a str",
        ),
        ({"scheduler": [Net(), 1]}, r"scheduler expects an object with state_dict\(\) .* got a list"),
        ({"vault": "x"}, "vault expects a vault, got 'x'"),
        ({"vault": ""}, "vault expects a vault, got ''"),
        ({"vault": LocalVault}, "vault expects a vault, got <class"),
        ({"vault": Older()}, r"vault expects a vault, got Older\(\), which has no skipped\(\)"),
        ({"vault": Nowhere()}, r"vault expects a vault, got Nowhere\(\), which has no origin"),
        ({"replicated": "no"}, "replicated expects True, False or None, got 'no'"),
        ({"replicated": 0}, "replicated expects True, False or None, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_state_is_made(given: dict[str, Any], says: str) -> None:
    with pytest.raises(StateRefused, match=f"^{says}"):
        ElasticState(**{"vault": LocalVault(), "step": 0, **given})


def test_programs_without_torch_may_have_plain_data_for_an_optimizer() -> None:
    numpy = pytest.importorskip("numpy")
    state = ElasticState(vault=LocalVault(), model=[1.0], optimizer={"speed": 1.0}, scheduler=numpy.ones(2), step=0)
    state.commit()
    ElasticState(vault=LocalVault(), optimizer=[numpy.ones(2), 3], scheduler=({"speed": 1.0},), step=0).commit()
    assert ElasticState(vault=LocalVault(), model=Net(), optimizer=Net(), scheduler=Net(), replicated=True).commit()
