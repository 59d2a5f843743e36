"""The standbys of one node: kept ready in the background, taken when a life begins, replaced when they die or go stale.

One is started at a time, the next when it is ready: they share the CPUs with the workers that run meanwhile.
"""

from __future__ import annotations

from planaria.base.memory import free_bytes
from planaria.base.signals import name_of
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.contract.standby import JOIN
from planaria.errors import SpawnFailed
from planaria.process import prints
from planaria.process.spares import (
    PROMOTED,
    REPLACED,
    RETRIES,
    Absence,
    Count,
    Lost,
    absence,
    failures_after_unfit,
    given_up,
    how_many,
    is_same,
    not_ready,
    runs_too_often_in_vain,
    safe_mode,
    without_unfit,
)
from planaria.process.standby import MOST_CHARACTERS, Standby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.base.loop import Loop, Timer
    from planaria.contract.standby import Report
    from planaria.process.prints import Print
    from planaria.process.spares import Plan
    from planaria.process.spawn import Start

LOOK_S = 5.0  # how often files are looked at
_MOST_TOLD = 1000  # of a sentence: it may name two files
PAUSE_S = 60.0  # after some were ended for their memory: commits of all ranks, and their growth, come before the next


class Seen(Value):
    """A standby as others may see it."""

    local_rank: int
    pid: int
    is_ready: bool


class StandbysSeen(Value):
    """All standbys of a node as others may see them. `why` says why they are fewer than are wanted; empty: they are not, or
    soon will not be.
    """

    seen: tuple[Seen, ...] = ()
    why: str = ""


class Taken(Value):
    """A standby that may be promoted, or the reason why there is none."""

    standby: Standby | None
    why: str = ""


class Standbys:
    """Keep standbys for the local ranks of this node. `asked` is None for `auto`.

    `watch(pid, lifeline)` is told of every new child: whoever reaps children hands their ends to `exited`. `tell` takes a
    sentence for the user, each at most once. `free` returns how many bytes of memory are left that nobody was promised.
    `memory`, once it is set, returns what a local rank writes its commits into, as descriptors by number.
    """

    def __init__(
        self,
        loop: Loop,
        asked: int | None,
        *,
        watch: Callable[[int, int | None], object],
        tell: Callable[[str], object],
        free: Callable[[], int] = free_bytes,
    ) -> None:
        self._loop = loop
        self._asked = asked
        self._watch = watch
        self._tell = tell
        self._free = free
        self._orders: tuple[Start, ...] = ()
        self._plans: tuple[Plan, ...] = ()
        self._standing: dict[int, Standby] = {}
        self._ending: dict[int, Standby] = {}  # by pid: killed, and not reaped yet
        self._lost: dict[int, Lost] = {}  # by local rank: what became of the one before
        self._count = Count(0)  # how many there were to be when that was last asked
        self._since: dict[int, float] = {}  # by local rank: when the last one was started
        self._never_joins: tuple[tuple[str, Print], ...] | None = None  # the program that was run and did not
        self._each_bytes = 0
        self._is_short = False  # a commit found no room beside them
        self._not_before = 0.0
        self._paused = ""  # why there are none before that
        self._on_room: Callable[[], object] | None = None
        self._why = ""
        self._failures = 0
        self._unfit: list[Report] = []
        self._told: set[str] = set()
        self._timer: Timer | None = None
        self._is_closed = False
        self.memory: Callable[[int], Mapping[int, int]] = lambda _local_rank: {}

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Return those there are, by local rank."""
        standing = sorted(self._standing.items())
        return tuple(Seen(local_rank, one.pid, one.is_ready) for local_rank, one in standing)

    @property
    def overview(self) -> StandbysSeen:
        """Return those there are, and why there are no more."""
        return StandbysSeen(self.seen, self._pause or self._why)

    @property
    def pids(self) -> frozenset[int]:
        """Return every process of ours: whoever ends what workers left behind must spare them."""
        return frozenset(one.pid for one in self._standing.values()) | frozenset(self._ending)

    def keep(self, orders: tuple[Start, ...], plans: tuple[Plan, ...]) -> None:
        """Keep standbys from now on: `orders` has, by local rank, the cold start that each is to save, `plans` what it does.

        Those that stand for other orders, or have other modules, are replaced. What was seen to be unfit stays left out.
        """
        plans = tuple(without_unfit(plan, self._unfit) for plan in plans)
        is_known = len(plans) == len(self._plans) and all(map(is_same, plans, self._plans))
        if not is_known or orders != self._orders:
            self._failures, self._why = 0, ""
        self._orders, self._plans = orders, plans
        for standby in list(self._standing.values()):
            if why := standby.staleness():
                self._end(standby, Lost(why, is_stale=True))
            elif standby.local_rank >= len(orders) or not is_same(standby.plan, self._plan_of(standby.local_rank)):
                self._end(standby, REPLACED)
            elif why := standby.mismatch(orders[standby.local_rank]):
                self._end(standby, Lost(f"the one before was replaced: {why}"))
        self._go_on()

    def _plan_of(self, local_rank: int) -> Plan:
        """Return what a standby does that is started now, by what the files of its program are now."""
        plan = self._plans[local_rank]
        if plan.mode != JOIN:
            return plan
        if changed := prints.first_changed(plan.program):
            self._tell_once(f"{changed} has changed: standbys do not run the program before a worker has joined again")
        never_joins = self._never_joins is not None and not prints.first_changed(self._never_joins)
        return safe_mode(plan, has_changed=bool(changed), never_joins=never_joins)

    def take(self, local_rank: int, cold: Start) -> Taken:
        """Take the standby of a local rank out, for the caller to promote; or say why a cold start it is. Never waits.

        One that is refused is ended, and replaced later: when `keep` is called, or at the next look.
        """
        standby = self._standing.get(local_rank)
        if standby is None:
            return Taken(None, absence(self._absence_of(local_rank)))
        if why := standby.staleness():  # first: a look that came before this would have found the same
            self._end(standby, Lost(why, is_stale=True))
            return Taken(None, why)
        if not standby.is_ready:
            return Taken(None, not_ready(self._lost.get(local_rank, Lost())))
        if why := standby.refusal(cold):
            self._end(standby, Lost(f"the one before was refused: {why}"))
            return Taken(None, why)
        del self._standing[local_rank]
        self._lost[local_rank] = PROMOTED
        self._loop.forget(standby.fileno())
        return Taken(standby)

    def died_in_promotion(self, local_rank: int) -> str:
        """Take note that the one that was taken was gone before it could begin; return why it is a cold start."""
        self._lost[local_rank] = Lost("the one before died when it was promoted")
        return "it died when it was promoted"

    def _absence_of(self, local_rank: int) -> Absence:
        return Absence(
            local_rank,
            is_last=self._is_closed,
            is_taught=bool(self._orders),
            failures=self._failures,
            pause=self._pause,
            asked=self._asked,
            place=sum(rank < local_rank for rank in self._missing()),
            free=self._count.number - len(self._standing),
            short=self._count.why,
            lost=self._lost.get(local_rank, Lost()),
        )

    @property
    def _pause(self) -> str:
        """Return why none is started at the moment, where some were ended for their memory."""
        return self._paused if self._loop.now() < self._not_before else ""

    def _missing(self) -> list[int]:
        return [rank for rank in range(len(self._orders)) if rank not in self._standing]

    def has_joined(self, local_rank: int) -> bool:
        """Tell whether one waits for this local rank in `join()`: then it has taken what it needs of a device already."""
        standby = self._standing.get(local_rank)
        return standby is not None and standby.has_joined

    def lend(self, local_rank: int) -> None:
        """Have the one who is ready for a local rank map what that rank writes its commits into, if that has changed."""
        standby = self._standing.get(local_rank)
        if standby is not None and standby.is_ready:
            standby.lend(self.memory(local_rank))

    def make_room(self, then: Callable[[], object]) -> bool:
        """End all of them for memory that a commit lacks; False when there is none. `then` is called once they are gone.

        From now on memory decides how many there are, whatever was asked for, and for a while there are none.
        """
        if not self.pids:
            return False
        self._is_short, self._on_room = True, then
        self._not_before, self._paused = self._loop.now() + PAUSE_S, "standbys were ended: a commit needed their memory"
        self._tell_once(self._paused)
        for standby in list(self._standing.values()):
            self._end(standby, Lost("the one before was ended: a commit needed its memory"))
        return True

    def exited(self, pid: int, status: int) -> bool:
        """Note that a child has ended; False when it is none of ours. It is replaced."""
        if pid in self._ending:
            self._ending.pop(pid).close()
            if not self._ending and self._on_room is not None:
                then, self._on_room = self._on_room, None
                then()
            self._go_on()
            return True
        standby = next((one for one in self._standing.values() if one.pid == pid), None)
        if standby is None:
            return False
        self._failures += not standby.is_ready  # one that was ready has shown that the next one can be
        if status == 0 and not standby.has_arrived:
            words = "it has come to the end of the program without join()"
            self._run_no_more(standby, "has come to the end of the program without join()")
        else:
            words = standby.last_words() or (f"exit status {status}" if status >= 0 else name_of(-status))
            self._tell_once(f"a standby of local rank {standby.local_rank} ended: {words}")
            if runs_too_often_in_vain(standby.plan, self._failures):
                self._failures = 0
                self._run_no_more(standby, f"was the last of {RETRIES + 1} in a row that ended before they were ready")
        del self._standing[standby.local_rank]
        self._lost[standby.local_rank] = Lost(f"the one before ended: {words[:MOST_CHARACTERS]}")
        self._loop.forget(standby.fileno())
        standby.close()
        self._go_on()
        return True

    def close(self) -> None:
        """End them all. Their ends still come to `exited`."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for standby in list(self._standing.values()):
            self._end(standby, Lost())

    def _go_on(self) -> None:
        """Start the next one, if one is wanted and none is on its way."""
        if self._timer is None or not self._timer.is_pending:
            self._timer = None if self._is_closed else self._loop.call_later(LOOK_S, self._look)
        if self._is_closed or self._ending or any(not one.is_ready for one in self._standing.values()):
            return
        if self._loop.now() < self._not_before:
            return
        if why := given_up(self._failures):
            self._why = why
            self._tell_once(why)
            return
        count = how_many(
            self._asked,
            len(self._orders),
            standing=len(self._standing),
            each_bytes=self._each_bytes,
            free_bytes=self._free(),
            is_short=self._is_short,
        )
        self._why, self._count = count.why, count
        if count.why:
            self._tell_once(count.why, count.why.partition(":")[0])  # what is free differs at every look
        for local_rank in sorted(self._standing)[count.number :]:
            self._not_before, self._paused = self._loop.now() + PAUSE_S, count.why
            self._end(self._standing[local_rank], Lost(f"the one before was ended: {count.why}"))
        missing = self._missing()
        if missing and len(self._standing) < count.number:
            self._start(missing[0])

    def _start(self, local_rank: int) -> None:
        try:
            standby = Standby(local_rank, self._orders[local_rank], self._plan_of(local_rank))
        except SpawnFailed as problem:
            self._failures += 1
            self._why, self._lost[local_rank] = str(problem), Lost(str(problem))
            self._tell_once(self._why)
            return
        self._standing[local_rank], self._since[local_rank] = standby, self._loop.now()
        self._watch(standby.pid, standby.hand_over_lifeline())
        self._loop.on_readable(standby.fileno(), lambda: self._hear(standby))

    def _hear(self, standby: Standby) -> None:
        """Take a standby's word that it is ready. When it has none it is dying, and its end is reported by itself."""
        if standby.hear():
            return
        self._loop.forget(standby.fileno())
        if standby.report is None:
            return
        if standby.report.unfit:
            why = _sentence(standby)
            self._tell_once(why)
            self._unfit.append(standby.report)
            self._failures = failures_after_unfit(self._failures, self._unfit)
            self._plans = tuple(without_unfit(plan, self._unfit) for plan in self._plans)
            self._end(standby, Lost(f"the one before was replaced: {why}"))
            return
        self._failures = 0
        self._each_bytes = max(self._each_bytes, standby.memory_bytes)
        self.lend(standby.local_rank)
        self._go_on()

    def _look(self) -> None:
        for standby in list(self._standing.values()):
            if why := standby.staleness():
                self._end(standby, Lost(why, is_stale=True))
            elif not standby.has_arrived:
                self._end_if_late(standby)
        self._go_on()

    def _end_if_late(self, standby: Standby) -> None:
        patience_s = standby.plan.patience_s
        if self._loop.now() - self._since[standby.local_rank] > patience_s:
            late = f"it has not come to join() after {patience_s:.0f} s"
            self._run_no_more(standby, f"was ended: {late}")
            self._end(standby, Lost(f"the one before was ended: {late}"))

    def _run_no_more(self, standby: Standby, why: str) -> None:
        self._never_joins = standby.plan.program
        self._tell_once(
            f"a standby of local rank {standby.local_rank} {why}; standbys do not run the program any more, "
            "they only load what it loads"
        )

    def _end(self, standby: Standby, lost: Lost) -> None:
        """End one, and remember why. The next is started when this one's memory is free."""
        self._lost[standby.local_rank] = lost
        del self._standing[standby.local_rank]
        self._loop.forget(standby.fileno())
        self._ending[standby.pid] = standby
        standby.end()

    def _tell_once(self, sentence: str, about: str = "") -> None:
        if (about or sentence) not in self._told:
            self._told.add(about or sentence)
            self._tell(safe_line(sentence, _MOST_TOLD))


def _sentence(standby: Standby) -> str:
    report = standby.report
    if report is None:
        return ""
    for name, file in report.differs:
        return f"nothing is loaded ahead: {name} was {dict((*standby.plan.load, *standby.plan.own))[name]}, now it is {file}"
    for name, variable in report.reads:
        return f"{name} is not loaded ahead: it reads {variable} when it is imported"
    for name in report.draws:
        return f"{name} is not loaded ahead: it draws random numbers when it is imported"
    return f"{report.device[0]} is not loaded ahead: it starts a device when it is imported"
