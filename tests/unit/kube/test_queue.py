from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from waiting import until

from planaria.errors import KubeError
from planaria.kube.queue import Queue

A, B = ("n", "a"), ("n", "b")
Look = Callable[[tuple[str, str]], Awaitable[float | None]]


def made(look: Look, said: list[str] | None = None) -> Queue:
    return Queue(look, lambda: 0.5, (said if said is not None else []).append)


@contextlib.asynccontextmanager
async def running(queue: Queue, tasks: int = 1) -> AsyncIterator[None]:
    working = asyncio.ensure_future(queue.run(tasks))
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def test_a_key_that_is_woken_many_times_is_looked_at_once() -> None:
    async def both() -> None:
        looks: list[tuple[str, str]] = []

        async def look(key: tuple[str, str]) -> None:
            looks.append(key)

        queue = made(look)
        for _ in range(10):
            queue.wake(A)
        queue.wake(B)
        assert len(queue) == 2
        async with running(queue, 2):
            await until(lambda: B in looks)
            assert sorted(looks) == [A, B]

    asyncio.run(both())


def test_a_key_is_looked_at_by_one_task_at_a_time_and_again_if_it_was_woken_meanwhile() -> None:
    async def both() -> None:
        inside, most, looks = 0, 0, 0
        go_on = asyncio.Event()

        async def look(_: tuple[str, str]) -> None:
            nonlocal inside, most, looks
            inside += 1
            looks += 1
            most = max(most, inside)
            await go_on.wait()
            inside -= 1

        queue = made(look)
        queue.wake(A)
        async with running(queue, 4):
            await until(lambda: inside == 1)
            queue.wake(A)
            queue.wake(A)
            go_on.set()
            await until(lambda: looks == 2)
            assert most == 1

    asyncio.run(both())


def test_what_one_key_raises_is_told_and_tried_again_and_touches_no_other() -> None:
    said: list[str] = []

    async def both() -> None:
        looks: list[tuple[str, str]] = []

        async def look(key: tuple[str, str]) -> None:
            looks.append(key)
            if key == A:
                raise ZeroDivisionError

        queue = made(look, said)
        queue.wake(A)
        async with running(queue):
            await until(lambda: looks.count(A) == 1)
            queue.wake(B)
            await until(lambda: B in looks and looks.count(A) == 2)

    asyncio.run(both())
    assert "n/a: a bug in planaria" in said[0]
    assert "ZeroDivisionError" in said[0]


def test_a_key_that_failed_waits_its_time_however_often_it_is_woken() -> None:
    async def both() -> None:
        looks = 0

        async def look(_: tuple[str, str]) -> None:
            nonlocal looks
            looks += 1
            raise KubeError("away", retry_after_s=3600.0)

        queue = made(look)
        queue.wake(A)
        async with running(queue):
            await until(lambda: looks == 1)
            for _ in range(5):
                queue.wake(A)
            assert len(queue) == 0

    asyncio.run(both())


def test_a_key_that_failed_is_looked_at_at_once_when_it_is_another_by_now() -> None:
    async def both() -> None:
        looks = 0

        async def look(_: tuple[str, str]) -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise KubeError("away", retry_after_s=3600.0)

        queue = made(look)
        queue.wake(A)
        async with running(queue):
            await until(lambda: looks == 1)
            queue.forget(A)
            queue.wake(A)
            await until(lambda: looks == 2)

    asyncio.run(both())


def test_a_conflict_is_tried_again_without_a_word() -> None:
    said: list[str] = []

    async def both() -> None:
        looks = 0

        async def look(_: tuple[str, str]) -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise KubeError("somebody wrote first", status=409)

        queue = made(look, said)
        queue.wake(A)
        async with running(queue):
            await until(lambda: looks == 2)

    asyncio.run(both())
    assert said == []


def test_a_key_is_looked_at_again_when_it_asked_for_it() -> None:
    async def both() -> None:
        looks = 0

        async def look(_: tuple[str, str]) -> float | None:
            nonlocal looks
            looks += 1
            return 0.05 if looks < 3 else None

        queue = made(look)
        queue.wake(A)
        async with running(queue):
            await until(lambda: looks == 3)

    asyncio.run(both())
