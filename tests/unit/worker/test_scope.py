from __future__ import annotations

import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from waiting import wait_dead

from planaria import worker
from planaria.contract.control import Acquire, Progress, Release, decode
from planaria.worker.link import Link
from planaria.worker.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def link(agent: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    found = Link(agent.getsockname)
    monkeypatch.setattr(worker, "_LINK", found)
    yield found
    found._give_up()


def heard(agent: socket.socket, link: Link) -> list[object]:
    """Return every message that was sent, up to the end of the link."""
    peer, _ = agent.accept()
    link._give_up()
    with peer, peer.makefile("rb") as lines:
        return [decode(line) for line in lines]


def test_a_scope_is_acquired_and_released(agent: socket.socket, link: Link) -> None:
    with worker.expires(after=60, scope="step"):
        pass
    begun, ended = heard(agent, link)
    assert isinstance(begun, Acquire)
    assert (begun.scope, begun.after_s, ended) == ("step", 60.0, Release(begun.id))


def test_a_scope_is_released_when_the_block_raises(agent: socket.socket, link: Link) -> None:
    with pytest.raises(ZeroDivisionError), worker.expires(after=60, scope="step"):
        raise ZeroDivisionError
    assert [type(one) for one in heard(agent, link)] == [Acquire, Release]


def test_scopes_nest_and_repeat_with_numbers_of_their_own(agent: socket.socket, link: Link) -> None:
    scope = worker.expires(after=60, scope="step")
    with scope, worker.expires(after=10, scope="step"), scope:
        pass
    with scope:
        pass
    found = heard(agent, link)
    begun = [one.id for one in found if isinstance(one, Acquire)]
    ended = [one.id for one in found if isinstance(one, Release)]
    assert len(set(begun)) == 4
    assert ended == [begun[2], begun[1], begun[0], begun[3]]


def test_a_decorated_function_has_a_scope_for_each_call(agent: socket.socket, link: Link) -> None:
    @worker.expires(after=60, scope="count")
    def count(number: int) -> int:
        """Count down."""
        return number and count(number - 1)

    assert (count(2), count.__doc__) == (0, "Count down.")
    assert [type(one) for one in heard(agent, link)] == [Acquire] * 3 + [Release] * 3


def test_a_scope_without_a_name_is_called_after_its_place(agent: socket.socket, link: Link) -> None:
    line = test_a_scope_without_a_name_is_called_after_its_place.__code__.co_firstlineno + 2
    with worker.expires(after=60):
        pass
    begun, _ = heard(agent, link)
    assert isinstance(begun, Acquire)
    assert begun.scope == f"{__file__}#{line}"


@pytest.mark.parametrize("after", [0, -1, float("nan")])
def test_seconds_that_are_none_are_refused(after: float) -> None:
    with pytest.raises(ValueError, match="after expects seconds above 0, got"):
        worker.expires(after=after)


def test_threads_send_whole_lines(agent: socket.socket, link: Link) -> None:
    def work() -> None:
        for step in range(200):
            with worker.expires(after=60, scope="x" * 200):
                worker.report_progress(step)

    peer = link._peer()
    assert peer is not None
    peer.settimeout(60)  # who reads here shares the interpreter with who sends: a second may pass between two lines
    threads = [threading.Thread(target=work) for _ in range(4)]
    received: list[object] = []

    def read() -> None:
        peer, _ = agent.accept()
        with peer, peer.makefile("rb") as lines:
            received.extend(decode(line) for line in lines)

    reader = threading.Thread(target=read)
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    link._give_up()
    reader.join()
    assert [sum(isinstance(one, kind) for one in received) for kind in (Acquire, Progress, Release)] == [800] * 3


def test_a_forked_child_has_a_connection_of_its_own_and_ends_no_scope_of_its_parent(
    agent: socket.socket, link: Link
) -> None:
    with worker.expires(after=60, scope="parent"):
        pid = os.fork()
        if pid == 0:
            with worker.expires(after=60, scope="child"):
                pass
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    ours, _ = agent.accept()
    theirs, _ = agent.accept()
    link._give_up()
    found = []
    for peer in (ours, theirs):
        with peer, peer.makefile("rb") as lines:
            found.append([decode(line) for line in lines])
    assert [one.scope for one in found[0] if isinstance(one, Acquire)] == ["parent"]
    assert [one.scope for one in found[1] if isinstance(one, Acquire)] == ["child"]
    own = {one.id for one in found[1] if isinstance(one, Acquire)}
    parents = {one.id for one in found[0] if isinstance(one, Acquire)}
    assert not own & parents


def test_a_child_forked_while_another_thread_sends_is_not_stuck(agent: socket.socket, link: Link) -> None:
    holds, may_end = threading.Event(), threading.Event()

    def send() -> None:
        with link._lock:
            holds.set()
            may_end.wait(30)

    sender = threading.Thread(target=send)  # in the child it does not exist, and lets go of nothing
    sender.start()
    assert holds.wait(30)
    try:
        pid = os.fork()
        if pid == 0:
            worker.report_progress(1)
            os._exit(0)
        assert end_of(pid) == 0
    finally:
        may_end.set()
        sender.join()


def end_of(pid: int) -> int:
    """Return how a child ended; kill it when it does not."""
    if not wait_dead(pid):
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def test_a_forked_worker_talks_to_the_agent_that_it_was_told_of_after_the_fork(agent: socket.socket) -> None:
    told: list[str] = []
    link = Link(lambda: told[0] if told else None)
    link.report(1, {})  # the program itself has no agent
    pid = os.fork()
    if pid == 0:
        told.append(agent.getsockname())
        link.report(2, {})
        os._exit(0)
    assert end_of(pid) == 0
    agent.settimeout(30)
    peer, _ = agent.accept()
    with peer, peer.makefile("rb") as lines:
        assert [decode(line) for line in lines] == [Progress(2, ())]


def test_outside_of_a_run_a_scope_does_nothing() -> None:
    for path in (None, "", "/nowhere/control"):
        scope = Scope(Link(lambda path=path: path), 0.001, "step")
        with scope, scope:
            pass


def test_a_link_that_broke_costs_nothing_but_the_scope(agent: socket.socket, link: Link) -> None:
    with worker.expires(after=60, scope="step"):
        peer, _ = agent.accept()
        peer.close()
    with worker.expires(after=60, scope="step"):
        pass
    assert link._socket is None


def test_a_long_name_fits_in_a_line(agent: socket.socket, link: Link) -> None:
    with worker.expires(after=60, scope="\N{SNOWMAN}" * 100_000):
        pass
    assert [type(one) for one in heard(agent, link)] == [Acquire, Release]
