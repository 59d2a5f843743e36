from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from keeper_rig import MEGABYTE, TIMEOUT_S, Rig, life
from unmapped import WHY

from planaria.agent.control import Peer
from planaria.agent.keeper import Keeper
from planaria.agent.rounds import Neighbours
from planaria.agent.settings import Shelter
from planaria.agent.stock import Memfd, Stock
from planaria.contract import snapshot as snapshots
from planaria.contract import vault
from planaria.contract.commit import Stamp
from planaria.contract.env import Round


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.keeper.close()
    found.loop.close()


def test_who_asks_is_told_its_place(rig: Rig) -> None:
    assert rig.ask(1, vault.Join(5)) == vault.Place(5, 1, 0, 1, 2, False)
    assert rig.ask(0, vault.Join(6)) == vault.Place(6, 1, 0, 0, 2, True)


def test_without_a_directory_that_is_said_once(rig: Rig) -> None:
    assert len(rig.said) == 1
    assert "--snapshot-dir" in rig.said[0]


class Harbour:
    """A dock at which nobody ever comes."""

    def attend(self, *_: object) -> object:
        raise AssertionError("an anchor attends nobody")


def test_a_job_of_several_nodes_that_begins_alone_says_so_and_then_when_it_changes(
    rig: Rig,
) -> None:
    said: list[str] = []
    keeper = Keeper(
        rig.loop,
        rig,  # type: ignore[arg-type]  # as in the rig
        Stock(2, lambda: rig.free),
        Shelter(),
        said.append,
        lambda _host: Harbour(),  # type: ignore[arg-type,return-value]  # all that is asked of it
    )
    alone, two = Neighbours("a:1"), Neighbours("a:1", "b:1")
    of_two = Round(1, "run", "role", 0, 2, 0, 4, 0, 4, 2, "::1", 1, 0, 9)
    for neighbours in (alone, alone, two, two, alone, alone):
        keeper.begin(life() if neighbours is alone else of_two, neighbours)
    assert [line.partition(":")[0] for line in said] == [
        "commits are kept in this agent's memory",
        "commits are kept in the memory of two agents from now on",
        "commits are kept in this agent's memory from now on",
    ]
    keeper.close()


def test_memory_comes_along_the_first_time_only(rig: Rig) -> None:
    for generation in (1, 2):
        for rank in (0, 1):
            assert rig.commit(rank, generation).is_new
    again = rig.commit(0, 3)
    assert not again.is_new
    assert rig.answers[-1][2] == ()
    assert again.number in again.numbers


def test_who_stands_by_for_a_rank_may_have_its_memory_and_no_other(rig: Rig) -> None:
    assert rig.keeper.memory_of(0) == {}
    own = [rig.commit(0, 1).number]
    other = rig.commit(1, 1).number
    own.append(rig.commit(0, 2).number)
    assert rig.keeper.memory_of(0) == {number: rig.keeper._stock._numbers[number] for number in own}
    assert set(rig.keeper.memory_of(1)) == {other}
    rig.commit(1, 2)
    larger = rig.commit(0, 3, 50_000)
    assert set(rig.keeper.memory_of(0)) == set(larger.numbers) == {own[1], larger.number}


def test_a_rank_that_is_ahead_is_answered_when_the_others_have_come(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.commit(0, 2)
    assert rig.ask(0, vault.Open(7, 10_000)) is None
    rig.commit(1, 2)
    peer, answer, _ = rig.answers[-1]
    assert peer is rig.peers[0]
    assert isinstance(answer, vault.Slot)
    assert answer.id == 7


def test_a_new_life_gets_the_newest_complete_commit(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.commit(1, 2)
    rig.new_life(1)
    assert rig.ask(0, vault.Load(3, False)) == vault.Found(3, ("own",), (1,), "", ())
    (memory,) = rig.answers[-1][2]
    assert snapshots.read(memoryview(os.pread(memory, 1 << 20, 0))).stamp == Stamp(1, 0, 1, 10, 2, 0)  # type: ignore[union-attr]
    assert rig.ask(1, vault.Load(4, False)) == vault.Found(4, ("own", "shared"), (2, 1), "", ())


def test_at_a_first_start_there_is_none(rig: Rig) -> None:
    assert rig.ask(0, vault.Load(3, False)) == vault.Found(3, (), (), "", ())


@pytest.mark.parametrize("restores", [True, False])
def test_a_program_that_commits_and_has_not_gone_back_to_what_there_is_hears_of_it_once(
    rig: Rig, restores: bool
) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    already = len(rig.said)
    for number in (1, 2):
        rig.new_life(number)
        for rank in (0, 1):
            if restores or rank == 0:
                rig.ask(rank, vault.Load(3, False))
                rig.peers[rank] = Peer(
                    -1, 10 + rank, rank
                )  # a state that restores may be another than the one that commits
            rig.commit(rank, 2 * number)
    told = rig.said[already:]
    assert [line.partition(",")[0] for line in told] == (
        [] if restores else ["rank 1 commits and has not restored the commit of step 10"]
    )


@pytest.mark.parametrize("wrong", [{"round": 0}, {"run": 2}, {"rank": 1}, {"world_size": 3}])
def test_a_commit_of_another_round_or_rank_is_refused(rig: Rig, wrong: dict[str, int]) -> None:
    rig.new_life(1)
    slot = rig.ask(0, vault.Open(1, 10_000))
    assert isinstance(slot, vault.Slot)
    fields = {"run": 1, "round": 1, "generation": 1, "step": 1, "world_size": 2, "rank": 0, **wrong}
    with pytest.raises(ValueError, match="another"):
        rig.keeper.hear(rig.peers[0], vault.Sealed(slot.number, **fields))


def test_what_does_not_fit_is_refused_and_what_is_there_stays(rig: Rig) -> None:
    rig.commit(0, 1)
    refused = rig.ask(0, vault.Open(2, 501 * MEGABYTE))
    assert isinstance(refused, vault.Refused)
    assert "501 MB does not fit: it takes 1.00 GB" in refused.message
    rig.commit(1, 1)
    assert rig.keeper.newest["node"].generation == 1


def test_who_finds_no_room_waits_while_others_give_memory_back(rig: Rig) -> None:
    """Standbys took it before anybody knew how large a commit is."""
    stock, asked = rig.keeper._stock, list[int]()

    def make_room() -> bool:
        asked.append(1)
        return True

    stock.make_room = make_room
    rig.free = 100 * MEGABYTE
    assert rig.ask(0, vault.Open(2, 60 * MEGABYTE)) is None
    assert rig.ask(1, vault.Join(3)) is not None, "others are served meanwhile"
    assert asked
    rig.free = 200 * MEGABYTE
    stock.on_free()
    assert isinstance(rig.answers[-1][1], vault.Slot)
    assert rig.keeper.claimed_bytes > 2 * 60 * MEGABYTE, "two slots, and neither is touched yet"


def test_who_finds_no_room_after_all_is_refused(rig: Rig) -> None:
    stock, given = rig.keeper._stock, iter((True, False))
    stock.make_room = lambda: next(given)
    rig.free = 100 * MEGABYTE
    assert rig.ask(0, vault.Open(2, 60 * MEGABYTE)) is None
    stock.on_free()
    assert isinstance(rig.answers[-1][1], vault.Refused)


def test_a_slot_that_is_too_small_makes_room_for_a_larger_one(rig: Rig) -> None:
    for generation in (1, 2):
        for rank in (0, 1):
            rig.commit(rank, generation)
    larger = rig.commit(0, 3, MEGABYTE)
    assert larger.is_new
    assert len(larger.numbers) == 2
    assert len(rig.keeper._stock._numbers) == 4


def test_a_wait_is_answered_once_all_have_sealed(rig: Rig) -> None:
    rig.commit(0, 1)
    assert rig.ask(0, vault.Await(8, 1, 0, 1, "node", TIMEOUT_S)) is None
    rig.commit(1, 1)
    assert rig.answers[-1][:2] == (rig.peers[0], vault.Reached(8, "node"))
    assert rig.ask(1, vault.Await(9, 1, 0, 1, "disk", TIMEOUT_S)) == vault.Reached(9, "node"), "there is no disk"


def test_a_wait_that_is_over_is_answered_too(rig: Rig) -> None:
    rig.commit(0, 1)
    assert rig.ask(0, vault.Await(8, 1, 0, 1, "node", 0.0)) is None
    rig.run_until(lambda: rig.answers[-1][1] == vault.Reached(8, ""))


def test_memory_that_cannot_be_read_is_given_to_nobody_again(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.new_life(1)
    rig.spoil(0)
    assert rig.ask(0, vault.Load(3, True)) is None, "first it is looked at"
    rig.run_until(lambda: rig.answers[-1][1] == vault.Found(3, (), (), "", ()))
    assert rig.ask(1, vault.Load(4, False)) == vault.Found(4, (), (), "", ())
    assert rig.keeper.newest == {}


def test_a_rank_that_alone_cannot_read_a_commit_is_refused_and_the_commit_is_kept(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.new_life(1)
    assert rig.ask(0, vault.Load(3, True)) is None, "first it is looked at"
    rig.run_until(lambda: rig.answers and isinstance(rig.answers[-1][1], vault.Refused))
    assert isinstance(rig.ask(1, vault.Load(4, False)), vault.Found)
    assert rig.keeper.newest["node"].generation == 1


def test_a_rank_that_began_from_what_another_could_not_read_commits_no_more(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.new_life(1)
    assert rig.ask(0, vault.Load(3, False)) == vault.Found(3, ("own",), (1,), "", ())
    assert isinstance(rig.ask(0, vault.Open(4, 10_000)), vault.Slot)
    rig.spoil(1)
    rig.ask(1, vault.Load(5, True))
    rig.run_until(lambda: rig.answers[-1][1] == vault.Found(5, (), (), "", ()))
    refused = rig.ask(0, vault.Open(6, 10_000))
    assert isinstance(refused, vault.Refused)
    assert "began from a commit that another could not read" in refused.message
    assert isinstance(rig.ask(1, vault.Open(7, 10_000)), vault.Slot)
    with pytest.raises(ValueError, match="began from"):
        rig.keeper.hear(rig.peers[0], vault.Sealed(1, 1, 1, 2, 20, 2, 0))


def test_damage_that_is_found_after_others_have_committed_is_refused(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.new_life(1)
    rig.ask(0, vault.Load(3, False))
    for rank in (0, 1):
        rig.commit(rank, 2)
    rig.spoil(0)
    rig.ask(0, vault.Load(4, True))
    rig.run_until(lambda: isinstance(rig.answers[-1][1], vault.Refused))
    assert rig.keeper.newest["node"].generation == 2


def test_without_a_buddy_a_wait_for_one_ends_at_the_node(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    assert rig.ask(1, vault.Await(9, 1, 0, 1, "buddy", TIMEOUT_S)) == vault.Reached(9, "node")


def test_who_leaves_without_buddy_and_disk_has_handed_nothing_over(rig: Rig) -> None:
    told: list[bool] = []
    rig.keeper.hand_over(told.append)
    assert told == [False]


@pytest.mark.parametrize("message", [vault.Reached(1, ""), vault.Await(1, 1, 0, 1, "moon", 1.0)])
def test_what_no_worker_says_is_an_error(rig: Rig, message: vault.Message) -> None:
    with pytest.raises(ValueError, match=r"agent|tier"):
        rig.keeper.hear(rig.peers[0], message)


def test_nobody_can_change_the_size_of_memory_that_is_lent() -> None:
    descriptor = Memfd().new(8192)
    try:
        for size in (0, 4096, 16384):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
        assert os.pwrite(descriptor, b"x" * 8192, 0) == 8192
    finally:
        os.close(descriptor)


def test_a_commit_that_the_agent_cannot_map_to_look_at_it_is_refused_with_the_reason(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.new_life(1)
    rig.ask(0, vault.Load(3, False))
    rig.memory.is_short = True
    assert rig.ask(0, vault.Load(4, True)) == vault.Refused(4, WHY, "raise the memory limit")
    assert {slot.pins for slot in rig.keeper._stock.slots.all()} == {0}


def test_work_aside_that_fails_unexpectedly_is_told_and_whoever_waits_for_it_goes_on(rig: Rig) -> None:
    found: list[str] = []

    def work() -> str:
        raise RuntimeError("never thought of")

    rig.keeper._aside(work, found.append)
    rig.run_until(lambda: found)
    assert found == ["it could not be verified: RuntimeError: never thought of"]
    assert rig.said[1:] == [
        "a part of a commit could not be verified: RuntimeError: never thought of; training goes on"
    ]


def test_a_commit_that_the_agent_fails_to_look_at_is_refused_and_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("never thought of")

    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.new_life(1)
    rig.ask(0, vault.Load(3, False))
    monkeypatch.setattr("planaria.agent.beginners.damage_of", broken)
    rig.ask(0, vault.Load(4, True))
    rig.run_until(lambda: rig.answers and isinstance(rig.answers[-1][1], vault.Refused))
    assert "never thought of" in str(rig.answers[-1][1])
    assert rig.keeper.newest["node"].generation == 1


def test_a_commit_that_one_was_refused_holds_up_nobody(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.commit(0, 2)
    assert rig.ask(0, vault.Await(8, 1, 0, 2, "node", TIMEOUT_S)) is None
    before = len(rig.answers)
    assert rig.ask(1, vault.Skipped(1, 0, 2)) is None
    assert [answer for _, answer, _ in rig.answers[before:]] == [vault.Reached(8, "")]
    for rank in (0, 1):
        rig.commit(rank, 3)
    assert rig.keeper.newest["node"].generation == 3


def test_who_waits_for_memory_gets_that_of_a_commit_which_another_passed_over(rig: Rig) -> None:
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.commit(0, 2)
    assert rig.ask(0, vault.Open(7, 10_000)) is None
    rig.commit(1, 3)
    peer, answer, _ = rig.answers[-1]
    assert (peer, type(answer)) == (rig.peers[0], vault.Slot)


def test_ranks_with_different_steps_hear_so_once_whether_they_wait_or_go_on(rig: Rig) -> None:
    slots = [rig.ask(rank, vault.Open(1, 10_000)) for rank in (0, 1)]
    steps = (24, 21)
    rig.ask(0, vault.Sealed(slots[0].number, 1, 0, 1, steps[0], 2, 0))  # type: ignore[union-attr]  # it is a slot
    assert rig.ask(0, vault.Await(8, 1, 0, 1, "node", TIMEOUT_S)) is None
    before = len(rig.answers)
    rig.ask(1, vault.Sealed(slots[1].number, 1, 0, 1, steps[1], 2, 1))  # type: ignore[union-attr]  # it is a slot
    ((peer, refused, _),) = rig.answers[before:]
    assert peer is rig.peers[0]
    assert isinstance(refused, vault.Refused)
    assert refused.message == "step is 24 on rank 0 and 21 on rank 1; it must be the same on all ranks"
    assert "step of the whole job" in refused.hint
    assert rig.ask(1, vault.Open(9, 10_000)) == vault.Refused(9, refused.message, refused.hint)
    for rank in (0, 1):
        assert isinstance(rig.ask(rank, vault.Open(10, 10_000)), vault.Slot), "each has heard it"


def test_who_goes_back_does_not_hear_of_what_it_made_before(rig: Rig) -> None:
    slots = [rig.ask(rank, vault.Open(1, 10_000)) for rank in (0, 1)]
    for rank, step in ((0, 24), (1, 21)):
        rig.ask(rank, vault.Sealed(slots[rank].number, 1, 0, 1, step, 2, rank))  # type: ignore[union-attr]  # it is a slot
    rig.ask(1, vault.Load(3, False))
    assert isinstance(rig.ask(1, vault.Open(9, 10_000)), vault.Slot)


def test_a_word_about_a_commit_of_another_round_is_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="another round"):
        rig.ask(1, vault.Skipped(1, 7, 2))
