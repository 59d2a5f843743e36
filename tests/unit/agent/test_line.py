"""Lines between members and their anchor: dialled until they are there, in order, and lost exactly once."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from docks import Harbour

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docks import Agent

    from planaria.agent.line import Line


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    made = Harbour()
    yield made
    made.close()


class Member:
    """One that attends."""

    def __init__(self, one: Agent, other: Agent, header: object = "h") -> None:
        self.heard: list[object] = []
        self.lost: list[str] = []
        self.line: Line = one.dock.attend(other.address, 3, header, self.heard.append, self.lost.append)


def two(harbour: Harbour) -> tuple[Agent, Agent]:
    one = harbour.agent()
    return one, harbour.agent()


def test_values_go_both_ways_in_order_also_those_sent_before_the_line_was_open(harbour: Harbour) -> None:
    one, other = two(harbour)
    member = Member(one, other, {"slot": 1})
    sent = [None, 1, "two", [3, {"four": 4.5}], "\ud800"]
    for value in sent:
        member.line.send(value)
    harbour.until(lambda: len(other.keep.heard) == len(sent))
    for value in sent:
        other.keep.lines[0].send(value)
    harbour.until(lambda: len(member.heard) == len(sent))
    assert other.keep.heard == member.heard == sent
    assert other.keep.told == [("attended", 3, {"slot": 1})]
    assert (one.said, other.said, member.lost, other.keep.lost) == ([], [], [], [])


@pytest.mark.parametrize("closes", ["member", "anchor"])
def test_a_line_that_one_end_closes_is_lost_by_the_other_once_after_what_was_said(
    harbour: Harbour, closes: str
) -> None:
    one, other = two(harbour)
    member = Member(one, other)
    harbour.until(lambda: other.keep.lines)
    other.keep.lines[0].send("hello")
    harbour.until(lambda: member.heard)
    member.heard.clear()
    near, far = (member.line, other.keep.lines[0]) if closes == "member" else (other.keep.lines[0], member.line)
    near.send("last words")
    near.close()
    near.send("nothing")
    harbour.until(lambda: far.is_over)
    harbour.turns()
    far.send("nothing")
    far.close()
    heard, lost = (other.keep.heard, other.keep.lost) if closes == "member" else (member.heard, member.lost)
    assert (heard, lost) == (["last words"], ["it ended the connection"])
    assert len(other.keep.lost) + len(member.lost) == 1
    assert not one.dock._lines
    assert not other.dock._lines


def test_an_anchor_that_closes_at_once_is_lost(harbour: Harbour) -> None:
    one, other = two(harbour)
    other.keep.refuses = "no"
    member = Member(one, other)
    harbour.until(lambda: member.lost)
    harbour.pass_s(5)
    assert member.lost == ["it ended the connection"]
    assert other.keep.kinds == ["attended"]


def test_an_anchor_is_dialled_until_it_is_there(harbour: Harbour) -> None:
    one, other = two(harbour)
    welcome, other.links.on_guest = other.links.on_guest, lambda connection, _: connection.close()
    member = Member(one, other)
    member.line.send("early")
    harbour.pass_s(10)
    assert (member.lost, other.keep.told) == ([], [])
    other.links.on_guest = welcome
    harbour.clock.ahead_s += 2.0
    harbour.until(lambda: other.keep.heard)
    assert other.keep.heard == ["early"]
    assert other.keep.kinds == ["attended"]


def test_an_anchor_that_takes_the_connection_and_says_nothing_is_dialled_again(harbour: Harbour) -> None:
    one, other = two(harbour)
    mute: list[object] = []
    welcome, other.links.on_guest = other.links.on_guest, lambda *given: mute.append(given)
    Member(one, other)
    harbour.until(lambda: mute)
    other.links.on_guest = welcome
    harbour.pass_s(15)
    harbour.until(lambda: other.keep.lines)
    assert len(mute) == 1
    mute[0][0].close()  # type: ignore[index]


@pytest.mark.parametrize("turns", range(8))
def test_a_line_that_is_closed_while_it_is_dialled_is_never_open(harbour: Harbour, turns: int) -> None:
    one, other = two(harbour)
    member = Member(one, other)
    harbour.turns(turns)
    member.line.close()
    harbour.pass_s(5)
    harbour.until(lambda: len(other.keep.lost) == len(other.keep.lines))
    assert (member.heard, member.lost) == ([], [])
    assert len(other.keep.lines) <= 1
    assert not one.dock._lines


def test_a_peer_whose_host_is_gone_without_a_word_is_noticed_by_the_kernel_at_both_ends(harbour: Harbour) -> None:
    one, other = two(harbour)
    member = Member(one, other)
    harbour.until(lambda: other.keep.lines and member.line._wire is not None)
    for line in (member.line, other.keep.lines[0]):
        with socket.socket(fileno=os.dup(line._wire._descriptor)) as end:  # type: ignore[union-attr]
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            asked = [getattr(socket, f"TCP_KEEP{name}") for name in ("IDLE", "INTVL", "CNT")]
            idle_s, every_s, times = (end.getsockopt(socket.IPPROTO_TCP, option) for option in asked)
            assert idle_s + every_s * times <= 30
            assert 0 < end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000, "of what was sent"


def test_what_is_no_value_cannot_be_sent_and_the_line_stays(harbour: Harbour) -> None:
    one, other = two(harbour)
    member = Member(one, other)
    for value in (float("inf"), "x" * (1 << 19)):
        with pytest.raises(ValueError, match=r"JSON|over the limit"):
            member.line.send(value)
    member.line.send("x" * (1 << 18))
    harbour.until(lambda: other.keep.heard)
    assert member.lost == []


@pytest.mark.parametrize("payload", [b"{}", b'["Tell",1]', b'["Say"]', b'["Say",1,2]', b"\xff", b"[" * 100_000])
def test_a_peer_that_says_no_value_is_lost(harbour: Harbour, payload: bytes) -> None:
    anchor = harbour.agent()
    raw = harbour.raw(anchor)
    raw.send(b'["Dock","attend","run",3,"h"]', b'["Say",1]', payload, b'["Say",2]')
    raw.until(lambda: raw.is_over)
    assert anchor.keep.heard == [1]
    assert len(anchor.keep.lost) == 1
    assert anchor.keep.lost[0].startswith("it sent no message of ours: ")


def test_an_agent_that_ends_closes_its_lines_and_dials_no_more(harbour: Harbour) -> None:
    one, other = two(harbour)
    member, late = Member(one, other), Member(one, other)
    harbour.until(lambda: len(other.keep.lines) == 2)
    far = Member(other, one)
    one.dock.close()
    harbour.until(lambda: len(other.keep.lost) == 2)
    other.dock.close()
    harbour.pass_s(5)
    assert (member.lost, late.lost, far.lost) == ([], [], [])
    assert not one.dock._lines
    assert not other.dock._lines
