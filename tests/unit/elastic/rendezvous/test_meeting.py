from __future__ import annotations

from typing import Any

import pytest

from planaria.agent.conf import Credentials
from planaria.agent.settings import Meeting
from planaria.contract.secret import Secret, SecretText
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.meeting import meeting_of
from planaria.launch import parse, plan
from planaria.launch.devices import Counts

NOTHING = Credentials()


def described(backend: str = "c10d", endpoint: str = "head:1234", nodes: str = "2:4", **config: Any) -> Meeting | None:
    least, most = map(int, nodes.split(":"))
    return meeting_of(RendezvousParameters(backend, endpoint, "job", least, most, **config), NOTHING)


def planned(*argv: str) -> Meeting | None:
    options = parse.parse([*argv, "--no-python", "true"], {})
    machine = plan.Machine("/python", 1, "id", accelerators=Counts(0, 0, 0), credentials=NOTHING, plugins=frozenset())
    return plan.plan(options, {}, machine).job.meeting


@pytest.mark.parametrize(
    ("made", "argv"),
    [
        (described(), ["--rdzv-backend=c10d", "--rdzv-endpoint=head:1234", "--nnodes=2:4"]),
        (described(endpoint="head"), ["--rdzv-backend=c10d", "--rdzv-endpoint=head", "--nnodes=2:4"]),
        (described("embedded", "a,b:1"), ["--rdzv-backend=embedded", "--rdzv-endpoint=a,b:1", "--nnodes=2:4"]),
        (
            described("etcd", "db", "1:1", protocol="https", cacert="/ca", ttl=7),
            ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=protocol=https,cacert=/ca,ttl=7"],
        ),
        (
            described("etcd-v2", "db:1", ca_cert="/ca", ssl_cert="/c", ssl_cert_key="/k", last_call_timeout="3"),
            [
                "--rdzv-backend=etcd-v2",
                "--rdzv-endpoint=db:1",
                "--nnodes=2:4",
                "--rdzv-conf=cacert=/ca,cert=/c,key=/k,last_call_timeout=3",
            ],
        ),
        (
            described("kubernetes", "ours/job-run", "1:1", server="https://h:1", token_file="/t"),
            [
                "--rdzv-backend=kubernetes",
                "--rdzv-endpoint=ours/job-run",
                "--rdzv-conf=server=https://h:1,token_file=/t",
            ],
        ),
        (
            described("static", "head:99", "3:3", rank=2, join_timeout=9),
            ["--master-addr=head", "--master-port=99", "--nnodes=3", "--node-rank=2", "--rdzv-conf=join_timeout=9"],
        ),
        (described(nodes="1:1"), ["--rdzv-backend=c10d", "--rdzv-endpoint=head:1234", "--nnodes=1"]),
        (described(endpoint="localhost:0", nodes="1:1"), ["--standalone"]),
    ],
)
def test_parameters_describe_the_same_meeting_as_flags(made: Meeting | None, argv: list[str]) -> None:
    expected = planned(*argv, *(() if "--standalone" in argv else ["--rdzv-id=job"]))
    assert made == expected


def test_secrets_of_the_environment_are_used_where_they_belong() -> None:
    found = Credentials(Secret(b"t"), SecretText("p"))
    params = RendezvousParameters("etcd", "db", "job", 1, 2, username="me")
    meeting = meeting_of(params, found)
    assert meeting is not None
    assert (meeting.token, meeting.options["password"]) == (Secret(b"t"), "p")
    assert "'p'" not in repr(meeting)


def test_torchs_timeout_is_the_time_to_join_where_torch_means_that() -> None:
    limits = {
        backend: meeting.join_timeout_s
        for backend in ("c10d", "etcd-v2", "etcd", "static")
        if (meeting := described(backend, nodes="2:2", rank=0, timeout=77)) is not None
    }
    assert limits == {"c10d": 600.0, "etcd-v2": 600.0, "etcd": 77.0, "static": 77.0}


def test_settings_of_others_are_left_alone_and_one_that_is_none_was_not_given() -> None:
    made = described(their_own="x", ttl=None)
    assert made == described()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"endpoint": "head:0"},
            "The port number of the rendezvous endpoint 'head:0' must be one that every node knows.",
        ),
        ({"endpoint": "head:x"}, "The port number of the rendezvous endpoint 'head:x' must be an integer between 0"),
        ({"ttl": "soon"}, "the rendezvous configuration option ttl expects seconds, got 'soon'"),
        ({"tls_cert": "/c"}, "the rendezvous configuration option tls_cert expects tls_key and tls_ca beside it"),
        ({"store_type": "file"}, "the rendezvous configuration option 'store_type' must be 'tcp'"),
        (
            {"backend": "static", "rank": 4},
            "the rendezvous configuration option 'rank' must be a number from 0 to 3, got 4.",
        ),
    ],
)
def test_what_describes_no_meeting_is_said_in_one_sentence(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        described(**params)


def test_a_run_needs_a_name_of_a_decent_length() -> None:
    with pytest.raises(ValueError, match=r"^The run id must be a non-empty string.$"):
        meeting_of(RendezvousParameters("c10d", "h", "", 1, 2), NOTHING)
    with pytest.raises(ValueError, match=r"^The run id must be a string of at most 255 characters.$"):
        meeting_of(RendezvousParameters("c10d", "h", "x" * 256, 1, 2), NOTHING)
