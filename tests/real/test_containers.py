"""The image of the Dockerfile at the root, built and run by a real container engine; and that engine leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine as container_engine
import images
import pytest
from waiting import wait_until

from planaria.chaos import hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine import Engine

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]  # the first of them builds an image

WAITS = "import signal; print('here', flush=True); signal.pause()"
STOP_THE_AGENT = """\
import glob, os, signal
from planaria.launch.owner_http import Door, pid_behind
os.kill(pid_behind(Door(glob.glob("/tmp/planaria-*/http")[0], os.getuid())), signal.SIGSTOP)
"""
MAKER = """\
import sys
sys.path[:0] = [sys.argv[1]]
from engine import Engine
with Engine() as engine:
    print(engine.folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def waiting(engine: Engine, image: str, tmp_path: Path) -> Iterator[str]:
    """A container with a job of two workers that wait."""
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    mount = f"{script}:/workspace/waits.py:ro"
    often = ("--health-interval=1s", "--health-retries=1")
    words = ("--standalone", "--nproc-per-node=2", "/workspace/waits.py")
    found = engine.docker("run", "-d", *often, "-v", mount, image, *words)
    try:
        wait_until(lambda: engine.docker("logs", found).count("here") == 2, "both workers are here", between_s=0.1)
        yield found
    finally:
        engine.docker("rm", "-f", found)


def inspected(engine: Engine, image: str) -> Any:
    return json.loads(engine.docker("image", "inspect", image))[0]


def test_the_image_is_the_base_and_little_more(engine: Engine, image: str) -> None:
    sizes = [inspected(engine, one)["Size"] for one in (images.BASE, image)]
    assert sizes[1] - sizes[0] < 80e6  # boto3's descriptions of AWS are a third of it
    held = engine.docker("run", "--rm", "--entrypoint=ls", image, "/", "/workspace").split()
    assert "src" not in held
    assert {"echo.py", "examples"} <= set(held)


def test_the_image_has_what_the_launcher_may_need(engine: Engine, image: str) -> None:
    words = "import boto3, etcd3gw, planaria; print('all there')"
    assert engine.docker("run", "--rm", "--entrypoint=python", image, "-c", words) == "all there"


def test_a_script_may_write_where_it_runs_but_not_over_what_it_runs_on(engine: Engine, image: str) -> None:
    words = "touch out.txt && pwd && test ! -w /opt/planaria/bin/planaria && id -u"
    assert engine.docker("run", "--rm", "--entrypoint=sh", image, "-c", words).split() == ["/workspace", "1000"]


def test_the_image_has_petctl_with_everything_it_reads(engine: Engine, image: str, tmp_path: Path) -> None:
    host = {
        "instance_type": "m5.large",
        "instance_role": "profile",
        "subnets": ["subnet-0a1b2c3d"],
        "security_groups": ["sg-0a1b2c3d"],
    }
    worker = {**host, "docker_image": image, "s3_bucket": "my-bucket"}
    (tmp_path / "specs.json").write_text(json.dumps({"region": "us-west-2", "worker": worker, "rdzv": host}))
    words = ["--size=2", "--specs_file=/specs.json", "--name=ann-job", "--no_upload", "/workspace/echo.py"]
    mount = ("-v", f"{tmp_path / 'specs.json'}:/specs.json:ro")
    said = engine.docker("run", "--rm", *mount, "--entrypoint=petctl", image, "run_job", "--dry-run", "--json", *words)
    made = [step["do"]["request"] for step in json.loads(said)["steps"] if step["kind"] == "launch template"]
    assert [one["LaunchTemplateData"]["UserData"].partition("\n")[0] for one in made] == ["#!/bin/bash"] * 2


def test_what_follows_the_image_goes_to_the_launcher(engine: Engine, image: str) -> None:
    said = engine.docker("run", "--rm", image, "--standalone", "--nproc-per-node=2", "/workspace/echo.py")
    assert said.count("Environment variables set by the agent on PID") == 2
    wrong = engine.try_docker("run", "--rm", image, "--nproc-per-node=none", "/workspace/echo.py")
    assert wrong.returncode == 2
    assert b"--nproc-per-node" in wrong.stderr


def test_without_words_the_image_says_what_is_missing(engine: Engine, image: str) -> None:
    done = engine.try_docker("run", "--rm", image)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") <= 2
    assert b"no script was named" in done.stderr
    assert b"--help" in done.stderr


def test_no_secret_and_no_environment_gets_into_an_image(engine: Engine, tmp_path: Path) -> None:
    for name in (
        ".env",
        ".git/config",
        "examples/a/.env",
        "examples/a/host.pem",
        "src/a.key",
        "examples/a.py",
        "src/.venv/a",
        "src/a.py",
        "src/__pycache__/a",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".dockerignore").write_text((images.ROOT / ".dockerignore").read_text())
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /held/\n")
    engine.docker("build", "-q", "-t", "held", str(tmp_path))
    found = engine.docker("create", "held", "nothing")
    exported = engine.try_docker("export", found).stdout
    engine.docker("rm", found)
    with tarfile.open(fileobj=io.BytesIO(exported)) as archive:
        held = [member.name for member in archive if member.name.startswith("held/") and not member.isdir()]
    assert sorted(held) == ["held/examples/a.py", "held/src/a.py"]


def test_a_path_in_the_container_is_run_by_fetch_and_run(engine: Engine, image: str) -> None:
    said = engine.docker("run", "--rm", "-e", "PLANARIA_FETCH=1", image, "/workspace/echo.py")
    assert "'WORLD_SIZE': '1'" in said


def test_nobody_in_the_container_is_root_and_the_first_process_is_an_init(engine: Engine, waiting: str) -> None:
    told = "import os; print(os.getuid(), open('/proc/1/comm').read().strip(), os.access('/opt/planaria', os.W_OK))"
    assert engine.docker("exec", waiting, "python", "-c", told) == "1000 tini False"


def test_a_container_that_is_stopped_drains_and_tells_so_by_its_status(engine: Engine, waiting: str) -> None:
    engine.docker("stop", "--time=60", waiting)
    assert engine.docker("inspect", "-f", "{{.State.ExitCode}}", waiting) == "143"


def health(engine: Engine, container: str) -> str:
    return engine.docker("inspect", "-f", "{{.State.Health.Status}}", container)


def test_docker_knows_a_healthy_container_and_one_whose_agent_is_stuck(
    engine: Engine, image: str, waiting: str
) -> None:
    check = inspected(engine, image)["Config"]["Healthcheck"]["Test"]
    assert check == ["CMD", "planaria", "health"]
    assert engine.docker("exec", waiting, *check[1:]) == "the loop turns"
    assert engine.docker("exec", waiting, *check[1:], "--ready")
    status = json.loads(engine.docker("exec", waiting, *check[1:], "--json"))
    assert status["healthy"] is True
    wait_until(lambda: health(engine, waiting) == "healthy", "docker's own check", between_s=0.2)
    engine.docker("exec", waiting, "python", "-c", STOP_THE_AGENT)
    wait_until(lambda: health(engine, waiting) == "unhealthy", "docker sees that the agent is stuck", between_s=0.2)
    stuck = engine.try_docker("exec", waiting, *check[1:])
    assert stuck.returncode == 1
    assert b"does not answer" in stuck.stdout


def test_an_engine_touches_nothing_of_this_machine_and_is_gone_when_its_maker_is_killed(engine: Engine) -> None:
    def outside() -> list[str]:
        """Return the names of docker's bridges on this machine."""
        words = ["ip", "-br", "link", "show", "type", "bridge"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return [name for name, *_ in map(str.split, said.splitlines()) if name.startswith(("docker", "br-"))]

    support = os.path.dirname(container_engine.__file__)
    before = outside()
    with subprocess.Popen(
        [sys.executable, "-c", MAKER, support], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        folder = maker.stdout.readline().strip()
        assert Path(folder, "docker.sock").is_socket()
        assert outside() == before
        maker.send_signal(signal.SIGKILL)
    wait_until(lambda: not os.path.exists(folder), "the engine's folder is gone")
    assert not [group for group, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(folder) in group]
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if folder in line]


def test_an_engine_on_a_host_has_the_network_of_that_host(engine: Engine) -> None:
    if why := hosts.why_not():
        pytest.skip(why)
    with hosts.Network(2) as network, container_engine.Engine(network.hosts[1].namespace) as found:
        found.load(images.base())
        words = ("python3", "-c", "import socket; s = socket.create_server(('10.77.0.2', 0)); print('bound')")
        assert found.docker("run", "--rm", "--net=host", images.BASE, *words) == "bound"
