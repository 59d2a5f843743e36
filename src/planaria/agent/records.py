"""Answer those who want to read: `/v1/journal`, `/v1/logs` and `/v1/evidence`. Who may is decided in `gate.py`.

Names that come over the network are never made into paths: they are compared with what is there. Only plain files are read,
no link is followed, and of a long file only a part. Files are read in a thread (`Desk`): a disk may hang.
"""

from __future__ import annotations

import os
import stat

from planaria.agent.journal import names_in
from planaria.base.mailbox import Mailbox
from planaria.observe.request import Reply, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.observer import Observer
    from planaria.base.loop import Loop
    from planaria.observe.request import Request

MOST_BYTES = 256 << 10
"""Of a journal or a log in one answer."""
MOST_EVIDENCE_BYTES = 8 << 20
MOST_READERS = 8
STREAMS = ("stdout", "stderr")
NEXT, ROUND = "Planaria-Next", "Planaria-Round"


class Desk:
    """Has answers made in threads, a few at a time, and gives them on the loop."""

    def __init__(self, loop: Loop) -> None:
        self._mailbox = Mailbox(loop)
        self._busy = 0

    def ask(
        self, make: Callable[[], Reply], failed: Callable[[Exception], Reply], respond: Callable[[Reply], object]
    ) -> None:
        """Respond with what `make` returns, once it does, or with what `failed` makes of its mistake.

        Called on the loop, as the other two are; `make` is called in a thread.
        """
        from threading import Thread

        if self._busy >= MOST_READERS:
            respond(refused(503, "too many are reading already, or the disk does not answer"))
            return

        def done(found: Reply | Exception) -> None:
            self._busy -= 1
            respond(failed(found) if isinstance(found, Exception) else found)

        def work() -> None:
            found: Reply | Exception
            try:
                found = make()
            except Exception as problem:  # noqa: BLE001  who only asks must never end a job
                found = problem
            self._mailbox.post(lambda: done(found))

        try:
            Thread(target=work, name="planaria reader", daemon=True).start()
        except RuntimeError:
            respond(refused(503, "no thread is left to read it, by a limit of processes"))
            return
        self._busy += 1

    def close(self) -> None:
        """Give no more answers."""
        self._mailbox.close()


def reply_to(request: Request, observer: Observer) -> Reply:
    """Answer a request for one of these pages, which begin with `/v1/`."""
    asked = read_query(request.query)
    match request.path.split("/")[2:]:
        case ["journal"]:
            return _journal(asked, observer)
        case ["logs"]:
            return _log(asked, observer)
        case ["evidence"]:
            found = _listed(observer.evidence_dir())
            return _json({"schema": 1, "evidence": [{"name": name, "files": found[name]} for name in found]})
        case ["evidence", name, file]:
            return _evidence(observer.evidence_dir(), name, file)
        case _:
            return refused(404, "expected /v1/evidence/NAME/FILE")


def read_query(text: str) -> dict[str, str]:
    """Return what stands behind the `?` of a target: plain names and values, nothing is escaped in ours."""
    pairs = (pair.partition("=") for pair in text.split("&"))
    return {name: value for name, _, value in pairs if name}


def _number(asked: Mapping[str, str], name: str, default: int = 0) -> int | None:
    """Return a whole number, None for what is none."""
    text = asked.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


# The journal.


def _journal(asked: Mapping[str, str], observer: Observer) -> Reply:
    after = _number(asked, "after")
    if after is None or after < 0:
        return refused(400, "expected after=NUMBER")
    import json

    newest, size = after, 0
    found: list[str] = []
    kept = observer.journal.notebook.after(after) if observer.journal is not None else []
    for number, event in kept:
        line = json.dumps({**event, "number": number}, default=str)
        size += len(line) + 2
        if found and size > MOST_BYTES:
            break
        newest = number
        found.append(line)
    return Reply(200, f'{{"next": {newest}, "events": [{", ".join(found)}]}}\n'.encode(), "application/json")


# The workers' output.


def _log(asked: Mapping[str, str], observer: Observer) -> Reply:
    local_rank, begin, stream = _number(asked, "local_rank"), _number(asked, "from"), asked.get("stream", STREAMS[0])
    if local_rank is None or begin is None or stream not in STREAMS:
        return refused(400, "expected local_rank=NUMBER&stream=stdout|stderr&from=OFFSET")
    if local_rank not in observer.logs:
        return refused(404, "this node has no worker of that local rank")
    path = observer.logs[local_rank][STREAMS.index(stream)]
    if path is None:
        return refused(404, f"the {stream} of this worker goes to no file: --redirects or --tee writes one")
    try:
        part, after = _read_part(path, begin, MOST_BYTES)
    except OSError as problem:
        return refused(404, f"the file cannot be read: {problem.strerror}")
    return Reply(200, part, headers=((NEXT, str(after)), (ROUND, str(observer.round))))


def _read_part(path: str, begin: int, most: int) -> tuple[bytes, int]:
    """Return a part of a file, and where the next one begins; a negative beginning counts from the end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise OSError(0, "it is no plain file")
        begin = max(0, seen.st_size + begin) if begin < 0 else min(begin, seen.st_size)
        part = os.pread(descriptor, most, begin)
    finally:
        os.close(descriptor)
    return part, begin + len(part)


# Evidence.


def _listed(folder: str) -> dict[str, list[str]]:
    """Return the files of each folder of evidence."""
    return {name: names_in(os.path.join(folder, name), files=True) for name in names_in(folder)}


def _evidence(folder: str, name: str, file: str) -> Reply:
    if file not in _listed(folder).get(name, ()):
        return refused(404, "there is no such evidence; /v1/evidence lists what there is")
    try:
        part, _ = _read_part(os.path.join(folder, name, file), 0, MOST_EVIDENCE_BYTES)
    except OSError as problem:
        return refused(404, f"the file cannot be read: {problem.strerror}")
    return Reply(200, part)


def _json(content: Mapping[str, object]) -> Reply:
    import json

    return Reply(200, json.dumps(content).encode() + b"\n", "application/json")
