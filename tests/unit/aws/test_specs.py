from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from planaria.aws.fields import BOTH, FIELDS, TOP_FIELDS, WORKER
from planaria.aws.specs import Registered, arch_of, has_gpus, read_specs, registered
from planaria.errors import UsageError

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "src/planaria/aws/specs.schema.json").read_text())
HOST = {
    "instance_type": "m5.large",
    "instance_role": "profile",
    "subnets": ["subnet-0a1b2c3d"],
    "security_groups": ["sg-0a1b2c3d"],
}
WORKERS = {**HOST, "docker_image": "trainer:1", "s3_bucket": "my-bucket"}


def specs(**changes: object) -> dict[str, Any]:
    return {"worker": {**WORKERS, **changes}}


def refusal(data: object) -> str:
    with pytest.raises(UsageError) as caught:
        read_specs(data)
    return caught.value.message


def test_the_smallest_file_is_enough() -> None:
    found = read_specs(specs())
    assert (found.rdzv, found.worker.s3_prefix, found.worker.accelerator, found.warnings) == (
        None,
        "planaria",
        "none",
        (),
    )
    assert found.worker.image_parameter.endswith("al2023-ami-kernel-default-x86_64")


def test_null_is_as_good_as_nothing() -> None:
    nothing = {"accelerator": None, "ebs_volume_gb": None, "s3_prefix": None, "instance_types": None, "key_pair": None}
    assert read_specs({**specs(**nothing), "log_retention_days": None, "rdzv": None}) == read_specs(specs())


def test_the_schema_takes_null_where_the_reader_does() -> None:
    check = jsonschema.Draft202012Validator(SCHEMA)
    for section in ("", "worker", "rdzv"):
        for field in FIELDS[BOTH] + FIELDS[section] if section else TOP_FIELDS:
            found: dict[str, Any] = {"worker": dict(WORKERS), "rdzv": dict(HOST)}
            (found[section] if section else found)[field.name] = None
            assert check.is_valid(found) != field.required, f"{section}.{field.name}"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"accelerator": "tpu"}, "worker.accelerator is 'tpu', expected 'none' or 'gpu'"),
        ({"subnets": []}, "worker.subnets is [], expected a list of subnet ids"),
        ({"subnets": "subnet-0a1b2c3d"}, "worker.subnets is 'subnet-0a1b2c3d', expected a list"),
        ({"instance_type": None}, "worker.instance_type is missing, expected an EC2 instance type"),
        ({"instance_typ": "m5.large"}, "worker.instance_typ is unknown, did you mean instance_type?"),
        ({"user_data_template": "x"}, "worker.user_data_template is not a field any more"),
        ({"max_spot_price": "cheap"}, "worker.max_spot_price is 'cheap', expected dollars an hour"),
        ({"ebs_volume_gb": True}, "worker.ebs_volume_gb is True, expected a number from 8"),
        ({"s3_bucket": "<YOUR S3 BUCKET NAME>"}, "worker.s3_bucket still has the sample's <YOUR"),
        ({"launch_flags": ["--nnodes=3"]}, "worker.launch_flags has '--nnodes=3', which petctl sets itself"),
        ({"launch_flags": ["--nno=9"]}, "worker.launch_flags has '--nno=9', which petctl sets itself"),
        ({"launch_flags": ["--rdzv_i=x"]}, "worker.launch_flags has '--rdzv_i=x', which petctl sets itself"),
        ({"launch_flags": ["--tee=0"]}, "worker.launch_flags has '--tee=0', which petctl sets itself"),
        ({"launch_flags": ["-t3"]}, "worker.launch_flags has '-t3', which petctl sets itself"),
        ({"launch_flags": ["--local-addr=a"]}, "worker.launch_flags has '--local-addr=a', which petctl sets itself"),
        ({"launch_flags": ["--help"]}, "worker.launch_flags has '--help', with which nothing is run"),
        ({"launch_flags": ["-h"]}, "worker.launch_flags has '-h', with which nothing is run"),
        ({"launch_flags": ["-m"]}, "worker.launch_flags has '-m', and what petctl ships is a Python script"),
        ({"launch_flags": ["--no-python"]}, "worker.launch_flags has '--no-python', and what petctl ships is"),
        ({"launch_flags": ["--exit-code=worker"]}, "worker.launch_flags has '--exit-code=worker', and a script's own"),
        ({"launch_flags": ["--nonsense=1"]}, "worker.launch_flags has '--nonsense=1': there is no flag '--nonsense'"),
        ({"launch_flags": ["--max-restarts"]}, "worker.launch_flags has '--max-restarts': --max-restarts expects a v"),
        ({"launch_flags": ["--max-restarts 3"]}, "worker.launch_flags has '--max-restarts 3', which is no flag"),
        ({"launch_flags": ["--max-restarts=x"]}, "worker.launch_flags has '--max-restarts=x': --max-restarts expects"),
        ({"launch_flags": ["--nproc-per-node=x"]}, "worker.launch_flags has '--nproc-per-node=x': --nproc-per-node"),
        ({"launch_flags": ["-"]}, "worker.launch_flags has '-', which is no flag"),
        ({"launch_flags": ["--"]}, "worker.launch_flags has '--', which is no flag"),
        ({"accelerator": "gpu"}, "worker.accelerator is 'gpu', expected 'none' for m5.large, which has no NVIDIA GPU"),
        ({"instance_types": ["m6g.large"], "max_spot_price": 1}, "worker.instance_types has 'm6g.large'"),
        ({"instance_types": ["m6i.large"]}, "worker.instance_types is only for spot instances"),
        ({"on_demand_base": 1}, "worker.on_demand_base is only for spot instances"),
        ({"image_id": "ami-$(reboot)"}, "worker.image_id is 'ami-$(reboot)', expected an image id"),
    ],
)
def test_a_wrong_field_is_told_by_its_path_in_one_sentence(change: dict[str, object], sentence: str) -> None:
    told = refusal(specs(**change))
    assert told.startswith(sentence)
    assert "\n" not in told


def test_all_mistakes_are_told_at_once() -> None:
    told = refusal({"worker": {**WORKERS, "subnets": 3, "s3_bucket": "A"}, "rdzv": {}, "regoin": "us-west-2"})
    assert [line.split()[0] for line in told.split("\n")] == [
        "regoin", "worker.subnets", "worker.s3_bucket",
        "rdzv.instance_type", "rdzv.instance_role", "rdzv.subnets", "rdzv.security_groups",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "data", [None, [], "text", 3, {"worker": []}, {}, {"worker": float("nan")}, {**specs(), "rdzv": []}]
)
def test_what_is_no_specs_file_is_refused(data: object) -> None:
    told = refusal(data)
    assert "expected an object" in told
    assert "\n" not in told, "one mistake is one sentence"


def test_days_are_whole_numbers_also_where_they_are_equal_to_one() -> None:
    assert refusal({**specs(), "log_retention_days": 30.0}).startswith("log_retention_days is 30.0, expected a number")


@pytest.mark.parametrize(
    "kind", ["g3.8xlarge", "g4dn.xlarge", "g5.xlarge", "g6e.xlarge", "gr6.4xlarge", "p2.xlarge", "p5.48xlarge"]
)
def test_a_gpu_type_of_any_generation_is_known_and_without_gpu_it_is_warned_about(kind: str) -> None:
    assert has_gpus(kind)
    [warning] = read_specs(specs(instance_type=kind)).warnings
    assert warning.startswith(f"worker.accelerator is 'none' though {kind} has GPUs")
    with_gpu = read_specs(specs(instance_type=kind, accelerator="gpu"))
    assert "nvidia" in with_gpu.worker.image_parameter
    is_old = kind.startswith(("g3", "p2"))
    assert len(with_gpu.warnings) == is_old  # for these, AWS's image has no driver
    own = read_specs(specs(instance_type=kind, accelerator="gpu", image_id="ami-0a1b2c3d"))
    assert own.warnings == ()


def test_a_gpu_without_cuda_is_none() -> None:
    assert not has_gpus("g4ad.xlarge")
    assert has_gpus("g4dn.xlarge")


def test_an_image_in_a_registry_of_aws_is_known_by_tag_or_digest() -> None:
    home = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/trainer"
    assert registered(home) == Registered("123456789012", "eu-west-1", "team/trainer", "latest", None)
    assert registered(f"{home}:2") == Registered("123456789012", "eu-west-1", "team/trainer", "2", None)
    digest = "sha256:" + "0" * 64
    assert registered(f"{home}:2@{digest}") == Registered("123456789012", "eu-west-1", "team/trainer", None, digest)
    assert registered("docker.io/team/trainer:2") is None


@pytest.mark.parametrize(
    ("price", "told"), [(1, "1"), (0.75, "0.75"), (1e-5, "0.00001"), ("0.50", "0.50"), (30.0, "30")]
)
def test_a_price_is_written_as_the_api_reads_it(price: object, told: str) -> None:
    assert read_specs(specs(max_spot_price=price)).worker.max_spot_price == told


def test_a_long_prefix_that_is_wrong_is_refused_at_once() -> None:
    """A pattern that tries every way to split it would not be done today."""
    told = refusal(specs(s3_prefix="a" * 100 + "!"))
    assert told.startswith("worker.s3_prefix is 'aaa")
    place = f"{'b' * 63}/{'a' * 180}"
    assert len(place) <= 256  # a tag has no more
    assert refusal(specs(s3_prefix="a" * 181)).startswith("worker.s3_prefix is")


@pytest.mark.parametrize(
    "kind", ["m6g.large", "c7gn.xlarge", "t4g.small", "g5g.xlarge", "a1.large", "p6e-gb200.36xlarge"]
)
def test_arm_types_get_images_for_arm(kind: str) -> None:
    assert arch_of(kind) == "arm64"
    assert arch_of("g4dn.xlarge") == arch_of("m5.large") == "x86_64"


def test_etcd_comes_with_its_hash() -> None:
    found = read_specs({**specs(), "rdzv": {**HOST, "instance_type": "t4g.small"}})
    assert found.rdzv is not None
    assert "linux-arm64" in found.rdzv.etcd_url
    assert re.fullmatch("[0-9a-f]{64}", found.rdzv.etcd_sha256)


def test_the_sample_needs_only_its_placeholders_filled_in() -> None:
    sample = (ROOT / "aws/config/sample_specs.json").read_text()
    values = {
        "<YOUR SUBNET>": "subnet-0a1b2c3d", "<YOUR SECURITY GROUP>": "sg-0a1b2c3d", "<YOUR EFS VOLUME>": "fs-0a1b2c3d",
        "<YOUR S3 BUCKET NAME>": "my-bucket", "<YOUR S3 PREFIX>": "jobs",
    }  # fmt: skip
    lines = refusal(json.loads(sample)).split("\n")
    assert all("still has the sample's" in line for line in lines)
    for placeholder, value in values.items():
        sample = sample.replace(placeholder, value)
    read_specs(json.loads(re.sub("<YOUR [A-Z ]+>", "mine", sample)))


def test_schema_and_page_have_every_field_and_no_other() -> None:
    page = (ROOT / "docs/aws.md").read_text()
    for section, kinds in (("worker", (BOTH, WORKER)), ("rdzv", (BOTH, "rdzv"))):
        fields = [field for kind in kinds for field in FIELDS[kind]]
        found = SCHEMA["properties"][section]
        assert set(found["properties"]) == {field.name for field in fields}
        assert set(found["required"]) == {field.name for field in fields if field.required}
    assert set(SCHEMA["properties"]) == {field.name for field in TOP_FIELDS}
    names = {field.name for fields in FIELDS.values() for field in fields} | {"region", "log_retention_days"}
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert names == rows


@pytest.mark.parametrize(
    ("section", "field", "good", "bad"),
    [
        ("worker", "accelerator", ["none"], ["tpu", 1]),
        ("worker", "subnets", [["subnet-0a1b2c3d"]], [[], ["subnet-x"], "subnet-0a1b2c3d"]),
        ("worker", "instance_role", ["a", "arn:aws:iam::123456789012:instance-profile/x/y"], ["é", "a b", ""]),
        ("worker", "key_pair", ["my key"], ["", "é", "k" * 256]),
        ("worker", "ebs_volume_gb", [8, 16384], [7, 16385, "8", True]),
        ("worker", "image_id", ["ami-0a1b2c3d"], ["x", "ami-0A1B2C3D"]),
        ("worker", "image_parameter", ["/a/b"], ["a/b", "/é", "/" + "a" * 2048]),
        ("worker", "docker_image", ["a.b/c:1@sha256"], ["-a", "é", "a b", "a" * 256]),
        ("worker", "s3_bucket", ["a.b-c"], ["A", "a..b", "-ab", "ab", "a" * 64]),
        (
            "worker",
            "s3_prefix",
            ["", "/", "/a/b.c/", "a/b", ".a/..b"],
            ["//", "a//b", "a b", "é", "a" * 181, "..", ".", "../b", "/a/./b", "a/.."],
        ),
        ("worker", "efs_file_system_id", ["fs-0a1b2c3d"], ["fs-", "0a1b2c3d"]),
        ("worker", "max_spot_price", [0.75, "0.75", 1, "12"], [0, -1, "0", "0.0", "cheap", "1.", 10_000, True]),
        ("worker", "on_demand_base", [0], [-1, 10_001, "0"]),
        ("worker", "shm_gb", [1, 100_000], [0, 100_001]),
        (
            "worker",
            "launch_flags",
            [[], ["--max-restarts=3", "-r=3", "--nproc-per-node=2"]],
            [["x"], "--x", ["-" + "x" * 255]],
        ),
        ("rdzv", "etcd_url", ["https://a/b?c=d"], ["ftp://a", "https://a b", "https://a'b", "https://$x"]),
        ("rdzv", "etcd_sha256", ["0" * 64], ["0" * 63, "A" * 64]),
        (None, "region", ["us-west-2", "us-gov-west-1", "eusc-de-east-1"], ["us", "US-WEST-2", "x y"]),
        (None, "log_retention_days", [1, 30, 3653], [0, 2, 31, "30"]),
    ],
)
def test_schema_and_reader_agree(section: str | None, field: str, good: list[object], bad: list[object]) -> None:
    check = jsonschema.Draft202012Validator(SCHEMA)
    pair = {"etcd_url": "https://a/b", "etcd_sha256": "0" * 64}  # one without the other is another mistake

    def whole(value: object) -> dict[str, Any]:
        found: dict[str, Any] = {"worker": dict(WORKERS), "rdzv": {**HOST, **pair}}
        (found if section is None else found[section])[field] = value
        return found

    for value in good:
        assert check.is_valid(whole(value)), value
        read_specs(whole(value))
    for value in bad:
        assert not check.is_valid(whole(value)), value
        refusal(whole(value))


@pytest.mark.parametrize(
    "flag",
    [
        "--nproc-per-node=gpu",
        "--max_restarts=3",
        "-r3",
        "--numa-binding=node",
        "--event-log-handler=theirs",
        "--standbys=2",
    ],
)
def test_flags_that_a_host_can_be_given_are_taken_as_they_are(flag: str) -> None:
    assert read_specs(specs(launch_flags=[flag])).worker.launch_flags == (flag,)
