from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakMethod

import pytest
from keeping_agent import TIMEOUT_S, Agent

from planaria.contract import vault
from planaria.contract.commit import Stamp
from planaria.errors import StateRefused
from planaria.worker import agent_vault
from planaria.worker.agent_vault import AgentVault
from planaria.worker.state import ElasticState


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    gc.collect()  # what a refusal of an earlier test still holds: some tests count what is mapped
    found = Agent(str(tmp_path / "control"))
    yield found
    found.close()


def state_of(agent: Agent, **values: object) -> ElasticState:
    return ElasticState(vault=AgentVault(agent.path), **{"step": 0, "text": "", **values})


def test_a_state_comes_back_in_the_next_life(agent: Agent) -> None:
    state = state_of(agent)
    assert state.restore() is None
    for step in range(1, 6):
        state.step, state.text = step, "x" * step
        assert state.commit(wait="node").reached == "node"
    agent.restart()
    again = state_of(agent)
    stamp = again.restore()
    assert stamp is not None
    assert (stamp.round, stamp.generation, again.step, again.text) == (0, 5, 5, "xxxxx")
    assert again.commit(wait="node").stamp.order == (1, 1, 6)


def test_a_state_that_grows_gets_larger_memory(agent: Agent) -> None:
    state = state_of(agent)
    for size in (10, 3_000_000, 6_000_000):
        state.text = "y" * size
        state.commit(wait="node")
        state.commit(wait="node")
    agent.restart()
    again = state_of(agent)
    again.restore()
    assert again.text == "y" * 6_000_000
    assert len(agent.keeper._stock._numbers) == 2


def test_damage_in_the_agents_memory_is_noticed(agent: Agent, capfd: pytest.CaptureFixture[str]) -> None:
    state = state_of(agent, text="z" * 10_000)
    state.commit(wait="node")
    (memory,) = agent.keeper._stock._numbers.values()
    os.pwrite(memory, b"!", 4096 + 5000)
    with pytest.raises(StateRefused, match="damaged"):
        state.restore()
    assert "damaged" in capfd.readouterr().err
    agent.restart()
    assert state_of(agent).restore() is None


def test_two_damaged_copies_in_a_row_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def load(_vault: AgentVault, *, is_damaged: bool) -> None:
        asked.append(is_damaged)
        raise ValueError(f"flipped {len(asked)}")

    monkeypatch.setattr(AgentVault, "_load", load)
    with pytest.raises(StateRefused, match="damaged, too: flipped 2"):
        ElasticState(vault=AgentVault("/nowhere"), step=0).restore()
    assert asked == [False, True]
    assert "damaged (flipped 1)" in capfd.readouterr().err


def test_in_the_midst_of_a_life_a_state_goes_back_to_its_newest_commit(agent: Agent) -> None:
    state = state_of(agent, text="a")
    state.commit(wait="node")
    state.text = "b"
    found = state.restore()
    assert found is not None
    assert (found.generation, state.text) == (1, "a")


def test_a_wait_that_a_signal_ends_leaves_the_next_answer_right(agent: Agent) -> None:
    """The answer to the question that was given up comes with memory, which the next answer counts on."""
    found = AgentVault(agent.path)
    assert found.origin.rank == 0
    found._send(vault.Open(1_000_000, 5000))  # asked, and nobody waits for it
    assert len(found.open(5000)) >= 5000
    assert len(found.open(5000)) >= 5000


@pytest.mark.timeout(60)
def test_memory_that_was_asked_for_by_a_commit_that_was_refused_is_nobody_s(agent: Agent) -> None:
    """The answer comes while another one is waited for; the next commit does not wait for it as well."""
    state = state_of(agent, text="a")
    state.commit(wait="node")
    state.text = agent.close  # type: ignore[assignment]  # which cannot be kept
    with pytest.raises(StateRefused, match="cannot be kept"):
        state.commit(wait="node")
    state.text = "b"
    state.restore()
    assert state.text == "a"
    assert state.commit(wait="node").reached == "node"


def test_memory_that_was_asked_for_is_not_asked_for_again(agent: Agent) -> None:
    found = AgentVault(agent.path)
    found.begin_open(5000)
    begun = found._begun
    found.begin_open(4000)
    assert found._begun == begun
    assert len(found.open(5000)) >= 5000


def test_a_commit_that_the_agent_was_not_told_of_has_not_reached_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = AgentVault(agent.path)
    stamp = found.origin.stamp(1, 1)
    found.open(5000)
    found.sealed(stamp)
    assert found.wait(stamp, "node", TIMEOUT_S) == "node"

    def fail(_message: object) -> None:
        raise OSError("it has hung up")

    monkeypatch.setattr(found, "_send", fail)
    found.sealed(stamp)  # the same number again, as behind a restore
    with pytest.raises(StateRefused, match="the agent does not answer"):
        found.wait(stamp, "node", TIMEOUT_S)


def test_an_agent_that_has_gone_is_a_sentence(agent: Agent) -> None:
    state = state_of(agent)
    state.commit(wait="node")
    agent.restart()
    with pytest.raises(StateRefused, match="the agent does not answer"):
        state.commit()


def test_where_nobody_listens_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StateRefused, match="the agent does not answer"):
        ElasticState(vault=AgentVault(str(tmp_path / "nobody")), step=0).commit()


def test_an_agent_that_says_nothing_is_not_waited_for_longer_than_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_vault, "SLACK_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with pytest.raises(StateRefused, match="time is over"):
            AgentVault(str(tmp_path / "silent")).wait(Stamp(1, 0, 1, 1, 1, 0), "node", 0.05)


def test_a_long_wait_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    waited, say_wait = threading.Semaphore(0), AgentVault._say_wait

    def counted(found: AgentVault) -> None:
        say_wait(found)
        waited.release()

    monkeypatch.setattr(agent_vault, "WAIT_S", 0.02)
    monkeypatch.setattr(AgentVault, "_say_wait", counted)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.bind(str(tmp_path / "slow"))
        slow.listen()
        found = AgentVault(str(tmp_path / "slow"))

        def answer() -> None:
            peer, _ = slow.accept()
            with peer:
                for _ in range(3):
                    waited.acquire(timeout=TIMEOUT_S)
                peer.sendall(vault.encode(vault.Refused(1, "no", "go home")))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(StateRefused, match="no"):
            found.open(100)
        thread.join(TIMEOUT_S)
    assert capfd.readouterr().err.count("all ranks commit the same steps") == 1


def test_a_standby_is_told_to_join_first(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_planaria_waits", lambda: True, raising=False)
    state = state_of(agent)
    for use in (state.restore, state.sync, state.commit):
        with pytest.raises(
            StateRefused, match=r"^the state is used before planaria.worker.join\(\): this process"
        ) as said:
            use()
        assert "its last lines" not in said.value.hint


def test_what_was_read_is_not_held_on_to(agent: Agent) -> None:
    state = state_of(agent, text="z" * 10_000)
    state.commit(wait="node")
    state.restore()
    assert state._vault._found == {}  # type: ignore[attr-defined]
    with open("/proc/self/maps") as file:
        private = [line for line in file if "planaria-snapshot" in line and line.split()[1].endswith("p")]
    assert private == []


def times_mapped(*memories: int) -> int:
    """How often these memories are mapped here: those of earlier tests may be, until they are collected."""
    numbers = {str(os.fstat(memory).st_ino) for memory in memories}
    with open("/proc/self/maps") as file:
        return sum("planaria-snapshot" in line and line.split()[4] in numbers for line in file)


def descriptors_of(agent: Agent) -> dict[int, int]:
    """The memory as a standby gets it: descriptors of its own."""
    return {number: os.dup(memory) for number, memory in agent.keeper.memory_of(0).items()}


@pytest.fixture
def nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(agent_vault, "_PREPARE", [])
    yield
    agent_vault.map_ahead({})


def new_memory() -> int:
    descriptor = os.memfd_create("planaria-snapshot", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, 4096)
    return descriptor


@pytest.mark.usefixtures("nothing_ahead")
def test_memory_that_was_mapped_ahead_is_what_the_next_life_writes_into(agent: Agent) -> None:
    state = state_of(agent, text="z" * 100_000)
    state.commit(wait="node")
    state.commit(wait="node")
    agent_vault.map_ahead(descriptors_of(agent))
    ahead = dict(agent_vault._AHEAD)
    assert sorted(ahead) == sorted(agent.keeper.memory_of(0))
    del state
    assert times_mapped(*agent.keeper.memory_of(0).values()) == 2
    agent.restart()
    again = state_of(agent)
    again.restore()
    for step in (3, 4):
        again.step = step
        assert again.commit(wait="node").reached == "node"
    assert agent_vault._AHEAD == {}
    mapped = again._vault._slots  # type: ignore[attr-defined]
    assert all(mapped[number] is ahead[number] for number in ahead)
    assert times_mapped(*agent.keeper.memory_of(0).values()) == 2


@pytest.mark.usefixtures("nothing_ahead")
def test_all_pages_of_memory_that_is_mapped_ahead_are_touched_and_its_descriptor_goes_with_it() -> None:
    memory = os.memfd_create("planaria-snapshot", os.MFD_CLOEXEC)
    os.ftruncate(memory, 1 << 20)
    before = os.listdir("/proc/self/fd")
    agent_vault.map_ahead({7: os.dup(memory)})
    assert os.fstat(memory).st_blocks * 512 == 1 << 20
    agent_vault.map_ahead({})
    assert os.listdir("/proc/self/fd") == before
    os.close(memory)


@pytest.mark.usefixtures("nothing_ahead")
def test_memory_that_is_not_named_any_more_is_let_go_and_what_cannot_be_mapped_harms_nobody() -> None:
    named = [new_memory() for _ in range(3)]
    agent_vault.map_ahead({1: os.dup(named[0]), 2: os.dup(named[1])})
    kept = agent_vault._AHEAD[2]
    useless = {4: os.open(os.devnull, os.O_RDONLY), 5: os.memfd_create("empty")}
    agent_vault.map_ahead({2: None, 3: os.dup(named[2]), **useless})
    assert sorted(agent_vault._AHEAD) == [2, 3]
    assert agent_vault._AHEAD[2] is kept
    assert [times_mapped(memory) for memory in named] == [0, 1, 1]
    for memory in named:
        os.close(memory)


@pytest.mark.usefixtures("nothing_ahead")
def test_a_device_prepares_each_memory_that_is_mapped_ahead_once_and_may_refuse() -> None:
    prepared: list[memoryview] = []

    class Device:
        def register(self, memory: memoryview) -> None:
            prepared.append(memory)

        def refuse(self, _memory: memoryview) -> None:
            raise RuntimeError("no device")

    device = Device()
    agent_vault.map_ahead({1: new_memory()})
    agent_vault.prepare_ahead(device.register)
    agent_vault.map_ahead({1: None, 2: new_memory()})
    assert prepared == [agent_vault._AHEAD[1], agent_vault._AHEAD[2]]
    agent_vault._PREPARE.append(WeakMethod(device.refuse))
    agent_vault.map_ahead({1: None, 2: None, 3: new_memory()})
    assert sorted(agent_vault._AHEAD) == [1, 2, 3]
    del device  # nobody keeps a device that its state has let go of
    agent_vault.map_ahead({1: None, 2: None, 3: None, 4: new_memory()})
    assert len(prepared) == 3
    assert agent_vault._PREPARE == []


@pytest.mark.usefixtures("nothing_ahead")
def test_memory_that_was_replaced_after_it_was_mapped_ahead_is_not_written(agent: Agent) -> None:
    state = state_of(agent)
    state.commit(wait="node")
    state.commit(wait="node")
    agent_vault.map_ahead(descriptors_of(agent))
    old = set(agent_vault._AHEAD)
    for _ in range(2):  # in larger memory now, of which the standby has not heard
        state.text = "y" * 100_000
        state.commit(wait="node")
    agent.restart()
    again = state_of(agent)
    again.restore()
    assert again.text == "y" * 100_000
    assert again.commit(wait="node").reached == "node"
    assert agent_vault._AHEAD == {}
    assert not old & set(again._vault._slots)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("nothing_ahead")
@pytest.mark.parametrize("is_promoted", [False, True])
def test_a_commit_is_read_where_its_slot_is_mapped(agent: Agent, is_promoted: bool) -> None:
    """That is where a device has registered the memory."""
    state = state_of(agent, text="z" * 100_000)
    state.commit(wait="node")
    if is_promoted:
        agent_vault.map_ahead(descriptors_of(agent))
        agent.restart()
        state = state_of(agent)
    assert state._vault.origin.rank == 0  # connected
    before = times_mapped(*agent.keeper.memory_of(0).values()), len(os.listdir("/proc/self/fd"))
    found = state._vault.load()
    assert found is not None
    assert found.own is not None
    known = agent_vault._AHEAD if is_promoted else state._vault._slots  # type: ignore[attr-defined]
    assert found.own[0] in [*known.values()]
    assert (times_mapped(*agent.keeper.memory_of(0).values()), len(os.listdir("/proc/self/fd"))) == before
