from __future__ import annotations

import asyncio

from planaria.kube.serve import Door
from planaria.observe.metrics import Registry


def asked(door: Door, *requests: bytes) -> list[bytes]:
    async def talk() -> list[bytes]:
        answers = []
        server = await door.serve("127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            for request in requests:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                answers.append(await reader.read())
                writer.close()
                await writer.wait_closed()
        return answers

    return asyncio.run(talk())


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def door(alive: str = "", ready: str = "") -> Door:
    registry = Registry()
    registry.counter("planaria_operator_calls_total", "Calls.").add(3)
    return Door(lambda: alive, lambda: ready, registry)


def test_a_probe_is_told_what_is_wrong() -> None:
    healthy, ready = asked(door(ready="not everything was listed yet"), get("/healthz"), get("/readyz"))
    assert healthy.startswith(b"HTTP/1.1 200 ")
    assert healthy.endswith(b"\r\n\r\nok\n")
    assert ready.startswith(b"HTTP/1.1 503 ")
    assert ready.endswith(b"not everything was listed yet\n")


def test_metrics_are_there_and_the_answer_to_head_is_empty() -> None:
    whole, head = asked(door(), get("/metrics"), get("/metrics", "HEAD"))
    assert b"\nplanaria_operator_calls_total 3\n" in whole
    assert head.endswith(b"\r\n\r\n")


def test_strangers_are_answered_and_dropped() -> None:
    wrong, post, nothing, long = asked(
        door(), get("/"), get("/healthz", "POST"), b"\r\n\r\n", b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n"
    )
    assert [answer.split(b" ")[1] for answer in (wrong, post, nothing, long)] == [b"404", b"405", b"400", b"431"]
