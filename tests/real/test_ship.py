"""`fetch_and_run` and the image's entry point, with real launchers, a real S3 client and moto's S3 behind it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aws_server import aws  # noqa: F401  a fixture
from programs import clean_environment
from waiting import wait_until

from planaria.ship.description import Description, encode
from planaria.ship.pack import pack

if TYPE_CHECKING:
    from aws_server import Aws

BIN = Path(__file__).parents[2] / "bin"
PATIENCE_S = 100
TORTURE = [
    b"", b" ", b"a b", b"'", b'"', b"'\"'", b"\n", b"a\nb", b"%d %% %(x)s", b"$HOME ${HOME} $(id) `id`", b"\\", b"\\n", b"*",
    b"; touch pwned", b"&& touch pwned", b"--", b"-", b"--help", b"-m", b"--nnodes=3", "ünïcödé ☃".encode(), b"\xff\xfe", b"\t",
    b"!x", b"#x", b"~", b"{a,b}", b"<x", b"|x", b"=",
]  # fmt: skip
SAYS = """\
import os, sys
sys.stdout.buffer.write(b"\\0".join([b"ARGV", *map(os.fsencode, sys.argv[1:]), b"END"]) + b"\\n")
print("CWD", os.getcwd(), "JOB", os.environ.get("PLANARIA_JOB"), flush=True)
"""


class Node:
    """A folder with code, and programs that are started in it with a temporary folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temp = folder / "temp"
        self.temp.mkdir()
        code = folder / "code"
        (code / "lib").mkdir(parents=True)
        (code / "lib/helper.py").write_text("STATUS = 0\n")
        (code / "train.py").write_text(f"import lib.helper\n{SAYS}")
        self.digest = pack(str(code), str(folder / "code.tar.gz")).sha256

    def command(self, *words: str | bytes, program: str = "fetch_and_run") -> list[str | bytes]:
        return [sys.executable, str(BIN / program), *words]

    def environment(self, **variables: str) -> dict[str, str]:
        return clean_environment("AWS_", TMPDIR=str(self.temp), HOME=str(self.folder), OMP_NUM_THREADS="1", **variables)

    def run(
        self, *words: str | bytes, program: str = "fetch_and_run", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*words, program=program),
            cwd=self.folder, env=self.environment(**variables), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def refused(self, status: int, *words: str, **variables: str) -> str:
        """Return the one sentence a start is refused with; nothing is left and nothing was run."""
        done = self.run(*words, **variables)
        told = done.stderr.decode()
        assert (done.returncode, done.stdout) == (status, b""), told
        assert told.count("\n") == 1, told
        assert list(self.temp.iterdir()) == []
        return told


def arguments(output: bytes) -> list[bytes]:
    return output.split(b"ARGV\0")[1].split(b"\0END\n")[0].split(b"\0")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def bucket(aws: Aws, node: Node) -> str:  # noqa: F811  the fixture
    """A bucket with the node's code as an archive and a script."""
    name = aws.bucket()
    client = aws.client("s3")
    client.upload_file(str(node.folder / "code.tar.gz"), name, "code.tar.gz")  # type: ignore[attr-defined]
    client.put_object(Bucket=name, Key="job/say it.py", Body=SAYS.encode())  # type: ignore[attr-defined]
    client.close()  # type: ignore[attr-defined]
    return name


def test_arguments_arrive_through_a_description_and_s3_exactly_as_typed(node: Node, aws: Aws, bucket: str) -> None:  # noqa: F811
    argv = tuple(os.fsdecode(word) for word in TORTURE)
    job = Description("j", "r", f"s3://{bucket}/code.tar.gz", node.digest, "train.py", argv, ("--nproc-per-node=1",))
    (node.folder / "job.json").write_bytes(encode(job))
    done = node.run(program="planaria-entry", PLANARIA_JOB=str(node.folder / "job.json"), **aws.environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert arguments(done.stdout) == TORTURE
    assert b"JOB None" in done.stdout
    assert not list(node.folder.rglob("pwned"))


def test_arguments_arrive_through_words_exactly_as_typed(node: Node, aws: Aws, bucket: str) -> None:  # noqa: F811
    done = node.run(
        f"s3://{bucket}/code.tar.gz", "train.py", *TORTURE, PLANARIA_FETCH_SHA256=node.digest, **aws.environment
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert arguments(done.stdout) == TORTURE
    assert f"CWD {node.temp}/planaria-code-".encode() in done.stdout


def test_a_script_in_s3_without_a_hash_is_run_with_one_warning(node: Node, aws: Aws, bucket: str) -> None:  # noqa: F811
    done = node.run(f"s3://{bucket}/job/say it.py", "$x", program="planaria-entry", **aws.environment)
    assert done.returncode == 0
    assert arguments(done.stdout) == [b"$x"]
    assert done.stderr.decode().count("\n") == 1
    assert "no hash is known of" in done.stderr.decode()
    assert f"CWD {node.folder}".encode() in done.stdout


@pytest.mark.parametrize("source", ["code", "code/", "code.tar.gz"])
def test_a_directory_or_archive_of_this_machine_is_run(node: Node, source: str) -> None:
    done = node.run(source, "./train.py", "-x", PLANARIA_FETCH="1", PET_NPROC_PER_NODE="2", program="planaria-entry")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"ARGV\0-x\0END\n") == 2


def test_everything_else_is_the_launchers(node: Node) -> None:
    done = node.run("--nproc-per-node=1", "code/train.py", "x", program="planaria-entry")
    assert (done.returncode, arguments(done.stdout)) == (0, [b"x"])
    assert b"usage: planaria run" in node.run("--help", program="planaria-entry").stdout
    assert node.run("--nope", program="planaria-entry").returncode == 2


def test_code_that_is_not_the_jobs_is_not_run(node: Node, aws: Aws, bucket: str) -> None:  # noqa: F811
    wanted = hashlib.sha256(b"other").hexdigest()
    for words in (
        [f"s3://{bucket}/code.tar.gz", "train.py"],
        [f"s3://{bucket}/job/say it.py"],
        ["code.tar.gz", "train.py"],
    ):
        told = node.refused(2, *words, PLANARIA_FETCH_SHA256=wanted, **aws.environment)
        assert f"is not the code of this job: its SHA-256 is {'' if 'say' in words[0] else node.digest}" in told


def test_an_archive_that_leads_out_is_not_unpacked(node: Node, aws: Aws, bucket: str) -> None:  # noqa: F811
    with tarfile.open(node.folder / "evil.tar.gz", "w:gz") as tar:
        tar.add(node.folder / "code/train.py", "train.py")
        tar.add(node.folder / "code/train.py", "../../evil.py")
    client = aws.client("s3")
    client.upload_file(str(node.folder / "evil.tar.gz"), bucket, "evil.tar.gz")  # type: ignore[attr-defined]
    client.close()  # type: ignore[attr-defined]
    digest = hashlib.sha256((node.folder / "evil.tar.gz").read_bytes()).hexdigest()
    told = node.refused(2, f"s3://{bucket}/evil.tar.gz", "train.py", PLANARIA_FETCH_SHA256=digest, **aws.environment)
    assert "'../../evil.py' has a name that leads upwards" in told
    assert not list(node.folder.rglob("evil.py"))


@pytest.mark.parametrize("key", ["x;touch pwned;$(touch pwned)`touch pwned`.py", "-%s a'\".py"])
def test_the_name_of_an_object_is_never_a_command(node: Node, aws: Aws, bucket: str, key: str) -> None:  # noqa: F811
    client = aws.client("s3")
    client.put_object(Bucket=bucket, Key=f"k/{key}", Body=SAYS.encode())  # type: ignore[attr-defined]
    client.close()  # type: ignore[attr-defined]
    digest = hashlib.sha256(SAYS.encode()).hexdigest()
    done = node.run(f"s3://{bucket}/k/{key}", "1", PLANARIA_FETCH_SHA256=digest, **aws.environment)
    assert (done.returncode, done.stderr, arguments(done.stdout)) == (0, b"", [b"1"])
    assert not list(node.folder.rglob("pwned"))


def test_what_s3_does_not_give_is_said_in_one_sentence(node: Node, aws: Aws, bucket: str) -> None:  # noqa: F811
    known = {"PLANARIA_FETCH_SHA256": node.digest} | aws.environment
    assert "there is no such object" in node.refused(69, f"s3://{bucket}/nope.py", **known)
    assert "there is no script 'nope.py' in" in node.refused(2, f"s3://{bucket}/code.tar.gz", "nope.py", **known)


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        ([], {}, "what shall be run?"),
        (["--nnodes=2", "x.py"], {}, "the first word has to be a script"),
        (["nope.py"], {}, "there is no file or directory 'nope.py'"),
        (["code"], {}, "'code' is a directory: which script in it?"),
        (["code", "nope.py"], {}, "there is no script 'nope.py' in 'code'"),
        (["code", "../x.py"], {}, "'../x.py' is no path of a file below the directory"),
        (["http://h/x.py"], {}, "http:// is not supported"),
        (["code/train.py"], {"PLANARIA_FETCH_SHA256": "x"}, "PLANARIA_FETCH_SHA256 expects 64 digits"),
        (["code/train.py"], {"PLANARIA_FETCH_SHA256": "0" * 64}, "is the hash of an object or archive"),
        (["x"], {"PLANARIA_JOB": "job.json"}, "PLANARIA_JOB describes the job, and 'x' is one word too many"),
        ([], {"PLANARIA_JOB": "nope.json"}, "which cannot be read: No such file"),
        ([], {"PLANARIA_JOB": "code.tar.gz"}, "the job's description is wrong: it is no JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    node: Node, words: list[str], variables: dict[str, str], said: str
) -> None:
    assert said in node.refused(2, *words, **variables)


def test_the_entry_point_says_what_its_variable_takes(node: Node) -> None:
    done = node.run("x.py", program="planaria-entry", PLANARIA_FETCH="yes")
    assert (done.returncode, done.stderr) == (2, b"planaria: PLANARIA_FETCH expects 0 or 1, got 'yes'\n")


def test_help_has_examples(node: Node) -> None:
    done = node.run("--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"examples:\n  fetch_and_run s3://my-bucket/train.py" in done.stdout


def test_signals_reach_the_launcher_itself_and_its_status_is_ours(node: Node) -> None:
    (node.folder / "code/train.py").write_text("import signal\nopen('up', 'w').close()\nsignal.pause()\n")
    pack(str(node.folder / "code"), str(node.folder / "code.tar.gz"))
    process = subprocess.Popen(
        node.command("code.tar.gz", "train.py"), cwd=node.folder, env=node.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        up = "planaria-code-*/code/up"
        wait_until(lambda: process.poll() is not None or list(node.temp.glob(up)), "the script runs", PATIENCE_S)
        assert process.poll() is None
        assert b"-m\0planaria\0run\0" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        held = {path.name for path in node.temp.glob("planaria-code-*")}
        assert node.run("code.tar.gz", "nope.py").returncode == 2  # it sweeps, and leaves alone what is held
        assert {path.name for path in node.temp.glob("planaria-code-*")} == held
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    assert node.run("code.tar.gz", "nope.py").returncode == 2
    assert list(node.temp.iterdir()) == []  # nobody holds it any more


def test_the_status_of_a_job_is_that_of_the_launcher(node: Node) -> None:
    (node.folder / "code/train.py").write_text("raise SystemExit(3)\n")
    done = node.run("code", "train.py", PET_MAX_RESTARTS="0")
    direct = subprocess.run(
        [sys.executable, str(BIN / "planaria"), "run", "--max-restarts=0", "code/train.py"],
        cwd=node.folder, env=node.environment(), capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == direct.returncode != 0


def test_the_programs_are_installed_with_the_package() -> None:
    project = tomllib.loads((BIN.parent / "pyproject.toml").read_text())
    installed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-scripts"]
    for name in ("fetch_and_run", "petctl", "planaria-entry"):
        assert installed[f"bin/{name}"] == name
        assert os.access(BIN / name, os.X_OK) == os.access(BIN / "planaria", os.X_OK)


def test_a_description_is_plain_json_for_whoever_writes_one(node: Node) -> None:
    fields = {
        "version": 1, "job": "j", "run": "r", "source": str(node.folder / "code"), "sha256": None, "script": "train.py",
        "argv": ["a b"], "launch": ["--nproc-per-node=2"],
    }  # fmt: skip
    (node.folder / "job.json").write_text(json.dumps(fields))
    done = node.run(PLANARIA_JOB="job.json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"ARGV\0a b\0END\n") == 2
