"""What the responder's thread does while workers are forked beside it: it imports nothing and takes no lock of ours.

A child that is forked at that moment could not have either: the thread that would give it back does not exist there.
"""

from __future__ import annotations

import ast
import builtins
import socket
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

import planaria
from planaria.agent.health import Health
from planaria.agent.model import Group, Job
from planaria.agent.settings import HealthCheck
from planaria.base.loop import Loop
from planaria.contract.secret import Secret
from planaria.process.model import Command

JOB = Job(Command("script", "a.py", ()), 1, "job7", "default", 3, 30.0, (15,), {})
PATIENCE_S = 30.0
IN_THE_THREAD = (
    "agent/gate.py",
    "agent/health.py",
    "base/loop.py",
    "base/mailbox.py",
    "observe/http.py",
    "observe/request.py",
    "observe/responder.py",
)
LOCKS = ("allocate_lock", "Lock", "RLock", "Condition", "Semaphore", "Event", "acquire")


class FakeDriver:
    """A group that runs."""

    group = Group(size=1, max_restarts=3, grace_s=30.0, phase="running")
    life = None
    progress: ClassVar[dict[int, tuple[Any, float]]] = {}
    commits: ClassVar[dict[str, object]] = {}
    reserve = None
    vigil = None
    workers = type("Workers", (), {"seen": ()})()
    observer = None
    control = type("Control", (), {"has_listeners": True})()

    def post(self, _event: Any) -> None:
        """Forget it."""


REQUESTS = [
    b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /readyz HTTP/1.0\r\n\r\n",
    b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    b"POST /v1/drain HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\nAuthorization: Bearer wrong\r\n\r\n",
    b"POST /v1/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nAuthorization: Bearer s3cret\r\n\r\n{}",
    b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: a.example\r\nOrigin: x\r\n\r\n",
    b"BREW /pot HTTP/1.1\r\n\r\n",
    b"\x00\r\n\r\n",
]


def test_the_thread_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, main = builtins.__import__, threading.get_ident()
    asking: set[int] = set()
    found: list[str] = []

    def watched(name: str, *args: Any, **more: Any) -> Any:
        if threading.get_ident() not in (main, *asking):
            found.append(name)
        return honest(name, *args, **more)

    def ask() -> None:
        asking.add(threading.get_ident())
        for request in REQUESTS:
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
                client.sendall(request)
                answers.append(client.recv(65536))

    loop, said, answers = Loop(), list[str](), list[bytes]()
    health = Health(JOB, loop, FakeDriver(), said.append)  # type: ignore[arg-type]
    monkeypatch.setattr(builtins, "__import__", watched)
    health.open(HealthCheck(0, token=Secret(b"s3cret")))
    port = int(said[0].rstrip("/").rpartition(":")[2])
    thread = threading.Thread(target=ask)
    thread.start()
    deadline = loop.now() + PATIENCE_S
    while thread.is_alive() and loop.now() < deadline:
        loop.run_once(0.01)
    thread.join(PATIENCE_S)
    assert health._far is not None
    health._far.responder.stop()
    loop.close()
    assert len([answer for answer in answers if answer.startswith(b"HTTP/1.1 ")]) == len(REQUESTS)
    assert found == []


def test_the_only_lock_in_what_it_runs_is_the_one_that_tells_its_end() -> None:
    root = Path(planaria.__file__).parent
    found = {}
    for name in IN_THE_THREAD:
        tree = ast.parse((root / name).read_text())
        attributes = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        found[name] = sorted(one for one in attributes if one in LOCKS)
    expected = ["acquire", "acquire", "allocate_lock"]  # start, stop and __init__, all in the thread that owns it
    assert {name: locks for name, locks in found.items() if locks} == {"observe/responder.py": expected}
