"""Why the round that runs has to end, in a few words for people; none if it can go on. No clock."""

from __future__ import annotations

from planaria.rendezvous import verdict, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.office import Office
    from planaria.rendezvous.roll import Roll
    from planaria.rendezvous.verdict import Reports


def to_change(office: Office, failed: Reports, now: float) -> tuple[str, float]:
    """Return why the round ends, and how long workers that listen may take; looks again when that may change."""
    roll, grace_s = office.roll, office.settings.resize_grace_s
    if office.quit is not None:
        return office.quit.reason, office.quit.grace_s
    if failed:
        return verdict.reason(failed), 0.0
    for node in roll.members:
        reason = of_member(roll, node)
        if reason:
            return reason, grace_s if node in roll.here else 0.0
    fences, floor = roll.fences(), roll.floor()
    for when in fences:
        office.orders.wake(when)
    if any(when <= now for when in fences) and roll.may_exclude(now):
        names = ", ".join(roll.name(node) for node in roll.absent() if roll.fenced_at(node, floor) <= now)
        return f"node {names or '?'} fell silent", 0.0
    return _of_arrivals(office, now), grace_s


def of_member(roll: Roll, node: str) -> str:
    """Say what is wrong with a member that is not done."""
    name, seat = roll.name(node), roll.here.get(node)
    if node in roll.finished:
        return ""
    if node in roll.gone:
        return f"node {name} left"
    if node in roll.dead:
        return f"node {name} is gone"
    if seat is not None and seat.departing:
        return f"node {name} is leaving"
    if seat is not None and roll.last.round not in (seat.runs, seat.done) and not seat.owes_report:
        return f"node {name} had lost touch and stopped its workers"
    return ""


def of_loss(roll: Roll) -> str:
    """Say which loss excuses the failures of a round."""
    for node in roll.members:
        if node not in roll.here and node not in roll.gone and node not in roll.dead:
            return f"node {roll.name(node)} fell silent"
        reason = of_member(roll, node) if node not in roll.here or roll.here[node].departing else ""
        if reason:
            return reason
    return ""


def _of_arrivals(office: Office, now: float) -> str:
    roll, settings = office.roll, office.settings
    fresh = [seat for node, seat in office.seats.items() if node not in roll.members and seat.can_run]
    room = settings.max_nodes - len(roll.members)
    if not fresh or room <= 0 or not office.is_valid(now):
        return ""
    if roll.finished:
        return ""  # it is finishing: who comes now would only make it start over
    complete_at = office.last_arrival + settings.gather_s
    office.orders.wake(complete_at)
    if now < complete_at:
        return ""
    return words.joined([seat.join.host for seat in sorted(fresh, key=lambda seat: seat.arrival)[:room]])
