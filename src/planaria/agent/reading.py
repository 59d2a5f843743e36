"""Find progress in what workers write. A job that wants none of it imports nothing of this."""

from __future__ import annotations

from planaria.process.pattern import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.driver import Driver


def read_lines(pattern: str, driver: Driver) -> None:
    """Have the driver told of progress and phases that its workers' lines speak of, from the next life on."""
    readers: dict[int, Reader] = {}

    def hear(local_rank: int, lines: bytes) -> None:
        for seen in readers.setdefault(local_rank, Reader(pattern)).read(lines):
            if seen.phase is not None:
                driver.entered(local_rank, seen.phase)
            if seen.progress is not None:
                driver.progressed(local_rank, seen.progress)

    driver.workers.on_lines = hear
