"""The agent's side of an examination: start the process that looks at workers that hang, and hear what it found."""

from __future__ import annotations

import json
import os
import sys

from planaria.agent.suspects import UNKNOWN, Examined
from planaria.base.value import Value, as_dict
from planaria.process.helper import Helper, Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from planaria.agent.hangs import Standing
    from planaria.base.loop import Loop
    from planaria.process.workers import WorkerSeen

WITHIN_S = 30.0
_VERDICT = b'"sentence": '
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop()); from planaria.agent.examine import main; main()"


def known(seen: WorkerSeen, standing: Standing | None, now: float, *, still: bool) -> Examined:
    """Return what is known of a worker before anybody looks; without a standing it has said nothing in this life."""
    if standing is None:
        age_s = now - seen.started_at
        return Examined(seen.rank, seen.local_rank, seen.pid, UNKNOWN, None, age_s, 0.0, still=False)
    return Examined(
        rank=seen.rank,
        local_rank=seen.local_rank,
        pid=seen.pid,
        phase=standing.phase,
        step=standing.step,
        silent_s=round(standing.silent_s, 3),
        usual_s=round(standing.usual_s, 3),
        still=still,
    )


class Request(Value):
    """What is to be looked at, and where it is to be written. `subjects` are ranks, each with its black box, and whether it
    has a thread that answers; `resume` lets stopped ones go on, `trace` allows tools that stop a process for a while.
    """

    folder: str
    host: str
    heading: str
    subjects: Sequence[tuple[Examined, int, bool]]
    about: Mapping[str, object]
    is_alone: bool
    resume: bool
    trace: bool

    def as_json(self) -> str:
        """Return what the examiner reads."""
        ranks = [{"known": as_dict(one), "box": box, "witness": witness} for one, box, witness in self.subjects]
        told = {"folder": self.folder, "host": self.host, "heading": self.heading, "about": dict(self.about)}
        how = {"alone": self.is_alone, "resume": self.resume, "trace": self.trace}
        return json.dumps({**told, **how, "ranks": ranks})


class Found(Value):
    """What came of it. Without an answer in time `ranks` is empty."""

    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    brief: str = ""
    sentence: str = ""
    elsewhere: bool = False
    unclear: bool = False
    is_kept: bool = False
    """There is a folder."""


class Examination:
    """One of them. `on_found` is called once, unless it is cancelled before; `on_over` after it, when all is written.

    Raises:
        OSError: No process can be started.
    """

    def __init__(
        self,
        loop: Loop,
        environment: Mapping[str, str],
        request: Request,
        on_found: Callable[[Found], object],
        on_over: Callable[[], object],
    ) -> None:
        self._on_found: Callable[[Found], object] | None = on_found
        self._on_over = on_over
        asked = os.memfd_create("planaria-examination", os.MFD_CLOEXEC)
        try:
            os.write(asked, request.as_json().encode())
            os.lseek(asked, 0, os.SEEK_SET)
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            argv = (sys.executable, "-I", "-c", _PROGRAM, str(asked), root)
            kept = (asked, *(box for _, box, _ in request.subjects))
            self._helper = Helper(loop, Order(argv, environment, WITHIN_S, kept), self._hear, self._end)
        finally:
            os.close(asked)

    def cancel(self) -> None:
        """End it, and the tools it runs."""
        self._helper.dismiss()

    def _hear(self) -> None:
        if _VERDICT in self._helper.heard and self._helper.heard.endswith(b"\n"):
            self._tell()

    def _tell(self) -> None:
        on_found, self._on_found = self._on_found, None
        if on_found is not None:
            on_found(_found(self._helper.heard))

    def _end(self) -> None:
        self._tell()
        self._on_over()


def _found(heard: bytes) -> Found:
    """Return what its whole lines say. Without a verdict, whether there is a folder."""
    told: dict[str, Any] = {}
    try:
        for line in heard.splitlines():
            told |= json.loads(line)
    except (ValueError, TypeError):  # it was ended in the middle of a line
        pass
    try:
        ranks, waiting = tuple(map(int, told["ranks"])), tuple(map(int, told["waiting"]))
        words = str(told["brief"]), str(told["sentence"])
        return Found(ranks, waiting, *words, *(bool(told[name]) for name in ("elsewhere", "unclear", "kept")))
    except (ValueError, KeyError, TypeError):
        return Found(is_kept=told.get("kept") is True)
