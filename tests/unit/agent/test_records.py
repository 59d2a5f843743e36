"""What can be read over HTTP: the journal page by page, parts of logs, evidence; and nothing that lies beside them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planaria.agent.gate import RECORDS, refusal
from planaria.agent.journal import Journal
from planaria.agent.records import MOST_BYTES, MOST_READERS, NEXT, ROUND, Desk, reply_to
from planaria.base.loop import Loop
from planaria.observe.http import OWNER, Peer
from planaria.observe.notebook import Notebook
from planaria.observe.request import Reply, Request, read_head


class FakeObserver:
    def __init__(self, folder: Path | None) -> None:
        self.journal = Journal("node", None if folder is None else str(folder), print)
        self.logs: dict[int, tuple[str | None, str | None]] = {}
        self.round = 3
        self.evidence_dir = lambda: "" if folder is None else str(folder / "evidence")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[FakeObserver]:
    found = FakeObserver(tmp_path)
    yield found
    found.journal.close()


def ask(observer: FakeObserver, target: str) -> Reply:
    request = read_head(f"GET {target} HTTP/1.1\r\nHost: localhost".encode())
    assert isinstance(request, Request)
    return refusal(request, OWNER, None) or reply_to(request, observer)  # type: ignore[arg-type]


def event(number: int, name: str = "planaria.x", **data: Any) -> dict[str, object]:
    return {"name": name, "source": "AGENT", "timestamp": number, "metadata": data}


def test_a_journal_is_read_page_by_page(desk: FakeObserver) -> None:
    for number in range(300):
        desk.journal.take(event(number, text="x" * 4000))
    after, found = 0, []
    while True:
        reply = ask(desk, f"/v1/journal?after={after}")
        assert (reply.status, len(reply.body) < MOST_BYTES + 8192) == (200, True)
        page = json.loads(reply.body)
        if not page["events"]:
            break
        after = page["next"]
        found += [one["timestamp"] for one in page["events"]]
    assert found == list(range(300))


def test_an_event_that_is_longer_than_a_page_is_a_page(desk: FakeObserver) -> None:
    desk.journal.take(event(1, text="x" * (2 * MOST_BYTES)))
    assert json.loads(ask(desk, "/v1/journal").body)["next"] == 1


def test_a_notebook_keeps_the_newest_and_of_progress_the_last() -> None:
    notebook = Notebook(5)
    for number in range(3):
        notebook.take(event(number, "planaria.progress", round=0))
        notebook.take(event(number, "planaria.commit", round=0, tier="node"))
    assert [number for number, _ in notebook.after(0)] == [5, 6]
    for number in range(10):
        notebook.take(event(number))
    assert [number for number, _ in notebook.after(14)] == [15, 16]
    assert len(notebook.events) == 5
    notebook.take(event(1, "planaria.progress", round=0))
    assert notebook.count == 17


def test_a_notebook_keeps_every_failure_and_of_starts_the_newest() -> None:
    notebook = Notebook(100)
    for number in range(5):
        notebook.take(event(number, "planaria.worker.started", local_rank=0, round=number))
        notebook.take(event(number, "planaria.worker.exited", local_rank=0, round=number, result="stopped"))
        notebook.take(event(number, "planaria.worker.exited", local_rank=0, round=number, result="failed"))
        notebook.take({"name": "planaria.progress", "metadata": None})
    names = [one["name"] for one in notebook.events]
    assert names.count("planaria.worker.started") == 1
    assert names.count("planaria.worker.exited") == 6
    assert names.count("planaria.progress") == 5  # what has no metadata replaces nothing


def test_a_log_is_read_in_parts_also_from_its_end(desk: FakeObserver, tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"a" * MOST_BYTES + b"the end\n")
    desk.logs[1] = (str(path), None)
    first = ask(desk, "/v1/logs?local_rank=1&stream=stdout&from=0")
    assert (first.status, len(first.body), dict(first.headers)) == (
        200,
        MOST_BYTES,
        {NEXT: str(MOST_BYTES), ROUND: "3"},
    )
    rest = ask(desk, f"/v1/logs?local_rank=1&from={MOST_BYTES}")
    assert rest.body == b"the end\n"
    assert ask(desk, "/v1/logs?local_rank=1&from=-4").body == b"end\n"
    assert ask(desk, "/v1/logs?local_rank=1&from=999999999").body == b""
    assert ask(desk, "/v1/logs?local_rank=1&stream=stderr").status == 404
    assert ask(desk, "/v1/logs?local_rank=0").status == 404


@pytest.mark.parametrize(
    "query",
    [
        "local_rank=x",
        "local_rank=1&stream=../etc/passwd",
        "from=1e9",
        "from=--1",
        "from=",
        "local_rank=%31",
        "local_rank=²",
    ],
)
def test_a_question_that_makes_no_sense_is_refused(desk: FakeObserver, query: str) -> None:
    assert reply_to(Request("GET", "/v1/logs", {}, query=query), desk).status == 400  # type: ignore[arg-type]


def test_a_log_that_is_a_pipe_or_a_link_is_not_read(desk: FakeObserver, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    for name in ("pipe", "link", "nowhere"):
        desk.logs[0] = (str(tmp_path / name), None)
        assert ask(desk, "/v1/logs?local_rank=0").status == 404


def test_evidence_is_listed_and_read(desk: FakeObserver, tmp_path: Path) -> None:
    folder = tmp_path / "evidence" / "hang-1"
    folder.mkdir(parents=True)
    (folder / "stacks.txt").write_text("where it was\n")
    listed = json.loads(ask(desk, "/v1/evidence").body)
    assert listed == {"schema": 1, "evidence": [{"name": "hang-1", "files": ["stacks.txt"]}]}
    reply = ask(desk, "/v1/evidence/hang-1/stacks.txt")
    assert (reply.status, reply.body, reply.content_type) == (200, b"where it was\n", "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret",
        "../../secret",
        "hang-1",
        "hang-1/",
        "hang-1/..",
        "hang-1/../../secret",
        "hang-1/%2e%2e",
        "hang-1/link",
        "hang-1/inner",
        "link/secret",
        "./secret",
        "/etc/passwd",
        "hang-1//stacks.txt",
        "hang-1/stacks.txt/",
        "hang-1/stacks.txt%00",
        "secret/",
        "",
    ],
)
def test_nothing_beside_the_evidence_can_be_read(desk: FakeObserver, tmp_path: Path, path: str) -> None:
    folder = tmp_path / "evidence" / "hang-1"
    (folder / "inner").mkdir(parents=True)
    (folder / "stacks.txt").write_text("where it was\n")
    for secret in (tmp_path / "secret", tmp_path / "evidence" / "secret"):
        secret.write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "evidence" / "link").symlink_to(tmp_path)
    reply = ask(desk, f"/v1/evidence/{path}")
    assert (reply.status, b"secret" in reply.body) == (404, False)


class Readers:
    """A desk on a loop of its own, and its answers."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.desk = Desk(self.loop)
        self.replies: list[Reply] = []

    def ask(self, make: Callable[[], Reply]) -> None:
        self.desk.ask(make, lambda problem: Reply(500, repr(problem).encode()), self.replies.append)

    def wait(self, count: int) -> list[int]:
        while len(self.replies) < count:
            self.loop.run_once(1.0)
        return [reply.status for reply in self.replies]


@pytest.fixture
def readers() -> Iterator[Readers]:
    found = Readers()
    yield found
    found.desk.close()
    found.loop.close()


def test_files_are_read_beside_the_loop_and_not_by_too_many_at_once(readers: Readers) -> None:
    held = threading.Event()

    def slow() -> Reply:
        held.wait()
        return Reply(200)

    for _ in range(MOST_READERS + 1):
        readers.ask(slow)
    assert readers.wait(1) == [503]
    held.set()
    assert readers.wait(MOST_READERS + 1) == [503, *[200] * MOST_READERS]
    readers.ask(lambda: Reply(404))
    assert readers.wait(MOST_READERS + 2)[-1] == 404


def test_without_a_thread_the_answer_is_no_and_the_next_one_is_read(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(MOST_READERS):
            readers.ask(lambda: Reply(200))
    readers.ask(lambda: Reply(200))
    assert readers.wait(MOST_READERS + 1) == [*[503] * MOST_READERS, 200]


def test_a_mistake_in_a_thread_is_told_on_the_loop(readers: Readers) -> None:
    def wrong() -> Reply:
        raise LookupError("by us")

    readers.ask(wrong)
    assert readers.wait(1) == [500]
    assert readers.replies[0].body == b"LookupError('by us')"


def test_without_a_folder_there_is_no_evidence() -> None:
    desk = FakeObserver(None)
    assert json.loads(ask(desk, "/v1/evidence").body)["evidence"] == []
    assert ask(desk, "/v1/evidence/a/b").status == 404


@pytest.mark.parametrize("path", [*RECORDS, "/v1/evidence/a/b"])
def test_who_may_read_the_status_may_read_these_and_nobody_may_write(path: str) -> None:
    def status(method: str, peer: Peer, **headers: str) -> int:
        found = refusal(Request(method, path, {"host": "127.0.0.1", **headers}), peer, None)
        return 200 if found is None else found.status

    assert [status("GET", peer) for peer in (OWNER, Peer(is_loopback=True), Peer())] == [200, 200, 403]
    assert status("POST", OWNER) == 405
    assert status("GET", OWNER, origin="http://evil.example") == 403
    assert status("GET", OWNER, host="evil.example") == 403
