import os
import signal

import pytest

from planaria.agent.embedded import _Signals
from planaria.base.loop import Loop


@pytest.fixture
def full_pipe():
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, bytes(1 << 16))
    except BlockingIOError:
        pass
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    yield write
    assert signal.set_wakeup_fd(before) == write, "the wake-up descriptor was not put back"
    os.close(read)
    os.close(write)


def test_a_listener_that_has_fallen_behind_does_not_stop_the_agent(full_pipe):
    loop, heard = Loop(), []
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    listening = _Signals(loop, (signal.SIGUSR2,), heard.append)
    listening.begin()
    try:
        os.kill(os.getpid(), signal.SIGUSR1)  # somebody else's
        os.kill(os.getpid(), signal.SIGUSR2)
        while not heard:
            loop.run_once(30.0)
        assert heard == [signal.SIGUSR2]
    finally:
        listening.end()
        signal.signal(signal.SIGUSR1, before)
        loop.close()
