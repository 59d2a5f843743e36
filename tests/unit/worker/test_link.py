from __future__ import annotations

import errno
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from planaria.contract.commit import Stamp
from planaria.contract.control import (
    LINE_LIMIT_BYTES,
    LONGEST_PHASE,
    Drain,
    Finished,
    Phase,
    Progress,
    Resize,
    Stored,
    decode,
    encode,
)
from planaria.worker.link import Link, numbers
from planaria.worker.phase import PhaseOfWork

if TYPE_CHECKING:
    from planaria.contract.control import Message

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def linked(agent: socket.socket) -> tuple[Link, socket.socket]:
    link = Link(agent.getsockname)
    assert link.drain() is None
    peer, _ = agent.accept()
    return link, peer


def test_progress_arrives_as_a_line(agent: socket.socket) -> None:
    link, peer = linked(agent)
    with peer:
        link.report(3, {"loss": 0.5, "type": 7})
        assert decode(peer.recv(1000)) == Progress(3, (("loss", 0.5),))
        link._give_up()


class Broken:
    """What raises an error that no number does, as complex tensors and those on torch's device `meta` do."""

    def __float__(self) -> float:
        raise RuntimeError("it cannot be converted")

    __int__ = __float__  # type: ignore[assignment]


def test_what_is_not_a_number_is_not_sent_and_not_raised(agent: socket.socket) -> None:
    link, peer = linked(agent)
    with peer:
        link.report(None, {})  # type: ignore[arg-type]
        link.report(Broken(), {})  # type: ignore[arg-type]
        link.report(3, {"loss": "high", "odd": Broken(), "pace": 2})  # type: ignore[dict-item]
        assert decode(peer.recv(1000)) == Progress(3, (("pace", 2.0),)), "the step is told without it"
        link._give_up()


def test_a_loss_with_a_gradient_is_read_without_it() -> None:
    class Loss:
        def __float__(self) -> float:
            raise AssertionError("torch warns of this")

        def detach(self) -> float:
            return 0.5

    assert numbers({"loss": Loss()}) == {"loss": 0.5}


def test_asking_for_a_notice_does_not_wait_and_does_not_end_the_link(agent: socket.socket) -> None:
    link, peer = linked(agent)
    with peer:
        assert [link.drain() for _ in range(100)] == [None] * 100
        line = encode(Drain("SIGTERM", 30.0))
        peer.sendall(line[:7])
        assert link.drain() is None
        peer.sendall(line[7:] + b'{"type": "news"}\n')
        assert link.drain() == Drain("SIGTERM", 30.0)
        assert link.drain() == Drain("SIGTERM", 30.0)
        link._give_up()


def test_a_stop_and_another_world_are_different_news(agent: socket.socket) -> None:
    link, peer = linked(agent)
    with peer:
        peer.sendall(encode(Resize("node b joined", 10.0)))
        assert (link.resize(), link.drain()) == (Resize("node b joined", 10.0), None)
        peer.sendall(encode(Drain("SIGTERM", 30.0)))
        assert (link.resize(), link.drain()) == (Resize("node b joined", 10.0), Drain("SIGTERM", 30.0))
        link._give_up()


@pytest.mark.parametrize("said", [b"garbage\n", b"[]\n", b'{"type": "drain", "grace_s": []}\n'])
def test_an_agent_that_talks_nonsense_is_given_up(agent: socket.socket, said: bytes) -> None:
    link, peer = linked(agent)
    with peer:
        peer.sendall(said)
        assert link.drain() is None
        link.report(1, {})
        assert peer.recv(10) == b""


def test_an_agent_that_is_gone_is_given_up(agent: socket.socket) -> None:
    link, peer = linked(agent)
    peer.close()
    link.report(1, {})
    assert (link.drain(), link._socket) == (None, None)


@pytest.mark.parametrize("doing", ["listening", "sending"])
def test_a_handler_that_interrupts_the_link_is_called_after_it(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    heard: list[Drain | None] = []

    def interrupted(*line: Any) -> Any:
        """Stand where a signal may come in between: the notice has been read, nobody knows of it yet."""
        monkeypatch.undo()
        link.once_whole(lambda: heard.append(link.drain()))
        assert heard == []
        return decode(*line) if line else link._peer()

    link, peer = linked(agent)
    with peer:
        if doing == "listening":
            monkeypatch.setattr("planaria.worker.link.decode", interrupted)
        else:
            monkeypatch.setattr(link, "_peer", interrupted)
        peer.sendall(encode(Drain("SIGTERM", 30.0)))
        if doing == "listening":
            link.resize()
        else:
            link.report(1, {})
        assert heard == [Drain("SIGTERM", 30.0)]
        link.once_whole(lambda: heard.append(None))
        assert heard == [Drain("SIGTERM", 30.0), None]
        link._give_up()


def test_a_handler_is_not_called_by_a_thread_that_it_did_not_interrupt(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, peer = linked(agent)
    called: list[int] = []
    met: list[list[int]] = []

    def meet() -> None:
        """Use the link in another thread, between the reading and the catching up of ours."""
        other = threading.Thread(target=link.drain)
        other.start()
        other.join()
        met.append([*called])

    def interrupted(line: bytes) -> Message | None:
        monkeypatch.undo()
        link.once_whole(lambda: called.append(threading.get_ident()))
        monkeypatch.setattr(link, "_catch_up", lambda: (monkeypatch.undo(), meet(), link._catch_up()))
        return decode(line)

    with peer:
        monkeypatch.setattr("planaria.worker.link.decode", interrupted)
        peer.sendall(encode(Resize("node b joined", 10.0)))
        link.drain()
        assert (met, called) == ([[]], [threading.get_ident()])
        link._give_up()


def test_a_handler_is_called_though_what_it_interrupted_ends_with_an_exception(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, peer = linked(agent)
    called: list[str] = []

    def interrupted(_line: bytes) -> None:
        monkeypatch.undo()
        link.once_whole(lambda: called.append("late"))
        raise KeyboardInterrupt

    with peer:
        monkeypatch.setattr("planaria.worker.link.decode", interrupted)
        peer.sendall(encode(Resize("node b joined", 10.0)))
        with pytest.raises(KeyboardInterrupt):
            link.drain()
        assert called == ["late"]
        link.once_whole(lambda: called.append("now"))
        assert called == ["late", "now"], "the lock is free again"
        link._give_up()


def test_a_forked_child_has_a_connection_of_its_own(agent: socket.socket) -> None:
    link, peer = linked(agent)
    with peer:
        child = os.fork()
        if child == 0:
            link.report(9, {})
            os._exit(0)
        other, _ = agent.accept()
        with other:
            assert decode(other.recv(1000)) == Progress(9)
            assert os.waitpid(child, 0)[1] == 0
        link._give_up()


def heard(peer: socket.socket, count: int) -> list[Message | None]:
    with peer.makefile("rb") as lines:
        return [decode(lines.readline()) for _ in range(count)]


def test_phases_nest_and_the_one_around_goes_on_whatever_ends_the_inner(agent: socket.socket) -> None:
    link, peer = linked(agent)

    @PhaseOfWork(link, "checkpoint")
    def save() -> None:
        raise KeyError

    with peer:
        with PhaseOfWork(link, "evaluation" * 9), pytest.raises(KeyError):
            save()
        outer = ("evaluation" * 9)[:LONGEST_PHASE]
        assert heard(peer, 4) == [Phase(outer), Phase("checkpoint"), Phase(outer), Phase("")]
        link._give_up()


def test_the_end_of_all_steps_arrives(agent: socket.socket) -> None:
    link, peer = linked(agent)
    with peer:
        link.finish()
        assert heard(peer, 1) == [Finished()]
        link._give_up()
    Link(lambda: None).finish()


def test_what_a_rank_has_stored_arrives_from_whichever_thread(agent: socket.socket) -> None:
    link, peer = linked(agent)
    stamp = Stamp(2, 0, 7, 12, 4, 1)
    with peer:
        link.store(3, stamp, is_done=False)
        writer = threading.Thread(target=lambda: link.store(3, stamp, is_done=True))
        writer.start()
        writer.join()
        assert heard(peer, 2) == [Stored(3, 2, 7, 12, False), Stored(3, 2, 7, 12, True)]
        link._give_up()
    Link(lambda: None).store(3, stamp, is_done=True)


def test_a_word_on_a_commit_is_told_again_where_the_connection_broke_and_other_words_are_not(
    agent: socket.socket,
) -> None:
    link, peer = linked(agent)
    stamp = Stamp(2, 0, 7, 12, 4, 1)
    peer.sendall(encode(Drain("SIGTERM", 30.0))[:9])
    link.resize()
    peer.close()
    link.report(1, {})
    link.report(2, {})
    for is_done in (False, True):
        link.store(3, stamp, is_done=is_done)
    other, _ = agent.accept()
    with other:
        assert heard(other, 2) == [Stored(3, 2, 7, 12, False), Stored(3, 2, 7, 12, True)]
        other.sendall(encode(Drain("SIGTERM", 30.0)))
        assert link.drain() == Drain("SIGTERM", 30.0), "what the old connection had begun to say is forgotten"
    link.store(3, stamp, is_done=False)
    again, _ = agent.accept()
    with again:
        assert heard(again, 1) == [Stored(3, 2, 7, 12, False)], "it was written, in vain, to the broken one first"
        link._give_up()


def test_a_report_that_is_too_long_is_told_in_part(agent: socket.socket, capfd: pytest.CaptureFixture[str]) -> None:
    link, peer = linked(agent)
    values = {f"the mean gradient of layer {number}": number / 3 for number in range(1000)}
    with peer:
        for step in (1, 2):
            link.report(step, values)
        link.report(3, {"x" * 20_000: 2.0, "loss": 1.0})
        told = [one for one in heard(peer, 3) if isinstance(one, Progress)]
        assert [one.step for one in told] == [1, 2, 3]
        count = len(told[0].values)
        assert told[0].values == told[1].values == tuple(values.items())[:count]
        assert len(encode(told[0])) <= LINE_LIMIT_BYTES < len(encode(Progress(1, tuple(values.items())[: count + 1])))
        assert told[2].values == (("loss", 1.0),)
        assert capfd.readouterr().err == (
            f"planaria: a report of 1000 values is too long: {count} of them are told (said once)\n"
        )
        link._give_up()


def test_what_a_handler_does_to_stderr_meanwhile_harms_no_report(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_line: str) -> None:
        raise RuntimeError("reentrant call")

    link, peer = linked(agent)
    monkeypatch.setattr("planaria.worker.vault.say", fail)
    with peer:
        link.report(1, {"x" * 20_000: 2.0})
        assert heard(peer, 1) == [Progress(1)]
        link._give_up()


def test_of_two_threads_that_find_the_connection_broken_both_are_heard(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second makes another connection as soon as the first lets it."""
    link, peer = linked(agent)
    stamp = Stamp(2, 0, 7, 12, 4, 1)
    peer.close()
    catch_up = link._catch_up

    def meet() -> None:
        catch_up()
        monkeypatch.undo()
        other = threading.Thread(target=lambda: link.store(2, stamp, is_done=True))
        other.start()
        other.join()

    monkeypatch.setattr(link, "_catch_up", meet)
    link.store(1, stamp, is_done=False)
    found, _ = agent.accept()
    with found:
        assert heard(found, 2) == [Stored(1, 2, 7, 12, False), Stored(2, 2, 7, 12, True)]
        link._give_up()


def test_a_handler_that_interrupts_a_word_on_a_commit_is_called_after_it(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, peer = linked(agent)
    peer.close()
    called: list[int] = []
    give_up = link._give_up

    def interrupted() -> None:
        monkeypatch.undo()
        link.once_whole(lambda: called.append(1))
        assert called == []
        give_up()

    monkeypatch.setattr(link, "_give_up", interrupted)
    link.store(1, Stamp(2, 0, 7, 12, 4, 1), is_done=False)
    assert called == [1]
    agent.accept()[0].close()
    link._give_up()


def test_an_agent_that_does_not_read_holds_training_up_for_a_second_once(agent: socket.socket) -> None:
    link, peer = linked(agent)
    waits: list[float | None] = []

    class Full:
        """A connection with no room; the agent would have to read."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def sendall(self, _line: bytes) -> None:
            waits.append(self.real.gettimeout())
            raise TimeoutError

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    with peer:
        for number in range(3):
            if link._socket is not None:
                link._socket = Full(link._socket)  # type: ignore[assignment]
            link.store(1, Stamp(2, 0, number, 12, 4, 1), is_done=False)
        assert waits[0] == 1.0
        assert set(waits[1:]) == {0.05}
        link._give_up()


def test_without_an_agent_a_word_on_a_commit_changes_nothing(agent: socket.socket) -> None:
    link, peer = linked(agent)
    peer.close()
    path = agent.getsockname()
    os.rename(path, f"{path}-away")
    link.store(1, Stamp(2, 0, 7, 12, 4, 1), is_done=False)
    os.rename(f"{path}-away", path)
    link.report(1, {})
    assert not link.is_connected, "a report is not worth another connection"


def test_a_process_without_a_descriptor_left_is_not_disturbed(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(agent.getsockname)

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("planaria.worker.link.socket.socket", refuse)
    link.store(0, Stamp(2, 0, 7, 12, 4, 1), is_done=False)
    link.report(1, {})


def test_a_rank_is_where_its_main_thread_is_whatever_others_mark(agent: socket.socket) -> None:
    link, peer = linked(agent)

    def save() -> None:
        with PhaseOfWork(link, "checkpoint"):
            link.report(1, {})

    with peer:
        with PhaseOfWork(link, "evaluation"):
            beside = threading.Thread(target=save)
            beside.start()
            beside.join()
        link.leave_phase()
        link.report(2, {})
        assert heard(peer, 4) == [Phase("evaluation"), Progress(1), Phase(""), Progress(2)]
        link._give_up()


def test_a_phase_has_a_name_and_without_an_agent_it_is_nothing() -> None:
    link = Link(lambda: None)
    with PhaseOfWork(link, "evaluation"):
        pass
    with pytest.raises(ValueError, match="a phase has a name"):
        PhaseOfWork(link, "")
    for taken in ("start", "step"):
        with pytest.raises(ValueError, match="outside of all phases"):
            PhaseOfWork(link, taken)
