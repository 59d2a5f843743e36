"""What a store holds of a run: who leads, the newest round, who has left it, how it ended. Pure; what is read is checked."""

from __future__ import annotations

import json

from planaria.base.value import Value
from planaria.rendezvous.messages import Ended
from planaria.rendezvous.model import Deputy, Standing
from planaria.rendezvous.wire import as_address, as_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.model import Settings

VERSION = 1
LONGEST_OUTCOME = 40_000  # characters of failures as a round's record holds them; with the rest, below a store's 64 KiB
LONGEST_EXPLANATION = 1000
_KEPT_OF_A_TEXT = (4000, 2000, 1000, 500, 250, 125, 60, 30)  # with 30 of every text, any failure fits


class LeaderRecord(Value):
    """Who leads, and where it listens."""

    node: str
    address: str


class Left(Value):
    """Who has left rounds of a run in good order, or was dead for long enough to have no worker any more.

    Each name comes with the term and the number of a round that it was in. `next_round` is the least number that no round had.
    """

    epoch: str = ""
    next_round: int = 0
    names: frozenset[tuple[int, int, str]] = frozenset()


def leader_record(settings: Settings) -> str:
    """Return what a leader writes about itself."""
    return json.dumps({"version": VERSION, "node": settings.node, "address": settings.address})


def read_leader(text: str | None) -> LeaderRecord | None:
    """Return who leads; None when nobody does or the text makes no sense."""
    found = _read(text)
    try:
        return LeaderRecord(as_name(found.get("node")), as_address(found.get("address")))
    except ValueError:
        return None


def round_record(standing: Standing, outcome: str = "") -> str:
    """Return what the store keeps of a round that is about to start, or (with the record of an outcome) has ended the run."""
    deputies = [[one.node, one.address] for one in standing.deputies]
    fields = [standing.epoch, standing.term, standing.round, standing.size, standing.restart_count, standing.next_round]
    record: dict[str, object] = {"version": VERSION, "round": fields, "deputies": deputies}
    return json.dumps(record | {"outcome": outcome} if outcome else record)


def read_round(text: str | None) -> Standing:
    """Return the newest round of a run as an outsider knows it; an empty standing when there was none."""
    found = _read(text)
    try:
        epoch, *numbers = _list(found["round"])
        term, number, size, count, following = (int(str(one)) for one in numbers)
        pairs = [_list(pair) for pair in _list(found["deputies"])]
        deputies = tuple(Deputy(as_name(node), as_address(address)) for node, address in pairs)
        return Standing(as_name(epoch), term, number, size, None, count, deputies, following, begun=number)
    except (KeyError, TypeError, ValueError):
        return Standing()


def left_record(left: Left) -> str:
    """Return what the store keeps of those who have left."""
    return json.dumps({"version": VERSION, "run": [left.epoch, left.next_round], "names": sorted(left.names)})


def read_left(text: str | None) -> Left:
    """Return who has left; nobody when there is no such record or it makes no sense."""
    found = _read(text)
    try:
        epoch, following = _list(found["run"])
        rows = [_list(row) for row in _list(found["names"])]
        names = frozenset((int(str(term)), int(str(number)), as_name(node)) for term, number, node in rows)
        return Left(as_name(epoch), int(str(following)), names)
    except (KeyError, TypeError, ValueError):
        return Left()


def outcome_in_round(text: str | None) -> str | None:
    """Return the record of the outcome that a round ended the run with; None when it did not."""
    found = _read(text).get("outcome")
    return found if isinstance(found, str) else None


def outcome_record(ended: Ended, epoch: str) -> str:
    """Return what the store keeps of the end of a run: the first causes, as many as fit."""
    texts: list[str] = []
    room = LONGEST_OUTCOME
    for text in map(_short, ended.failures):
        room -= _length(text)
        if room < 0:
            break
        texts.append(text)
    fields = [ended.kind, ended.status, ended.explanation[:LONGEST_EXPLANATION], texts, ended.restart_count]
    return json.dumps({"version": VERSION, "epoch": epoch, "ended": fields})


def _short(text: str) -> str:
    """Cut the texts of a failure, not the failure, as far as it takes to keep it: its evidence is the longest of them."""
    fields = _read(text)
    for most in _KEPT_OF_A_TEXT:
        if _length(text) <= LONGEST_OUTCOME:
            break
        text = json.dumps({name: _ending(value, most) for name, value in fields.items()})
    return text


def _ending(value: object, most: int) -> object:
    """Return the last characters of a text, or of each in a list: an error says at its end what it is."""
    if isinstance(value, list):
        return [_ending(one, most) for one in value[:most]]
    return value[-most:] if isinstance(value, str) else value


def _length(text: str) -> int:
    """Say how long a text is in the record of a round, which holds that of the outcome: each escapes it once more."""
    return len(json.dumps(json.dumps(text)))


def read_outcome(text: str | None) -> Ended | None:
    """Return how a run ended; None when it did not."""
    found = _read(text)
    try:
        kind, status, explanation, failures, count = _list(found["ended"])
        texts = tuple(str(one) for one in _list(failures))
        return Ended(str(kind), int(str(status)), str(explanation), texts, int(str(count)))
    except (KeyError, TypeError, ValueError):
        return None


def epoch_of_outcome(text: str | None) -> str:
    """Return which run an outcome belongs to."""
    return str(_read(text).get("epoch", ""))


def _list(item: object) -> list[object]:
    if not isinstance(item, list):
        raise ValueError("expected a list")
    return item


def _read(text: str | None) -> dict[str, object]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
