"""A long download on a terminal: it shows how far it is, and a signal ends it in good order."""

from __future__ import annotations

import os
import pty
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
PATIENCE_S = 60
HEAD = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "one"\r\n\r\n'


def trickle(listener: socket.socket, done: threading.Event) -> None:
    """Serve two of three parts, the second one late, and then nothing."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(HEAD % (3 * MIB) + bytes(MIB))
        done.wait(1.5)  # what is fetched within a second shows nothing, so it has to take longer
        connection.sendall(bytes(MIB))
        done.wait(PATIENCE_S)


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
            while b"fetching train.py: 2.0 MiB of 3.0 MiB" not in shown:
                shown += os.read(ours, 4096)
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == status
            assert os.read(ours, 4096).endswith(b"\r\x1b[K")
        finally:
            done.set()
            process.kill()
            process.wait()
            os.close(ours)
            server.join(PATIENCE_S)
    assert list(tmp_path.iterdir()) == []
