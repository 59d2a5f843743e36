from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from planaria.kube.parts import FETCH, Dataset, dataset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


DIES_AFTER_RENAME = """\
import os, signal
rename = os.rename
os.rename = lambda *paths: (rename(*paths), os.kill(os.getpid(), signal.SIGKILL))
"""


class Archive(BaseHTTPRequestHandler):
    """Serves one archive; /broken/tiny.zip ends in its middle, and /slow/tiny.zip stays there until its client is gone."""

    half_sent = threading.Event()

    def do_GET(self) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("tiny/train/a/1.JPEG", "image")
            archive.writestr("tiny/words.txt", "words")
        content = buffer.getvalue()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if self.path == "/tiny.zip" else content[:40])
        if self.path == "/slow/tiny.zip":
            self.half_sent.set()
            with suppress(ConnectionResetError):
                self.connection.recv(1)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Archive) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def command(data: Path, url: str, before: str = "") -> list[str]:
    """Return what the pod runs, with another folder in the place of its volume."""
    return [sys.executable, "-I", "-c", before + FETCH.replace("/data", str(data)), url, str(os.getuid())]


def fetch(data: Path, url: str, before: str = "") -> subprocess.CompletedProcess[str]:
    words = command(data, url, before)
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_the_pod_runs_this_script() -> None:
    ((_, pod),) = dataset(Dataset(url="https://h/$x.zip"))
    assert pod["spec"]["containers"][0]["command"] == ["python3", "-c", FETCH, "https://h/$$x.zip", "1000"]  # type: ignore[index,call-overload]  a pod
    assert "$" not in FETCH, "Kubernetes would look for variables in it"


def test_a_dataset_is_unpacked_once(server: str, tmp_path: Path) -> None:
    done = fetch(tmp_path, f"{server}/tiny.zip")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "tiny/train/a/1.JPEG").read_text() == "image"
    assert sorted(os.listdir(tmp_path)) == ["commits", "tiny"]
    (tmp_path / "tiny/words.txt").write_text("mine")
    again = fetch(tmp_path, f"{server}/tiny.zip")
    assert (again.returncode, again.stdout) == (0, f"{tmp_path}/tiny is there already\n")
    assert (tmp_path / "tiny/words.txt").read_text() == "mine"


def test_what_breaks_off_is_never_taken_for_the_dataset_and_begins_again(server: str, tmp_path: Path) -> None:
    assert fetch(tmp_path, f"{server}/broken/tiny.zip").returncode != 0
    assert not (tmp_path / "tiny").exists()
    (tmp_path / ".tiny.half/tiny").mkdir(parents=True)  # of an attempt that was killed while it unpacked
    (tmp_path / ".tiny.half/tiny/half").write_text("")
    assert fetch(tmp_path, f"{server}/tiny.zip").returncode == 0
    assert sorted(os.listdir(tmp_path / "tiny")) == ["train", "words.txt"]


def test_one_that_is_killed_while_it_fetches_begins_again(server: str, tmp_path: Path) -> None:
    with subprocess.Popen(command(tmp_path, f"{server}/slow/tiny.zip")) as killed:
        assert Archive.half_sent.wait(60.0)
        killed.kill()
    assert not (tmp_path / "tiny").exists()
    assert (tmp_path / ".tiny.half").exists()
    assert fetch(tmp_path, f"{server}/tiny.zip").returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["commits", "tiny"]


def test_one_that_is_killed_when_all_is_there_leaves_nothing_behind_after_its_next_start(
    server: str, tmp_path: Path
) -> None:
    assert fetch(tmp_path, f"{server}/tiny.zip", DIES_AFTER_RENAME).returncode == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == [".tiny.half", "commits", "tiny"]
    again = fetch(tmp_path, f"{server}/tiny.zip")
    assert (again.returncode, again.stdout) == (0, f"{tmp_path}/tiny is there already\n")
    assert sorted(os.listdir(tmp_path)) == ["commits", "tiny"]
