"""Which promises a job has kept, by what a campaign has seen. Pure; what is not known for sure is not held against it."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.chaos.model import Observed, Strike

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planaria.chaos.model import Memory, Worker

PROMISES: Mapping[str, str] = {
    "campaign": "every fault of the plan was made, or there is a reason why not",
    "end": "the job ends well on every node, whatever is done to it",
    "result": "it ends with the same result as the undisturbed run",
    "one-world": "there are never two worlds at once, nor two workers with one rank",
    "no-orphans": "no process outlives its launcher",
    "no-leaks": "no shared memory and no folder is left behind",
    "memory": "agents do not grow",
    "commits": "no commit is lost that reached its tier",
    "budget": "only crashes of workers are charged, and all nodes count alike",
}
WAKING_S = 5.0
"""How long a worker of an older world may live on when its whole machine wakes; a busy one takes its time to end it."""
LEAST_SAMPLES = 30  # of an agent's memory, one a second: before that it has not met everything yet
OLD_SAMPLES = (
    300  # a younger agent may meet its first hang, or lead for the first time, in its last third, and load code for it
)
YOUNG_GROWTH_KIB = (
    2048  # of thirty such agents in a campaign of 300 faults one grew by 1112; without faults by 500 at most
)
GROWTH_KIB = 512  # allocators round up
GROWTH_KIB_OF_A_ROUND = 12
"""An agent keeps the newest thousand events, and for its report a record of every restart. Measured over 200 rounds: 25 KiB a
round until there are a thousand, 9 KiB later; half a MiB from the second third to the last in either case."""
SHARED_GROWTH_KIB, SHARED_GROWTH_SHARE = 4096, 0.2  # commits differ in size, and in how many processes share them


class Broken(Value):
    """A promise that was not kept, and the last fault before it showed; 0: before any."""

    promise: str
    sentence: str
    fault: int = 0


def judge(seen: Observed) -> tuple[Broken, ...]:
    """Return everything that was broken, in the order of the promises."""
    checks = (_campaign, _end, _result, _one_world, _orphans, _leaks, _memory, _commits, _budget)
    return tuple(broken for check in checks for broken in check(seen))


def made(seen: Observed) -> list[Strike]:
    """Return the faults that came."""
    return [strike for strike in seen.strikes if not strike.left_out]


def reads_commits(seen: Observed) -> bool:
    """Tell whether a life said where it goes on after a fault before which something was promised."""
    firsts = [strike.at for strike in made(seen) if strike.floor is not None][:1]
    return any(said.step is not None and said.at >= first for first in firsts for said in seen.said)


def fault_before(seen: Observed, at: float) -> int:
    """Return the number of the last fault that came before a moment; 0: there was none."""
    return max((strike.fault.number for strike in made(seen) if strike.at <= at), default=0)


def growth(samples: Sequence[Memory]) -> tuple[int, int] | None:
    """Return the KiB that own and shared memory grew by from an agent's second third of life to its last, if it was long."""
    if len(samples) < LEAST_SAMPLES:
        return None
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[-third:]
    return (
        _median([one.own_kib for one in last]) - _median([one.own_kib for one in middle]),
        _median([one.shared_kib for one in last]) - _median([one.shared_kib for one in middle]),
    )


def _median(numbers: Sequence[int]) -> int:
    return sorted(numbers)[len(numbers) // 2]


def _campaign(seen: Observed) -> Iterator[Broken]:
    if seen.stuck or seen.is_interrupted:
        return
    if len(seen.strikes) < seen.planned:
        yield Broken(
            "campaign",
            f"the job was over after {len(seen.strikes)} of {seen.planned} faults: give it more steps, or ask for fewer faults",
        )
    elif seen.planned and not made(seen):
        yield Broken("campaign", "not one fault could be made: nothing has been tried")


def _end(seen: Observed) -> Iterator[Broken]:
    if seen.stuck:
        yield Broken("end", seen.stuck, fault_before(seen, seen.ended_at))
    for end in seen.ends:
        if not end.is_ours and end.status != 0:
            yield Broken("end", f"{end.node} ended with status {end.status}", fault_before(seen, end.at))
        if end.is_late:
            yield Broken("end", f"{end.node} did not end by itself and was killed", fault_before(seen, end.at))


def _result(seen: Observed) -> Iterator[Broken]:
    if seen.expected is None or seen.stuck or seen.is_interrupted:
        return
    has_failed = any(end.status and not end.is_ours for end in seen.ends)
    if seen.result is None and not has_failed:
        yield Broken(
            "result", f"there is no result; without faults it is {seen.expected!r}", fault_before(seen, seen.ended_at)
        )
    elif seen.result not in (None, seen.expected):
        yield Broken(
            "result",
            f"the result is {seen.result!r}, without faults it is {seen.expected!r}",
            fault_before(seen, seen.ended_at),
        )


def _one_world(seen: Observed) -> Iterator[Broken]:
    seats: dict[tuple[int, int, int], Worker] = {}
    first: dict[tuple[int, int], Worker] = {}
    for worker in sorted(seen.workers, key=lambda one: one.started_at):
        world = worker.era, worker.round
        twin = seats.setdefault((*world, worker.rank), worker)
        if twin is not worker:
            yield Broken(
                "one-world",
                f"pid {twin.pid} on {twin.node} and pid {worker.pid} on {worker.node} both had rank {worker.rank} in round "
                f"{worker.round}",
                fault_before(seen, worker.started_at),
            )
        earliest = first.setdefault(world, worker)
        if earliest.world_size != worker.world_size:
            yield Broken(
                "one-world",
                f"rank {earliest.rank} and rank {worker.rank} of round {worker.round} were told worlds of "
                f"{earliest.world_size} and {worker.world_size}",
                fault_before(seen, worker.started_at),
            )
    for worker in seen.workers:
        later = [other for world, other in first.items() if world > (worker.era, worker.round)]
        for other in sorted(later, key=lambda one: one.started_at)[:1]:
            if _lived_until(worker) > other.started_at:
                yield Broken(
                    "one-world",
                    f"rank {worker.rank} of round {worker.round} on {worker.node} (pid {worker.pid}) was alive "
                    f"{_lived_until(worker) - other.started_at:.3f} s after round {other.round} had begun on {other.node}",
                    fault_before(seen, other.started_at),
                )


def _lived_until(worker: Worker) -> float:
    if worker.stopped_at is None or worker.woken_at is None or worker.last_alive_at > worker.woken_at + WAKING_S:
        return worker.last_alive_at
    return min(worker.stopped_at, worker.last_alive_at)


def _orphans(seen: Observed) -> Iterator[Broken]:
    for end in seen.ends:
        if end.left:
            told = "; ".join(end.left)
            yield Broken("no-orphans", f"when {end.node} had ended, there still was {told}", fault_before(seen, end.at))


def _leaks(seen: Observed) -> Iterator[Broken]:
    for end in seen.ends:
        if end.litter:
            yield Broken("no-leaks", f"{end.node} left {', '.join(end.litter)}", fault_before(seen, end.at))
    if seen.shared_memory_left:
        yield Broken(
            "no-leaks",
            f"the job left {', '.join(seen.shared_memory_left)} in /dev/shm",
            fault_before(seen, seen.ended_at),
        )


def _memory(seen: Observed) -> Iterator[Broken]:
    for agent, samples in seen.memory.items():
        grown = growth(samples)
        if grown is None:
            continue
        middle = samples[len(samples) // 2]
        rounds = _rounds(seen, middle.at, samples[-len(samples) // 6].at)
        own = (GROWTH_KIB if len(samples) >= OLD_SAMPLES else YOUNG_GROWTH_KIB) + GROWTH_KIB_OF_A_ROUND * rounds
        shared = max(SHARED_GROWTH_KIB, int(middle.shared_kib * SHARED_GROWTH_SHARE))
        for kib, most, what in ((grown[0], own, "own"), (grown[1], shared, "shared")):
            if kib > most:
                lived_s = samples[-1].at - samples[0].at
                yield Broken(
                    "memory",
                    f"the agent of {agent} grew by {kib} KiB of {what} memory from the second third of its {lived_s:.0f} s to "
                    f"the last, with {rounds} rounds between them; {most} are allowed",
                    fault_before(seen, samples[-1].at),
                )


def _rounds(seen: Observed, since: float, until: float) -> int:
    """Return how many rounds began in a while."""
    return len({(worker.era, worker.round) for worker in seen.workers if since < worker.started_at <= until})


def _commits(seen: Observed) -> Iterator[Broken]:
    struck = made(seen)
    for strike, following in zip(struck, [*struck[1:], None], strict=False):
        until = following.at if following is not None else seen.ended_at
        if strike.floor is None:
            continue
        for said in seen.said:
            if said.step is not None and strike.at <= said.at < until and said.step < strike.floor:
                yield Broken(
                    "commits",
                    f"{said.node} went on from step {said.step}; {_what_was_safe(strike)}",
                    strike.fault.number,
                )
                break


def _what_was_safe(strike: Strike) -> str:
    tiers = {"nothing": "complete", "workers": "complete", "node": "on two nodes or on disk", "all": "on disk"}
    return f"step {strike.floor} was {tiers[strike.fault.loss]} before"


def _budget(seen: Observed) -> Iterator[Broken]:
    for budget in seen.budgets:
        if budget.charged > budget.allowed:
            yield Broken(
                "budget",
                f"{budget.charged} restarts were charged, and only {budget.allowed} of the faults killed workers alone",
                fault_before(seen, seen.ended_at),
            )
    counts: dict[tuple[int, int], set[int]] = {}
    for worker in seen.workers:
        counts.setdefault((worker.era, worker.round), set()).add(worker.restart_count)
    for (_, number), found in counts.items():
        if len(found) > 1:
            told = " and ".join(map(str, sorted(found)))
            yield Broken("budget", f"the workers of round {number} were told restart counts of {told}")
