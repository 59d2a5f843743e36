"""A scope of a worker that must end in time: a context manager and a decorator over the link to the agent."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from planaria.worker.link import Link


def caller(depth: int) -> str:
    """Name the place so many calls above this one, as torch names scopes."""
    frame = sys._getframe(depth)  # noqa: SLF001  `inspect.stack` reads source files, a millisecond each time
    return f"{frame.f_code.co_filename}#{frame.f_lineno}"


class Scope(ContextDecorator):
    """Made by `expires`. May be entered again, also before it was left; a decorated function has one for each call."""

    def __init__(self, link: Link, after: float, name: str) -> None:
        if not after > 0:
            raise ValueError(f"after expects seconds above 0, got {after!r}")
        self._link = link
        self._after_s = float(after)
        self._name = str(name)
        self._entered: list[int] = []

    def __enter__(self) -> Self:
        self._entered.append(self._link.acquire(self._name, self._after_s))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.release(self._entered.pop())

    def _recreate_cm(self) -> Self:  # what `ContextDecorator` asks for each call: threads share the function
        return type(self)(self._link, self._after_s, self._name)
