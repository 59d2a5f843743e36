from __future__ import annotations

import json

import pytest

from planaria.agent.conf import Credentials
from planaria.contract.secret import Secret, SecretText
from planaria.launch import dryrun
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, Plan, plan

FOUND = Credentials(Secret(b"s3cret-0"), SecretText("s3cret-4"))
MACHINE = Machine("/usr/bin/python3", 4, "fresh-id", credentials=FOUND, plugins=frozenset())


def planned(*argv: str, environ: dict[str, str] | None = None) -> Plan:
    environ = environ or {}
    return plan(parse([*argv], environ), environ, MACHINE)


def test_a_handler_of_another_package_is_shown_without_its_password() -> None:
    machine = Machine("/usr/bin/python3", 4, "x", credentials=FOUND, plugins=frozenset(), handlers=frozenset({"mine"}))
    flags = ["--rdzv-backend=mine", "--nnodes=1:2", "--rdzv-id=r", "--rdzv-conf=password=s3cret-1,depth=2"]
    made = plan(parse([*flags, "--rdzv-endpoint=a b", "a.py"], {}), {}, machine)
    text, data = dryrun.as_text(made), dryrun.as_data(made)
    assert "  nodes     1 to 2 nodes\n" in text
    assert "  meeting   by the handler mine of another package, at a b\n" in text
    assert "  options   depth=2 password=(hidden)\n" in text
    assert "start-up" not in text
    assert "PLANARIA_" not in text
    assert "s3cret" not in text + json.dumps(data)
    assert (data["meeting"], data["master_addr"]) == (None, None)
    assert data["handler"] == {
        "backend": "mine",
        "endpoint": "a b",
        "run_id": "r",
        "min_nodes": 1,
        "max_nodes": 2,
        "options": {"depth": "2", "password": "(hidden)"},
    }
    (worker,) = dryrun.as_data(made)["workers"]  # type: ignore[misc]  # a list
    assert worker["environment"]["RANK"] == "(agreed when the nodes meet)"
    assert worker["argv"] == ["/usr/bin/python3", "-u", "a.py"]


def test_a_plan_is_shown_whole_to_people() -> None:
    made = planned(
        "--nproc-per-node=1", "--master-port=1234", "--max-restarts=2", "--log-dir=logs", "-t1", "a.py", "--x", "a b"
    )
    assert dryrun.as_text(made) == (
        "would run 1 worker(s) on this node; nothing was started\n"
        "  run id    none, role default\n"
        "  master    127.0.0.1:1234\n"
        "  restarts  2 restarts at most\n"
        "  stopping  on SIGTERM, SIGINT, SIGHUP, SIGQUIT; SIGKILL 30 s after SIGTERM\n"
        "  logs      in logs/none_(random)\n"
        "  start-up  through planaria's start-up file, which records tracebacks\n"
        "worker 0: /usr/bin/python3 -u a.py --x 'a b'\n"
        "  stdout to logs/none_(random)/attempt_0/0/stdout.log and console\n"
        "  stderr to console\n"
        "  GROUP_RANK=0\n"
        "  GROUP_WORLD_SIZE=1\n"
        "  LOCAL_RANK=0\n"
        "  LOCAL_WORLD_SIZE=1\n"
        "  MASTER_ADDR=127.0.0.1\n"
        "  MASTER_PORT=1234\n"
        "  PLANARIA_CONTROL=(chosen at start)\n"
        "  PLANARIA_RESTART_REASON=\n"
        "  PLANARIA_ROUND=0\n"
        "  RANK=0\n"
        "  ROLE_NAME=default\n"
        "  ROLE_RANK=0\n"
        "  ROLE_WORLD_SIZE=1\n"
        "  TORCHELASTIC_ERROR_FILE=(chosen at start)\n"
        "  TORCHELASTIC_MAX_RESTARTS=2\n"
        "  TORCHELASTIC_RESTART_COUNT=0\n"
        "  TORCHELASTIC_RUN_ID=none\n"
        "  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
        "  TORCHELASTIC_USE_AGENT_STORE=False\n"
        "  TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
        "  WORLD_SIZE=1\n"
    )


def test_data_is_json_and_has_one_entry_per_worker() -> None:
    data = json.loads(json.dumps(dryrun.as_data(planned("--nproc-per-node=2", "a.py", "--rank=${local_rank}"))))
    assert [worker["argv"][-1] for worker in data["workers"]] == ["--rank=0", "--rank=1"]
    assert [worker["environment"]["RANK"] for worker in data["workers"]] == ["0", "1"]
    assert data["master_port"] is None
    assert data["workers"][0]["environment"]["MASTER_PORT"] == "(chosen at start)"
    assert data["workers"][0]["environment"]["OMP_NUM_THREADS"] == "1"
    assert data["signals"] == ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]


def test_neither_secrets_nor_the_inherited_environment_are_shown() -> None:
    environ = {"PLANARIA_TOKEN": "s3cret-1", "PLANARIA_TOKEN_FILE": "s3cret-2", "AWS_SECRET": "s3cret-3"}
    made = planned("a.py", environ=environ)
    assert "s3cret" not in dryrun.as_text(made) + json.dumps(dryrun.as_data(made))


def test_a_meeting_is_shown_and_what_nodes_agree_on_is_not_guessed() -> None:
    made = planned("--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=a,[::1]:7", "--rdzv-id=j", "a.py")
    shown = dryrun.as_text(made)
    assert "  run id    j, role default\n  master    (agreed when the nodes meet)\n" in shown
    assert (
        "  nodes     2 to 4 nodes\n"
        "  meeting   by embedded at a:29400 [::1]:7, guarded by a token\n"
        "  waiting   600 s for the first round, 2 s after the last arrival\n"
        "  losses    a silent node is lost after 5 s; without a majority: wait\n"
        "  resizing  within 10 s\n"
    ) in shown
    agreed = [
        line.split("=")[0].strip() for line in shown.splitlines() if line.endswith("=(agreed when the nodes meet)")
    ]
    ranks = ["RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "WORLD_SIZE"]
    assert agreed == ["GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *ranks]
    data = json.loads(json.dumps(dryrun.as_data(made)))
    assert (data["master_addr"], data["master_port"]) == (None, None)
    assert data["meeting"]["endpoints"] == ["a:29400", "[::1]:7"]
    assert (data["meeting"]["min_nodes"], data["meeting"]["max_nodes"], data["meeting"]["has_token"]) == (2, 4, True)


def test_a_static_meeting_shows_its_rank_the_master_and_the_port_above_it() -> None:
    shown = dryrun.as_text(planned("--nnodes=2", "--node-rank=1", "--master-addr=::1", "--master-port=4000", "a.py"))
    assert "  master    ::1:4000\n" in shown
    assert (
        "  nodes     2 node(s), this one has rank 1\n  meeting   by static at [::1]:4001, guarded by a token\n" in shown
    )
    assert "  MASTER_ADDR=::1\n  MASTER_PORT=4000\n" in shown
    assert "  RANK=(agreed when the nodes meet)\n" in shown


def test_a_node_alone_has_no_meeting_to_show() -> None:
    assert dryrun.as_data(planned("a.py"))["meeting"] is None


def test_no_secret_of_a_meeting_is_shown() -> None:
    made = planned("--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=username=me", "a.py")
    shown = dryrun.as_text(made) + json.dumps(dryrun.as_data(made))
    assert "s3cret" not in shown
    assert "  options   password=(hidden) protocol=http username=me\n" in shown


@pytest.mark.parametrize(
    ("flags", "stdout"),
    [
        ([], "console"),
        (["-r1"], "(temporary directory)/planaria_fresh-id_(random)/attempt_0/0/stdout.log"),
        (["-r1", "--log-dir=/dev/null"], "console"),
        (["--local-ranks-filter=1"], "/dev/null"),
        (["-t3", "--log-dir=l", "--local-ranks-filter=1"], "l/fresh-id_(random)/attempt_0/0/stdout.log"),
    ],
    ids=str,
)
def test_the_place_of_the_output_follows_the_log_flags(flags: list[str], stdout: str) -> None:
    workers = dryrun.as_data(planned(*flags, "a.py"))["workers"]
    assert workers[0]["stdout"] == stdout  # type: ignore[index]


def test_a_virtual_rank_shows_the_device_of_each_worker() -> None:
    made = planned("--virtual-local-rank", "--nproc-per-node=2", "a.py", environ={"CUDA_VISIBLE_DEVICES": "5,7"})
    workers = dryrun.as_data(made)["workers"]
    shown = [(worker["environment"]["LOCAL_RANK"], worker["environment"]["CUDA_VISIBLE_DEVICES"]) for worker in workers]  # type: ignore[attr-defined]
    assert shown == [("0", "5"), ("0", "7")]


def test_what_a_terminal_might_obey_is_escaped() -> None:
    shown = dryrun.as_text(
        planned("--rdzv-backend=c10d", "--rdzv-id=\x1b[2J", "--role=\x07", "a.py", "\x1b]0;x", "it's")
    )
    assert shown.replace("\n", "").isprintable()


def test_where_commits_go_is_shown() -> None:
    made = planned("--snapshot-dir=commits", "--snapshot-keep=5", "--no-python", "true")
    assert "  commits   the newest 5 in commits\n" in dryrun.as_text(made)
    assert (dryrun.as_data(made)["snapshot_dir"], dryrun.as_data(made)["snapshot_keep"]) == ("commits", 5)
    assert made.notices == ()
    without = planned("--snapshot-keep=5", "--no-python", "true")
    assert "commits" not in dryrun.as_text(without).partition("note:")[0]
    assert without.notices == ("--snapshot-keep has no effect without --snapshot-dir",)


@pytest.mark.parametrize(
    ("asked", "data", "words"),
    [
        ("0", 0, ""),
        ("3", 3, "  standbys  3, one for each worker at most\n"),
        ("auto", "auto", "  standbys  one for each worker, while memory lasts\n"),
    ],
)
def test_standbys_are_shown_where_there_are_any(asked: str, data: object, words: str) -> None:
    made = planned("--max-restarts=1", f"--standbys={asked}", "a.py")
    assert dryrun.as_data(made)["standbys"] == data
    text = dryrun.as_text(made)
    assert words in text
    assert ("standbys" in text) == bool(words)


def test_the_checks_of_a_node_are_shown_where_there_are_any() -> None:
    made = planned("--preflight=disk,gpu", "a.py")
    assert dryrun.as_data(made)["preflight"] == ["gpu", "disk"]
    assert "  preflight gpu, disk, before this node joins\n" in dryrun.as_text(made)
    assert "preflight" not in dryrun.as_text(planned("a.py"))
