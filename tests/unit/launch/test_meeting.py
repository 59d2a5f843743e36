from __future__ import annotations

import pytest

from planaria.agent.conf import Credentials
from planaria.agent.settings import Meeting
from planaria.contract.secret import Secret, SecretText
from planaria.errors import InternalError, UsageError
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, Plan, is_alone, needs, plan

TOKEN = Credentials(Secret(b"s3cret"))
IN_A_POD = Credentials(Secret(b"s3cret"), None, "https://10.96.0.1:443")
OPEN_DOOR = "no token and no TLS"
C10D = ("--nnodes=2", "--rdzv-backend=c10d")


def planned(
    *argv: str,
    environ: dict[str, str] | None = None,
    credentials: Credentials | None = TOKEN,
    plugins: frozenset[str] = frozenset(),
    handlers: frozenset[str] = frozenset(),
) -> Plan:
    environ = environ or {}
    machine = Machine("/usr/bin/python3", 4, "fresh-id", credentials=credentials, plugins=plugins, handlers=handlers)
    return plan(parse([*argv, "a.py"], environ), environ, machine)


def met(*argv: str, **how: object) -> Meeting:
    meeting = planned(*argv, **how).job.meeting  # type: ignore[arg-type]  # passed on as they are
    assert meeting is not None
    return meeting


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--nnodes=1"],
        ["--nnodes=1:1", "--rdzv-backend=c10d", "--rdzv-endpoint=head:29400"],
        ["--rdzv-backend=embedded", "--rdzv-endpoint=a,[::1]:5"],
        ["--master-port=29500"],
        ["--standalone", "--rdzv-backend=etcd", "--rdzv-endpoint=etcd://db/x"],
        ["--standalone", "--nnodes=1:4"],
    ],
    ids=str,
)
def test_a_node_alone_meets_nobody_and_looks_for_no_token(argv: list[str]) -> None:
    options = parse([*argv, "a.py"], {})
    assert is_alone(options)
    assert needs(options, {}) == frozenset()
    assert planned(*argv, credentials=None).job.meeting is None


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["--nnodes=2"], ["credentials"]),
        (["--nnodes=1:2", "--rdzv-backend=c10d"], ["credentials"]),
        (["--rdzv-backend=etcd"], ["credentials"]),
        (["--rdzv-endpoint=etcd://db/job"], ["credentials"]),
        (["--rdzv-backend=mine"], ["credentials", "plugins"]),
    ],
    ids=str,
)
def test_only_a_meeting_looks_for_a_token_and_only_a_foreign_name_for_plugins(
    argv: list[str], wanted: list[str]
) -> None:
    assert sorted(needs(parse([*argv, "a.py"], {}), {})) == wanted


def test_forgetting_to_look_for_the_token_is_a_bug_and_not_an_open_door() -> None:
    with pytest.raises(InternalError):
        planned(*C10D, "--rdzv-endpoint=head", credentials=None)


def test_the_defaults_of_a_meeting_are_those_of_the_design() -> None:
    assert met("--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=head", "--rdzv-id=job7") == Meeting(
        backend="embedded",
        endpoints=("head:29400",),
        run_id="job7",
        min_nodes=2,
        max_nodes=4,
        token=Secret(b"s3cret"),
        ttl_s=5.0,
        quiet_s=2.0,
        join_timeout_s=600.0,
        resize_grace_s=10.0,
        on_lost_majority="wait",
    )


@pytest.mark.parametrize(
    ("backend", "text", "endpoints"),
    [
        ("c10d", "head", ("head:29400",)),
        ("embedded", "head:1", ("head:1",)),
        ("c10d", "a, b:7 ,[::1],[fe80::1%eth0]:9", ("a:29400", "b:7", "[::1]:29400", "[fe80::1%eth0]:9")),
        ("c10d", "a,a:29400,b", ("a:29400", "b:29400")),
        ("etcd", "db", ("db:2379",)),
        ("etcd-v2", "db1,[2001:db8::1]", ("db1:2379", "[2001:db8::1]:2379")),
        ("etcd", "etcd://db1,db2:4001/x", ("db1:2379", "db2:4001")),
    ],
)
def test_endpoints_are_a_list_with_the_backends_own_port(backend: str, text: str, endpoints: tuple[str, ...]) -> None:
    meeting = met("--nnodes=2", f"--rdzv-backend={backend}", f"--rdzv-endpoint={text}")
    assert meeting.endpoints == endpoints
    assert meeting.backend == ("etcd" if backend.startswith("etcd") else "embedded")


def test_the_url_form_names_nodes_run_and_settings() -> None:
    meeting = met("--rdzv-endpoint=etcd://etcd:2379/imagenet?min_workers=1&max_workers=3&last_call_timeout=5")
    assert (meeting.backend, meeting.endpoints, meeting.run_id) == ("etcd", ("etcd:2379",), "imagenet")
    assert (meeting.min_nodes, meeting.max_nodes, meeting.quiet_s) == (1, 3, 5.0)


@pytest.mark.parametrize(
    ("query", "nodes"),
    [("", (1, 1)), ("?min_workers=2", (2, 2)), ("?max_workers=3", (1, 3)), ("?min_workers=2&max_workers=3", (2, 3))],
)
def test_what_the_url_leaves_out_has_a_default(query: str, nodes: tuple[int, int]) -> None:
    meeting = met(f"--rdzv-endpoint=etcd://db{query}")
    assert (meeting.min_nodes, meeting.max_nodes) == nodes
    assert meeting.run_id == "none"


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_flag_that_was_given_beats_the_url(by_variable: bool) -> None:
    flags = {"nnodes": "2:5", "rdzv-id": "mine", "rdzv-conf": "last_call_timeout=9"}
    environ = {f"PET_{name.upper().replace('-', '_')}": value for name, value in flags.items()} if by_variable else {}
    argv = [] if by_variable else [f"--{name}={value}" for name, value in flags.items()]
    url = "--rdzv-endpoint=etcd://db/theirs?min_workers=1&max_workers=3&last_call_timeout=5&join_timeout=7"
    meeting = met(url, *argv, environ=environ)
    assert (meeting.run_id, meeting.min_nodes, meeting.max_nodes) == ("mine", 2, 5)
    assert (meeting.quiet_s, meeting.join_timeout_s) == (9.0, 7.0)


def test_the_url_may_hold_escaped_letters() -> None:
    meeting = met("--rdzv-endpoint=etcd://db/team%2Fa%20b/?username=me&password=a%26b%3D", credentials=Credentials())
    assert meeting.run_id == "team/a b"
    assert meeting.options["password"] == "a&b="
    assert "a&b=" not in repr(meeting)


def test_a_static_meeting_has_fixed_ranks_and_the_master_as_given() -> None:
    job = planned("--nnodes=3", "--node-rank=2", "--master-addr=[fe80::1]", "--master-port=4000").job
    assert (job.master_addr, job.master_port, job.run_id) == ("fe80::1", 4000, "none")
    assert job.meeting is not None
    assert (job.meeting.backend, job.meeting.node_rank, job.meeting.endpoints) == ("static", 2, ("[fe80::1]:4000",))
    assert (job.meeting.min_nodes, job.meeting.max_nodes) == (3, 3)


def test_a_static_meeting_without_a_port_is_at_torchruns_own() -> None:
    job = planned("--nnodes=2").job
    assert (job.master_addr, job.master_port) == ("127.0.0.1", 29500)
    job = planned("--nnodes=2", "--rdzv-endpoint=head:5000", "--node-rank=1").job
    assert (job.master_addr, job.master_port) == ("head", 5000)


def test_all_but_a_static_meeting_agree_on_the_master_and_have_no_node_rank() -> None:
    made = planned(*C10D, "--rdzv-endpoint=head", "--node-rank=1", "--master-port=1", "--local-addr=10.0.0.2")
    assert made.job.master_port is None
    assert made.job.meeting is not None
    assert (made.job.meeting.node_rank, made.job.meeting.local_addr) == (None, "10.0.0.2")
    assert [line.split()[0] for line in made.notices] == ["--node-rank", "--master-port"]


def test_our_own_flags_reach_the_meeting() -> None:
    flags = ("--resize-grace=2.5", "--on-lost-majority=exit", "--require-token")
    meeting = met(*C10D, "--rdzv-endpoint=head", *flags)
    assert (meeting.resize_grace_s, meeting.on_lost_majority, meeting.require_token) == (2.5, "exit", True)
    alone = planned(*flags).notices
    assert alone == ("--resize-grace has no effect on one node", "--on-lost-majority has no effect on one node")


def test_a_plugin_gets_its_endpoints_and_settings_as_they_are() -> None:
    argv = ("--rdzv-backend=mine", "--rdzv-endpoint=mine://x, y", "--rdzv-conf=shard=3,ttl=7,db_password=p,timeout=4")
    made = planned(*argv, plugins=frozenset({"mine"}))
    assert made.job.meeting is not None
    assert (made.job.meeting.backend, made.job.meeting.endpoints) == ("mine", ("mine://x", "y"))
    assert made.job.meeting.options == {"shard": "3", "db_password": "p", "timeout": "4"}
    assert made.job.meeting.ttl_s == 7.0
    assert isinstance(made.job.meeting.options["db_password"], SecretText)
    assert met("--rdzv-backend=mine", plugins=frozenset({"mine"})).endpoints == ()


@pytest.mark.parametrize(
    "argv",
    [
        [*C10D, "--rdzv-endpoint=head"],
        [*C10D, "--rdzv-endpoint=localhost,head"],
        [*C10D, "--rdzv-endpoint=127.evil.example"],
        [*C10D, "--rdzv-endpoint=localhost", "--local-addr=10.0.0.1"],
        ["--nnodes=2", "--master-addr=10.0.0.1"],
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=protocol=https"],
    ],
    ids=str,
)
def test_an_open_door_is_told_once_and_refused_when_a_token_is_required(argv: list[str]) -> None:
    assert [OPEN_DOOR in line for line in planned(*argv, credentials=Credentials()).notices] == [True]
    assert planned(*argv).notices == ()
    with pytest.raises(UsageError, match="--require-token expects a secret"):
        planned(*argv, "--require-token", credentials=Credentials())


@pytest.mark.parametrize(
    "argv",
    [
        [*C10D, "--rdzv-endpoint=localhost:29400"],
        [*C10D, "--rdzv-endpoint=127.0.0.1,[::1]:7"],
        [*C10D, "--rdzv-endpoint=head", "--rdzv-conf=tls_cert=c,tls_key=k,tls_ca=a"],
        ["--nnodes=2"],
    ],
    ids=str,
)
def test_loopback_and_tls_need_no_warning(argv: list[str]) -> None:
    assert planned(*argv, credentials=Credentials()).notices == ()


def test_tls_is_enough_where_a_token_is_required() -> None:
    tls = "--rdzv-conf=tls_cert=c,tls_key=k,tls_ca=a"
    meeting = met(*C10D, "--rdzv-endpoint=head", tls, "--require-token", credentials=Credentials())
    assert meeting.options == {"tls_cert": "c", "tls_key": "k", "tls_ca": "a"}


def test_the_password_of_the_environment_is_used_and_that_of_a_flag_wins_and_is_told_off() -> None:
    etcd = ("--rdzv-backend=etcd", "--rdzv-endpoint=db")
    found = Credentials(Secret(b"t"), SecretText("from-environment"))
    made = planned(*etcd, "--rdzv-conf=username=me", credentials=found)
    assert made.job.meeting is not None
    assert made.job.meeting.options == {"username": "me", "password": "from-environment", "protocol": "http"}
    assert made.notices == ()
    conf = "username=me,password=from-flag"
    made = planned(*etcd, environ={"PET_RDZV_CONF": conf, "A": "1"}, credentials=found)
    assert made.job.meeting is not None
    assert made.job.meeting.options["password"] == "from-flag"
    assert [line for line in made.notices if "PLANARIA_ETCD_PASSWORD" in line] == list(made.notices) != []
    assert "PET_RDZV_CONF" not in made.job.environment
    assert "from-flag" not in repr(made)


@pytest.mark.parametrize("flags", [(), ("--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=ttl=3")])
def test_no_variable_with_a_password_reaches_a_worker_even_if_a_flag_overrules_it(flags: tuple[str, ...]) -> None:
    url = "etcd://db/job?max_workers=2&username=me&password=hush"
    secrets = {"PET_RDZV_ENDPOINT": url, "PET_RDZV_CONF": "username=me,password=hush"}
    made = planned(*flags, environ={**secrets, "A": "1"}, credentials=Credentials(Secret(b"t")))
    assert "hush" not in repr(made.job.environment)
    assert made.job.environment["A"] == "1"
    harmless = {"PET_RDZV_ENDPOINT": "db:2379"}
    made = planned("--rdzv-backend=etcd", environ=harmless, credentials=Credentials(Secret(b"t")))
    assert made.job.environment["PET_RDZV_ENDPOINT"] == "db:2379"


def test_settings_without_effect_are_told_in_one_line() -> None:
    made = planned(*C10D, "--rdzv-endpoint=head", "--rdzv-conf=close_timeout=3,read_timeout=60,cacert=x")
    told = "close_timeout, read_timeout, cacert of --rdzv-conf have no effect with the rendezvous 'embedded'"
    assert made.notices == (told,)


def test_no_secret_of_the_environment_reaches_a_worker_or_a_repr() -> None:
    environ = {
        "PLANARIA_TOKEN": "s3cret",
        "PLANARIA_TOKEN_FILE": "s3cret",
        "PLANARIA_ETCD_PASSWORD": "s3cret",
        "A": "1",
    }
    made = planned(*C10D, "--rdzv-endpoint=head", environ=environ)
    assert "s3cret" not in repr(made)
    assert "s3cret" not in made.job.environment.values()
    assert made.job.environment["A"] == "1"


MINE = frozenset({"mine", "etcd"})


def test_a_handler_of_another_package_is_asked_where_no_name_of_ours_and_no_store_is_meant() -> None:
    asked = planned(
        "--rdzv-backend=mine", "--nnodes=2:3", "--rdzv-endpoint=x://y", "--rdzv-conf=a=b", handlers=MINE
    ).asked
    assert asked is not None
    assert (asked.backend, asked.endpoint, asked.run_id) == ("mine", "x://y", "none")
    assert (asked.min_nodes, asked.max_nodes, asked.settings, asked.notices) == (2, 3, {"a": "b"}, ())
    store = planned("--rdzv-backend=mine", handlers=MINE, plugins=frozenset({"mine"}))
    assert (store.asked, store.job.meeting is not None) == (None, True)
    ours = planned("--rdzv-backend=etcd", "--rdzv-endpoint=db", handlers=MINE)
    assert (ours.asked, ours.job.meeting is not None) == (None, True)


def test_flags_that_only_our_rendezvous_heeds_are_named_in_one_line() -> None:
    flags = (
        "--resize-grace=1",
        "--on-lost-majority=exit",
        "--always-restart",
        "--report-file=x",
        "--rdzv-backend=mine",
    )
    assert planned(*flags, handlers=MINE).notices == (
        "--report-file, --always-restart, --resize-grace, --on-lost-majority have no effect with the rendezvous handler 'mine'",
    )
    assert planned("--rdzv-backend=mine", environ={"PET_NO_BOOTSTRAP": "1"}, handlers=MINE).notices == (
        "PET_NO_BOOTSTRAP has no effect with the rendezvous handler 'mine'",
    )


def test_a_token_cannot_be_required_of_a_handler_that_knows_of_none() -> None:
    with pytest.raises(UsageError, match="--require-token expects a rendezvous of planaria's, got the handler 'mine'"):
        planned("--rdzv-backend=mine", "--require-token", handlers=MINE)


def test_a_password_for_somebody_elses_handler_may_stand_in_the_variable() -> None:
    argv, environ = ("--rdzv-backend=mine", "--rdzv-conf=password=x"), {"PET_RDZV_CONF": "password=x"}
    (line,) = planned(*argv, handlers=MINE).notices
    assert line == "a password on a command line can be read by others on this machine: use PET_RDZV_CONF"
    made = planned("--rdzv-backend=mine", environ=environ, handlers=MINE)
    assert (made.notices, "PET_RDZV_CONF" in made.job.environment) == ((), False)


@pytest.mark.parametrize("endpoint", ["job-run", "ours/job-run", "ours/job.run-1"])
def test_kubernetes_is_met_at_the_name_of_two_objects_without_any_port(endpoint: str) -> None:
    meeting = met("--rdzv-backend=kubernetes", f"--rdzv-endpoint={endpoint}", credentials=IN_A_POD)
    assert (meeting.backend, meeting.endpoints) == ("kubernetes", (endpoint,))
    assert meeting.options == {"server": "https://10.96.0.1:443"}
    assert needs(parse(["--rdzv-backend=kubernetes", "a.py"], {}), {}) == {"credentials"}


def test_the_api_server_that_was_named_wins_over_the_pods_own() -> None:
    settings = "--rdzv-conf=server=https://elsewhere:6443,cacert=ca.pem,token_file=t"
    meeting = met("--rdzv-backend=kubernetes", "--rdzv-endpoint=a/b", settings, credentials=IN_A_POD)
    assert meeting.options == {"server": "https://elsewhere:6443", "cacert": "ca.pem", "token_file": "t"}


@pytest.mark.parametrize(
    "endpoint", ["a:2379", "a,b", "a//b", "/b", "a/b/c", "-a", "a_b", "ä", "a" * 254, "a@b", "http://a"]
)
def test_what_no_object_can_be_called_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match="--rdzv-endpoint expects"):
        met("--rdzv-backend=kubernetes", f"--rdzv-endpoint={endpoint}", credentials=IN_A_POD)
