"""An agent as far as it can be asked over TCP: how it is, its journal, its evidence, and the logs of its workers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Self

from planaria.agent.records import NEXT, ROUND
from planaria.observe.notebook import Notebook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Listener:
    """Answers one question at a time, at a port of its own, until it is closed or has given `answers`."""

    def __init__(self, node: str, events: Iterable[dict[str, object]] = (), *, answers: int = -1) -> None:
        self.begin(node, events)
        self.log = b""
        self.round = 0
        self.evidence: dict[str, bytes] = {}
        self.before: Callable[[], object] = lambda: None  # it answers when this returns
        self._left = answers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.target: tuple[str, int] = self._listening.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def begin(self, node: str, events: Iterable[dict[str, object]] = ()) -> None:
        """Be this agent from now on, with a journal of its own."""
        self.node = node
        self.notebook = Notebook(1000)
        for event in events:
            self.notebook.take(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse whoever comes from now on."""
        if self._left:
            self._left = 0
            with contextlib.suppress(OSError):  # closed already, while the last question was being answered
                self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        self._listening.close()

    def _serve(self) -> None:
        while self._left:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):  # who asked may not have waited
                words = client.recv(65536).split()
                self.before()
                if len(words) > 1:
                    client.sendall(self._answer(words[1].decode()))
            self._left -= 1
        self._listening.close()

    def _answer(self, target: str) -> bytes:
        path, _, query = target.partition("?")
        if path == "/v1/status":
            job = {"run_id": "job7", "host": self.node, "node": self.node}
            told = {"job": job, "state": "running", "round": {"number": self.round, "world_size": 1}, "workers": []}
            return _answer(json.dumps(told).encode(), "Content-Type: application/json")
        if path == "/v1/journal":
            after = int(query.removeprefix("after="))
            kept = self.notebook.after(after)
            page = {"next": kept[-1][0] if kept else after, "events": [event for _, event in kept]}
            return _answer(json.dumps(page).encode(), "Content-Type: application/json")
        if path == "/v1/logs":
            return _answer(self.log, f"{ROUND}: {self.round}", f"{NEXT}: {len(self.log)}")
        if path == "/v1/evidence":
            listed = {"evidence": [{"name": "hang-1", "files": list(self.evidence)}] if self.evidence else []}
            return _answer(json.dumps(listed).encode(), "Content-Type: application/json")
        return _answer(self.evidence[path.rpartition("/")[2]])


def _answer(body: bytes, *headers: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("HTTP/1.1 200 OK", *headers, "")).encode() + body
