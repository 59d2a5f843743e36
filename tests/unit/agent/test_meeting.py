"""What the rendezvous is told about a job; `tests/real/test_meeting.py` has the rest, with real processes."""

import pytest

from planaria.agent import meeting
from planaria.agent.model import Job, Meeting
from planaria.base.value import replace
from planaria.contract.secret import Secret
from planaria.errors import InternalError
from planaria.process.model import Command
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
    assert (told.max_restarts, told.always_restart, told.on_lost_majority, told.fixed_port) == (5, True, "exit", False)
    assert meeting.draft_settings(replace(JOB, master_port=29500), MEETING).fixed_port


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
    meeting._open_store("loop", etcd)
    ((name, loop, where),) = opened
    assert (name, loop, where.endpoints, where.token) == ("etcd", "loop", (endpoint,), b"t")
    assert (where.user, where.password, where.ca, where.cert, where.key) == ("u", "p", "ca", "c", "k")
    assert dict(where.options) == options


def test_a_node_alone_has_nobody_to_meet():
    with pytest.raises(InternalError):
        meeting.open_rendezvous(None, replace(JOB, meeting=None), None)
