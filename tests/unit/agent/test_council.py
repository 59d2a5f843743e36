from __future__ import annotations

import pytest
from council_room import FIRST, SECOND, THIRD, Order, Room, for_all, part, plans, present

from planaria.agent.council_messages import (
    Complete,
    Copied,
    Copy,
    Damaged,
    Drop,
    Failed,
    Plan,
    Present,
    Reached,
    Ready,
    Sealed,
    Search,
    Searched,
    Seek,
    Source,
    Unreached,
    Welcome,
    Write,
    Written,
)
from planaria.base.value import replace


def test_nobody_is_told_anything_before_all_are_present() -> None:
    room = Room()
    assert room.say(0, present(0)) == room.say(2, present(2)) == []
    with pytest.raises(ValueError, match="everybody"):
        room.say(0, Ready(1))
    told = room.say(1, present(1))
    assert told[:3] == for_all(Welcome(1))
    assert {plan.kind for plan in plans(told).values()} == {"none"}


@pytest.mark.parametrize("wrong", [present(3), present(1), replace(present(0), local_world_size=0)])
def test_who_has_no_place_in_the_round_is_refused(wrong: Present) -> None:
    with pytest.raises(ValueError, match="place"):
        Room().say(0 if wrong.slot == 1 else wrong.slot, wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        present(1, local_world_size=1 << 40),
        present(1, first_rank=0),
        present(1, first_rank=3),
        present(1, local_world_size=2),
    ],
)
def test_ranks_that_are_not_of_this_world_or_another_s_are_refused(wrong: Present) -> None:
    room = Room()
    room.say(0, present(0))
    room.say(2, present(2))
    with pytest.raises(ValueError, match="place"):
        room.say(1, wrong)
    assert plans(room.say(1, present(1))), "the place is still free for whose it is"


def test_who_was_not_asked_to_search_is_not_heard_about_it() -> None:
    room = Room(disk=True)
    room.open()
    with pytest.raises(ValueError, match="member"):
        room.say(1, Searched(THIRD, 30, 2, THIRD, ""))


def test_one_of_those_who_knew_a_newer_commit_tells_that_it_is_lost() -> None:
    held = [part(FIRST, rank) for rank in range(3)]
    known = (FIRST, SECOND, SECOND)
    told = plans(Room().open(*[present(slot, held[slot], complete=known[slot]) for slot in range(3)]))
    assert [told[slot].is_loss for slot in range(3)] == [False, True, False]
    told = plans(Room().open(*[present(slot, held[slot], complete=FIRST) for slot in range(3)]))
    assert [told[slot].is_loss for slot in range(3)] == [False] * 3


def test_a_commit_that_turns_out_to_be_unreadable_is_told_to_be_lost() -> None:
    room = Room(buddies=False)
    room.open(*[present(slot, part(FIRST, slot), complete=FIRST) for slot in range(3)])
    told = plans(room.say(1, Damaged(FIRST, 1, 1)))
    assert [(told[slot].kind, told[slot].is_loss) for slot in range(3)] == [("none", slot == 0) for slot in range(3)]


def test_all_begin_from_the_newest_commit_of_which_all_parts_are_there() -> None:
    held = [part(order, rank) for rank in range(3) for order in (FIRST, SECOND)]
    told = plans(Room().open(present(0, *held[:2]), present(1, *held[2:4], part(THIRD, 1)), present(2, *held[4:])))
    assert {(plan.kind, plan.order, plan.step, plan.world_size, plan.fetch) for plan in told.values()} == {
        ("memory", SECOND, 20, 3, ())
    }


def test_a_part_counts_wherever_it_is_and_who_lacks_it_is_told_where() -> None:
    """Node 1 was replaced; node 2 has its copy."""
    told = plans(Room().open(present(0, part(FIRST, 0)), present(1, run=0), present(2, part(FIRST, 1), part(FIRST, 2))))
    assert told[1].fetch == (Source(1, 2, "n2", True, 5000),)
    assert told[0].fetch == told[2].fetch == ()
    assert [told[slot].shared for slot in range(3)] == [0, 1, 2], "each node has its own first rank's model"


def test_who_is_new_in_a_larger_world_gets_what_is_shared_from_the_first_rank() -> None:
    told = plans(Room().open(present(0, part(FIRST, 0, 2)), present(1, part(FIRST, 1, 2)), present(2)))
    assert told[2].fetch == (Source(0, 0, "n0", True, 5000),)


def test_everybody_is_told_who_comes_behind_its_buddy() -> None:
    told = plans(Room(4).open(*[present(slot, size=4) for slot in range(4)]))
    assert [told[slot].ring for slot in range(4)] == [("n2", "n3"), ("n3", "n0"), ("n0", "n1"), ("n1", "n2")]
    assert plans(Room(1).open(present(0, size=1)))[0].ring == ()


def test_workers_of_one_node_share_one_model() -> None:
    parts = [part(FIRST, rank, 4, shared=rank % 2 == 0) for rank in range(4)]
    told = plans(Room(2, local=2).open(present(0, *parts, size=2, local=2), present(1, size=2, local=2)))
    assert told[1].shared == 2
    assert [source.rank for source in told[1].fetch] == [2, 3]


def test_a_commit_with_a_missing_part_is_passed_over() -> None:
    told = plans(Room().open(present(0, part(FIRST, 0)), present(1, part(FIRST, 1)), present(2)))
    assert {plan.kind for plan in told.values()} == {"none"}


def test_the_run_goes_on_with_whoever_has_one() -> None:
    assert Room().open(present(0, run=0), present(1, run=3), present(2))[0] == (0, Welcome(3))
    assert Room().open(*[present(slot, run=0) for slot in range(3)])[0] == (0, Welcome(1))


def test_a_new_run_is_later_than_any_that_left_something_in_the_directory() -> None:
    room = Room(disk=True)
    assert room.open(*[present(slot, run=0) for slot in range(3)]) == [(0, Search(()))], "nobody knows the run yet"
    told = room.say(0, Searched((2, 0, 6), 60, 2, (4, 0, 1), ""))
    assert told[:3] == for_all(Welcome(5))
    assert plans(told)[1].order == (2, 0, 6)


def test_a_run_that_was_begun_without_a_look_at_the_directory_is_left_for_a_later_one() -> None:
    room = Room(disk=True)
    members = [present(slot, run=0) for slot in range(3)]
    room.open(*members)
    assert room.say(0, Searched((), 0, 0, (), "no permission"))[:3] == for_all(Welcome(1))
    room.say(1, Seek())
    assert room.say(0, Searched((2, 0, 6), 60, 2, (2, 0, 6), ""))[:3] == for_all(Welcome(3))
    assert room.say(1, members[1])[0] == (1, Welcome(3)), "who comes again hears the same"
    with pytest.raises(ValueError, match="another round"):
        room.say(0, Sealed(2, (1, 4, 1), 10))


def test_an_order_that_is_made_now_is_newer_than_what_anybody_knows_of() -> None:
    later = (2, 0, 6)
    assert Room().open(present(0, complete=later), present(1), present(2))[0] == (0, Welcome(3))
    room = Room(disk=True)
    room.open(present(0, run=1), present(1, disk=later), present(2))
    assert room.say(0, Searched(later, 60, 2, later, ""))[:3] == for_all(Welcome(3))


def test_where_rounds_were_counted_anew_a_new_run_keeps_orders_in_order() -> None:
    newer = [part((1, 9, 1), rank) for rank in range(3)]
    told = Room().open(*[present(slot, newer[slot]) for slot in range(3)])
    assert told[0] == (0, Welcome(2))
    assert plans(told)[0].order == (1, 9, 1)


def test_a_commit_is_complete_when_the_last_node_has_sealed_it() -> None:
    room = Room(buddies=False)
    room.open()
    room.say(0, Sealed(1, (1, 4, 1), 10))
    room.say(1, Sealed(1, (1, 4, 1), 10))
    assert room.say(0, Sealed(1, (1, 4, 2), 20)) == [], "who is ahead has both"
    assert room.say(2, Sealed(1, (1, 4, 1), 10)) == for_all(Complete((1, 4, 1), 10))
    assert room.say(2, Sealed(1, (1, 4, 1), 10)) == [], "said again"


@pytest.mark.parametrize("order", [(1, 3, 1), (2, 4, 1)])
def test_a_commit_of_another_round_or_run_is_refused(order: Order) -> None:
    room = Room()
    room.open()
    with pytest.raises(ValueError, match="another round"):
        room.say(1, Sealed(1, order, 10))


def test_the_newest_complete_commit_is_copied_once_the_last_copy_is_over() -> None:
    room = Room()
    room.open()
    told = room.seal((1, 4, 1))
    assert told[3:] == [(slot, Copy(1, (1, 4, 1), (slot,))) for slot in range(3)]
    assert room.seal((1, 4, 2)) == for_all(Complete((1, 4, 2), 20))
    room.seal((1, 4, 3))
    room.say(0, Copied(1, ""))
    room.say(1, Copied(1, ""))
    told = room.say(2, Copied(1, ""))
    assert told[:3] == for_all(Reached("buddy", (1, 4, 1), 10, 3))
    assert told[3:] == [(slot, Copy(2, (1, 4, 3), (slot,))) for slot in range(3)], "the second is skipped"


def test_a_copy_that_fails_is_told_and_the_next_commit_is_tried() -> None:
    room = Room()
    room.open()
    room.seal((1, 4, 1))
    room.say(0, Copied(1, ""))
    room.say(1, Copied(1, "no room"))
    assert room.say(2, Copied(1, "")) == for_all(Failed("buddy", (1, 4, 1), True, "no room"))
    assert (0, Copy(2, (1, 4, 2), (0,))) in room.seal((1, 4, 2))
    assert room.say(0, Copied(1, "")) == [], "an answer to what is over"


def test_after_a_loss_what_only_one_node_has_is_copied_again() -> None:
    room = Room()
    held = [part(FIRST, 0)], [], [part(FIRST, 1), part(FIRST, 2)]
    room.open(*[present(slot, *parts) for slot, parts in enumerate(held)])
    told = room.ready()
    assert told == [(0, Copy(1, FIRST, (0,))), (1, Copy(1, FIRST, ())), (2, Copy(1, FIRST, (2,)))]
    for slot in range(2):
        assert room.say(slot, Copied(1, "")) == []
    assert room.say(2, Copied(1, "")) == for_all(Reached("buddy", FIRST, 10, 3))


def test_what_two_nodes_have_already_is_not_copied() -> None:
    room = Room(2)
    both = [part(FIRST, rank, 2) for rank in range(2)]
    room.open(present(0, *both, size=2), present(1, *both, size=2))
    assert room.ready() == for_all(Reached("buddy", FIRST, 10, 2), 2)


def test_one_node_alone_copies_nothing() -> None:
    room = Room(1)
    room.open()
    assert room.seal((1, 4, 1)) == [(0, Complete((1, 4, 1), 10))]


def test_what_is_safe_is_kept_beside_the_newest() -> None:
    parts = [[part(order, rank) for order in (FIRST, SECOND)] for rank in range(3)]
    told = plans(Room().open(*[present(slot, *parts[slot], safe=FIRST if slot == 2 else ()) for slot in range(3)]))
    assert {(plan.order, plan.safe) for plan in told.values()} == {(SECOND, FIRST)}


def test_a_damaged_part_is_taken_from_another_holder() -> None:
    room = Room(2)
    both = [part(FIRST, rank, 2) for rank in range(2)]
    room.open(present(0, *both, size=2), present(1, *both, size=2))
    room.ready()
    told = room.say(1, Damaged(FIRST, 1, 1))
    assert told[0] == (1, Drop(FIRST, 1))
    assert plans(told)[1].fetch == (Source(1, 0, "n0", True, 5000),)
    assert plans(told)[0].fetch == ()
    assert room.say(1, Damaged(FIRST, 1, 1)) == [], "said again"
    assert room.ready(2) == for_all(Reached("buddy", FIRST, 10, 2), 2)


def test_who_cannot_reach_a_holder_is_sent_to_the_next_one_and_back_again() -> None:
    room = Room()
    held = [part(FIRST, 0, 2), part(FIRST, 1, 2)]
    told = plans(room.open(present(0, *held), present(1, *held), present(2)))
    assert told[2].fetch == (Source(0, 0, "n0", True, 5000),)
    room.say(0, Ready(1))
    told = plans(room.say(2, Unreached(FIRST, 0, 0)))
    assert {(plan.version, plan.kind, plan.order) for plan in told.values()} == {(2, "memory", FIRST)}
    assert told[2].fetch == (Source(0, 1, "n1", True, 5000),)
    assert told[0].fetch == told[1].fetch == ()
    assert room.say(2, Unreached(FIRST, 0, 0)) == [], "it is not asked to go there any more"
    assert plans(room.say(2, Unreached(FIRST, 0, 1)))[2].fetch == (Source(0, 0, "n0", True, 5000),)
    room.ready(3)
    assert room.seal((1, 4, 2), 1)[:3] == for_all(Complete((1, 4, 2), 20)), "who began from the first plan counts"


def test_a_part_that_one_node_alone_has_is_waited_for_there() -> None:
    room = Room()
    room.open(present(0, part(FIRST, 0, 2)), present(1, part(FIRST, 1, 2)), present(2))
    assert room.say(2, Unreached(FIRST, 0, 0)) == []
    assert room.say(2, Unreached(FIRST, 0, 0)) == [], "the only copy of what was promised stays where all begin"


def test_who_has_fetched_a_part_is_the_next_holder_for_others() -> None:
    room = Room(4)
    members = [present(0, part(FIRST, 0, 1), size=4), *[present(slot, size=4) for slot in (1, 2, 3)]]
    assert plans(room.open(*members))[3].fetch == (Source(0, 0, "n0", True, 5000),)
    assert room.say(3, Unreached(FIRST, 0, 0)) == []
    room.say(1, Ready(1))
    assert plans(room.say(3, Unreached(FIRST, 0, 0)))[3].fetch == (Source(0, 1, "n1", True, 5000),)


@pytest.mark.parametrize("wrong", [Unreached(SECOND, 0, 0), Unreached(FIRST, 1, 0), Unreached(FIRST, 0, 1)])
def test_out_of_reach_of_what_nobody_was_asked_to_fetch_changes_nothing(wrong: Unreached) -> None:
    room = Room()
    held = [part(FIRST, 0, 2), part(FIRST, 1, 2)]
    room.open(present(0, *held), present(1, *held), present(2))
    assert room.say(2, wrong) == []
    assert room.say(1, Unreached(FIRST, 0, 0)) == []


def test_out_of_reach_after_a_newer_commit_changes_nothing() -> None:
    room = Room(buddies=False)
    held = [part(FIRST, 0, 2), part(FIRST, 1, 2)]
    room.open(present(0, *held), present(1, *held), present(2))
    room.seal((1, 4, 2))
    assert room.say(2, Unreached(FIRST, 0, 0)) == []


def test_without_another_holder_all_go_back_to_what_is_safe_and_then_to_nothing() -> None:
    room = Room()
    parts = [[part(order, rank) for order in (FIRST, SECOND)] for rank in range(3)]
    room.open(*[present(slot, *parts[slot], safe=FIRST) for slot in range(3)])
    told = plans(room.say(1, Damaged(SECOND, 1, 1)))
    assert {(plan.version, plan.order) for plan in told.values()} == {(2, FIRST)}
    assert room.say(0, Sealed(1, (1, 4, 3), 30)) == [], "it began from the other one"
    told = plans(room.say(1, Damaged(FIRST, 1, 1)))
    assert {(plan.version, plan.kind) for plan in told.values()} == {(3, "none")}


def test_damage_after_a_newer_commit_changes_nothing() -> None:
    room = Room(buddies=False)
    room.open(*[present(slot, part(FIRST, slot)) for slot in range(3)])
    room.seal((1, 4, 2))
    assert room.say(1, Damaged(FIRST, 1, 1)) == [(1, Drop(FIRST, 1))]


def test_without_anything_in_memory_the_directory_is_searched() -> None:
    room = Room(disk=True)
    told = room.open()
    assert told == [(0, Search(()))]
    told = room.say(0, Searched(THIRD, 30, 2, THIRD, ""))
    assert {(plan.kind, plan.order, plan.world_size) for plan in plans(told).values()} == {("disk", THIRD, 2)}
    assert room.say(0, Searched(SECOND, 20, 2, SECOND, "")) == [], "nobody asked"


@pytest.mark.parametrize(
    ("fields", "searched"),
    [({}, False), ({"disk": THIRD}, True), ({"complete": THIRD}, True), ({"last_round": 1}, True)],
)
def test_a_commit_in_memory_is_enough_unless_the_disk_may_have_a_newer_one(
    fields: dict[str, object], searched: bool
) -> None:
    room = Room(disk=True)
    members = [present(slot, part(SECOND, slot), **fields) for slot in range(3)]
    assert ((0, Search(SECOND)) in room.open(*members)) == searched


def test_a_search_that_finds_nothing_newer_leaves_what_is_in_memory() -> None:
    room = Room(disk=True)
    room.open(*[present(slot, part(SECOND, slot), last_round=0) for slot in range(3)])
    assert {plan.kind for plan in plans(room.say(0, Searched((), 0, 0, (), ""))).values()} == {"memory"}


def test_nobody_begins_anew_because_a_directory_cannot_be_read() -> None:
    room = Room(disk=True)
    room.open()
    told = plans(room.say(0, Searched((), 0, 0, (), "no permission")))
    assert {(plan.kind, plan.why) for plan in told.values()} == {("unknown", "no permission")}
    assert room.say(2, Seek()) == [(0, Search(()))]
    assert room.say(1, Seek()) == [], "it is being looked at"
    assert {plan.kind for plan in plans(room.say(0, Searched((), 0, 0, (), ""))).values()} == {"none"}
    assert room.say(1, Seek()) == []


def test_a_commit_is_on_disk_when_all_have_written_and_one_of_them_found_it_whole() -> None:
    room = Room(2, disk=True, buddies=False)
    room.open()
    room.say(0, Searched((), 0, 0, (), ""))
    assert room.seal((1, 4, 1))[2:] == [(slot, Write(1, (1, 4, 1), (slot,))) for slot in range(2)]
    assert room.say(1, Written(1, True, "")) == []
    assert room.say(0, Written(1, False, "")) == for_all(Reached("disk", (1, 4, 1), 10, 2), 2)


def test_directories_that_are_not_the_same_one_are_named() -> None:
    room = Room(2, disk=True, buddies=False)
    room.open()
    room.say(0, Searched((), 0, 0, (), ""))
    room.seal((1, 4, 1))
    room.say(1, Written(1, False, ""))
    (_, failed), _ = room.say(0, Written(1, False, ""))
    assert isinstance(failed, Failed)
    assert "one directory that all nodes share" in failed.why


def test_a_round_writes_what_it_began_with_each_part_by_one_holder() -> None:
    room = Room(2, disk=True)
    both = [part(FIRST, rank, 3) for rank in range(3)]
    room.open(present(0, *both, size=2), present(1, *both[1:], size=2))
    told = room.ready()
    assert [one for one in told if isinstance(one[1], Write)] == [(0, Write(2, FIRST, (0, 1, 2)))]


def test_a_member_that_was_out_of_reach_is_told_again_what_counts() -> None:
    room = Room()
    room.open()
    room.seal((1, 4, 1))
    for slot in range(3):
        room.say(slot, Copied(1, ""))
    room.seal((1, 4, 2))
    room.seal((1, 4, 3))
    again = [one for slot, one in room.say(1, present(1)) if slot == 1]
    assert [type(one) for one in again] == [Welcome, Plan, Reached, Copy, Complete]
    assert again[2:] == [
        Reached("buddy", (1, 4, 1), 10, 3),
        Copy(2, (1, 4, 2), (1,)),
        Complete((1, 4, 3), 30),
    ], "it may overwrite the second only after it knows that it is to copy it"
