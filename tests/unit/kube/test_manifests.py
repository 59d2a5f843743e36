from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planaria.kube import manifests
from planaria.kube.crd import definition
from planaria.kube.installation import Install
from planaria.kube.installation import objects as installed
from planaria.kube.main import operator
from planaria.kube.manifests import Wanted
from planaria.kube.pods import asks_agent, has_our_agent, trainer_of
from planaria.kube.render import COMMAND, rendered
from planaria.kube.render_flags import read
from planaria.kube.spec import is_elastic, problems_of, spec_of
from planaria.launch.flags import OURS, TORCHRUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[3]
FILES = sorted([*ROOT.glob("kubernetes/*.yaml"), *ROOT.glob("example/torchelastic/*.yaml")])
VERSIONS = ("1.25", "1.37")  # the oldest and the newest whose schemas there are; tests/real asks a server of 1.20
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
VARIANTS = (
    "train.py",
    "--job train.py --lr=0.1",
    "--operator train.py",
    "--operator --store=kubernetes --master --nproc-per-node=gpu train.py",
    "--store=kubernetes --namespace=n --job train.py",
    "--store=kubernetes --service-account=reader --pods=1 train.py",
    (
        "--name=a --namespace=n --image=r.example.org/i:1 --nnodes=2:8 --pods=4 --nproc-per-node=auto --gpus=8 --cpu=500m "
        "--memory=64Gi --shared-memory=16Gi --etcd=etcd-0:2379,etcd-1:2379 --checkpoint-claim=c --volume=d:/d --volume=e:/e "
        f"--env=A=1 --env=B= --sha256={'a' * 64} --service-account=s --grace=120 --max-restarts=0 s3://b/k.tar.gz main.py"
    ),
    "--part=etcd",
    "--part=etcd --bare --name=e --namespace=n",
    "--part=storage --efs=fs-0 --size=10Ti",
    "--part=storage --nfs=10.0.0.1:/export/a --claim=c --pv=p --namespace=n",
    "--part=dataset --claim=c --image=i:1 --namespace=n --url=https://example.org/a.zip",
)
INSTALLATIONS = (
    Install("r.example.org/planaria:1"),
    Install("r.example.org/planaria:1", "ml-ops", 1, "Always", ("--tasks=2",), ("vision", "speech")),
)


def loaded(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, LOADER))


def made(words: str | Sequence[str]) -> list[dict[str, Any]]:
    argv = shlex.split(words) if isinstance(words, str) else words
    return loaded(rendered(read(argv)))


def pod_specs(found: object) -> Iterator[dict[str, Any]]:
    """Give every pod's spec in an object, however deep it is; a definition has none, and tells how they look."""
    if isinstance(found, dict) and found.get("kind") != "CustomResourceDefinition":
        if "containers" in found:
            yield found
        for item in found.values():
            yield from pod_specs(item)
    if isinstance(found, list):
        for item in found:
            yield from pod_specs(item)


def variables(spec: dict[str, Any], pod_ip: str = "10.1.2.3") -> dict[str, str]:
    """Return the environment of a pod's first container, without what a missing Secret would bring."""
    env = spec["containers"][0]["env"]
    assert len({one["name"] for one in env}) == len(env)
    own = {"fieldRef": {"fieldPath": "status.podIP"}}
    told = {one["name"]: one["value"] for one in env if "value" in one}
    return told | {one["name"]: pod_ip for one in env if one.get("valueFrom") == own}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_what_the_command_in_its_first_line_prints(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = path.read_text()
    command = written.partition("\n")[0].removeprefix("# ")
    if path.stem == "operator":
        assert operator(shlex.split(command.removeprefix("planaria operator"))) == 0
        text = capsys.readouterr().out
    else:
        assert command.startswith(COMMAND + " ")
        text = rendered(read(shlex.split(command.removeprefix(COMMAND))))
    if os.environ.get("PLANARIA_REWRITE"):
        path.write_text(text)
        written = text
    assert written == text, "PLANARIA_REWRITE=1 writes it anew; read the difference"


def test_the_files_of_the_walk_through_are_there() -> None:
    named = {"operator", "etcd", "storage", "dataset", "imagenet", "imagenet-job", "imagenet-no-etcd"}
    assert {path.stem for path in FILES if path.parent.name == "kubernetes"} == named
    assert {path.stem for path in FILES if path.parent.name == "torchelastic"} == {"etcd", "pv", "torchelastic-resnet"}


@cache
def objects() -> tuple[dict[str, Any], ...]:
    return (
        *(one for path in FILES for one in loaded(path.read_text())),
        *(one for words in VARIANTS for one in made(words)),
        *(json.loads(json.dumps(one)) for chosen in INSTALLATIONS for one in installed(chosen, definition())),
    )


SCHEMA_CONTENTS = cache(kubernetes_validate.utils.schema_contents)  # a megabyte of definitions


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_that_is_printed_keeps_to_the_schemas_of_old_and_new_servers(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", SCHEMA_CONTENTS)
    seen = set()
    for found in objects():
        if found["kind"] != "PyTorchJob":
            found["metadata"].setdefault("namespace", "default")
            kubernetes_validate.validate(found, version, strict=True)
        for spec in pod_specs(found):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
            kubernetes_validate.validate(pod, version, strict=True)
        seen.add(found["kind"])
    assert {"Deployment", "Job", "Lease", "PersistentVolume", "Pod", "PyTorchJob", "Role", "StorageClass"} < seen
    assert {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "RoleBinding"} < seen


def test_no_pod_is_more_than_it_has_to_be() -> None:
    for found in objects():
        for spec in pod_specs(found):
            is_fetching = found["metadata"]["name"] == "download-dataset-task"
            assert spec["securityContext"]["runAsUser"] == (0 if is_fetching else 1000)
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in spec["containers"]:
                rights = container["securityContext"]
                assert rights["allowPrivilegeEscalation"] is False
                assert rights["capabilities"]["drop"] == ["ALL"]
                assert ("add" in rights["capabilities"]) == is_fetching
                assert container["resources"]["limits"]["memory"]
                assert re.fullmatch(r"\S+:\S+", container["image"]), "a tag, not latest"
                assert not container["image"].endswith(":latest")


def test_names_are_those_of_the_walk_through() -> None:
    found = [(one["kind"], one["metadata"]["name"]) for one in loaded((ROOT / "kubernetes/imagenet.yaml").read_text())]
    names = ("imagenet-worker-1", "imagenet-worker-2")
    assert found == [(kind, name) for name in names for kind in ("Pod", "Service")]
    (service, _) = loaded((ROOT / "kubernetes/etcd.yaml").read_text())
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == ("etcd", 2379)
    *_, claim = loaded((ROOT / "kubernetes/storage.yaml").read_text())
    assert claim["metadata"]["name"] == "efs-claim"


def test_names_are_those_of_the_tutorial() -> None:
    folder = ROOT / "example/torchelastic"
    (service, pod) = loaded((folder / "etcd.yaml").read_text())
    assert (service["metadata"], pod["kind"], pod["metadata"]["name"]) == (
        {"name": "etcd-service", "namespace": "elastic-job"},
        "Pod",
        "etcd",
    )
    (volume, claim) = loaded((folder / "pv.yaml").read_text())
    assert (volume["metadata"], claim["spec"]["volumeName"]) == ({"name": "pv-torch-checkpoint"}, "pv-torch-checkpoint")
    assert claim["metadata"] == {"name": "pvc-torch-checkpoint", "namespace": "elastic-job"}
    job = yaml.safe_load((folder / "torchelastic-resnet.yaml").read_text())
    assert job["metadata"] == {"name": "resnet", "namespace": "elastic-job"}
    assert job["spec"]["elasticPolicy"] == {
        "rdzvBackend": "etcd",
        "rdzvEndpoint": "etcd-service:2379",
        "minReplicas": 1,
        "maxReplicas": 3,
        "nProcPerNode": 1,
    }
    assert {kind: spec["restartPolicy"] for kind, spec in job["spec"]["pytorchReplicaSpecs"].items()} == {
        "Master": "ExitCode",
        "Worker": "OnFailure",
    }


@pytest.mark.parametrize("name", ["imagenet", "imagenet-job", "imagenet-no-etcd"])
def test_the_sed_line_of_the_walk_through_names_the_script(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text((ROOT / "kubernetes" / path.name).read_text())
    line = """sed -i 's/<BUCKET>/'"$BUCKET"'/; s/<USER>/'"$USER"'/; s/<JOB_ID>/'"$JOB_ID"'/;' """ + path.name
    env = {"BUCKET": "b", "USER": "ann", "JOB_ID": "j-1", "PATH": os.defpath}
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env, check=True, timeout=60)
    scripts = [spec["containers"][0]["args"][0] for one in loaded(path.read_text()) for spec in pod_specs(one)]
    assert set(scripts) == {"s3://b/petctl/ann/j-1/main.py"}
    assert "<" not in path.read_text()


def test_the_sed_line_of_the_walk_through_names_the_file_system(tmp_path: Path) -> None:
    path = tmp_path / "storage.yaml"
    path.write_text((ROOT / "kubernetes/storage.yaml").read_text())
    line = """sed -i 's/<EFS_ID>/'"$EFS_ID"'/' storage.yaml"""
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env={"EFS_ID": "fs-1", "PATH": os.defpath}, check=True, timeout=60)
    _, volume, _ = loaded(path.read_text())
    assert volume["spec"]["csi"]["volumeHandle"] == "fs-1"


def test_pods_differ_in_nothing_but_their_number() -> None:
    first, _, second, _ = made("--pods=2 train.py")
    text = yaml.safe_dump(first).replace("train-worker-1", "train-worker-2").replace("worker: '1'", "worker: '2'")
    assert yaml.safe_load(text) == second


def test_a_third_pod_comes_by_the_sed_line_of_the_page() -> None:
    text = (ROOT / "kubernetes/imagenet.yaml").read_text()
    line = 'sed \'s/imagenet-worker-2/imagenet-worker-3/; s/worker: "2"/worker: "3"/\''
    assert line in (ROOT / "docs/kubernetes.md").read_text()
    done = subprocess.run(["sh", "-c", line], input=text, capture_output=True, text=True, check=True, timeout=60)
    command = text.partition("\n")[0].removeprefix(f"# {COMMAND}").replace("--pods=2", "--pods=3")
    wanted = made(command)
    assert list(loaded(done.stdout)) == [*wanted[:2], *wanted[4:]]


@pytest.mark.parametrize("grace_s", [1, 30, 3600])
def test_a_pod_may_take_as_long_as_its_agent_needs_to_drain(grace_s: int) -> None:
    for words in (f"--grace={grace_s} train.py", f"--grace={grace_s} --operator train.py"):
        for spec in (spec for one in made(words) for spec in pod_specs(one)):
            hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            assert hook == ["planaria", "drain", "--no-wait"], "one that waits dies with its container: a warning"
            assert int(variables(spec)["PET_SHUTDOWN_TIMEOUT"]) == grace_s == spec["terminationGracePeriodSeconds"] - 30


def test_probes_ask_where_the_agent_listens() -> None:
    for words in ("train.py", "--operator train.py"):
        for spec in (spec for one in made(words) for spec in pod_specs(one)):
            (container,) = spec["containers"]
            (port,) = container["ports"]
            told = variables(spec)
            assert (told["PET_HEALTH_CHECK_PORT"], told["PET_HEALTH_CHECK_HOST"]) == (
                str(port["containerPort"]),
                "10.1.2.3",
            )
            asked = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
            assert {one["port"] for one in asked.values()} == {port["name"]}
            assert {kind: one["path"] for kind, one in asked.items()} == {
                "startup": "/livez",
                "liveness": "/livez",
                "readiness": "/readyz",
            }


def test_every_variable_is_a_flag_of_the_launcher() -> None:
    known = {flag.variable for flag in (*TORCHRUN, *OURS)} | {"PLANARIA_TOKEN", "PLANARIA_FETCH_SHA256", "A", "B"}
    named = {
        one["name"]
        for found in objects()
        for spec in pod_specs(found)
        for c in spec["containers"]
        for one in c.get("env", ())
    }
    assert named <= known


def test_the_launcher_takes_what_a_pod_tells_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (spec, *_) = (spec for one in made("--nnodes=2:4 --checkpoint-claim=c train.py --lr=1") for spec in pod_specs(one))
    line = [sys.executable, str(ROOT / "bin/planaria"), "run", "--dry-run", "--json", *spec["containers"][0]["args"]]
    env = variables(spec) | {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    plan = yaml.safe_load(done.stdout)
    assert "etcd" in str(plan)
    assert "/checkpoints/commits/train" in str(plan)


def test_agents_may_change_two_objects_by_name_and_nothing_else() -> None:
    (role,) = (one for one in made("--name=j --store=kubernetes train.py") if one["kind"] == "Role")
    assert role["metadata"]["name"] == "j-agent"
    assert [(rule["resources"], rule["resourceNames"]) for rule in role["rules"]] == [
        (["configmaps"], ["j-run"]),
        (["leases"], ["j-run"]),
    ]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch", "update", "patch"}


def test_only_pods_that_talk_to_the_api_server_get_a_way_to() -> None:
    for words, account in (("train.py", None), ("--store=kubernetes train.py", "train-agent")):
        for spec in (spec for one in made(words) for spec in pod_specs(one)):
            assert spec.get("serviceAccountName") == account
            assert spec.get("automountServiceAccountToken", True) is (account is not None)


def expanded(text: str, known: dict[str, str]) -> str:
    """Return what Kubernetes makes of a word of `args`."""
    out, at = "", 0
    while at < len(text):
        end = text.find(")", at)
        if text.startswith("$$", at):
            out, at = out + "$", at + 2
        elif text.startswith("$(", at) and end > 0:
            name = text[at + 2 : end]
            out, at = out + known.get(name, f"$({name})"), end + 1
        else:
            out, at = out + text[at], at + 1
    return out


@given(st.text(st.sampled_from("$()aHOME{}\\ \n'\""), max_size=20))
def test_arguments_and_variables_arrive_as_they_were_typed(text: str) -> None:
    wanted = Wanted("j", text, (text,), pods=1, environment=(("A", text),))
    spec = next(pod_specs(dict(manifests.pods(wanted)[0][1])))
    found = (*spec["containers"][0]["args"], variables(spec)["A"])
    assert [expanded(word, {"a": "wrong", "HOME": "wrong", "A": "wrong"}) for word in found] == [text] * 3


def test_a_batch_job_ends_with_its_first_success() -> None:
    (job,) = made("--job --nnodes=1:4 train.py")
    assert "completions" not in job["spec"]
    assert job["spec"]["parallelism"] == 4


def test_defaults_are_those_of_the_help() -> None:
    assert read(["train.py"]).wanted == Wanted("train", "train.py", pods=3)
    assert manifests.IMAGE == "hello_elastic:dev"


def test_the_operator_finds_nothing_wrong_with_what_is_printed_for_it() -> None:
    jobs = [found for found in objects() if found["kind"] == "PyTorchJob"]
    assert len(jobs) == 3
    for job in jobs:
        assert problems_of(job["metadata"]["name"], job["spec"]) == ()
        assert is_elastic(job["spec"])
        spec = spec_of(job["metadata"]["name"], job["spec"])
        assert spec.elastic is not None
        assert spec.worker is not None
        inner = spec.worker.template["spec"]
        assert asks_agent(spec.elastic, inner), "that its Workers run and do not train can be told"
        assert has_our_agent(spec.elastic, trainer_of(inner))


def test_every_reason_of_a_condition_has_its_row_in_the_page() -> None:
    sources = "".join((ROOT / f"src/planaria/kube/{name}.py").read_text() for name in ("ending", "plan", "standing"))
    known = {
        one or other
        for one, other in re.findall(r'Told\([\w.]+, "(\w+)"|\("([A-Z][A-Za-z]+)", (?:f"|refusal|"its)', sources)
    }
    page = (
        (ROOT / "docs/kubernetes.md").read_text().partition("## Troubleshooting by condition")[2].partition("\n## ")[0]
    )
    assert len(known) > 12
    assert known <= set(re.findall(r"`(\w+)`", page))
