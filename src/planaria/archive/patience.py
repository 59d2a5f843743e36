"""How long a rank waits for memory that the disk's writer reads: a slow disk must not stop the training. Pure."""

from __future__ import annotations

FIRST_S = 10.0
MOST_S = 120.0


class Patience:
    """What `limit_s` is now. Each time the disk gets twice as long, up to `MOST_S`; once it has a commit, as long as at first.

    One that is slow and not stuck shall have a commit some time. One that is stuck is to be given nothing else to hold, so
    that it costs no second wait.
    """

    def __init__(self) -> None:
        self.limit_s = FIRST_S
        self._told_s = 0.0

    def written(self) -> None:
        """Take in that a commit got to the disk."""
        self.limit_s = FIRST_S

    def over(self) -> bool:
        """Take in that somebody has waited for that long; tell whether it is worth a line: nobody has waited longer yet."""
        is_news = self.limit_s > self._told_s
        self._told_s = max(self._told_s, self.limit_s)
        self.limit_s = min(2 * self.limit_s, MOST_S)
        return is_news
