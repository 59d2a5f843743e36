"""Whose turn it is to show its stacks, among processes that write them into one black box. Pure.

A worker and the processes below it share its black box, and Python's fault handler writes word by word: stacks of two at once
could not be read. So they are asked one after the other, in the order in which they were wanted, whoever of them that is. The
next one is asked when the one before has shown its own, which nothing tells but that the box has grown and grows no more, or
when its time is over: one that is stopped never answers.
"""

from __future__ import annotations

from planaria.base.value import Value, replace

TURN_S = (
    0.4  # for one to show its stacks: after two that never answer the next has its turn within `agent.machine.LOOK_S`
)
QUIET_S = 0.1  # without a new word from one that has begun to write: some ms are usual, but all cores may be busy
LOOK_S = 0.02  # between two looks at a black box: memory that grows wakes nobody


class Turns(Value):
    """Who writes into one black box, since when, and who waits, by pid. A `writer` of 0 is nobody."""

    waiting: tuple[int, ...] = ()
    writer: int = 0
    until: float = 0.0
    first_bytes: int = 0
    """The box's size when the writer was asked; likewise when it was looked at last, and when that last was another."""
    seen_bytes: int = 0
    changed_at: float = 0.0


def wanted(turns: Turns, pid: int) -> Turns:
    """Line a process up. One that waits already is asked once."""
    return turns if pid in turns.waiting else replace(turns, waiting=(*turns.waiting, pid))


def looked(turns: Turns, *, size_bytes: int, now: float) -> Turns:
    """Note how large the black box is now; the turn of a writer that is done, or late, is over."""
    if size_bytes != turns.seen_bytes:
        turns = replace(turns, seen_bytes=size_bytes, changed_at=now)
    has_shown = turns.seen_bytes > turns.first_bytes and now - turns.changed_at >= QUIET_S
    return passed(turns) if has_shown or now >= turns.until else turns


def passed(turns: Turns) -> Turns:
    """End the turn of the writer, such as one that cannot be asked."""
    return replace(turns, writer=0)


def next_turn(turns: Turns, *, size_bytes: int, now: float) -> Turns:
    """Give the first who waits its turn, if nobody has it: the `writer` is another one then, and is to be asked."""
    if turns.writer or not turns.waiting:
        return turns
    first, *rest = turns.waiting
    return Turns(tuple(rest), first, now + TURN_S, size_bytes, size_bytes, now)
