from __future__ import annotations

import json

import pytest

from planaria.launch import dryrun
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, Plan, plan

MACHINE = Machine("/usr/bin/python3", 4, "fresh-id")


def planned(*argv: str, environ: dict[str, str] | None = None) -> Plan:
    environ = environ or {}
    return plan(parse([*argv], environ), environ, MACHINE)


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
