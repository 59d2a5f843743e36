"""A training loop that can be interrupted at any moment: sync, then step and commit, until the data or the time is over.

    def step(state):
        images, labels = next(batches)  # its StopIteration ends the training
        ...
        return loss

    train_loop(state, step)

On a drain, or when nodes come or go, all ranks stop after the same step, commit and exit. A loop of your own has the same with
`should_stop` and `leave`. docs/loop.md describes both.
"""

from __future__ import annotations

import threading
from time import monotonic

from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.worker import goodbye, here
from planaria.worker.agreement import COMMIT, NOTHING, STOP, Agreement
from planaria.worker.deferral import DEFERRAL
from planaria.worker.link import LINK, numbers
from planaria.worker.vault import check_tier, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol, TypeVar

    from planaria.contract.commit import Stamp, Tier
    from planaria.worker.goodbye import Notice

    class Keeping(Protocol):
        """A state, as far as a loop needs it: `ElasticState`, `ShardedState`, or your own."""

        def sync(self) -> Any:
            """Go back to the newest commit, all ranks alike."""

        def commit(self, wait: Tier | None = None, timeout_s: float = 600.0) -> Any:
            """Keep the state as it is now."""

        @property
        def stamp(self) -> Stamp | None:
            """Which commit was the last one."""

    State = TypeVar("State", bound=Keeping)

READ_EVERY_S = 1.0  # a loss that lies on a GPU: reading it waits for that GPU
LOOK_EVERY_S = 0.02


def _notice() -> Notice | None:
    return LINK.drain() or LINK.resize()


_PLAIN = Agreement()  # of `should_stop`
_told_alone: list[bool] = []  # said once in the life of a process


def _warn_alone(agreement: Agreement) -> None:
    """Say, before the first step is lost, that ranks will not stop at the same one; rank 0 speaks for all."""
    if not _told_alone and agreement.is_impossible and here.rank() == 0:
        _told_alone.append(True)
        say(
            "ranks cannot agree on a step to stop at, without a process group of torch and without agree=...: after a drain or "
            "a resize training goes on at the last commit that all have made, and the steps since are lost"
        )


class Pace(Value):
    """How often a loop commits: after so many steps, or so many seconds, whichever comes first."""

    steps: int | None
    seconds: float | None

    def is_due(self, steps: int) -> bool:
        """Tell whether the number of steps since the last commit is reason enough for one. All ranks agree without asking."""
        return self.steps is not None and steps >= self.steps


def train_loop(  # noqa: PLR0913  each is the user's to choose, by name
    state: State,
    step: Callable[[State], object],
    *,
    commit_every: int | None = None,
    commit_every_s: float | None = None,
    wait: Tier | None = None,
    check_every: int = 1,
    agree: Callable[[int], int] | None = None,
) -> None:
    """Sync, then call `step(state)` and commit until it raises StopIteration, counting `state.step` if there is one.

    What `step` returns goes to the agent as progress: a loss, or a mapping of numbers. Commits are made after every step unless
    `commit_every` (steps) or `commit_every_s` (seconds) says otherwise; `wait` is the tier that each of them waits for, and the
    last one waits for its node at least.

    On the notice of a drain or a resize all ranks stop after the same step, commit and raise SystemExit(0). With a process
    group of torch they agree by a message of eight bytes every `check_every` steps, or after each where steps are long.
    Without one, `agree` is given a number and has to return the highest of all ranks; without it a rank stops alone, at the
    last commit that all have made. Every rank takes part, in its main thread.

    Raises:
        SystemExit: The worker was asked to stop, and has committed if it could: a line says so.
        UsageError: An option is not what it has to be.
    """
    _check_state(state)
    for name, value in (("step", step), ("agree", agree)):
        if not callable(value) and (name == "step" or value is not None):
            raise UsageError(f"{name} expects a function, got {value!r}")
    pace = _pace(commit_every, commit_every_s)
    if type(check_every) is not int or check_every < 1:
        raise UsageError(f"check_every expects a whole number above 0, got {check_every!r}")
    check_tier(wait)
    agreement = Agreement(check_every, agree)
    if commit_every_s is not None and agreement.is_impossible:
        raise UsageError(
            "commit_every_s needs ranks that agree on a step: there is no process group of torch",
            hint="give train_loop agree=..., a function that returns the highest of all ranks' numbers, or use commit_every",
        )
    _Loop(state, step, pace, wait, agreement).run()


def _check_state(state: object) -> None:
    if isinstance(state, type) or not all(callable(getattr(state, name, None)) for name in ("sync", "commit")):
        raise UsageError(f"train_loop expects a state with sync() and commit(), got {state!r}")


def _pace(steps: Any, seconds: Any) -> Pace:
    if steps is not None and (type(steps) is not int or steps < 1):
        raise UsageError(f"commit_every expects a whole number above 0, got {steps!r}")
    if seconds is not None and not _is_above_0(seconds):
        raise UsageError(f"commit_every_s expects a number above 0, got {seconds!r}")
    return Pace(1 if steps is None and seconds is None else steps, seconds)


def _is_above_0(seconds: Any) -> bool:
    try:
        return not isinstance(seconds, str) and float(seconds) > 0
    except (TypeError, ValueError):
        return False


class _Loop:
    """One run of `train_loop`."""

    def __init__(
        self, state: Any, step: Callable[[Any], object], pace: Pace, wait: Tier | None, agreement: Agreement
    ) -> None:
        self._state = state
        self._step = step
        self._pace = pace
        self._wait = wait
        self._agreement = agreement
        self._reporter = _Reporter(state)
        self._uncommitted = 0
        self._committed_at = 0.0
        self._is_leaving = False

    def run(self) -> None:
        """Train to the end, or until a notice."""
        DEFERRAL.begin(self._lost_if_cut_off)
        try:
            LINK.drain()  # who is not connected is not told
            _warn_alone(self._agreement)
            self._state.sync()
            self._committed_at = monotonic()
            while self._one_step():
                pass
            self._agreement.settle()
            self._finish()
            LINK.finish()
        finally:
            DEFERRAL.end()

    def _one_step(self) -> bool:
        """Make a step and what belongs to it; False when there is none left."""
        try:
            told = self._step(self._state)
        except StopIteration:
            return False
        self._uncommitted += 1
        if hasattr(self._state, "step"):
            self._state.step += 1
        self._reporter.report(told)
        found = self._agreement.ask(self._wish(), monotonic())
        if found == STOP:
            self._stop()
        if found == COMMIT or self._pace.is_due(self._uncommitted):
            self._state.commit(wait=self._wait)
            self._uncommitted, self._committed_at = 0, monotonic()
        return True

    def _wish(self) -> int:
        if _notice() is not None:
            return STOP
        seconds = self._pace.seconds
        return COMMIT if seconds is not None and monotonic() - self._committed_at >= seconds else NOTHING

    def _stop(self) -> NoReturn:
        """Leave, with a commit of this step unless ranks may stand at different ones."""
        self._is_leaving = True
        if self._agreement.is_impossible:
            _leave(goodbye.without_commit(self._uncommitted, self._state.stamp))
        leave(self._state, wait=self._wait or "node")

    def _lost_if_cut_off(self) -> str:
        """Return what an end in the middle of a step would cost; empty where that is this one step at most."""
        if self._is_leaving or not self._uncommitted:
            return ""
        return goodbye.lost(self._uncommitted, self._state.stamp)

    def _finish(self) -> None:
        """Commit what is not, and let the last commit be as safe as was asked for."""
        if self._uncommitted:
            self._state.commit(wait=self._wait or "node")
        elif hasattr(self._state, "settle"):  # the last one was made without waiting for it
            self._state.settle()


def should_stop() -> bool:
    """Tell whether this worker is to stop now, because of a drain or a resize: the same answer on all ranks.

    With a process group of torch it is a collective call: every rank makes it equally often, after each step. The answer is
    that of the call before, so that nobody waits for the network; where steps are long it is that of this call. From the
    first call on, the signal of an announced drain does not end this process any more: `leave` does.
    """
    DEFERRAL.begin()
    _warn_alone(_PLAIN)
    return _PLAIN.ask(NOTHING if _notice() is None else STOP, monotonic()) == STOP


def leave(state: Keeping | None = None, *, wait: Tier = "node") -> NoReturn:
    """Commit, wait until the commit has reached a tier or most of the grace is over, and exit so that the agent knows why.

    Without a state nothing is committed here: the last commit has been made already. All ranks leave after the same step, as
    `should_stop` sees to. A rank whose own agent has not said why yet waits for that, up to 30 s: the agent would take its end
    for that of the training.

    Raises:
        SystemExit: Always; the status is 0.
    """
    if state is None:
        _leave(goodbye.UNCOMMITTED)
    made = state.commit(wait=wait, timeout_s=goodbye.commit_s(_notice(), monotonic()))
    # A state of the user's own need not say how far its commit came.
    _leave(goodbye.after_commit(wait, made.reached) if hasattr(made, "reached") else goodbye.COMMITTED)


def _leave(words: str) -> NoReturn:
    notice = _own_notice(monotonic() + goodbye.GRACE_S)
    if notice is not None:
        say(goodbye.line(words, notice))
    raise SystemExit(0)


def _own_notice(deadline: float) -> Notice | None:
    """Wait for the notice of our own agent: those of other nodes may be heard of first, through a rank over there.

    An agent that does not know yet would take our end for that of the training.
    """
    never = threading.Event()
    while (notice := _notice()) is None and LINK.is_connected and monotonic() < deadline:
        never.wait(LOOK_EVERY_S)
    return notice


class _Reporter:
    """Tells the agent the step, the samples taken and what the step returned."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._steps = 0
        self._values: dict[str, float] = {}
        self._read_at = -READ_EVERY_S

    def report(self, told: Any) -> None:
        """Report a step. Numbers on a GPU are read once a second, and are those of that moment."""
        self._steps += 1
        now = monotonic()
        values = _named(told)
        if now - self._read_at >= READ_EVERY_S or not any(map(_is_far, values.values())):
            self._values = numbers(values)
            self._read_at = now
        cursor = getattr(getattr(self._state, "sampler", None), "cursor", None)
        samples = {} if cursor is None else {"samples": cursor}
        LINK.report(getattr(self._state, "step", self._steps), {**samples, **self._values})


def _named(told: Any) -> dict[str, Any]:
    """Return what a step returned by names; a single number is the loss."""
    if not hasattr(told, "items"):
        return {} if told is None else {"loss": told}
    try:
        return dict(told.items())
    except Exception:  # noqa: BLE001  it is no mapping, though it looks like one: the report lacks it, the training does not
        return {}


def _is_far(value: Any) -> bool:
    return getattr(getattr(value, "device", None), "type", "cpu") != "cpu"
