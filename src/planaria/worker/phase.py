"""A part of the training that has a pace of its own, such as an evaluation: a context manager over the link to the agent."""

from __future__ import annotations

from contextlib import ContextDecorator

from planaria.contract.control import START, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from planaria.worker.link import Link


class PhaseOfWork(ContextDecorator):
    """Made by `phase`. Phases nest; a decorated function is in it for each of its calls."""

    def __init__(self, link: Link, name: str) -> None:
        if not name:
            raise ValueError("a phase has a name, such as 'evaluation'")
        if name in (START, STEP):
            raise ValueError(f"{name!r} is what a rank is at outside of all phases: name it otherwise")
        self._link = link
        self._name = str(name)

    def __enter__(self) -> Self:
        self._link.enter_phase(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.leave_phase()
