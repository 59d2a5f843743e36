"""What the rendezvous is told about a job; `tests/real/test_meeting.py` has the rest, with real processes."""

from types import SimpleNamespace

import pytest
from groupsim import failure

from planaria.agent import meeting
from planaria.agent.membership import Fenced, ReportFailed
from planaria.agent.model import Job
from planaria.agent.settings import Meeting
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.contract.secret import Secret
from planaria.errors import InternalError
from planaria.process.model import Command
from planaria.rendezvous.messages import Ended
from planaria.store import backends

MEETING = Meeting("embedded", ("a:29400", "[::1]:29400"), "r", 2, 5, ttl_s=3.0, quiet_s=1.0, join_timeout_s=60.0)
JOB = Job(
    command=Command("program", "true"),
    local_world_size=3,
    run_id="r",
    role="trainer",
    max_restarts=5,
    shutdown_timeout_s=30.0,
    signals=(),
    environment={},
    always_restart=True,
    meeting=MEETING,
)


def test_the_rendezvous_knows_what_the_command_line_says():
    told = meeting.draft_settings(JOB, replace(MEETING, resize_grace_s=7.0, on_lost_majority="exit"))
    assert (told.local_world_size, told.role, told.run_id, told.min_nodes, told.max_nodes) == (3, "trainer", "r", 2, 5)
    assert (told.ttl_s, told.quiet_s, told.join_timeout_s, told.resize_grace_s) == (3.0, 1.0, 60.0, 7.0)
    assert (told.max_restarts, told.always_restart, told.on_lost_majority) == (5, True, "exit")


@pytest.mark.parametrize(("protocol", "endpoint"), [("http", "a:2379"), ("https", "https://a:2379")])
def test_a_store_is_opened_with_what_lets_us_in(monkeypatch, protocol, endpoint):
    opened = []
    monkeypatch.setattr(backends, "open_store", lambda *given: opened.append(given))
    options = {
        "protocol": protocol,
        "username": "u",
        "password": "p",
        "cacert": "ca",
        "cert": "c",
        "key": "k",
        "x": "y",
    }
    etcd = replace(MEETING, backend="etcd", endpoints=("a:2379",), token=Secret(b"t"), options=options)
    meeting.open_store_of("loop", etcd)
    ((name, loop, where),) = opened
    assert (name, loop, where.endpoints, where.token) == ("etcd", "loop", (endpoint,), b"t")
    assert (where.user, where.password, where.ca, where.cert, where.key) == ("u", "p", "ca", "c", "k")
    assert dict(where.options) == options


def test_the_endpoints_of_a_plugin_are_its_own(monkeypatch):
    opened = []
    monkeypatch.setattr(backends, "open_store", lambda *given: opened.append(given))
    options = {"protocol": "https"}
    meeting.open_store_of("loop", replace(MEETING, backend="theirs", endpoints=("zone=a",), options=options))
    ((_, _, where),) = opened
    assert (where.endpoints, dict(where.options)) == (("zone=a",), options)


class Group:
    def __init__(self):
        self.posted = []
        self.life = None
        self.kept = lambda: None
        self.control = SimpleNamespace(has_listeners=False)
        self.waiting = None

    def once_looked(self, go_on):
        go_on() if self.waiting is None else self.waiting.append(go_on)

    @property
    def hearing(self):
        return SimpleNamespace(keep=self.kept)

    def post(self, event):
        self.posted.append(event)


class Parting:
    """A rendezvous that takes a while to go; in each turn of the loop something else is ready."""

    def __init__(self, loop, turns):
        self.loop, self.turns, self.closed = loop, turns, False

    def close(self):
        self.closed = True
        self.loop.call_soon(self.turn)

    @property
    def is_gone(self):
        return self.turns <= 0

    def turn(self):
        self.turns -= 1
        self.loop.call_soon(self.turn)


def seat_on(loop, rendezvous=None):
    seat = meeting.Seat(JOB, loop, Group(), None, None)
    seat.open(lambda *_: rendezvous)
    return seat


def test_the_rendezvous_is_told_of_failures_and_why_no_other_life_helps(loop):
    told = []
    seat = seat_on(loop, SimpleNamespace(post=told.append))
    seat.perform(ReportFailed((failure(1, at=3.0),), why="no further"))
    (report,) = told
    assert (report.at, report.names_peer, report.free, report.why) == ((3.0,), (False,), False, "no further")
    assert len(report.failures) == 1


def test_what_ends_workers_from_outside_waits_for_those_who_look_at_them_but_a_fence_does_not(loop):
    seat = meeting.Seat(JOB, loop, group := Group(), None, None)
    group.waiting = []
    seat.stop(3, "rank 1 hangs in phase step", 0.0)
    seat.end(Ended("failed", 1, "no restart is left", (), 2))
    assert group.posted == []
    seat.kill("the lease ran out")
    assert isinstance(group.posted.pop(), Fenced)
    for go_on in group.waiting:
        go_on()
    stopped, ended = group.posted
    assert (stopped.round, stopped.reason, stopped.has_listeners) == (3, "rank 1 hangs in phase step", False)
    assert (ended.kind, ended.explanation, ended.restart_count) == ("failed", "no restart is left", 2)


def test_the_end_waits_until_the_last_words_were_heard(loop):
    parting = Parting(loop, 3)
    seat_on(loop, parting).close()
    assert (parting.closed, parting.turns) == (True, 0)


def test_the_end_waits_for_nothing_when_there_is_nothing_to_wait_for(loop, monkeypatch):
    monkeypatch.setattr(loop, "run_once", lambda _timeout_s: pytest.fail("it waited"))
    seat_on(loop, Parting(loop, 0)).close()


def test_the_end_does_not_wait_for_ever():
    now = [10.0]
    loop = Loop(lambda: now[0])
    parting = Parting(loop, 10**9)
    later = parting.turn
    parting.turn = lambda: (now.__setitem__(0, now[0] + 0.2), later())
    seat_on(loop, parting).close()
    assert meeting.LAST_WORDS_S <= now[0] - 10.0 < meeting.LAST_WORDS_S + 0.3
    loop.close()


@pytest.mark.parametrize(
    ("ended", "kind", "status"),
    [
        (Ended("refused", 1, "--node-rank=1 is taken by b", (), 0), "refused", 2),
        (Ended("failed", 2, "no port", (), 0), "failed", 2),
        (Ended("failed", 1, "", (), 0), "failed", 1),
        (Ended("timeout", 124, "nobody came", (), 0), "timeout", 1),
    ],
)
def test_a_node_that_the_others_refuse_was_used_wrongly(loop, ended, kind, status):
    seat = seat_on(loop)
    seat.end(ended)
    (told,) = seat._group.posted
    assert (told.kind, told.status, told.explanation) == (kind, status, ended.explanation)


def test_a_node_alone_has_nobody_to_meet():
    with pytest.raises(InternalError):
        meeting.open_rendezvous(None, replace(JOB, meeting=None), None)


class Wire:
    """A connection that came for something else."""

    peer = "a:1"

    def __init__(self):
        self.sent, self.closed, self.on_message = [], False, None

    def send(self, payload):
        self.sent.append(payload)

    def close(self):
        self.closed = True


def test_a_guest_before_there_is_a_dock_is_let_go_without_a_word_and_later_ones_meet_its_host(loop):
    driver = meeting.open_rendezvous(loop, JOB, seat := meeting.Seat(JOB, loop, Group(), None, None))
    seat.open(lambda *_: driver)
    assert driver.links.on_guest == seat.guest
    early, late, header = Wire(), Wire(), b'["Dock","attend","",3,"h"]'
    seat.guest(early, header)
    assert (early.closed, early.sent) == (True, [])
    attended = []

    class Host:
        def attended(self, round_, header, line):
            attended.append((round_, header, line))

    seat.dock(Host())
    seat.guest(late, header)
    assert (attended[0][:2], late.closed) == ((3, "h"), False)
    seat.close()
    assert late.closed


def test_a_guest_that_comes_before_our_own_workers_ask_has_the_keeper_made(loop):
    """The workers of another node may be faster, and its agent is on the line to the anchor."""
    driver = meeting.open_rendezvous(loop, JOB, seat := meeting.Seat(JOB, loop, group := Group(), None, None))
    seat.open(lambda *_: driver)
    attended = []

    class Host:
        def attended(self, round_, header, _line):
            attended.append((round_, header))

    group.life, group.kept = object(), lambda: seat.dock(Host())
    seat.guest(Wire(), b'["Dock","attend","",3,"h"]')
    assert attended == [(3, "h")]
    seat.close()
