from __future__ import annotations

import io
import threading
from pathlib import Path

from planaria.elastic.multiprocessing.tail_log import TailLog, tail_logfile


class Shown(io.StringIO):
    """A console that one can wait at."""

    def __init__(self) -> None:
        super().__init__()
        self.news = threading.Condition()

    def write(self, text: str) -> int:
        with self.news:
            self.news.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self.news:
            assert self.news.wait_for(lambda: text in self.getvalue(), 40.0), self.getvalue()


def test_lines_are_shown_while_the_files_grow_each_with_its_header(tmp_path: Path) -> None:
    files = {rank: str(tmp_path / f"{rank}.log") for rank in (0, 1)}
    shown = Shown()
    tail = TailLog("trainer", files, shown, {1: "<one> "}, interval_sec=0.01).start()
    assert not tail.stopped()
    Path(files[0]).write_text("a\n")
    shown.wait_for("[trainer0]:a\n")
    Path(files[1]).write_text("b\r\nc\n")  # it did not exist at the start
    shown.wait_for("<one> b\n<one> c\n")
    tail.stop()
    assert tail.stopped()


def test_a_line_is_never_shown_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    shown = Shown()
    tail = TailLog("t", {0: str(path)}, shown, interval_sec=0.01).start()
    with path.open("w") as file:
        file.write("x\nhalf")
        file.flush()
        shown.wait_for("x\n")
        file.write(" and half\nlast")
    tail.stop()
    assert shown.getvalue() == "[t0]:x\n[t0]:half and half\n[t0]:last\n"


def test_only_lines_that_pass_the_filter_are_shown(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_text("loss 1\nnoise\nloss 2\n")
    shown = Shown()
    TailLog("t", {0: str(tmp_path / "0.log")}, shown, log_line_filter=lambda line: "loss" in line).start().stop()
    assert shown.getvalue() == "[t0]:loss 1\n[t0]:loss 2\n"


def test_a_file_that_never_comes_and_none_at_all_end_when_told(tmp_path: Path) -> None:
    shown = Shown()
    tail = TailLog("t", {0: str(tmp_path / "never")}, shown).start()
    tail.stop()
    TailLog("t", {}, shown).start().stop()
    assert shown.getvalue() == ""


def test_where_there_is_no_console_files_are_followed_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_text("a line\n")
    finished = threading.Event()
    finished.set()
    tail_logfile("> ", str(tmp_path / "0.log"), None, finished, 0.01)


def test_many_files_need_one_thread(tmp_path: Path) -> None:
    files = {rank: str(tmp_path / str(rank)) for rank in range(64)}
    before = threading.active_count()
    tail = TailLog("t", files, Shown()).start()
    assert threading.active_count() == before + 1
    tail.stop()


def test_bytes_that_are_no_text_are_shown_as_far_as_they_can(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"\xff\xfe ok\n")
    shown, finished = Shown(), threading.Event()
    finished.set()
    tail_logfile("> ", str(tmp_path / "0"), shown, finished, 0.01)
    assert shown.getvalue() == "> \ufffd\ufffd ok\n"
