"""Who of several operators is the one that acts: decisions about one Lease, from what was seen of it and when. Pure.

Wall clocks of two hosts are never compared. An observer notes, on its own clock, when it first saw the Lease as it is now; if
that is longer ago than the Lease lasts, its holder has not renewed it and is gone. The holder counts from before the renewal
was sent, and gives up earlier: so it has stopped before anybody else can have begun.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.model import Json


class Terms(Value):
    """How long a Lease lasts without being renewed, how often it is renewed, and when its holder gives up."""

    lasts_s: float
    renew_s: float
    give_up_s: float

    @staticmethod
    def of(lasts_s: float) -> Terms:
        """Return the terms of a Lease that lasts so long: two renewals may be lost, and a third of it is left to stop in."""
        return Terms(lasts_s, lasts_s / 4, lasts_s * 2 / 3)


class Sight(Value):
    """A Lease as it is, and when an observer first saw it so, on its own clock."""

    version: str
    holder: str
    lasts_s: float
    first_seen: float


def seen(lease: Json, before: Sight | None, now: float) -> Sight:
    """Take note of a Lease as it was just read."""
    version = str(lease["metadata"]["resourceVersion"])
    if before is not None and before.version == version:
        return before
    spec = lease.get("spec") or {}
    return Sight(version, str(spec.get("holderIdentity") or ""), float(spec.get("leaseDurationSeconds") or 0), now)


def may_take(sight: Sight, me: str, now: float) -> bool:
    """Tell whether to write the Lease now: it is free, run out, or ours."""
    return sight.holder in ("", me) or now >= sight.first_seen + sight.lasts_s


def is_held(renewed_at: float, terms: Terms, now: float) -> bool:
    """Tell whether a holder may still act; `renewed_at` is when it began its last renewal that succeeded."""
    return now < renewed_at + terms.give_up_s


def written(lease: Json, me: str, terms: Terms, wall: str) -> Json:
    """Return the Lease as a holder writes it. `wall` is for people who read it."""
    spec = dict(lease.get("spec") or {})
    if spec.get("holderIdentity") != me:
        spec |= {"acquireTime": wall, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
    spec |= {"holderIdentity": me, "leaseDurationSeconds": max(1, round(terms.lasts_s)), "renewTime": wall}
    return lease | {"spec": spec}


def released(lease: Json, wall: str) -> Json:
    """Return the Lease as a holder that leaves writes it: anybody may take it at once."""
    return lease | {
        "spec": dict(lease.get("spec") or {}) | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": wall}
    }


def fresh(namespace: str, name: str, me: str, terms: Terms, wall: str) -> Json:
    """Return a Lease for a place where there is none."""
    empty: Json = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
    }
    return written(empty, me, terms, wall)
