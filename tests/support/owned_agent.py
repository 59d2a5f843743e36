"""A small agent that answers its owner on a UNIX socket, or does not."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Agent:
    """Answers `/v1/*` on a socket in a folder of its own; gone once it was told to end."""

    def __init__(
        self, parent: Path, name: str, run_id: str = "job7", pid: int = 11, code: int = 202, port: int = 81
    ) -> None:
        self.folder = parent / f"planaria-{name}"
        self.folder.mkdir(mode=0o700)
        self.told: list[bytes] = []
        self._status = {
            "state": "running",
            "job": {"run_id": run_id, "launcher_pid": pid, "address": f"127.0.0.1:{port}"},
        }
        self._code = code
        self._looks = 0
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.folder / "http"))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                asked = client.recv(65536)
                if not asked:
                    continue
                code, body = 200, json.dumps(self._status)
                if asked.startswith(b"POST"):
                    self.told.append(asked)
                    code, body = self._code, "{}"
                kind = "application/json"
                client.sendall(f"HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\n\r\n{body}".encode())
                if self.told and code == 200:
                    self._looks += 1
                    if self._looks == 2:
                        self._listening.close()
                        return

    def close(self) -> None:
        if self._thread.is_alive():
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
        self._thread.join(20)
