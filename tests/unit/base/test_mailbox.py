from __future__ import annotations

import gc
import os
import threading

import pytest

from planaria.base.loop import Loop
from planaria.base.mailbox import Mailbox

PATIENCE_S = 30.0


def test_calls_of_another_thread_are_made_on_the_loop_in_order() -> None:
    loop = Loop()
    box = Mailbox(loop)
    made: list[tuple[int, int]] = []
    thread = threading.Thread(
        target=lambda: [
            box.post(lambda number=number: made.append((number, threading.get_ident()))) for number in range(1000)
        ]
    )
    thread.start()
    deadline = loop.now() + PATIENCE_S
    while len(made) < 1000 and loop.now() < deadline:
        loop.run_once(1.0)
    thread.join(PATIENCE_S)
    assert [number for number, _ in made] == list(range(1000))
    assert {ident for _, ident in made} == {threading.get_ident()}
    box.close()
    loop.close()


def test_a_call_that_posts_another_does_not_hold_up_the_loop() -> None:
    loop = Loop()
    box = Mailbox(loop)
    turns: list[int] = []
    again = lambda: (turns.append(0), box.post(again) if len(turns) < 3 else None)  # noqa: E731
    box.post(again)
    loop.run_once(1.0)
    assert len(turns) == 1
    loop.run_once(1.0)
    loop.run_once(1.0)
    assert len(turns) == 3
    box.close()
    loop.run_once(0.0)
    loop.close()


def test_what_is_posted_after_the_end_touches_nobody_s_descriptor() -> None:
    loop = Loop()
    box = Mailbox(loop)
    bell = box._bell
    box.post(box.close)
    box.post(lambda: made.append(1))
    made: list[int] = []
    loop.run_once(1.0)
    assert made == []
    other = os.eventfd(0, os.EFD_NONBLOCK)
    assert other != bell, "a thread may be about to ring it"
    box.post(lambda: made.append(2))
    assert not _is_rung(other)
    os.close(other)
    loop.close()
    del box
    gc.collect()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(bell)


def _is_rung(descriptor: int) -> bool:
    try:
        return os.eventfd_read(descriptor) > 0
    except BlockingIOError:
        return False
