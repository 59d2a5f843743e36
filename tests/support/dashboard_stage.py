"""A dashboard of made-up runs, in this process: `python tests/support/dashboard_stage.py` serves it for one's own eyes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pictures

from planaria.contract.secret import Secret
from planaria.dashboard.answers import Answers
from planaria.dashboard.door import Door

if TYPE_CHECKING:
    from collections.abc import Callable


class Cast:
    """A `Source` whose runs are calls that return pictures. What it is ordered it keeps."""

    def __init__(self, **runs: Callable[[], dict[str, Any]]) -> None:
        self.by_id = {make()["run_id"]: make for make in runs.values()}
        self.log = "".join(f"step {n}: loss {3 / (1 + n):.4f}\n" for n in range(40))
        self.orders: list[tuple[str, str, str]] = []
        self.looks = 0

    def runs(self) -> list[dict[str, Any]]:
        seen = [make() for make in self.by_id.values()]
        return [{"run_id": one["run_id"], "state": one["state"], "nodes": len(one["nodes"])} for one in seen]

    def picture(self, run_id: str) -> dict[str, Any] | None:
        self.looks += 1
        return self.by_id[run_id]() if run_id in self.by_id else None

    def log_tail(self, run_id: str, rank: int, stream: str) -> dict[str, Any] | None:
        if rank >= len(self.by_id[run_id]()["ranks"]):
            return None
        if stream == "stderr":
            return {"text": "", "why": "this rank wrote nothing there"}
        return {"text": f"rank {rank}\n{self.log}", "why": ""}

    def evidence(self, run_id: str, node: str, name: str, file: str) -> bytes | None:
        return f"<b>{node} {name} {file}</b>\n".encode() if file.endswith(".txt") else None

    def order(self, run_id: str, command: str, node: str) -> tuple[bool, str]:
        self.orders.append((run_id, command, node))
        return True, f"run {run_id} was told to {command}"


class Stage:
    """Serves a source from a thread: the caller is a test that drives a browser."""

    def __init__(self, source: Any, token: str = "", port: int = 0) -> None:
        self._secret = Secret(token.encode()) if token else None
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._wanted = port
        self.port = 0
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Stage:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def _run(self) -> None:
        answers = Answers(self._source, self._secret, "127.0.0.1", time.monotonic)
        server = await Door(answers.answer).serve("127.0.0.1", self._wanted)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        mine = asyncio.current_task()
        for task in [task for task in asyncio.all_tasks() if task is not mine]:
            task.cancel()


if __name__ == "__main__":
    begun = time.monotonic()
    cast = Cast(
        live=lambda: pictures.live(180 + time.monotonic() - begun),
        failed=lambda: {**pictures.failed(), "run_id": "vision-finetune"},
        hanging=lambda: {**pictures.hanging(), "run_id": "speech-eval"},
        thousand=lambda: pictures.thousand(60 + time.monotonic() - begun),
        hostile=pictures.hostile,
    )
    with Stage(cast, "secret", 8265) as stage:
        print(stage.url, flush=True)
        threading.Event().wait()
