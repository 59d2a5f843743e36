"""A node that meets others through a handler's methods alone, in a process of its own, told what to do line by line.

The test's end is `Node`; run as a program this is the other end. A line is a JSON list: a method of `Hand` and its
arguments; the answer is a JSON object, with `error` for the name of what was raised.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

from programs import clean_environment
from waiting import wait_until

PATIENCE_S = 60.0


class Node:
    """A process with a handler. Every call but `begin` waits for its answer."""

    def __init__(
        self, backend: str, endpoint: str, run_id: str, *, nodes: str, env: dict[str, str] | None = None, **conf: Any
    ) -> None:
        least, _, most = nodes.partition(":")
        settings = {"last_call_timeout": 1, **conf}  # torch takes whole seconds here
        words = [backend, endpoint, run_id, least, most or least, json.dumps(settings)]
        environ = clean_environment(**(env or {}))
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )

    def begin(self, method: str, *args: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, *args]) + "\n")
        self.process.stdin.flush()

    def answer(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        assert ready, "no answer in time"
        line = self.process.stdout.readline()
        assert line, f"the node ended with {self.process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def is_silent_for(self, seconds: float) -> bool:
        return not select.select([self.process.stdout], [], [], seconds)[0]

    def ask(self, method: str, *args: Any) -> dict[str, Any]:
        self.begin(method, *args)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(PATIENCE_S)  # the end of its input is the end of it
        except subprocess.TimeoutExpired:
            self.kill()


class Hand:
    """What a node can be told."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.store: Any = None

    def next(self) -> dict[str, Any]:
        info = self.handler.next_rendezvous()
        self.store = info.store
        told = info.bootstrap_store_info
        return {"rank": info.rank, "size": info.world_size, "master": [told.master_addr, told.master_port]}

    def next_unless_closed(self, when: str) -> dict[str, Any]:
        """Look for a round, and close the run when this is said to be so while it waits."""

        def close() -> None:
            wait_until(lambda: when in getattr(self.handler._attendee, "_waiting_for", ""), when)
            self.handler.set_closed()

        threading.Thread(target=close, daemon=True).start()
        return self.next()

    def wanted(self, timeout_s: float) -> dict[str, Any]:
        """Look until the round is to end, or for so long."""
        try:
            return {"number": wait_until(self.handler.num_nodes_waiting, "an end of the round", timeout_s)}
        except AssertionError:
            return {"number": 0}

    def closed(self) -> dict[str, Any]:
        return {"closed": self.handler.is_closed()}

    def set_closed(self) -> dict[str, Any]:
        self.handler.set_closed()
        return {}

    def shutdown(self) -> dict[str, Any]:
        return {"heard": self.handler.shutdown()}

    def call(self, method: str, timeout_s: float, *args: Any) -> dict[str, Any]:
        self.store.set_timeout(timedelta(seconds=timeout_s))
        found = getattr(self.store, method)(*args)
        return {"found": found.decode() if isinstance(found, bytes) else found}

    def synchronize(self, data: str, rank: int, size: int, prefix: str) -> dict[str, Any]:
        from planaria.elastic.utils.store import synchronize

        found = synchronize(self.store, data.encode(), rank, size, prefix, 30)
        return {"found": [one.decode() for one in found]}


def main(backend: str, endpoint: str, run_id: str, least: str, most: str, settings: str) -> None:
    from planaria.elastic.rendezvous import RendezvousParameters
    from planaria.elastic.rendezvous.registry import get_rendezvous_handler

    conf = json.loads(settings)
    if conf.pop("by_backend", False):
        from planaria.elastic.rendezvous import c10d_rendezvous_backend, etcd_rendezvous_backend
        from planaria.elastic.rendezvous.dynamic_rendezvous import create_handler

        params = RendezvousParameters(backend, endpoint, run_id, int(least), int(most), "127.0.0.1", **conf)
        module = c10d_rendezvous_backend if backend == "c10d" else etcd_rendezvous_backend
        board, store = module.create_backend(params)
        hand = Hand(create_handler(store, board, params))
    else:
        hand = Hand(
            get_rendezvous_handler(RendezvousParameters(backend, endpoint, run_id, int(least), int(most), **conf))
        )
    for line in sys.stdin:
        method, *args = json.loads(line)
        try:
            answer = getattr(hand, method)(*args)
        except Exception as problem:  # noqa: BLE001  # the test wants to know what it was
            answer = {"error": type(problem).__name__, "why": str(problem)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
