"""Run patterns that others wrote, on lines that others printed, in a child process with a time budget.

A pattern such as `(a+)+$` can take longer than the universe on one line. So each job with a pattern of its own gets a child
(`matching.py`, the standard library only, started with its first lines), and the kernel ends a child that computes for more
than half a second on one batch, or needs too much memory. The job is told, and tried again after a pause that doubles; nobody
else waits. A pattern whose children end a few times in a row is given up: it is not run again by this matcher, and another
pattern gets another one. The default pattern is ours and fast on every line: it runs here.

Made for asyncio: one `Matcher` per job, `await matcher.read(lines)`, and `await matcher.close()` at the end. Calls of one
matcher are answered one after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from planaria.base.text import safe_line
from planaria.base.value import Value, replace
from planaria.errors import KubeError
from planaria.kube.logline import GROUP_LIMIT, GROUPS, LINE_LIMIT, PATH, Metric, Reading, read_line, reading
from planaria.kube.matching import NO_MEMORY

BATCH_LINES = 200  # more are read in several batches
CPU_S = 0.5  # for a batch; 200 lines and a pattern of the usual kind take a hundredth of it
WALL_S = 20.0  # for a child that is stopped, or gets no turn
MEMORY_BYTES = 256 << 20
ANSWER_BYTES = 1 << 20
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 600.0
MOST_DEATHS = 5  # in a row, over two and a half minutes: lines that one log had for a while are gone by then

_FIELD = f"{PATH}.metric.pattern"
_CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "matching.py")


class Matched(Value):
    """What a batch of lines said. With `trouble`, one sentence, lines are lost; put it into `Situation.trouble`."""

    readings: tuple[Reading, ...] = ()
    trouble: str = ""
    fault: str = ""  # what the pattern itself did
    mishap: str = ""  # what became of its process, which says nothing about the pattern
    is_unfit: bool = False  # it cannot be read, or has no group that is needed: no line would help


class _Unfit(Exception):
    """A pattern cannot be used, in the words of a sentence about its field."""


class Matcher:
    """Reads the lines of one job."""

    def __init__(self, metric: Metric, *, cpu_s: float = CPU_S, wall_s: float = WALL_S) -> None:
        self._metric = metric
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._trouble = Matched()
        self._pause_s = 0.0
        self._rests_until = 0.0
        self._deaths = 0  # of children, in a row

    @property
    def given_up(self) -> str:
        """Return why the pattern is not run any more, one sentence; "" while it is."""
        return self._trouble.trouble if self._deaths >= MOST_DEATHS or self._trouble.is_unfit else ""

    @property
    def pid(self) -> int | None:
        """Return the child's process id; None while there is none."""
        return self._child.pid if self._child else None

    async def read(self, lines: Sequence[str]) -> Matched:
        """Return what the lines say, in their order; lines that do not match say nothing."""
        if not self._metric.is_foreign:
            found = (read_line(line, self._metric) for line in lines)
            return Matched(tuple(one for one in found if one))
        async with self._turn:
            return await self._read_foreign([line[:LINE_LIMIT] for line in lines])

    async def close(self) -> None:
        """End the child, if there is one. A later `read` starts another."""
        child, self._child = self._child, None
        if child is not None:
            await _end(child)

    def _abandon(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            _kill(child)

    async def _read_foreign(self, lines: list[str]) -> Matched:
        if self.given_up or asyncio.get_running_loop().time() < self._rests_until:
            return self._trouble
        readings: list[Reading] = []
        for first in range(0, len(lines), BATCH_LINES):
            try:
                found = await asyncio.wait_for(self._ask(lines[first : first + BATCH_LINES]), self._wall_s)
            except (TimeoutError, OSError, ValueError) as exc:  # the last: it ended, or said what is no answer
                return replace(await self._failed(exc), readings=tuple(readings))
            except _Unfit as exc:
                await self.close()
                self._trouble = Matched(trouble=f"{_FIELD} {exc}", fault=str(exc), is_unfit=True)
                return self._trouble
            except asyncio.CancelledError:  # its answer, when it comes, is nobody's
                self._abandon()
                raise
            readings += [one for groups in found if groups and (one := reading(groups, self._metric))]
        self._pause_s, self._deaths = 0.0, 0
        return Matched(tuple(readings))

    async def _ask(self, lines: list[str]) -> list[dict[str, str] | None]:
        if self._child is None:
            self._child = await self._start()
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(lines).encode() + b"\n")
        await child.stdin.drain()
        answer = json.loads(await child.stdout.readline())
        if isinstance(answer, dict):
            raise _Unfit(_told(answer))
        if not isinstance(answer, list):
            raise ValueError("no answer")
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        # -I -S: no variable and no file of this place is read, and half the memory is saved.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", _CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=ANSWER_BYTES,
            env={},
        )
        assert child.stdin is not None
        asked = {"pattern": self._metric.pattern, "groups": GROUPS, "needs": GROUPS[0], "longest": GROUP_LIMIT}
        limits = {"cpu_s": self._cpu_s, "memory": MEMORY_BYTES}
        child.stdin.write(json.dumps({**asked, **limits}).encode() + b"\n")
        return child

    async def _failed(self, why: Exception) -> Matched:
        """End what is left of the child, and let the job rest: each time for twice as long, and in the end for ever."""
        child, self._child = self._child, None
        is_late = isinstance(why, TimeoutError)
        status = None if child is None else await (_end(child) if is_late else _ended(child, self._wall_s))
        fault = "" if status is None or is_late else _fault(status, self._cpu_s)
        mishap = "" if fault else _mishap(why, status, self._wall_s)
        self._deaths += status is not None and not is_late
        self._pause_s = min(self._pause_s * 2 or FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._rests_until = asyncio.get_running_loop().time() + self._pause_s
        trouble = f"{_FIELD} {fault or 'could not be run'} on lines of this job"
        trouble += f": {mishap}" if mishap else ""
        if self._deaths >= MOST_DEATHS:
            trouble += f", {MOST_DEATHS} times in a row: it is not run any more until it is changed"
        self._trouble = Matched(trouble=trouble, fault=fault, mishap=mishap)
        return self._trouble


def _told(unfit: dict[str, str]) -> str:
    """Return why a pattern cannot be used."""
    if "lacks" in unfit:
        return f"expects a group named {unfit['lacks']}, such as (?P<{unfit['lacks']}>[0-9.]+)"
    return f"expects a regular expression of Python, got one that cannot be read: {safe_line(str(unfit['unreadable']))}"


def _fault(status: int, cpu_s: float) -> str:
    """Return what a pattern did whose child ended by itself.

    "" is for one that was killed, which may be anybody's fault, and for 255, by which asyncio says that it does not know.
    """
    if status == -signal.SIGXCPU:
        return f"took more than {cpu_s:g} s"
    if status == NO_MEMORY:
        return f"needed more than {MEMORY_BYTES >> 20} MiB"
    return "ended its process with an error" if status == 1 else ""


def _mishap(why: Exception, status: int | None, wall_s: float) -> str:
    """Return what became of a process that did not answer, though its pattern did nothing wrong."""
    if isinstance(why, TimeoutError):
        return f"it was not done within {wall_s:g} s"
    if status is None:
        told = why.strerror if isinstance(why, OSError) else None
        return f"no process could be started for it ({told or 'for no reason that was told'})"
    if status < 0:
        return f"its process was ended from outside (signal {-status})"
    return f"its process ended without an answer (status {status})"


def _kill(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    with suppress(ProcessLookupError):
        child.kill()


async def _end(child: asyncio.subprocess.Process) -> int:
    """End a child. Its status says nothing: killing one that has just ended by itself takes its status from asyncio (255)."""
    _kill(child)
    return await child.wait()


async def _ended(child: asyncio.subprocess.Process, within_s: float) -> int:
    """Return the status of a child that answers no more: it ends by itself, at the latest when nobody asks it any more."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        return await asyncio.wait_for(child.wait(), within_s)
    except TimeoutError:
        return await _end(child)


async def check(metric: Metric, *, wall_s: float = WALL_S) -> str:
    """Return what is wrong with a pattern, tried on its sample line under the budget, in one sentence; "" for nothing.

    It is for a metric in which `logline.problems_of` found nothing. Without a sample, the pattern is read and no more.

    Raises:
        KubeError: It could not be tried: no process could be started, or it was killed, or got no turn. Try again.
    """
    if not metric.is_foreign:
        return ""
    matcher = Matcher(metric, wall_s=wall_s)
    try:
        matched = await matcher.read([metric.sample])
    finally:
        await matcher.close()
    if matched.mishap:
        raise KubeError(f"it could not be tried on the sample: {matched.mishap}")
    if matched.is_unfit:
        return matched.trouble
    if matched.fault:
        return f"{_FIELD} expects one that is fast and small, this one {matched.fault} on the sample"
    if metric.sample and not matched.readings:
        return f"{PATH}.metric.sample expects a line that the pattern matches, with a time above 0"
    return ""
