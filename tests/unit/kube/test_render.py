from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from planaria.errors import UsageError
from planaria.kube import render, render_flags
from planaria.kube.manifests import Volume, Wanted
from planaria.kube.names import LONGEST_JOB
from planaria.kube.parts import Dataset, Etcd, Storage
from planaria.kube.render_flags import Asked, read

ROOT = Path(__file__).parents[3]


def k8s(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "bin/planaria"), "k8s", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(line, capture_output=True, text=True, env=env, timeout=60, check=False)


def test_every_flag_becomes_what_it_says() -> None:
    line = (
        "--name=a --namespace n --image=i:1 --nnodes=2:8 --pods=4 --nproc_per_node=gpu --gpus=8 --cpu=500m --memory=64Gi "
        f"--shared-memory=16Gi --etcd=e:1 --checkpoint-claim=c --volume=d:/d --volume e:/e --env=A=1=2 --sha256={'A' * 64} "
        "--service-account=s --grace=120 --max-restarts=0 --job -o out.yaml --json x.py --name=b -- -o"
    )
    assert read(shlex.split(line)) == Asked(
        Wanted(
            "a",
            "x.py",
            ("--name=b", "--", "-o"),
            namespace="n",
            image="i:1",
            min_nodes=2,
            max_nodes=8,
            pods=4,
            nproc="gpu",
            gpus=8,
            cpu="500m",
            memory="64Gi",
            shared_memory="16Gi",
            etcd="e:1",
            checkpoints=Volume("c", "/checkpoints"),
            volumes=(Volume("d", "/d"), Volume("e", "/e")),
            environment=(("A", "1=2"),),
            sha256="a" * 64,
            service_account="s",
            grace_s=120,
            max_restarts=0,
        ),
        "job",
        "out.yaml",
        True,
        tuple(shlex.split(line.replace("-o out.yaml --json ", ""))),
    )


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--part=etcd --name=e --namespace=n --bare", Etcd("e", "n", is_bare=True)),
        ("--part storage --efs=fs-1", Storage(efs="fs-1")),
        (
            "--part=storage --nfs=h:/a/b --claim=c --pv=p --size=1Ti --namespace=n",
            Storage("c", "p", "n", "1Ti", "", "h", "/a/b"),
        ),
        ("--part=dataset --url=http://h/a.zip --claim=c --image=i", Dataset("c", "", "i", "http://h/a.zip")),
    ],
)
def test_every_part_has_flags_of_its_own(words: str, wanted: object) -> None:
    assert read(words.split()).wanted == wanted


def test_nodes_and_pods_have_sensible_numbers() -> None:
    seen = {}
    for words in ("x.py", "--nnodes=4 x.py", "--nnodes=2:5 x.py", "--nnodes=2:5 --operator x.py"):
        wanted = read(words.split()).wanted
        assert isinstance(wanted, Wanted)
        seen[words] = (wanted.min_nodes, wanted.max_nodes, wanted.pods)
    assert list(seen.values()) == [(1, 3, 3), (4, 4, 4), (2, 5, 5), (2, 5, 2)]


BAD = (
    ("", "a script is missing: a path in the image, or s3://BUCKET/KEY"),
    ("--nope x.py", "planaria k8s render has no flag '--nope'"),
    ("-x x.py", "planaria k8s render has no flag '-x'"),
    ("--name", "--name expects a value, got nothing"),
    ("--json=1 x.py", "--json takes no value, got '1'"),
    ("--name=A x.py", f"--name expects at most {LONGEST_JOB} lower-case letters, digits and dashes"),
    ("--name=a- x.py", "--name expects"),
    (f"--name={'a' * (LONGEST_JOB + 1)} x.py", "--name expects"),
    ("--namespace=a.b x.py", "--namespace expects the name of a namespace, got 'a.b'"),
    ("--image= x.py", "--image expects the name of an image, got ''"),
    ("--nnodes=0 x.py", "--nnodes expects a number of nodes or MIN:MAX, from 1 to 1000 and MIN not above MAX, got '0'"),
    ("--nnodes=3:2 x.py", "--nnodes expects"),
    ("--nnodes=1:2:3 x.py", "--nnodes expects"),
    ("--nnodes=-1 x.py", "--nnodes expects"),
    ("--nnodes=1:2 --pods=3 x.py", "--pods expects a number from 1 to 2, got '3'"),
    ("--pods=0 x.py", "--pods expects a number from 1 to 3, got '0'"),
    ("--nproc-per-node=0 x.py", "--nproc-per-node expects a number of workers, or auto, cpu, gpu, got '0'"),
    ("--gpus=two x.py", "--gpus expects a number from 0 to 1000, got 'two'"),
    ("--memory=lots x.py", "--memory expects a quantity of Kubernetes such as 4, 500m or 8Gi, got 'lots'"),
    ("--cpu=0 x.py", "--cpu expects a quantity above 0, got '0'"),
    ("--shared-memory=0Gi x.py", "--shared-memory expects a quantity above 0, got '0Gi'"),
    ("--store=redis x.py", "--store expects one of etcd, kubernetes, got 'redis'"),
    ("--store=kubernetes --etcd=e:1 x.py", "--etcd has no meaning with --store=kubernetes"),
    ("--etcd=e;rm x.py", "--etcd expects HOST:PORT of etcd, got 'e;rm'"),
    ("--checkpoint-claim=c:d x.py", "--checkpoint-claim expects CLAIM:/PATH, got 'c:d'"),
    ("--volume=c x.py", "--volume expects CLAIM:/PATH, got 'c'"),
    ("--volume=c:/a --volume=d:/a/ x.py", "'/a' is where something else is mounted, expected another path for d"),
    ("--volume=c:/dev/shm x.py", "'/dev/shm' is where something else is mounted"),
    ("--volume=c:/ x.py", "'/' is where something else is mounted"),
    ("--env=A x.py", "--env expects NAME=VALUE, got 'A'"),
    ("--env=1=2 x.py", "--env expects NAME=VALUE, got '1=2'"),
    ("--env=PET_NNODES=2 x.py", "--env expects no PET_NNODES, which is what --nnodes is for"),
    ("--env=PLANARIA_TOKEN=x x.py", "--env expects no PLANARIA_TOKEN, which the manifests set themselves"),
    ("--sha256=abc x.py", "--sha256 expects 64 hexadecimal digits, got 'abc'"),
    ("--service-account=A x.py", "--service-account expects the name of a ServiceAccount, got 'A'"),
    ("--grace=0 x.py", "--grace expects a number from 1 to 86400, got '0'"),
    ("--max-restarts=-1 x.py", "--max-restarts expects a number from 0 to 1000000, got '-1'"),
    ("--job --operator x.py", "--job and --operator exclude each other: a batch Job, or a PyTorchJob"),
    ("--master x.py", "--master has a meaning with --operator only"),
    ("--part=x", "--part expects one of job, etcd, storage, dataset, got 'x'"),
    ("--part=etcd x.py", "--part=etcd expects no script, got 'x.py'"),
    ("--part=etcd --gpus=1", "--gpus has no meaning with --part=etcd"),
    ("--part=etcd --name=Etcd", "--name expects the name of a Service, got 'Etcd'"),
    ("--bare x.py", "--bare has no meaning with --part=job"),
    ("--claim=c x.py", "--claim has no meaning with --part=job"),
    ("--part=storage", "--part=storage expects one of --efs=ID and --nfs=SERVER:/PATH"),
    ("--part=storage --efs=a --nfs=b:/", "--part=storage expects one of --efs=ID and --nfs=SERVER:/PATH"),
    ("--part=storage --nfs=b", "--nfs expects SERVER:/PATH, got 'b'"),
    ("--part=storage --efs=a --claim=C", "--claim expects the name of a PersistentVolumeClaim, got 'C'"),
    ("--part=dataset --url=ftp://h/a.zip", "--url expects an address of an archive, https://.../NAME.zip, got 'ftp://h/a.zip'"),
)  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), BAD, ids=[words for words, _ in BAD])
def test_bad_input_is_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(sentence)) as told:
        render.rendered(read(shlex.split(words)))
    assert "\n" not in str(told.value)


def test_a_word_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="expects UTF-8"):
        read(["x.py", "\udcff"])


def test_the_help_has_every_flag_and_its_examples_work() -> None:
    known = {*render_flags._VALUES, *render_flags._SWITCHES}
    examples = re.findall(r"^  planaria k8s render (.*?)(?: *#.*|\| .*)?$", render.HELP, re.MULTILINE)
    assert len(examples) == 6
    for line in examples:
        assert render.rendered(read(shlex.split(line)))
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", render.HELP.partition("\nThe job:")[2]))
    assert flags == known


def test_what_the_page_types_is_understood() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    lines = re.findall(r"^planaria k8s render (.*?)(?: *#.*|\| .*)?$", page, re.MULTILINE)
    assert len(lines) >= 9
    for line in lines:
        assert render.rendered(read(shlex.split(line)))


def test_the_first_line_makes_the_same_again_and_hides_nothing_in_it() -> None:
    text = render.rendered(read(["--env", "A=a\nkind: Secret\x1b[1m\u2028b", "x.py", "it's"]))
    first = text.splitlines()[0]
    assert first.isascii()
    assert first.isprintable()
    assert [one["kind"] for one in yaml.safe_load_all(text)] == ["Pod", "Service"] * 3


def test_the_command_prints_writes_and_refuses(tmp_path: Path) -> None:
    printed = k8s("render", "x.py")
    assert (printed.returncode, printed.stderr) == (0, "")
    path = tmp_path / "out.yaml"
    written = k8s("render", f"--output={path}", "x.py")
    assert (written.returncode, written.stdout, path.read_text()) == (0, "", printed.stdout)
    refused = k8s("render", "--nnodes=x", "x.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("planaria: --nnodes expects")
    lost = k8s("render", f"--output={path}/x", "x.py")
    assert (lost.returncode, lost.stderr) == (71, f"planaria: --output: cannot write '{path}/x': Not a directory\n")


def test_json_is_one_list_of_the_same_objects() -> None:
    found = json.loads(k8s("render", "--json", "--store=kubernetes", "x.py").stdout)
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert found["items"] == list(yaml.safe_load_all(k8s("render", "--store=kubernetes", "x.py").stdout))


def test_what_is_no_command_is_told_what_is() -> None:
    assert (k8s().returncode, "planaria k8s render" in k8s().stderr) == (2, True)
    assert (k8s("--help").returncode, "planaria k8s render" in k8s("--help").stdout) == (0, True)
    assert k8s("render", "--help").stdout == render.HELP
    unknown = k8s("apply")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "planaria: planaria k8s has no command 'apply', expected render\n",
    )
