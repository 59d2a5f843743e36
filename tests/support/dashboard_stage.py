"""A dashboard of made-up runs, in this process: `python tests/support/dashboard_stage.py` serves it for one's own eyes."""

from __future__ import annotations

import asyncio
import threading
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

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
        return [{"run_id": one["run_id"], "state": one["state"], "is_over": one["is_over"]} for one in seen]

    def picture(self, run_id: str) -> dict[str, Any] | None:
        self.looks += 1
        return self.by_id[run_id]() if run_id in self.by_id else None

    def log_tail(self, run_id: str, rank: int, stream: str) -> dict[str, Any] | None:
        ranks = self.by_id[run_id]()["ranks"]
        if ranks and rank >= len(ranks):
            return None
        if not self.log:
            return {"text": "", "why": f"this rank wrote nothing to {stream}"}
        return {"text": f"rank {rank}\n{self.log}", "why": ""}

    def evidence(self, run_id: str, node: str, name: str, file: str) -> BytesIO | None:
        return BytesIO(f"<b>{run_id} {node} {name}</b>\n".encode()) if file.endswith(".txt") else None

    def order(self, run_id: str, command: str, node: str) -> tuple[bool, str]:
        self.orders.append((run_id, command, node))
        return True, f"run {run_id} was told to {command}"


class Stage:
    """Serves a source from a thread: the caller is a test that drives a browser."""

    def __init__(self, source: Any, token: str = "", port: int = 0, *, is_far: bool = False) -> None:
        self._secret = Secret(token.encode()) if token else None
        self._source = source
        self._is_far = is_far  # whoever asks counts as somebody on another machine
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._wanted = port
        self.port = 0
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Self:
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
        door = Door(lambda request, here: answers.answer(request, here and not self._is_far))
        self.port = await door.open("127.0.0.1", self._wanted)
        self._ready.set()
        await self._ended.wait()
        await door.close()
        await self._loop.shutdown_default_executor()


if __name__ == "__main__":
    begun = time.monotonic()
    cast = Cast(
        live=lambda: pictures.live(180 + time.monotonic() - begun),
        failed=pictures.failed,
        hanging=pictures.hanging,
        thousand=lambda: pictures.thousand(60 + time.monotonic() - begun),
        hostile=pictures.hostile,
    )
    with Stage(cast, "secret", 8265) as stage:
        print(stage.url, flush=True)
        threading.Event().wait()
