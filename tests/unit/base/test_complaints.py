"""Lines about strangers: few of them, however many strangers there are."""

from __future__ import annotations

import socket

from clocks import Clock
from net_ends import Server, until
from strangers import has_ended

from planaria.base.loop import Loop
from planaria.base.net import Complaints, Listener


def test_lines_come_at_most_once_a_second_and_count_the_others() -> None:
    clock = Clock()
    loop = Loop(clock)
    server = Server(loop)
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", server.listener.port)) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
            stream.setblocking(False)
            until(loop, lambda stream=stream: has_ended(stream))  # type: ignore[misc]
    assert len(server.lines) == 1
    clock.now += 0.9
    loop.run_once(0)
    assert len(server.lines) == 1
    clock.now += 0.2
    loop.run_once(0)
    server.listener.close()
    loop.close()
    assert "dropped a connection from 127.0.0.1:" in server.lines[0]
    assert server.lines[0].endswith("it does not speak this protocol")
    assert server.lines[1].endswith("it does not speak this protocol (and 8 more)")


class Told:
    """Complaints on a clock that a test moves, and what was said when."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = Loop(lambda: self.now)
        self.said: list[tuple[float, str]] = []
        self.complaints = Complaints(self.loop, lambda line: self.said.append((self.now, line)))

    def pass_s(self, seconds: float, each_s: float = 0.5, *, add: str = "") -> None:
        for _ in range(round(seconds / each_s)):
            if add:
                self.complaints.add(f"dropped {add}", add)
            self.now += each_s
            self.loop.run_once(0)

    def close(self) -> list[tuple[float, str]]:
        self.complaints.close()
        self.loop.close()
        return self.said


def test_equal_complaints_are_said_at_growing_intervals_with_their_number() -> None:
    told = Told()
    told.pass_s(16, add="10.0.0.1:4000")
    told.complaints.add("dropped 10.0.0.1:5000", "10.0.0.1:5000")
    told.pass_s(20)  # and the last is not lost
    assert told.close() == [
        (0.0, "dropped 10.0.0.1:4000"),
        (1.0, "dropped 10.0.0.1:4000"),
        (3.0, "dropped 10.0.0.1:4000 (and 3 more)"),
        (7.0, "dropped 10.0.0.1:4000 (and 7 more)"),
        (15.0, "dropped 10.0.0.1:4000 (and 15 more)"),
        (31.0, "dropped 10.0.0.1:5000 (and 2 more)"),
    ]


def test_complaints_that_go_on_for_hours_are_said_every_five_minutes() -> None:
    told = Told()
    told.pass_s(7200, each_s=20, add="10.0.0.1:4000")
    times = [when for when, _ in told.close()]
    assert {later - earlier for earlier, later in zip(times[-5:], times[-4:], strict=False)} == {300.0}
    assert len(times) < 35


def test_a_complaint_that_was_over_is_news_when_it_comes_again() -> None:
    told = Told()
    told.pass_s(8, add="10.0.0.1:4000")
    told.pass_s(1000, each_s=10)
    before = len(told.said)
    told.pass_s(1.5, add="10.0.0.1:4000")
    assert [when - 1008.0 for when, _ in told.close()[before:]] == [0.0, 1.0]


def test_complaints_of_different_kinds_are_all_said_one_a_second() -> None:
    told = Told()
    for host in range(3):
        told.complaints.add(f"dropped 10.0.0.{host}:1", f"10.0.0.{host}:1")
    told.pass_s(5)
    assert told.close() == [(float(host), f"dropped 10.0.0.{host}:1") for host in range(3)]


def test_a_stranger_that_makes_up_complaints_costs_a_line_a_second_and_little_memory() -> None:
    told = Told()
    for number in range(1000):
        told.complaints.add(f"it sent {number} bytes")
    assert len(told.complaints._kinds) <= 64
    told.pass_s(100)
    said = told.close()
    assert [when for when, _ in said] == [float(second) for second in range(65)]
    assert said[-1][1] == "it sent 999 bytes (and 935 more)"


def test_complaints_that_are_shared_outlive_a_listener(loop: Loop) -> None:
    lines: list[str] = []
    shared = Complaints(loop, lines.append)
    Listener(loop, ("127.0.0.1", 0), lambda _: None, token=None, on_refused=shared).close()
    shared.add("still here")
    assert lines == ["still here"]
    shared.close()
