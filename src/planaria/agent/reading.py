"""Find progress in what workers write. A job that wants none of it imports nothing of this."""

from __future__ import annotations

from planaria.process.pattern import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.driver import Driver
    from planaria.contract.env import Round


def read_lines(pattern: str, driver: Driver) -> None:
    """Have the driver told of progress and phases that its workers' lines speak of, from the next life on."""
    readers: dict[int, Reader] = {}
    lives: dict[int, Round | None] = {}

    def hear(local_rank: int, lines: bytes) -> None:
        if local_rank not in readers:
            readers[local_rank] = Reader(pattern)
        reader, hearing = readers[local_rank], driver.hearing
        if lives.get(local_rank) is not driver.life:
            lives[local_rank] = driver.life
            reader.begin()
        for seen in reader.read(lines):
            if seen.phase is not None:
                hearing.entered(local_rank, seen.phase)
            if seen.progress is not None:
                hearing.progressed(local_rank, seen.progress, "lines")

    driver.workers.on_lines = hear
