"""One node's member in virtual time, with a leader that says only what a test makes it say."""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Ended, Place, Start, Welcome
from planaria.rendezvous.model import Deputy, Send, Settings

OWN = Settings("b", "host-b", "b:1", 2, ttl_s=5.0)
LEASE_S, RENEW_S, SUSPECT_S, SILENCE_S = 4.0, 0.8, 2.0, 5.5
LEADER = "a:1"
ENDED = Ended("done", 0, "", (), 0)


def place(number: int = 0, slot: int | None = 1, *, size: int = 2, term: int = 1, **changes: object) -> Place:
    deputies = (Deputy("a", "a:1"), Deputy("b", "b:1"))
    whole = Place("a", term, number, size, slot, 2, 4, 0, 4, "a", 2000, 0, "", deputies)
    return replace(whole, **changes)


def taken(member: Member) -> list[object]:
    """Return the orders since the last look."""
    out, member.out = list(member.out), []
    return out


def sent(member: Member) -> list[object]:
    """Return the messages that were ordered since the last look."""
    return [one.message for one in taken(member) if isinstance(one, Send)]


def told(member: Member, now: float, *messages: object) -> list[object]:
    """Return what a node does when its leader says something."""
    for message in messages:
        member.received(message, now)  # type: ignore[arg-type]
    return taken(member)


def rejoin(member: Member, now: float, address: str = LEADER) -> list[object]:
    """Return what a node says to a leader that it has just found."""
    member.join(address, now)
    member.opened(now)
    member.received(Welcome(1, "a"), now)
    return sent(member)


def joined(now: float = 0.0, settings: Settings = OWN, address: str = LEADER) -> Member:
    """Return a node that was welcomed, and whose first renewal was due, and sent, at this moment."""
    member = Member(settings, now)
    rejoin(member, now, address)
    member._renew(now)
    taken(member)
    return member


def placed(now: float = 0.0, settings: Settings = OWN, *, size: int = 2) -> Member:
    """Return a node that knows its place, and was not told to start."""
    member = joined(now, settings)
    told(member, now, place(size=size))
    return member


def running(now: float = 0.0, settings: Settings = OWN, *, size: int = 2) -> Member:
    """Return a node whose workers run since this moment, with a lease from it."""
    member = placed(now, settings, size=size)
    told(member, now, Start(0, LEASE_S))
    assert member.post.workers == "running"
    return member
