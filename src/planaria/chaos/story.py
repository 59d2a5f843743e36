"""What is printed: a line for every fault, the verdict, and the story of whatever was broken. Pure."""

from __future__ import annotations

from collections import Counter

from planaria.base.text import safe_line
from planaria.base.value import as_dict
from planaria.chaos.model import Observed, Strike
from planaria.chaos.verdict import PROMISES, Broken, growth, made, reads_commits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.chaos.model import Memory
    from planaria.chaos.plan import Plan

LONGEST_STORY = 60  # lines; the rest is in the logs
MOST_AGENTS = 3
SCHEMA = 1


def line(strike: Strike, planned: int, began_at: float) -> str:
    """Say what became of a fault, in one line."""
    head = f"[{strike.fault.number}/{planned}] {strike.at - began_at:6.1f} s  {strike.fault}"
    if strike.left_out:
        return f"{head}: left out, {safe_line(strike.left_out)}"
    where = f" in step {strike.step}" if strike.step is not None else ""
    back = f"at work again after {strike.back_s:.2f} s" if strike.back_s is not None else "the job ended"
    return f"{head}{where} of round {strike.round}: {back}"


def story(seen: Observed, broken: Broken) -> list[str]:
    """Tell a breach in order: the fault before it, and what the nodes and their agents said until the next fault."""
    struck = made(seen)
    found = next((at for at, strike in enumerate(struck) if strike.fault.number == broken.fault), None)
    if found is None:
        since, until, lines = seen.began_at, struck[0].at if struck else seen.ended_at, ["before the first fault:"]
    else:
        since, until = struck[found].at, struck[found + 1].at if found + 1 < len(struck) else seen.ended_at
        lines = [line(struck[found], seen.planned, seen.began_at)]
    told = [said for said in seen.said if since <= said.at <= until]
    if len(told) > LONGEST_STORY:
        lines.append(f"({len(told) - LONGEST_STORY} lines less)")
    lines += [f"{said.at - seen.began_at:8.2f} s {said.node}: {safe_line(said.text)}" for said in told[-LONGEST_STORY:]]
    return lines


def verdict_text(seen: Observed, plan: Plan, broken: Sequence[Broken], logs: str) -> str:
    """Return the verdict for a reader."""
    lines = [_summary(seen)]
    lines += [f"skipped: {kind}: {why}" for kind, why in plan.skipped.items()]
    lines += [f"left out: {kind}: {why}" for kind, why in left_out(seen).items()]
    lines += [f"memory: {told}" for told in _memory(seen)[:MOST_AGENTS]]
    for name, promise in PROMISES.items():
        found = [one for one in broken if one.promise == name]
        lines.append(f"{'BROKEN' if found else _kept(seen, name):<6} {name}: {promise}")
        lines += [f"       - {safe_line(one.sentence, 500)}" for one in found]
    for one in broken:
        if one.promise == "campaign":  # nothing happened
            continue
        lines += ["", f"{one.promise}: {safe_line(one.sentence, 500)}"]
        lines += [f"  {told}" for told in story(seen, one)]
    if logs:
        lines += ["", f"logs and events: {safe_line(logs)}"]
    count = len({one.promise for one in broken})
    words = "1 promise was broken" if count == 1 else f"{count} promises were broken"
    lines += [
        "",
        words
        if broken
        else ("interrupted; nothing broken so far" if seen.is_interrupted else "all promises were kept"),
    ]
    return "\n".join(lines) + "\n"


def verdict_json(
    seen: Observed, plan: Plan, broken: Sequence[Broken], logs: str, about: Mapping[str, object]
) -> dict[str, object]:
    """Return the verdict as data; docs/chaos.md describes it. `about`: the seed, and what it was made with."""
    back = back_to_work(seen)
    return {
        "schema": SCHEMA,
        **about,
        "planned": seen.planned,
        "struck": len(made(seen)),
        "seconds": round(seen.ended_at - seen.began_at, 3),
        "interrupted": seen.is_interrupted,
        "kept": not broken,
        "kinds": dict(sorted(Counter(one.fault.kind for one in made(seen)).items())),
        "rounds": _rounds(seen),
        "workers": len(seen.workers),
        "back_s": {"median": back[len(back) // 2], "p90": back[len(back) * 9 // 10], "longest": back[-1]}
        if back
        else None,
        "skipped": dict(plan.skipped),
        "left_out": left_out(seen),
        "result": {"expected": seen.expected, "got": seen.result},
        "promises": [
            {
                "name": name,
                "promise": promise,
                "state": "broken" if any(one.promise == name for one in broken) else _kept(seen, name).strip(),
                "broken": [
                    {"sentence": one.sentence, "fault": one.fault, "story": story(seen, one)}
                    for one in broken
                    if one.promise == name
                ],
            }
            for name, promise in PROMISES.items()
        ],
        "faults": [as_dict(strike) | {"at": round(strike.at - seen.began_at, 3)} for strike in seen.strikes],
        "memory": {agent: _grown(samples) for agent, samples in seen.memory.items() if growth(samples)},
        "logs": logs or None,
    }


def back_to_work(seen: Observed) -> list[float]:
    """Return after how long the job was at work again, for each fault, the shortest first."""
    return sorted(round(strike.back_s, 3) for strike in made(seen) if strike.back_s is not None)


def _rounds(seen: Observed) -> int:
    return len({(worker.era, worker.round) for worker in seen.workers})


def left_out(seen: Observed) -> dict[str, str]:
    """Return the kinds of faults that were left out, how often, and the last reason."""
    found: dict[str, list[Strike]] = {}
    for strike in seen.strikes:
        if strike.left_out:
            found.setdefault(strike.fault.kind, []).append(strike)
    return {
        kind: f"{len(strikes)} of {sum(one.fault.kind == kind for one in seen.strikes)}, {safe_line(strikes[-1].left_out)}"
        for kind, strikes in found.items()
    }


def _kept(seen: Observed, name: str) -> str:
    """Say `kept`, or `open` where a campaign could not tell."""
    told = {
        "result": seen.expected is not None and seen.result is not None,
        "memory": any(growth(samples) for samples in seen.memory.values()),
        "commits": reads_commits(seen),
        "end": not seen.is_interrupted,
        "campaign": not seen.is_interrupted,
    }
    return "kept" if told.get(name, True) else "open"


def _summary(seen: Observed) -> str:
    back = back_to_work(seen)
    text = (
        f"{len(made(seen))} of {seen.planned} faults in {seen.ended_at - seen.began_at:.1f} s, {_rounds(seen)} rounds, "
    )
    text += f"{len(seen.workers)} workers"
    if back:
        text += f"; at work again after {back[len(back) // 2]:.2f} s (median), {back[-1]:.2f} s (longest)"
    return text


def _memory(seen: Observed) -> list[str]:
    """Tell what became of agents, the longest-lived first."""
    grown = {agent: _grown(samples) for agent, samples in seen.memory.items() if growth(samples)}
    return [
        f"agent of {agent}: {numbers['own_kib']} KiB of its own and {numbers['shared_kib']} shared "
        f"after {numbers['lived_s']} s, "
        f"{numbers['own_grown_kib']:+d} and {numbers['shared_grown_kib']:+d} KiB from its second third to its last"
        for agent, numbers in sorted(grown.items(), key=lambda item: -item[1]["lived_s"])
    ]


def _grown(samples: Sequence[Memory]) -> dict[str, int]:
    own, shared = growth(samples) or (0, 0)
    last = samples[-1]
    return {
        "lived_s": round(last.at - samples[0].at),
        "own_kib": last.own_kib,
        "shared_kib": last.shared_kib,
        "own_grown_kib": own,
        "shared_grown_kib": shared,
    }
