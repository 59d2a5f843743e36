"""An agent's keeper, for a worker that is the process of the test itself."""

from __future__ import annotations

import os
import threading

from planaria.agent.control import ControlServer
from planaria.agent.keeper import Keeper
from planaria.agent.settings import Shelter
from planaria.agent.stock import Stock
from planaria.base.loop import Loop
from planaria.base.mailbox import Mailbox
from planaria.contract import control, vault
from planaria.contract.control import LINE_LIMIT_BYTES
from planaria.contract.env import Round

TIMEOUT_S = 60.0


class Agent:
    """A keeper of one worker, which is this process, on a loop in a thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.loop = Loop()
        self.lives = 0
        self.control = ControlServer(self.loop, path, self._on_message, LINE_LIMIT_BYTES)
        self.keeper = Keeper(self.loop, self.control, Stock(1), Shelter(), lambda _line: None)
        self.mailbox = Mailbox(self.loop)
        self.new_life()
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def _on_message(self, peer: object, line: bytes) -> None:
        message = vault.decode(line)
        if message is None:  # that it waits for a checkpoint, which is not for the keeper
            assert isinstance(control.decode(line), control.Phase)
            return
        self.keeper.hear(peer, message)  # type: ignore[arg-type]  # it is a peer

    def new_life(self) -> None:
        self.control.catch_up()  # as an agent does when a worker has ended
        self.control.serve({os.getpid(): 0})
        self.keeper.begin(Round(self.lives, "run", "role", 0, 1, 0, 1, 0, 1, 1, "::1", 1, self.lives, 9))
        self.lives += 1

    def restart(self) -> None:
        done = threading.Event()
        self.mailbox.post(lambda: (self.new_life(), done.set()))
        assert done.wait(TIMEOUT_S)

    def close(self) -> None:
        self.mailbox.post(self.loop.stop)
        self.thread.join(TIMEOUT_S)
        self.control.close()
        self.keeper.close()
        self.mailbox.close()
        self.loop.close()
