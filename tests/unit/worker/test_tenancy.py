"""States of one process that would use the memory of one agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from keeping_agent import Agent
from waiting import wait_until

from planaria.contract.commit import LINE, next_line
from planaria.errors import StateRefused
from planaria.worker import tenancy
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ANOTHER = "another ElasticState of this process is in the agent's memory"


@pytest.fixture
def under_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent that is this process's own, as the environment says."""
    found = Agent(str(tmp_path / "control"))
    monkeypatch.setenv("PLANARIA_CONTROL", found.path)
    monkeypatch.setattr(tenancy, "_AGENTS", tenancy.Tenancy())
    yield found
    found.close()


def test_a_state_under_an_agent_uses_its_memory(under_agent: Agent) -> None:
    state = ElasticState(step=4)
    state.commit(wait="node")
    # The worker does not wait for its agent, which hears it before it hears of the worker's end.
    assert wait_until(lambda: under_agent.keeper.newest.get("node"), "the agent has heard of it").step == 4


@pytest.mark.usefixtures("under_agent")
@pytest.mark.parametrize("use", [ElasticState.commit, ElasticState.restore, ElasticState.sync])
def test_a_second_state_of_a_worker_is_refused_while_there_is_a_first(use: Callable[[ElasticState], object]) -> None:
    first, second = ElasticState(step=0, text="first"), ElasticState(step=0, text="second")
    first.commit(wait="node")
    with pytest.raises(StateRefused, match=ANOTHER) as refused:
        use(second)
    assert "LocalVault" in str(refused.value.hint)
    first.text = ""
    assert first.commit(wait="node").reached == "node", "which loses nothing by it"
    first.restore()
    assert first.text == ""


@pytest.mark.usefixtures("under_agent")
def test_a_state_that_was_made_and_never_used_is_in_nobodys_way() -> None:
    unused, used = ElasticState(step=0), ElasticState(step=0)
    assert used.commit(wait="node").reached == "node"
    with pytest.raises(StateRefused, match=ANOTHER):
        unused.commit()
    del used
    assert unused.restore() is not None


@pytest.mark.usefixtures("under_agent")
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_state_in_the_place_of_one_that_was_let_go_counts_on(size: int) -> None:
    """The larger one is sealed by a thread, which holds it for a while; and a traceback or a cycle holds it as well."""
    for life in range(3):
        state = ElasticState(step=0, text=f"{life}" * size)
        state.step = life
        holder = [vars(state)]
        holder.append(holder)  # type: ignore[arg-type]  # a cycle
        vars(state)["_holder"] = [state, holder]
        assert state.commit().stamp.generation == life + 1
    again = ElasticState(step=0, text="")
    del state, holder
    found = again.restore()
    assert found is not None
    assert (found.generation, again.step, again.text[0], len(again.text)) == (3, 2, "2", size)
    assert again.commit(wait="node").stamp.generation == next_line(3, (1, 0, 3)) + 1, "in another line"


@pytest.mark.usefixtures("under_agent")
def test_a_state_with_a_vault_of_its_own_is_a_second_one() -> None:
    first = ElasticState(step=1)
    second = ElasticState(step=2, vault=LocalVault())
    first.commit(wait="node")
    second.commit(wait="node")
    first.step = second.step = 3
    first.restore()
    second.restore()
    assert (first.step, second.step) == (1, 2)


class Choosy:
    """Takes what is of its own kind."""

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def state_dict(self) -> dict[str, int]:
        return {"kind": self._kind}

    def load_state_dict(self, found: dict[str, int]) -> None:
        if found["kind"] != self._kind:
            raise ValueError("not that")


@pytest.mark.usefixtures("under_agent")
def test_a_state_that_was_refused_what_there_is_makes_room_for_another() -> None:
    before = ElasticState(step=4, sampler=Choosy(1))
    before.commit(wait="node")
    del before
    refused = ElasticState(step=0, sampler=Choosy(2))
    try:
        refused.restore()
    except StateRefused:  # its traceback holds the state
        another = ElasticState(step=0, sampler=Choosy(1))
        assert another.restore() is not None
        assert another.step == 4
    with pytest.raises(StateRefused, match=ANOTHER):
        refused.commit()


def test_the_first_restore_of_a_life_counts_on_and_a_later_one_begins_a_line() -> None:
    count = tenancy.Tenancy()
    count.restored((1, 2, 7))
    assert [count.next_generation(), count.next_generation()] == [8, 9]
    count.restored((1, 3, 8))
    assert count.next_generation() // LINE == 1
    count.restored((1, 2, 7))
    count.restored(None)
    assert count.next_generation() == 3 * LINE + 1, "one for each time"


def test_who_commits_before_it_restores_does_not_use_an_order_twice() -> None:
    count = tenancy.Tenancy()
    count.next_generation()
    count.restored(None)
    assert count.next_generation() == LINE + 1
    count = tenancy.Tenancy()
    count.restored((1, 2, 5 * LINE + 3))
    assert count.next_generation() == 5 * LINE + 4, "a life that begins from another's line goes on in it"


@pytest.mark.usefixtures("under_agent")
def test_a_commit_that_is_refused_counts_as_one() -> None:
    state = ElasticState(step=0, extra=None)
    assert state.commit(wait="node").stamp.generation == 1
    state.extra = object()
    with pytest.raises(StateRefused, match="cannot be kept"):
        state.commit()
    with pytest.raises(StateRefused, match="takes one of"):
        state.commit(wait="nowhere")  # type: ignore[arg-type]
    state.extra = None
    assert state.commit(wait="node").stamp.generation == 4


@pytest.mark.usefixtures("under_agent")
def test_a_call_of_a_second_state_is_none_of_the_first_ones_commits() -> None:
    first, second = ElasticState(step=0), ElasticState(step=0)
    first.commit(wait="node")
    with pytest.raises(StateRefused, match=ANOTHER):
        second.commit()
    assert first.commit(wait="node").stamp.generation == 2
