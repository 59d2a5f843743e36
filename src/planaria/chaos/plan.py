"""Which fault comes when: a pure function of what is drawn and of what this machine can do."""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.chaos.kinds import BY_NAME, LONG_PART
from planaria.chaos.model import Facts, Fault
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol, TypeVar

    T = TypeVar("T")

    class Draws(Protocol):
        """What is asked of `random.Random`."""

        def choice(self, seq: Sequence[T]) -> T:
            """Return one of these."""

        def randint(self, a: int, b: int) -> int:
            """Return a whole number, both ends included."""

        def uniform(self, a: float, b: float) -> float:
            """Return a number between these."""

        def shuffle(self, x: list[T]) -> None:
            """Put a list into another order."""


MOST_STEPS = 4
LOSS_OF_ALL_PER = 100  # faults


class Plan(Value):
    """The faults of a campaign in their order, and why kinds that were asked for are not among them."""

    faults: tuple[Fault, ...]
    skipped: Mapping[str, str]


def plan(draws: Draws, count: int, wanted: Sequence[str], facts: Facts) -> Plan:
    """Draw so many faults of the wanted kinds.

    The last node is spared by `kill-agent`, and all nodes are by losses in the second half, unless only `lose-all` is wanted:
    agents grow old then, and their memory is watched.

    Raises:
        UsageError: None of the kinds can be done here.
    """
    skipped = {kind: facts.cannot[kind] for kind in wanted if kind in facts.cannot}
    able = [kind for kind in wanted if kind not in skipped]
    if not able:
        told = "; ".join(f"{kind}: {why}" for kind, why in skipped.items())
        raise UsageError(f"--kinds names nothing that can be done here: {told}")
    kinds = _kinds(draws, count, able)
    faults = [_fault(draws, number + 1, kind, facts) for number, kind in enumerate(kinds)]
    return Plan(tuple(_with_loss(fault, _first_half(count)) for fault in faults), skipped)


def _first_half(count: int) -> int:
    """Return the number of the last fault with which all nodes may be lost."""
    return max(count // 2, 1)


def _with_loss(fault: Fault, first_half: int) -> Fault:
    """Let all nodes be lost with a commit that is damaged in the first half."""
    is_loss = fault.kind == "corrupt-snapshot" and fault.number <= first_half
    return replace(fault, variant="all nodes lost") if is_loss else fault


def _kinds(draws: Draws, count: int, able: Sequence[str]) -> list[str]:
    """Draw from bags, so that every kind comes as often as it should; losses of all nodes are put into the first half."""
    bag = [kind for kind in able for _ in range(BY_NAME[kind].weight)]
    if not bag:
        return ["lose-all"] * count
    losses = max(count // LOSS_OF_ALL_PER, 1) if "lose-all" in able else 0
    drawn: list[str] = []
    while len(drawn) < count - losses:
        fresh = list(bag)
        draws.shuffle(fresh)
        drawn += fresh
    del drawn[count - losses :]
    half = _first_half(count)
    for part in range(losses):
        drawn.insert(draws.randint(part * half // losses, (part + 1) * half // losses - 1), "lose-all")
    return drawn


def _fault(draws: Draws, number: int, kind: str, facts: Facts) -> Fault:
    """Draw the rest. As much is drawn for every kind, so that a kind more or less leaves the others where they were."""
    node, rank = draws.randint(0, facts.nodes - 1), draws.randint(0, facts.nproc - 1)
    steps, chance, time = draws.randint(1, MOST_STEPS), draws.randint(0, 11), draws.uniform(0.0, 1.0)
    fault = Fault(number, kind, "", node, -1, steps)
    if kind == "kill-worker":
        whole = facts.nproc > 1 and chance < 4
        return replace(fault, variant="whole node" if whole else "", local_rank=-1 if whole else rank)
    if kind == "kill-agent":
        variant = ("agent", "launcher", "agent and launcher")[chance % 3]
        return replace(fault, node=node % max(facts.nodes - 1, 1), variant=variant)
    if kind in ("pause-node", "cut-network"):
        return _long_or_short(fault, chance, time, facts)
    if kind == "corrupt-snapshot":
        return fault
    if kind == "hang" and facts.finds_hangs:
        return replace(fault, variant="for ever", local_rank=rank)
    if kind in ("pause-worker", "slow-worker", "hang", "hold-gil"):
        return replace(fault, local_rank=rank, lasts_s=0.2 + time)
    return replace(fault, lasts_s=0.0 if kind == "lose-all" else 0.5 + time)


def _long_or_short(fault: Fault, chance: int, time: float, facts: Facts) -> Fault:
    """A long one outlasts the lease of its node, by which the others go on; a short one does not."""
    is_long = chance % LONG_PART == 0
    lasts_s = facts.ttl_s * 1.1 + 0.5 + time if is_long else 0.2 + time * facts.ttl_s / 6
    length = "long" if is_long else "short"
    who = ("agent alone, " if chance % 2 else "") if fault.kind == "pause-node" else ""
    return replace(fault, variant=who + length, lasts_s=lasts_s)


def as_text(plan: Plan) -> str:
    """Return the plan for a reader, a fault a line."""
    lines = [f"{fault.number:>5}  {fault.after_steps} steps later: {fault}" for fault in plan.faults]
    lines += [f"skipped: {kind}: {why}" for kind, why in plan.skipped.items()]
    return "\n".join(lines) + "\n"
