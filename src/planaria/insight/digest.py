"""What the events of a node come to, a part of them at a time: rounds that are over are read once, and then added. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.insight.fields import integer, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planaria.insight.fields import Told

    Steps = Mapping[int, tuple[int, int]]
    Commits = Mapping[str, tuple[tuple[int, ...], Mapping[str, object]]]

_COMMIT = "planaria.commit"
_PROGRESS = "planaria.progress"
_REPEATED = (_PROGRESS, _COMMIT, "planaria.worker.started")


class Digest(Value):
    """A part of a node's events, or all of them."""

    happened: tuple[Told, ...]
    """Those that do not repeat themselves."""
    restarts: int | None
    """How many restarts they tell of."""
    commits: Commits
    """The newest commit of each tier, and its age."""
    steps: Steps
    """The first and the last step that were reported in each round, by any rank."""


def digest(events: Sequence[Told]) -> Digest:
    """Read events in their order."""
    happened = tuple([one for one in events if one.name not in _REPEATED])
    counts = [integer(one.data, "restart_count") for one in happened]
    commits = [{text(one.data, "tier"): (one.gist, one.data)} for one in events if _is_commit(one)]
    reported = [one for one in events if one.name == _PROGRESS and one.round is not None and one.gist]
    steps = [{one.round: (one.gist[0], one.gist[1])} for one in reported if one.round is not None]
    return Digest(happened, _most(counts), newest_commits(commits), all_steps(steps))


def together(first: Digest, then: Digest) -> Digest:
    """Add what came later."""
    return Digest(
        first.happened + then.happened,
        _most((first.restarts, then.restarts)),
        newest_commits((first.commits, then.commits)),
        all_steps((first.steps, then.steps)),
    )


def newest_commits(those: Iterable[Commits]) -> Commits:
    """Return the newest commit of each tier; of two of one age the later one."""
    found: dict[str, tuple[tuple[int, ...], Mapping[str, object]]] = {}
    for commits in those:
        for tier, commit in commits.items():
            if tier not in found or commit[0] >= found[tier][0]:
                found[tier] = commit
    return found


def all_steps(those: Iterable[Steps]) -> Steps:
    """Return the first and the last step of each round."""
    found: dict[int, tuple[int, int]] = {}
    for steps in those:
        for number, (first, last) in steps.items():
            low, high = found.get(number, (first, last))
            found[number] = low if low < first else first, high if high > last else last
    return found


def _most(counts: Iterable[int | None]) -> int | None:
    return max((count for count in counts if count is not None), default=None)


def _is_commit(one: Told) -> bool:
    return one.name == _COMMIT and integer(one.data, "step") is not None
