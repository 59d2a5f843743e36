"""What the store holds of a run: who leads, the newest round, and how it ended. Pure; everything read is checked."""

from __future__ import annotations

import json

from planaria.base.value import Value
from planaria.rendezvous.messages import Ended
from planaria.rendezvous.model import Deputy, Standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.model import Settings

VERSION = 1
LONGEST_OUTCOME = 24_000  # characters of failures; written into JSON twice, they stay below what a store takes (64 KiB)


class LeaderRecord(Value):
    """Who leads, and where it listens."""

    node: str
    address: str


def leader_record(settings: Settings) -> str:
    """Return what a leader writes about itself."""
    return json.dumps({"version": VERSION, "node": settings.node, "address": settings.address})


def read_leader(text: str | None) -> LeaderRecord | None:
    """Return who leads; None when nobody does or the text makes no sense."""
    found = _read(text)
    node, address = found.get("node"), found.get("address")
    return LeaderRecord(node, address) if isinstance(node, str) and isinstance(address, str) else None


def round_record(standing: Standing) -> str:
    """Return what the store keeps of a round that is about to start."""
    deputies = [[one.node, one.address] for one in standing.deputies]
    fields = [standing.epoch, standing.term, standing.round, standing.size, standing.restart_count, standing.next_round]
    return json.dumps({"version": VERSION, "round": fields, "deputies": deputies})


def read_round(text: str | None) -> Standing:
    """Return the newest round of a run as an outsider knows it; an empty standing when there was none."""
    found = _read(text)
    try:
        epoch, *numbers = _list(found["round"])
        term, number, size, count, following = (int(str(one)) for one in numbers)
        pairs = [_list(pair) for pair in _list(found["deputies"])]
        deputies = tuple(Deputy(str(node), str(address)) for node, address in pairs)
        return Standing(str(epoch), term, number, size, None, count, deputies, following)
    except (KeyError, TypeError, ValueError):
        return Standing()


def outcome_record(ended: Ended, epoch: str) -> str:
    """Return what the store keeps of the end of a run: the first causes, as many as fit."""
    texts: list[str] = []
    for text in map(_short, ended.failures):
        if sum(map(len, texts)) + len(text) > LONGEST_OUTCOME:
            break
        texts.append(text)
    fields = [ended.kind, ended.status, ended.explanation, texts, ended.restart_count]
    return json.dumps({"version": VERSION, "epoch": epoch, "ended": fields})


def _short(text: str) -> str:
    """Cut the evidence of a failure, not the failure, where it is too long to keep."""
    if len(text) <= LONGEST_OUTCOME:
        return text
    fields = _read(text)
    for name in ("stderr_tail", "traceback", "message"):
        fields[name] = str(fields.get(name, ""))[-LONGEST_OUTCOME // 6 :]
    return json.dumps(fields)


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
