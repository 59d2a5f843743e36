"""A node that is connected to the leader, and what it has told."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Failed, Join


class Seat:
    """`runs` is the round its workers run, `done` the one they finished, -1 for none; `stopped_for` the one it waits for.

    `began_at` is when it began to wait for a first round. `told` is the term and number of the newest round that it knows
    of. `sent` says when each of our answers left, by its number, until the node has shown that it got a later one.
    """

    __slots__ = (
        "answered_at",
        "arrival",
        "began_at",
        "conn",
        "departing",
        "done",
        "failed",
        "join",
        "knows_end",
        "owes_report",
        "placed",
        "port",
        "runs",
        "sent",
        "stopped_for",
        "told",
    )

    def __init__(self, conn: str, join: Join, arrival: int, now: float) -> None:
        self.conn = conn
        self.join = join
        self.arrival = arrival
        self.began_at = now - join.age_s if join.standing.round < 0 else now
        self.sent: dict[int, float] = {0: now}
        self.answered_at = now
        number = join.standing.round if join.standing.slot is not None else -1
        self.runs = number if join.state in ("running", "stopping") else -1
        self.done = number if join.state == "done" else -1
        self.owes_report = join.state == "failed"
        self.told = join.standing.term, join.standing.round
        self.stopped_for = -1
        self.placed = -1
        self.port = join.port
        self.failed: Failed | None = None
        self.departing = False
        self.knows_end = False

    @property
    def can_run(self) -> bool:
        """Tell whether it could start workers now."""
        return self.runs < 0 and not self.departing
