"""What `run_job` tells hosts, field by field: from a specs file and a command line to user data and the job's description."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from planaria.aws.desk import Desk
from planaria.aws.flags import read
from planaria.aws.main import given_specs
from planaria.aws.session import Cloud
from planaria.aws.submit import run_job
from planaria.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

HOST = {
    "instance_role": "profile",
    "subnets": ["subnet-0a1b2c3d"],
    "security_groups": ["sg-0a1b2c3d"],
}
WORKER = {
    **HOST,
    "instance_type": "m5.large",
    "docker_image": "registry.example/trainer:1",
    "s3_bucket": "my-bucket",
    "s3_prefix": "pre/fix",
}
FULL = {
    **WORKER,
    "instance_type": "g5.xlarge",
    "accelerator": "gpu",
    "efs_file_system_id": "fs-0a1b2c3d",
    "shm_gb": 7,
    "launch_flags": ["--max-restarts=3"],
}
STORE = {
    **HOST,
    "instance_type": "t3.small",
    "etcd_url": "https://example.com/etcd.tar.gz",
    "etcd_sha256": "0" * 64,
}
RUN = "20260301-120000-aabbcc"


def planned(folder: Path, specs: object, **variables: str) -> dict[str, Any]:
    """Return the plan of a dry run, as data, about which nothing is said."""
    plan, said = submitted(folder, specs, **variables)
    assert said == []
    return plan


def submitted(folder: Path, specs: object, **variables: str) -> tuple[dict[str, Any], list[str]]:
    """Return the plan of a dry run, as data, and what is said about it."""
    (folder / "specs.json").write_text(json.dumps(specs))
    (folder / "train.py").write_text("")
    sizes = ("--size", "2", "--min_size", "1", "--max_size", "4")
    where = ("--specs_file", str(folder / "specs.json"), "--name", "ann-job")
    asked = read(["run_job", "--dry-run", "--json", *sizes, *where, str(folder / "train.py"), "--", "a b", "$x"])
    shown: list[str] = []
    said: list[str] = []
    desk = Desk(
        options=asked.options,
        script_args=asked.script_args,
        specs=given_specs(asked),
        environ=variables,
        cloud=Cloud("us-west-2", None),
        say=said.append,
        show=shown.append,
        pause=lambda _: None,
        now=lambda: 0.0,
        utc=lambda: datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC),
        noise=lambda _: "aabbcc",
    )
    assert run_job(desk) == 0
    return json.loads(shown[0]), said


def told(plan: dict[str, Any], name: str) -> dict[str, str]:
    """Return what the hosts of a group are told."""
    (step,) = [step for step in plan["steps"] if (step["kind"], step["name"]) == ("launch template", name)]
    text = step["do"]["request"]["LaunchTemplateData"]["UserData"]
    block = text.partition("<<'PLANARIA_SETTINGS'\n")[2].partition("\nPLANARIA_SETTINGS\n")[0]
    return dict(line.split("=", 1) for line in block.splitlines())


SHORT = {
    "job": "ann-job",
    "run": RUN,
    "region": "us-west-2",
    "bucket": "my-bucket",
    "folder": f"pre/fix/ann-job/{RUN}/",
    "result_head": f'{{"version": 1, "job": "ann-job", "run": "{RUN}"',
    "image": "registry.example/trainer:1",
    "gpus": "no",
    "worker_group": "ann-job_worker",
    "store_group": "",
    "log_group": "/planaria/ann-job",
    "token_parameter": "/planaria/ann-job/token",
    "size": "2",
    "efs_id": "",
    "commits": "",
    "shm_gb": "",
    "grace_s": "90",
    "shutdown_timeout_s": "75",
    "endpoint": "",
}


def test_a_worker_s_host_is_told_what_the_specs_file_and_the_command_line_say(tmp_path: Path) -> None:
    assert told(planned(tmp_path, {"worker": WORKER}), "ann-job_worker") == SHORT


def test_a_worker_s_host_is_told_everything_that_a_full_specs_file_says(tmp_path: Path) -> None:
    plan, said = submitted(tmp_path, {"worker": FULL, "rdzv": STORE}, AWS_ENDPOINT_URL="http://aws.example")
    assert said == ["AWS_ENDPOINT_URL is set, so the hosts are told http://aws.example, too, and have to reach it"]
    assert told(plan, "ann-job_worker") == {
        **SHORT,
        "gpus": "yes",
        "store_group": "ann-job_rdzv",
        "efs_id": "fs-0a1b2c3d",
        "commits": f"/mnt/efs1/planaria/ann-job/{RUN}",
        "shm_gb": "7",
        "endpoint": "http://aws.example",
    }
    assert told(plan, "ann-job_rdzv") == {
        "job": "ann-job",
        "run": RUN,
        "region": "us-west-2",
        "store_group": "ann-job_rdzv",
        "etcd_url": "https://example.com/etcd.tar.gz",
        "etcd_sha256": "0" * 64,
        "endpoint": "http://aws.example",
    }


def test_a_password_does_not_get_into_user_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^AWS_ENDPOINT_URL has a user or a password in it") as caught:
        planned(tmp_path, {"worker": WORKER}, AWS_ENDPOINT_URL="https://ann:secret@aws.example/x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("specs", "backend", "endpoint", "more"),
    [
        ({"worker": WORKER}, "c10d", "nodes.planaria:29400", []),
        ({"worker": FULL, "rdzv": STORE}, "etcd", "store.planaria:2379", ["--max-restarts=3"]),
    ],
)
def test_the_description_says_how_the_launcher_is_called(
    tmp_path: Path, specs: object, backend: str, endpoint: str, more: list[str]
) -> None:
    steps = planned(tmp_path, specs)["steps"]
    (described,) = [step["do"]["request"] for step in steps if step["kind"] == "description"]
    assert (described["Bucket"], described["Key"]) == ("my-bucket", f"pre/fix/ann-job/{RUN}/job.json")
    found = json.loads(described["Body"])
    assert (found["job"], found["run"], found["script"], found["argv"]) == ("ann-job", RUN, None, ["a b", "$x"])
    (code,) = [step["name"] for step in steps if step["kind"] == "code"]
    assert (found["source"], found["sha256"]) == (code, code.rpartition("/")[2].removesuffix(".py"))
    assert found["launch"] == [
        "--nnodes=1:4",
        "--nproc-per-node=auto",
        f"--rdzv-backend={backend}",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={RUN}",
        "--tee=3",
        *more,
    ]
