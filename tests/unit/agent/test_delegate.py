from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop
from unmapped import WHY, Unmapped

from planaria.agent.council_messages import (
    Complete,
    Damaged,
    Drop,
    Failed,
    Part,
    Plan,
    Ready,
    Sealed,
    Seek,
    Source,
    Unreached,
    Unsealed,
    Void,
    Welcome,
)
from planaria.agent.delegate import TELL_AFTER, Delegate, Gear
from planaria.agent.errands import settle
from planaria.agent.ledger import Ledger
from planaria.agent.rounds import Neighbours
from planaria.agent.stock import Stock
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp
from planaria.contract.env import Round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.agent.council_messages import Message

    Into = Callable[[int], memoryview | str]

LAYOUT = snapshots.arrange([], b"values")
PART = Part(1, 3, 7, 70, 2, 0, True, LAYOUT.size_bytes)


def plan(version: int, kind: str = "memory", *fetch: Source, is_loss: bool = False) -> Plan:
    order, step = (PART.order, PART.step) if kind == "memory" else ((), 0)
    return Plan(version, kind, order, step, 2, 0, (), fetch, (), is_loss, "")


class Transfer:
    """A fetch of which a test decides what becomes."""

    def __init__(self, address: str, header: object, into: Into, on_done: Callable[[str], object]) -> None:
        self.address = address
        self.rank = header["rank"]  # type: ignore[index]  # a part as a dictionary
        self.into = into
        self.on_done = on_done
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def bring(self) -> None:
        room = self.into(LAYOUT.size_bytes)
        assert isinstance(room, memoryview)
        snapshots.seal(room, LAYOUT, Stamp(1, 3, 7, 70, 2, self.rank))
        self.on_done("")


class Rig:
    """The anchor's own member of a round of two; what it says is written down, and nobody answers."""

    def __init__(self) -> None:
        self.memory = Unmapped()
        self.stock = Stock(1, lambda: 10**9, self.memory)
        self.slot = self.stock.lodge(LAYOUT.size_bytes)
        snapshots.seal(self.stock.view(self.slot), LAYOUT, Stamp(1, 3, 7, 70, 2, 0))
        settle(self.slot, PART)
        self.stock.release(self.slot)
        self.ledger = Ledger()
        self.lines: list[str] = []
        self.sent: list[Message] = []
        self.loop = FakeLoop()
        self.transfers: list[Transfer] = []
        gear = Gear(
            loop=self.loop,
            stock=self.stock,
            disk=None,
            dock=self,  # type: ignore[arg-type]  # all that is used of it is `fetch`
            ledger=self.ledger,
            aside=lambda work, then: then(work()),
            say=self.lines.append,
            on_change=lambda: None,
        )
        life = Round(4, "run", "role", 0, 2, 0, 2, 0, 2, 1, "::1", 1, 0, 9)
        self.delegate = Delegate(life, Neighbours("a:1", "b:1"), gear, has_buddies=True)
        self.delegate.begin(self)  # type: ignore[arg-type]  # all that it uses of a hall is `hear`
        self.delegate.hear(Welcome(1))
        self.delegate.hear(plan(1))

    def hear(self, _slot: int, message: Message) -> None:
        self.sent.append(message)

    def count(self, message: Message) -> int:
        return self.sent.count(message)

    def fetch(
        self, address: str, _round: int, header: object, into: Into, on_done: Callable[[str], object]
    ) -> Transfer:
        self.transfers.append(Transfer(address, header, into, on_done))
        return self.transfers[-1]

    def fail_for(self, seconds: float, rank: int) -> None:
        """Have every try to fetch a rank's part fail for so long."""
        until = self.loop.at + seconds
        while self.loop.at < until:
            last = [one for one in self.transfers if one.rank == rank][-1]
            last.on_done("no route to host")
            self.loop.run_until(min((timer.when for timer in self.loop.pending()), default=until))


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.delegate.close()
    found.stock.close()


def test_damage_is_said_again_until_a_newer_plan_comes(rig: Rig) -> None:
    said = Damaged(PART.order, 0, 0)
    rig.delegate.report_damage(PART.order, [0])
    rig.delegate.hear(Welcome(1))
    rig.delegate.hear(plan(1))
    rig.delegate.hear(Welcome(1))
    assert rig.count(said) == 3
    rig.delegate.hear(plan(2, "none"))
    rig.delegate.hear(Welcome(1))
    assert rig.count(said) == 3


def test_who_seeks_asks_again_after_a_line_was_lost(rig: Rig) -> None:
    rig.delegate.seek()
    rig.delegate.hear(Welcome(1))
    assert rig.count(Seek()) == 2


def test_a_part_that_somebody_could_not_read_is_kept_if_it_is_whole(rig: Rig) -> None:
    rig.delegate.hear(Drop(PART.order, 0))
    assert rig.stock.parts() == (PART,)
    rig.stock.view(rig.slot)[-1] ^= 1
    rig.delegate.hear(Drop(PART.order, 0))
    assert rig.stock.parts() == ()
    assert rig.slot.pins == 0


def test_what_is_lost_is_told_with_its_step(rig: Rig) -> None:
    rig.delegate.hear(plan(2, "none", is_loss=True))
    assert rig.lines == ["step 70 was complete and is lost; all begin anew"]


def test_what_another_node_sent_is_one_harmless_line(rig: Rig) -> None:
    rig.delegate.hear(Failed("buddy", PART.order, True, "no\x1b[2Jroom\n" + 9999 * "x"))
    (line,) = rig.lines
    assert line.isprintable()
    assert len(line) < 1100


def test_a_failure_that_was_told_where_it_happened_is_not_told_again(rig: Rig) -> None:
    rig.delegate.hear(Failed("disk", PART.order, False, "the disk that we share is full"))
    assert rig.lines == []


def test_who_is_not_heard_for_long_says_why_once(rig: Rig) -> None:
    for _ in range(2 * TELL_AFTER):
        rig.delegate._on_lost("it closed the line")
    (line,) = rig.lines
    assert "it closed the line" in line


def test_a_doubted_part_that_cannot_be_mapped_is_done_without_and_told_of(rig: Rig) -> None:
    rig.memory.is_short = True
    rig.delegate.hear(Drop(PART.order, 0))
    assert rig.lines == [f"the part of rank 0 cannot be read here either: {WHY}"]
    assert rig.stock.parts() == ()
    assert rig.slot.pins == 0


NEAR, FAR = Source(1, 1, "b:1", False, LAYOUT.size_bytes), Source(1, 2, "c:1", False, LAYOUT.size_bytes)
LONG_S = 40.0


def test_a_holder_that_is_out_of_reach_is_told_to_the_council_and_said_once(rig: Rig) -> None:
    rig.delegate.hear(plan(2, "memory", NEAR))
    rig.fail_for(3 * LONG_S, 1)
    assert rig.count(Unreached(PART.order, 1, 1)) >= 2
    (line,) = rig.lines
    assert "b:1, which has the part of rank 1, is out of reach: no route to host" in line
    assert rig.count(Ready(2)) == 0
    rig.transfers[-1].bring()
    assert rig.count(Ready(2)) == 1


def test_a_plan_with_another_holder_fetches_there_and_lets_go_of_the_first(rig: Rig) -> None:
    rig.delegate.hear(plan(2, "memory", NEAR))
    first = rig.transfers[-1]
    rig.delegate.hear(plan(3, "memory", FAR))
    assert first.is_cancelled
    assert [one.address for one in rig.transfers] == ["b:1", "c:1"]
    rig.transfers[-1].bring()
    assert rig.count(Ready(3)) == 1


def test_a_part_that_is_on_its_way_goes_on_when_only_others_are_sent_elsewhere(rig: Rig) -> None:
    rig.delegate.hear(plan(2, "memory", NEAR))
    (transfer,) = rig.transfers
    rig.delegate.hear(plan(3, "memory", NEAR))
    assert not transfer.is_cancelled
    assert len(rig.transfers) == 1
    transfer.bring()
    assert rig.count(Ready(3)) == 1
    assert rig.count(Ready(2)) == 0


def test_a_part_that_found_no_room_is_fetched_anew_by_the_next_plan(rig: Rig) -> None:
    rig.delegate.hear(plan(2, "memory", NEAR))
    rig.memory.is_short = True
    assert isinstance(rig.transfers[-1].into(LAYOUT.size_bytes), str)
    rig.transfers[-1].on_done("no room")
    assert rig.delegate.trouble == WHY
    rig.memory.is_short = False
    rig.delegate.hear(plan(3, "memory", NEAR))
    rig.transfers[-1].bring()
    assert (rig.delegate.trouble, rig.count(Ready(3))) == ("", 1)


def seal(rig: Rig, generation: int, step: int = 0) -> None:
    slot = rig.stock.lend(0, LAYOUT.size_bytes)
    assert slot is not None
    stamp = Stamp(1, 4, generation, step or 10 * generation, 2, 0)
    rig.delegate.seals.seal(0, slot.number, stamp)


def test_what_was_sealed_earlier_is_said_before_what_is_sealed_now(rig: Rig) -> None:
    """A line may have been lost between them: who heard of the later one alone would take the earlier to be passed over."""
    seal(rig, 8)
    rig.sent.clear()
    seal(rig, 9)
    assert rig.sent == [Sealed(1, (1, 4, 8), 80), Sealed(1, (1, 4, 9), 90)]
    rig.delegate.hear(Complete((1, 4, 8), 80))
    rig.sent.clear()
    rig.delegate.hear(Welcome(1))
    assert Sealed(1, (1, 4, 9), 90) in rig.sent
    assert Sealed(1, (1, 4, 8), 80) not in rig.sent


def test_what_a_worker_will_not_seal_is_said_until_it_is_ruled_upon(rig: Rig) -> None:
    rig.delegate.seals.skip(0, (1, 4, 8))
    said = Unsealed(1, (1, 4, 8), "")
    assert rig.count(said) == 1
    rig.delegate.hear(Welcome(1))
    assert rig.count(said) == 2
    rig.delegate.hear(Void((1, 4, 8), ""))
    rig.delegate.hear(Welcome(1))
    assert rig.count(said) == 2


def test_a_void_commit_gives_its_memory_back_and_a_reason_is_told_once(rig: Rig) -> None:
    seal(rig, 8)
    for generation in (8, 9):
        rig.delegate.hear(Void((1, 4, generation), "different steps"))
    assert [slot.stamp for slot in rig.stock.slots.of(0)] == [None]
    assert [line for line in rig.lines if "different steps" in line] == ["a commit does not count: different steps"]
    assert [rig.delegate.seals.mistake(0) for _ in range(2)] == ["different steps", ""], "a worker hears it once"
    rig.delegate.hear(Complete((1, 4, 10), 100))
    assert rig.lines[-1] == "commits count again"


def test_a_plan_that_begins_elsewhere_leaves_nothing_of_what_was_void(rig: Rig) -> None:
    rig.delegate.seals.skip(0, (1, 4, 8))
    rig.delegate.hear(Void((1, 4, 9), "different steps"))
    rig.delegate.hear(plan(2, "none"))
    assert rig.stock.slots.voids == {}
    assert rig.delegate.seals.mistake(0) == ""
