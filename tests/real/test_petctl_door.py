"""petctl as a program: nothing is asked of AWS before there is something to ask, and what goes wrong is one sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_server import Aws, aws
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["aws"]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
HOST = {
    "instance_type": "g5.xlarge",
    "instance_role": "profile",
    "subnets": ["subnet-0a1b2c3d"],
    "security_groups": ["sg-0a1b2c3d"],
}
SPECS = {"region": "us-west-2", "worker": {**HOST, "docker_image": "trainer:1", "s3_bucket": "my-bucket"}, "rdzv": HOST}


PASSED_OVER = "petctl: a group that the job does not have is passed over\n"
NOTES = {
    "gc": "petctl: this is what happens to each JOB; `petctl gc --list` asks AWS which they are\n",
    "scale": PASSED_OVER,
    "stop": PASSED_OVER,
}


@pytest.fixture
def nobody() -> Iterator[socket.socket]:
    """An endpoint that takes connections and never answers; who connects is seen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def environment(folder: Path, server: socket.socket, variables: dict[str, str]) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "USER": "ann",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "NO_PROXY": "127.0.0.1",
        "TMPDIR": os.environ.get("TMPDIR", str(folder)),
        **variables,
    }


def petctl(folder: Path, server: socket.socket, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return typed([str(ROOT / "aws/petctl.py"), *argv], folder, environment(folder, server, variables))


def typed(words: list[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def asker(server: socket.socket) -> socket.socket | None:
    """Return the connection of somebody who asks."""
    try:
        return server.accept()[0]
    except BlockingIOError:
        return None


def was_asked(server: socket.socket) -> bool:
    connection = asker(server)
    if connection is not None:
        connection.close()
    return connection is not None


def run_words(folder: Path, specs: object) -> list[str]:
    (folder / "specs.json").write_text(json.dumps(specs))
    (folder / "train.py").write_text("")
    return ["run_job", "--size", "2", "--specs_file", "specs.json", "--name", "ann-job", "train.py", "--", "a b", "$x"]


def test_a_dry_run_asks_nothing_and_needs_no_credentials(tmp_path: Path, nobody: socket.socket) -> None:
    words = run_words(tmp_path, SPECS)
    done = petctl(tmp_path, nobody, "--dry-run", "--json", *words)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert [step["kind"] for step in plan["steps"]][-4:] == ["launch template", "auto scaling group"] * 2
    assert plan["steps"][-2]["do"]["request"]["LaunchTemplateData"]["ImageId"].startswith("resolve:ssm:/aws/service/")
    assert "worker.accelerator is 'none' though g5.xlarge has GPUs" in done.stderr
    assert not was_asked(nobody)


@pytest.mark.parametrize("verb", ["run_job", "upload"])
def test_a_specs_file_may_be_a_pipe(tmp_path: Path, nobody: socket.socket, verb: str) -> None:
    """Whoever writes `--specs_file <(jq ...)` has one that can be read once."""
    flags = {"run_job": ["--size", "2", "--name", "ann-job"], "upload": []}[verb]
    words = run_words(tmp_path, SPECS)
    command = [sys.executable, str(ROOT / "aws/petctl.py"), verb, "--dry-run", "--specs_file", "/dev/stdin", *flags]
    with (
        open(tmp_path / words[4], "rb") as specs,
        subprocess.Popen(["cat"], stdin=specs, stdout=subprocess.PIPE) as cat,
    ):
        done = subprocess.run(
            [*command, "train.py"], cwd=tmp_path, env=environment(tmp_path, nobody, {}), stdin=cat.stdout,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "s3://my-bucket/planaria/" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["kill_job", "--dry-run", "ann-job"],
        ["stop", "--drain", "--dry-run", "ann-job"],
        ["scale", "--size", "3", "--dry-run", "ann-job"],
        ["gc", "--dry-run"],
        ["upload", "--dry-run", "train.py", "s3://my-bucket/x.py"],
        ["run_job", "--help"],
        ["--help"],
    ],
)
def test_other_dry_runs_and_help_ask_nothing(tmp_path: Path, nobody: socket.socket, words: list[str]) -> None:
    (tmp_path / "train.py").write_text("")
    done = petctl(tmp_path, nobody, *words, AWS_DEFAULT_REGION="us-west-2")
    assert (done.returncode, done.stderr) == (0, NOTES.get(words[0], ""))
    assert done.stdout
    if "--dry-run" in words:
        assert "nothing was asked of AWS\n\n1. " in done.stdout
    assert not was_asked(nobody)


def test_a_refused_specs_file_asks_nothing(tmp_path: Path, nobody: socket.socket) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    done = petctl(tmp_path, nobody, *run_words(tmp_path, {**SPECS, "rdzv": {**HOST, "subnets": []}}), **keys)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "petctl: --specs_file 'specs.json': rdzv.subnets is [], expected a list of subnet ids"
    )
    assert not was_asked(nobody)


def test_without_credentials_there_is_one_clear_sentence(tmp_path: Path, nobody: socket.socket) -> None:
    done = petctl(tmp_path, nobody, "list", "--region", "us-west-2")
    assert done.returncode == 69
    assert done.stderr == (
        "petctl: there are no AWS credentials (set --profile or AWS_PROFILE, or run `aws configure` or `aws sso login`)\n"
    )


def test_a_service_that_never_answers_is_given_up_after_the_timeout(tmp_path: Path, nobody: socket.socket) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    done = petctl(tmp_path, nobody, "status", "ann-job", "--region", "eu-west-1", "--timeout", "0.5", **keys)
    assert done.returncode == 69
    assert "autoscaling.describe_auto_scaling_groups: AWS did not answer in time" in done.stderr
    assert was_asked(nobody)


def test_without_a_region_or_with_a_profile_that_is_not_there_the_flag_is_named(
    tmp_path: Path, nobody: socket.socket
) -> None:
    done = petctl(tmp_path, nobody, "list")
    assert (done.returncode, done.stderr) == (
        2, "petctl: --region is missing, expected one such as us-west-2 (or set AWS_DEFAULT_REGION)\n",
    )  # fmt: skip
    wrong = "is 'x y', expected an AWS region such as us-west-2\n"
    done = petctl(tmp_path, nobody, "--region", "x y", "--dry-run", *run_words(tmp_path, SPECS))
    assert (done.returncode, done.stderr) == (2, f"petctl: --region {wrong}")
    done = petctl(tmp_path, nobody, "list", AWS_REGION="x y")
    assert (done.returncode, done.stderr) == (2, f"petctl: AWS_REGION {wrong}")
    done = petctl(tmp_path, nobody, "list", "--region", "us-west-2", "--profile", "nobody")
    assert done.returncode == 2
    assert done.stderr.startswith("petctl: --profile is 'nobody', and there is no such profile (")


@pytest.mark.parametrize(
    ("words", "source", "script"),
    [
        (
            ["../examples/imagenet/main.py", "--", "model-arch", "resnet101"],
            r"s3://my-bucket/.*/[0-9a-f]{64}\.py",
            None,
        ),
        (["../examples/imagenet", "main.py", "--", "--model_arch", "resenet", "101"], r"s3://.*\.tar\.gz", "main.py"),
        (["s3://my-bucket/my_script.py"], "s3://my-bucket/my_script.py", None),
        (["s3://my-bucket/my_dir.tar.gz", "my_script.py"], "s3://my-bucket/my_dir.tar.gz", "my_script.py"),
        (["--no_upload", "/path/in/container/dir", "my_script.py"], "/path/in/container/dir", "my_script.py"),
        (["--no_upload", "/path/in/container/dir/my_script.py"], "/path/in/container/dir/my_script.py", None),
    ],
)
def test_every_form_of_the_quick_start_is_taken_in_the_folder_of_petctl(
    tmp_path: Path, nobody: socket.socket, words: list[str], source: str, script: str | None
) -> None:
    (tmp_path / "specs.json").write_text(json.dumps(SPECS))
    flags = ["--dry-run", "--json", "--size", "2", "--specs_file", str(tmp_path / "specs.json"), "--name", "ann-job"]
    done = typed(["petctl.py", "run_job", *flags, *words], ROOT / "aws", environment(tmp_path, nobody, {}))
    assert done.returncode == 0, done.stderr
    [told] = [
        step["do"]["request"]["Body"] for step in json.loads(done.stdout)["steps"] if step["kind"] == "description"
    ]
    description = json.loads(told)
    assert re.fullmatch(source, description["source"])
    assert description["script"] == script
    assert description["argv"] == (words[words.index("--") + 1 :] if "--" in words else [])
    assert not was_asked(nobody)


def test_an_old_python_is_told_so(tmp_path: Path) -> None:
    """Whoever types `python3 petctl.py` has not installed anything, so nothing has looked at their Python yet."""
    program = ROOT / "aws/petctl.py"
    pretend = f"import runpy, sys; sys.version_info = (3, 9); runpy.run_path({str(program)!r}, run_name='__main__')"
    done = typed(["-c", pretend], tmp_path, {"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stderr) == (1, "petctl: this is Python 3.9, and 3.11 or newer is needed\n")


def test_the_quick_start_works_as_a_program_from_run_job_to_kill_job(
    tmp_path: Path, nobody: socket.socket, aws: Aws
) -> None:
    ec2: Any = aws.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]
    here = [{"Name": "vpc-id", "Values": [subnet["VpcId"]]}]
    group = ec2.describe_security_groups(Filters=here)["SecurityGroups"][0]["GroupId"]
    ec2.close()
    network = {"subnets": [subnet["SubnetId"]], "security_groups": [group]}
    specs = json.loads((ROOT / "aws/config/sample_specs.json").read_text())
    for section in (specs["worker"], specs["rdzv"]):
        section |= {**network, "instance_role": "profile", "image_id": "ami-12c6146b"}
    specs["worker"] |= {"efs_file_system_id": "fs-0a1b2c3d", "docker_image": "trainer:1"}
    specs["worker"] |= {"s3_bucket": aws.bucket(), "s3_prefix": "jobs"}
    (tmp_path / "specs.json").write_text(json.dumps(specs))
    variables = environment(tmp_path, nobody, aws.environment)
    name = f"ann-{uuid.uuid4().hex[:8]}"
    run = ["run_job", "--size", "2", "--specs_file", str(tmp_path / "specs.json"), "--name", name]
    done = typed(["petctl.py", *run, "../examples/imagenet/main.py", "--", "x"], ROOT / "aws", variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"job {name} is started, run ")
    done = typed(["petctl.py", "kill_job", "--name", name], ROOT / "aws", variables)
    assert (done.returncode, done.stdout) == (0, f"job {name} is removed\n"), done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ctrl_c_or_a_signal_ends_a_command_that_waits_at_once_and_quietly(
    tmp_path: Path, nobody: socket.socket, number: int, status: int
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    command = [sys.executable, str(ROOT / "aws/petctl.py"), "wait", "ann-job", "--region", "eu-west-1"]
    variables = environment(tmp_path, nobody, keys)
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as process:
        try:
            with wait_until(lambda: asker(nobody), "a first question", TIMEOUT_S):  # one that hangs up is an answer
                process.send_signal(number)
                _, told = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert (process.returncode, told) == (status, "")
