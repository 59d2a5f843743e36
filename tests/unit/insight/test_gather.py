"""Folders of runs: found, read on from where one stopped, and never waited for."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from journals import Node, failed_run

from planaria.agent.journal import JOURNAL, Journal, make_folder
from planaria.agent.scribe import MOST_WAITING, OLDER_JOURNAL
from planaria.insight.flags import Asked
from planaria.insight.follow import follow
from planaria.insight.gather import FolderSource, node_folders, run_folder, run_folders
from planaria.insight.loglines import Line, Place, Splitter, moved, places
from planaria.insight.model import NodeSeen
from planaria.insight.picture import picture
from planaria.insight.sources import Found, find
from planaria.insight.tail import MOST_CHUNKS, MOST_LAST_CHUNKS, FileTail, Reader


def test_the_folder_of_runs_of_a_run_and_of_a_node_all_lead_there(tmp_path: Path) -> None:
    folders = [node.write(tmp_path) for node in failed_run()]
    for path in (tmp_path, tmp_path / "job7"):
        (found,) = run_folders(str(path))
        assert len(node_folders(found)) == 3
    assert node_folders(str(folders[0])) == [str(folders[0])]
    assert run_folder(str(tmp_path), "job7") == str(tmp_path / "job7")
    assert run_folder(str(tmp_path), "job8") is None


def test_the_newest_of_several_runs_is_meant(tmp_path: Path) -> None:
    for number, run_id in enumerate(("old", "new", "older")):
        folder = Node("a", 0, run_id=run_id).begins().write(tmp_path)
        os.utime(folder / JOURNAL, (1000 + number % 2, 1000 + number % 2))
    assert run_folder(str(tmp_path), "") == str(tmp_path / "new")


def test_a_journal_is_read_on_through_a_torn_line_and_a_new_page(tmp_path: Path) -> None:
    node = Node("a", 0).begins().starts(1.0, 0, nodes=1)
    folder = node.write(tmp_path)
    source = FolderSource(str(tmp_path / "job7"))
    assert len(source.look()[0].events) == 4
    line = json.dumps(Node("a", 0).exits(2.0, 0, 0).events[0]).encode()
    with (folder / JOURNAL).open("ab") as file:
        file.write(b'{"torn": \n' + line[:20])
        file.flush()
        assert len(source.look()[0].events) == 4
        file.write(line[20:] + b"\n")
    assert len(source.look()[0].events) == 5
    (folder / JOURNAL).rename(folder / OLDER_JOURNAL)
    with (folder / OLDER_JOURNAL).open("ab") as file:
        file.write(line + b"\n")
    (folder / JOURNAL).write_bytes(line + b"\n")
    assert len(source.look()[0].events) == 7
    assert len(FolderSource(str(folder)).look()[0].events) == 7


def test_pages_that_were_put_aside_between_two_looks_are_read_from_their_beginning(tmp_path: Path) -> None:
    def line(number: int) -> str:
        return json.dumps({"name": "x", "timestamp": number, "metadata": {}}) + "\n"

    folder = tmp_path / "node"
    folder.mkdir()
    journal, older = folder / JOURNAL, folder / OLDER_JOURNAL
    journal.write_text(line(0))
    source = FolderSource(str(folder))
    assert len(source.look()[0].events) == 1
    for number in range(1, 40, 2):
        for page in (number, number + 1):  # a file may get the inode of one that is gone
            journal.replace(older)
            journal.write_text(line(page))
        assert [event["timestamp"] for event in source.look()[0].events][-2:] == [number, number + 1]
        assert len(source.look()[0].events) == number + 2


def test_a_pipe_in_the_place_of_a_journal_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / JOURNAL)
    (seen,) = FolderSource(str(tmp_path)).look()
    assert seen.gap.endswith("it is no plain file")
    assert picture([seen]).nodes[0].state == "away"


def test_a_folder_without_a_run_is_told_in_one_sentence(tmp_path: Path) -> None:
    said = find(Asked("why", run_dir=str(tmp_path), run_id="job9"), {})
    assert said == f"there is no run job9 in {tmp_path}; planaria run --run-dir keeps one there"


def test_where_nothing_runs_the_variable_says_where_to_look(tmp_path: Path) -> None:
    Node("a", 0).begins().ends(5.0, "done", 0).write(tmp_path / "runs")
    environ = {"TMPDIR": str(tmp_path), "PET_RUN_DIR": str(tmp_path / "runs")}
    found = find(Asked("status", run_id="job7"), environ)
    assert isinstance(found, Found)
    assert picture(found.look()).state == "done"


def test_a_job_that_was_started_again_under_its_name_is_the_last_start(tmp_path: Path) -> None:
    first = Node("a", 0).begins().starts(1.0, 9, nodes=1).ends(5.0, "failed", 1)
    second = Node("a", 0).begins(60.0).starts(61.0, 0, nodes=1).ends(70.0, "done", 0)
    second.name = "a-ffffffff"
    first.write(tmp_path)
    second.write(tmp_path)
    run = picture(FolderSource(str(tmp_path / "job7")).look())
    assert (run.state, [node.node for node in run.nodes]) == ("done", ["a-ffffffff"])


def write_all(journal: Journal, *events: dict[str, object]) -> None:
    """Have events written, however long that takes."""
    scribe = journal._scribe
    assert scribe is not None
    for event in events:
        journal.take(event)
    journal.close()
    scribe._thread.join()


def test_a_journal_begins_a_new_page_before_it_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planaria.agent.scribe.HALF_BYTES", 4096)
    said: list[str] = []
    folder = make_folder(str(tmp_path), "job/../7", "node")
    assert folder == str(tmp_path / "job____7" / "node")
    write_all(Journal("node", folder, said.append), *[{"name": "x", "metadata": {"long": "x" * 1000}}] * 10)
    sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in (JOURNAL, OLDER_JOURNAL)}
    assert 4096 <= sizes[OLDER_JOURNAL] < 8192
    assert sizes[JOURNAL] < 4096
    assert said == []


def test_a_journal_whose_folder_is_gone_says_so_once_and_goes_on_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planaria.agent.scribe.HALF_BYTES", 10)
    said: list[str] = []
    folder = make_folder(str(tmp_path), "job7", "node")
    journal = Journal("node", folder, said.append)
    (Path(folder) / JOURNAL).unlink()
    write_all(journal, {"name": "x"}, {"name": "y"})
    assert len(said) == 1
    assert said[0].startswith("the journal of this run ends here: ")
    assert journal.notebook.count == 2


def test_a_disk_that_does_not_keep_up_holds_nobody_up(tmp_path: Path) -> None:
    said: list[str] = []
    folder = make_folder(str(tmp_path), "job7", "node")
    journal = Journal("node", folder, said.append)
    scribe = journal._scribe
    assert scribe is not None
    held = threading.Event()
    file = scribe._journal.file
    assert file is not None
    write = file.handle
    file.handle = lambda event: (held.wait(), write(event))  # type: ignore[method-assign, assignment, func-returns-value]
    for number in range(MOST_WAITING + 10):
        journal.take({"name": "x", "number": number})
    assert said == [f"{folder} does not keep up, going on without what is not written"]
    held.set()
    write_all(journal)
    with open(os.path.join(folder, JOURNAL)) as lines:
        assert MOST_WAITING <= len(lines.readlines()) <= MOST_WAITING + 1


def test_a_report_for_a_disk_that_hangs_holds_nobody_up_and_is_written_when_it_goes_on(tmp_path: Path) -> None:
    folder = make_folder(str(tmp_path), "job7", "node")
    journal = Journal("node", folder, print)
    scribe = journal._scribe
    assert scribe is not None
    held = threading.Event()
    scribe._orders.put(held.wait)
    journal.keep("report.json", b"{}")
    assert not os.path.exists(os.path.join(folder, "report.json"))
    held.set()
    write_all(journal)
    assert (Path(folder) / "report.json").read_bytes() == b"{}"


def test_a_report_that_cannot_be_written_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("node", make_folder(str(tmp_path), "job7", "node"), print)
    (tmp_path / "job7" / "node" / "report.json").mkdir()
    journal.keep("report.json", b"{}")
    write_all(journal)
    assert journal.unwritten == f"cannot write {tmp_path}/job7/node/report.json: Is a directory"
    monkeypatch.setattr("planaria.agent.scribe.CLOSE_S", 0.0)
    hung = Journal("node", make_folder(str(tmp_path), "job8", "node"), print)
    scribe, held = hung._scribe, threading.Event()
    assert scribe is not None
    scribe._orders.put(held.wait)
    hung.close()
    assert hung.unwritten == f"{tmp_path}/job8/node does not keep up, going on without what is not written"
    held.set()
    scribe._thread.join()


def test_the_names_of_evidence_are_those_that_events_speak_of() -> None:
    journal = Journal("node", None, print)
    for path in ("/runs/job7/node/evidence/hang-1", None, 5, "/runs/job7/node/evidence/hang-1", "/tmp/e/hang-2"):
        journal.take({"name": "planaria.hang", "metadata": {"evidence": path}})
    journal.take({"name": "planaria.hang", "metadata": None})
    assert journal.evidence == ("hang-1", "hang-2")


def test_the_last_lines_of_a_file_and_what_comes_then(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_text("".join(f"line {number}\n" for number in range(50_000)))
    for count, first in ((3, "line 49997"), (20_000, "line 30000"), (0, "line 0"), (10**6, "line 0")):
        tail, splitter = FileTail(str(path), count, os.getuid()), Splitter()
        found = []
        while chunk := tail.read_on():
            found += splitter.feed(chunk)
        assert (found[0], found[-1]) == (first, "line 49999")
    with path.open("a") as file:
        file.write("no end")
    assert FileTail(str(path), 1, os.getuid()).read_on() == b"no end"
    assert FileTail(str(path), 1, os.getuid() + 1).read_on() == b""  # who named it cannot have written it
    assert FileTail(str(tmp_path / "nowhere"), 1, os.getuid()).read_on() == b""


def test_a_progress_bar_is_one_line_and_controls_are_harmless() -> None:
    splitter = Splitter()
    whole = splitter.feed(b"10 %\r50 %\r100 %\r\nnext \x1b[31m\xff\n")
    assert whole == ["100 %", "next \x1b[31m\ufffd"]
    lines = [Line(Place("n", "/x", "a", 0, 0, 0, "stdout"), one) for one in whole]
    assert [str(one) for one in lines] == ["a:0 | 100 %", "a:0 | next \\x1b[31m\ufffd"]
    assert lines[1].as_json()["line"] == "next \x1b[31m\ufffd"  # for a program, as it came
    assert splitter.feed(b"left") == []
    assert splitter.end() == ["left"]
    assert [len(line) for line in splitter.feed(b"x" * 20_000)] == [16 << 10]


def test_of_a_long_log_the_last_lines_of_each_stream_are_shown(tmp_path: Path) -> None:
    node = Node("a", 0, workers=1).begins()
    paths = [tmp_path / f"{stream}.log" for stream in ("stdout", "stderr")]
    for path in paths:
        path.write_text("".join(f"{path.stem} {number}\n" for number in range(9)))
    worker = {"round": 0, "rank": 0, "local_rank": 0, "pid": 5, "log_files": [str(path) for path in paths]}
    node.tell(1.0, "worker.started", **worker).ends(5.0, "done", 0).write(tmp_path / "runs")
    said: list[str] = []
    found = Found([FolderSource(str(tmp_path / "runs" / "job7"))])
    count, run = follow(Asked("logs", follow=True, lines=2), found, lambda line: said.append(str(line)))
    assert (count, run.state) == (1, "done")
    assert said == ["a:0 | stdout 7", "a:0 | stdout 8", "a:0 ! stderr 7", "a:0 ! stderr 8"]


def test_places_are_those_of_the_newest_round_that_were_asked_for() -> None:
    node = Node("a", 2).begins()
    for number in (0, 1):
        for local_rank in (0, 1):
            path = f"/runs/job7/{node.name}/logs/attempt_{number}/{local_rank}/stdout.log"
            worker = {"round": number, "rank": 2 + local_rank, "local_rank": local_rank, "pid": 5}
            node.tell(1.0, "worker.started", **worker, log_files=[path, path.replace("stdout", "stderr")])
    seen = NodeSeen(node.name, "/copy", events=tuple(node.events))
    found = places([seen], frozenset({3}), ("stderr",))
    assert [(one.rank, one.stream, one.round) for one in found] == [(3, "stderr", 1)]
    assert len(places([seen], None, ("stdout", "stderr"))) == 4
    assert moved(found[0].path, node.name, "/copy") == "/copy/logs/attempt_1/1/stderr.log"
    assert moved(f"/x/{node.name}/../../etc/passwd", node.name, "/copy") == f"/x/{node.name}/../../etc/passwd"
    assert moved("/elsewhere/stdout.log", node.name, "/copy") == "/elsewhere/stdout.log"


class Endless:
    """A worker that writes faster than anybody reads."""

    def __init__(self) -> None:
        self.chunks = 0

    def read_on(self) -> bytes:
        self.chunks += 1
        return b"line\n" * 10


def test_a_stream_is_read_a_turn_at_a_time_and_its_end_is_not_waited_for_for_ever() -> None:
    endless = Endless()
    reader = Reader(Place("n", "/x", "a", 0, 0, 0, "stdout"), endless)
    lines = reader.read_on()
    assert str(next(lines)) == "a:0 | line"
    assert endless.chunks == 1  # what is there is said before more is read
    assert len(list(lines)) == 10 * MOST_CHUNKS - 1
    assert reader.has_more
    assert len(list(reader.finish())) == 10 * MOST_LAST_CHUNKS
