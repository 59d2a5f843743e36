"""A long download on a terminal: it shows how far it is, and a signal ends it in good order."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from programs import clean_environment

FETCH = str(Path(__file__).parents[2] / "bin" / "fetch_and_run")
MIB = 1 << 20
PARTS = 100
PAUSE_S = 0.2
PATIENCE_S = 60
HEAD = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "one"\r\n\r\n'


def trickle(listener: socket.socket, done: threading.Event) -> None:
    """Serve one part after the other, and never the last: what is fetched within a second shows nothing."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(ConnectionError):  # the program was ended
        connection.recv(65536)
        connection.sendall(HEAD % (PARTS * MIB))
        for _ in range(PARTS - 1):
            connection.sendall(bytes(MIB))
            if done.wait(PAUSE_S):
                return
        done.wait(PATIENCE_S)


def rest_of(terminal: int) -> bytes:
    """Return what is still to be read there, up to the end of the last who writes."""
    found = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody is left
        while part := os.read(terminal, 4096):
            found += part
    return found


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_long_download_shows_how_far_it_is_and_ends_by_a_signal(tmp_path: Path, number: int, status: int) -> None:
    pytest.importorskip("boto3")
    done = threading.Event()
    ours, theirs = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        server = threading.Thread(target=trickle, args=(listener, done))  # beside the program that is watched
        server.start()
        environment = clean_environment(
            "AWS_", TMPDIR=str(tmp_path), AWS_ENDPOINT_URL=f"http://127.0.0.1:{listener.getsockname()[1]}",
            AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1", NO_PROXY="127.0.0.1",
            PLANARIA_FETCH_SHA256="0" * 64,
        )  # fmt: skip
        argv = [sys.executable, FETCH, "s3://some-bucket/train.py"]
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        try:
            os.close(theirs)
            shown = b""
            while not re.search(rb"fetching train\.py: \d+\.\d MiB of 100\.0 MiB", shown):
                shown += os.read(ours, 4096)
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == status
            assert rest_of(ours).endswith(b"\r\x1b[K")
        finally:
            done.set()
            process.kill()
            process.wait()
            os.close(ours)
            server.join(PATIENCE_S)
    assert list(tmp_path.iterdir()) == []
