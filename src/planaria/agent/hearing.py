"""Take what workers say, over the control socket and in the lines they write, to those who make something of it.

They are made when a worker speaks of their matter for the first time: an agent whose workers are silent imports none of this.
"""

from __future__ import annotations

import os

from planaria.agent.model import ProgressReported, ScopeExpired
from planaria.contract.control import Acquire, Finished, Phase, Progress, Release, Stored, Witness, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from planaria.agent.control import Peer
    from planaria.agent.driver import Driver
    from planaria.agent.keeper import Keeper
    from planaria.agent.model import Job
    from planaria.agent.scopes import Scope
    from planaria.agent.vigil import Vigil
    from planaria.agent.watchdog import Watchdog
    from planaria.base.loop import Loop
    from planaria.contract.env import Round

    Source = Literal["socket", "lines"]


class Hearing:
    """That of one driver, which has what is made here."""

    def __init__(self, job: Job, loop: Loop, driver: Driver) -> None:
        self._job = job
        self._loop = loop
        self._driver = driver
        self._life: Round | None = None
        self._steps: dict[tuple[int, Source], int] = {}  # the newest of each local rank in this life

    def on_message(self, peer: Peer, line: bytes) -> None:
        """Take a line from the control socket.

        Raises:
            ValueError: It is not a message of ours.
        """
        message = decode(line)
        if isinstance(message, Progress):
            self.progressed(peer.local_rank, message, "socket")
            self.watch_progress().speaks(peer.local_rank)
        elif isinstance(message, Phase):
            self.entered(peer.local_rank, message.phase)
        elif isinstance(message, Finished):
            self.watch_progress().finished(peer.local_rank)
        elif isinstance(message, Stored):
            self._stored(peer.local_rank, message)
        elif isinstance(message, Witness):
            peer.is_witness = True
        elif isinstance(message, (Acquire, Release)):
            self.watch_scopes().hear(peer, message)
        elif message is None:
            self._hear_of_snapshots(peer, line)

    def progressed(self, local_rank: int, report: Progress, source: Source) -> None:
        """Take a report of a worker's progress, from itself or from what it writes.

        Whether its steps went back is for each source to say: a line is read later than a message that was sent after it.
        """
        driver = self._driver
        if self._life is not driver.life:
            self._life, self._steps = driver.life, {}
        went_back = report.step < self._steps.get((local_rank, source), report.step)
        self._steps[local_rank, source] = report.step
        driver.progress[local_rank] = report, self._loop.now()
        driver.post(ProgressReported(local_rank, report.step, went_back))
        self.watch_progress().progressed(local_rank, report)
        if driver.reserve is not None:
            driver.reserve.progressed()

    def entered(self, local_rank: int, phase: str) -> None:
        """Take the begin of a phase, or the end of it: empty."""
        self.watch_progress().entered(local_rank, phase)

    def watch_progress(self) -> Vigil:
        """Return the one that watches over progress."""
        driver = self._driver
        if driver.vigil is None:
            from planaria.agent.vigil import Vigil

            driver.vigil = Vigil(self._job, self._loop, driver, os.uname().nodename)
            driver.vigil.begin(driver.workers.seen)
        return driver.vigil

    def _stored(self, local_rank: int, word: Stored) -> None:
        """Take a rank's word on a commit that it writes by itself."""
        driver = self._driver
        if driver.life is None:
            return
        if driver.hearsay is None:
            from planaria.agent.hearsay import Hearsay

            driver.hearsay = Hearsay()
            driver.hearsay.begin(driver.life)
        driver.hearsay.hear(local_rank, word)
        if driver.observer is not None:
            driver.observer.pulse.stir()

    def _hear_of_snapshots(self, peer: Peer, line: bytes) -> None:
        from planaria.contract import vault

        driver = self._driver
        asked = vault.decode(line)
        if asked is None or driver.life is None:
            return
        self.keep().hear(peer, asked)
        if driver.observer is not None:
            driver.observer.pulse.stir()
        if driver.reserve is not None:
            driver.reserve.lend(peer.local_rank)

    def keep(self) -> Keeper:
        """Return the one that keeps snapshots in this life."""
        driver = self._driver
        if driver.keeper is None:
            from planaria.agent.keeper import Keeper
            from planaria.agent.stock import Stock

            assert driver.life is not None
            dock = None if self._job.meeting is None else driver.seat.dock
            stock = Stock(self._job.local_world_size)
            if (reserve := driver.reserve) is not None:
                stock.make_room = lambda: reserve.make_room(lambda: stock.on_free())  # noqa: PLW0108  # the keeper sets it
            driver.keeper = Keeper(self._loop, driver.control, stock, self._job.shelter, driver.say, dock)
            driver.keeper.begin(driver.life, driver.neighbours)
        return driver.keeper

    def watch_scopes(self) -> Watchdog:
        """Return the one that watches over scopes."""
        driver = self._driver
        if driver.watchdog is None:
            from planaria.agent.watchdog import Watchdog

            driver.watchdog = Watchdog(self._loop, driver.control, self._on_expired)
            driver.watchdog.serve(driver.workers.by_pid)
        return driver.watchdog

    def _on_expired(self, local_rank: int, scope: Scope, now: float) -> None:
        from planaria.agent.scopes import sentence

        failure = self._driver.workers.suspect(local_rank, sentence(scope, now), now, scope.signal)
        self._driver.post(ScopeExpired(failure, scope.pid, scope.signal))
