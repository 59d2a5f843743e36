"""The whole life of jobs, against moto's server, with real boto3 over HTTP."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shlex
import tarfile
from pathlib import Path

import pytest
from aws_server import aws
from petctl_desk import Petctl, cloud, fresh_job, petctl

from planaria.errors import UsageError

__all__ = ["aws", "cloud", "petctl"]

ROOT = Path(__file__).parents[2]

# From here to the description; `test_boot.py` has the way from there to the script.
TORTURE = ["--epochs", "", "a b", "$(touch x)", "%h `id`", "a \"b\" 'c'", "two\nlines", "--", "*", "\\", "é", "\udcff"]

MISSING_IMAGE = "there is no parameter /no/such/image in this region"


def test_a_job_lives_from_run_job_to_kill_job(petctl: Petctl) -> None:
    job = fresh_job()
    assert petctl.submit(job, "--", *TORTURE) == 0
    assert f"petctl logs -f {job} --region us-east-1 " in petctl.out  # no later command has the specs file
    assert len(petctl.left(job)) == 2 + 2 + 3 + 1 + 1  # groups, templates, instances, token, logs
    [code] = [key for key in petctl.files(job) if "/code/" in key]
    [description] = [key for key in petctl.files(job) if key.endswith("job.json")]
    told = json.loads(petctl.content(description))
    assert told["argv"] == TORTURE
    assert told["source"] == f"s3://{petctl.bucket}/{code}"
    assert told["sha256"] in code
    assert json.loads(petctl.data("status", job))["state"] == "running"
    petctl.type("status", job)
    heads = {line.split()[0]: line.split()[1:] for line in petctl.out.splitlines() if line}
    assert heads[job][1:4] == ["running", "2/2", "-"]
    assert heads[f"{job}_worker"] == ["2", "2", "2", "2", "-"]
    assert heads[f"{job}_rdzv"] == ["1", "1", "1", "1", "-"]
    petctl.end(job, 0)
    assert json.loads(petctl.data("status", job))["state"] == "done"
    assert petctl.type("wait", job) == 0
    assert petctl.type("kill_job", "--name", job, "--purge") == 0
    assert petctl.left(job) == []


def test_logs_can_be_removed_when_the_job_is_gone(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    petctl.type("kill_job", job)
    assert petctl.left(job) == [f"logs /planaria/{job}"]
    petctl.type("kill_job", job, "--purge")
    assert petctl.left(job) == []


def quick_start() -> list[str]:
    """Return the lines of the page's quick start that call petctl, as typed."""
    text = (ROOT / "docs/aws.md").read_text().partition("## Quick start\n")[2].partition("\n## ")[0]
    return re.findall(r"^    petctl (.*)$", text, re.MULTILINE)


def test_the_verbs_of_the_page_work_one_after_the_other(petctl: Petctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ways to run a job each is tried, and removed for the next; who follows a job that goes on gives Ctrl-C."""
    monkeypatch.chdir(ROOT)
    job = fresh_job()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        packed.addfile(tarfile.TarInfo("my_script.py"))
    petctl.client("s3").put_object(Bucket=petctl.bucket, Key="my_dir.tar.gz", Body=archive.getvalue())
    places = {"${SPECS_FILE}": str(petctl.specs_file), "${USER}-job": job, "s3://my-bucket/": f"s3://{petctl.bucket}/"}
    verbs = []
    typed = "\n".join(quick_start())
    for place, value in places.items():
        typed = typed.replace(place, value)
    for line in typed.splitlines():
        verb, *words = shlex.split(line, comments=True)
        if verb == "run_job" and "run_job" in verbs:
            petctl.type("kill_job", job)
        verbs.append(verb)
        if verb == "wait" or "-f" in words:
            petctl.on_pause = interrupt
            with pytest.raises(KeyboardInterrupt):
                petctl.type(verb, *words)
            petctl.on_pause = lambda: None
        else:
            assert petctl.type(verb, *words) in ((0, 1) if verb == "doctor" else (0,)), petctl.out
    assert verbs == ["doctor", *["run_job"] * 4, "status", "hosts", "logs", "wait", "stop", "scale", "kill_job", "gc"]
    assert petctl.left(job) == [f"logs /planaria/{job}"]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_upload_goes_below_the_prefix_of_the_workers_or_where_it_is_told(petctl: Petctl) -> None:
    assert petctl.type("upload", "--specs_file", str(petctl.specs_file), str(petctl.script)) == 0
    assert petctl.out.startswith(f"s3://{petctl.bucket}/jobs/uploads/code/")
    petctl.type("upload", str(petctl.script), f"s3://{petctl.bucket}/mine/x.py")
    assert petctl.content("mine/x.py") == "print('trained')\n"


def test_upload_refuses_a_key_by_which_nodes_would_take_it_for_something_else(petctl: Petctl) -> None:
    for source, key in ((petctl.folder, "x.py"), (petctl.script, "x.tar.gz")):
        with pytest.raises(UsageError, match=f"the destination's key is '{key}', expected one with an ending such as"):
            petctl.type("upload", "--dry-run", str(source), f"s3://{petctl.bucket}/{key}")
    petctl.type("upload", "--dry-run", str(petctl.folder), f"s3://{petctl.bucket}/x.tgz")


@pytest.mark.parametrize("where", ["s3://b/dir/", "s3://b", "s3://", "s3://b/x.zip", "http://b/x.py", "x.py"])
def test_a_destination_that_is_none_is_said_to_be_the_destination(petctl: Petctl, where: str) -> None:
    with pytest.raises(UsageError, match=f"^the destination is '{where}', expected s3://BUCKET/KEY"):
        petctl.type("upload", "--dry-run", str(petctl.script), where)


def test_code_in_s3_is_pinned_when_the_job_is_submitted(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.client("s3").put_object(Bucket=petctl.bucket, Key="x.py", Body=b"print(1)\n")
    petctl.script = f"s3://{petctl.bucket}/x.py"  # type: ignore[assignment]  any text will do
    petctl.submit(job)
    [key] = petctl.files(job)
    told = json.loads(petctl.content(key))
    assert told["sha256"] == hashlib.sha256(b"print(1)\n").hexdigest()
    petctl.script = f"s3://{petctl.bucket}/missing.py"  # type: ignore[assignment]
    with pytest.raises(UsageError, match="there is no object"):
        petctl.submit(fresh_job())


def test_a_path_in_the_container_and_a_directory_can_be_run(petctl: Petctl) -> None:
    inside, packed = fresh_job(), fresh_job()
    words = ("run_job", "--size", "1", "--specs_file", str(petctl.specs_file), "--name")
    petctl.type(*words, inside, "--no_upload", "/path/in/container/dir", "my_script.py")
    assert len(petctl.files(inside)) == 1
    (petctl.folder / "code").mkdir()
    (petctl.folder / "code" / "main.py").write_text("")
    petctl.type(*words, packed, str(petctl.folder / "code"), "main.py", "--", "-x")
    assert [key for key in petctl.files(packed) if key.endswith(".tar.gz")]


def test_a_script_that_changes_while_it_is_uploaded_is_not_stored_under_its_old_hash(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.on_say = lambda line: petctl.script.write_text("other") and None if "making code" in line else None
    with pytest.raises(UsageError, match=r"train.py' was changed meanwhile; nothing of this run is left"):
        petctl.submit(job)
    assert petctl.left(job) == petctl.files(job) == []


def test_logs_are_kept_as_long_as_the_specs_file_of_the_last_run_says(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    petctl.type("kill_job", job)
    petctl.write_specs({**petctl.specs, "log_retention_days": 7})
    petctl.submit(job)
    [group] = petctl.client("logs").describe_log_groups(logGroupNamePrefix=f"/planaria/{job}")["logGroups"]
    assert group["retentionInDays"] == 7


def test_everything_a_job_has_carries_its_tags(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    wanted = {"planaria:job", "planaria:run", "planaria:owner", "planaria:expires"}
    listed = petctl.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[f"{job}_worker", f"{job}_rdzv"]
    )
    found = [group["Tags"] for group in listed["AutoScalingGroups"]]
    templates = petctl.client("ec2").describe_launch_templates(LaunchTemplateNames=[f"{job}_worker", f"{job}_rdzv"])
    found += [template["Tags"] for template in templates["LaunchTemplates"]]
    found.append(
        petctl.client("ssm").list_tags_for_resource(ResourceType="Parameter", ResourceId=f"/planaria/{job}/token")[
            "TagList"
        ]
    )
    instances = petctl.client("ec2").describe_instances(Filters=[{"Name": "tag:planaria:job", "Values": [job]}])
    found += [item["Tags"] for reservation in instances["Reservations"] for item in reservation["Instances"]]
    found += [
        petctl.client("s3").get_object_tagging(Bucket=petctl.bucket, Key=key)["TagSet"] for key in petctl.files(job)
    ]
    assert len(found) == 2 + 2 + 1 + 3 + 2
    assert all(wanted <= {tag["Key"] for tag in tags} for tags in found)
    assert wanted <= set(petctl.client("logs").list_tags_log_group(logGroupName=f"/planaria/{job}")["tags"])


def test_the_token_is_in_the_parameter_and_nowhere_else(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job, "--json")
    parameter = petctl.client("ssm").get_parameter(Name=f"/planaria/{job}/token", WithDecryption=True)["Parameter"]
    assert parameter["Type"] == "SecureString"
    token = parameter["Value"]
    assert len(token) == 64
    said = petctl.out + petctl.err
    user_data = [boot_script(petctl, f"{job}_{role}") for role in ("worker", "rdzv")]
    files = [petctl.content(key) for key in petctl.files(job)]
    assert len(files) == 2
    assert not [text for text in (said, *user_data, *files) if token in text]


def boot_script(petctl: Petctl, template: str) -> str:
    """Return user data as a host gets it. The API has it in base64, where nothing can be found."""
    listed = petctl.client("ec2").describe_launch_template_versions(LaunchTemplateName=template)
    data = listed["LaunchTemplateVersions"][0]["LaunchTemplateData"]["UserData"]
    return base64.b64decode(data).decode()


def test_doctor_looks_whether_workers_reach_the_volume(petctl: Petctl) -> None:
    """moto's groups let nobody in."""
    efs = petctl.client("efs")
    volume = efs.create_file_system()["FileSystemId"]
    worker = petctl.specs["worker"]
    targets = [
        efs.create_mount_target(FileSystemId=volume, SubnetId=subnet, SecurityGroups=worker["security_groups"])
        for subnet in worker["subnets"]
    ]
    petctl.write_specs({**petctl.specs, "worker": {**worker, "efs_file_system_id": volume}})
    assert petctl.type("doctor", "--json", "--specs_file", str(petctl.specs_file)) == 1
    told = [check["told"] for check in json.loads(petctl.out) if check["what"] == "worker.efs_file_system_id"]
    assert told[0].startswith("mount targets in ")
    reached = [f"workers may not reach mount target {target['MountTargetId']}: " for target in targets]
    assert sorted(reached) == [line.partition(": ")[0] + ": " for line in told[1:]]


def test_doctor_finds_what_is_wrong_and_what_is_right(petctl: Petctl) -> None:
    petctl.client("iam").create_instance_profile(InstanceProfileName="store-profile")
    group = petctl.specs["worker"]["security_groups"][0]
    pairs = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2 = petctl.client("ec2")
    registry = "123456789012.dkr.ecr.us-east-1.amazonaws.com/trainer:1"
    worker = {
        **petctl.specs["worker"],
        "efs_file_system_id": "fs-0a1b2c3d",
        "key_pair": "mine",
        "docker_image": registry,
    }
    petctl.write_specs({**petctl.specs, "worker": worker})
    assert petctl.type("doctor", "--json", "--specs_file", str(petctl.specs_file)) == 1
    checks = json.loads(petctl.out)
    found = {check["what"]: (check["verdict"], check["told"]) for check in checks}
    assert found["credentials"][0] == found["worker.s3_bucket"][0] == found["worker.instance_role"][0] == "ok"
    assert found["worker.subnets"][0] == found["worker.instance_type"][0] == "ok"
    assert found["worker.image_id"][0] == "warning"
    assert "is /dev/sda1: ebs_volume_gb makes a second one" in found["worker.image_id"][1]
    assert "nodes may not talk to each other" in found["worker.security_groups"][1]
    assert found["worker.efs_file_system_id"] == ("wrong", "there is no volume fs-0a1b2c3d")
    assert found["worker.key_pair"] == ("wrong", "there is no such key pair")
    assert found["worker.docker_image"] == ("wrong", f"there is no {registry}")
    assert "workers may not reach the store" in found["rdzv.security_groups"][1]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=pairs)
    petctl.write_specs(petctl.specs)
    assert petctl.type("doctor", "--specs_file", str(petctl.specs_file)) == 0, petctl.out
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=pairs)


def test_spot_hosts_are_asked_for_as_the_api_wants_it(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.write_specs({**petctl.specs, "worker": {**petctl.specs["worker"], "max_spot_price": 0.25}})
    petctl.submit(job)
    listed = petctl.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[f"{job}_worker"])
    policy = listed["AutoScalingGroups"][0]["MixedInstancesPolicy"]
    assert policy["InstancesDistribution"]["SpotMaxPrice"] == "0.25"


def test_user_data_is_a_script_with_its_interpreter_and_knows_no_address(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    for name in (f"{job}_worker", f"{job}_rdzv"):
        text = boot_script(petctl, name)
        assert text.startswith("#!/bin/bash")
        addresses = [row["address"] for row in json.loads(petctl.data("hosts", job))]
        assert not [address for address in addresses if address in text]


def test_an_image_is_the_one_that_an_ssm_parameter_has_when_the_job_is_submitted(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.write_specs(petctl.with_image_parameter())
    petctl.submit(job)
    listed = petctl.client("ec2").describe_launch_template_versions(LaunchTemplateName=f"{job}_worker")
    image = listed["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"]
    assert image == petctl.specs["worker"]["image_id"]
    checks = json.loads(petctl.data("doctor", "--specs_file", str(petctl.specs_file)))
    [told] = [check["told"] for check in checks if check["what"] == "worker.image_parameter"]
    assert "/dev/sda1" in told  # of that image
    petctl.type("kill_job", job)


def test_an_image_that_is_not_there_is_one_sentence_and_nothing_is_made(petctl: Petctl) -> None:
    job = fresh_job()
    worker = {key: value for key, value in petctl.specs["worker"].items() if key != "image_id"}
    petctl.write_specs({**petctl.specs, "worker": {**worker, "image_parameter": "/no/such/image"}})
    with pytest.raises(UsageError, match="there is no image under the SSM parameter /no/such/image in us-east-1"):
        petctl.submit(job)
    checks = json.loads(petctl.data("doctor", "--specs_file", str(petctl.specs_file)))
    assert {"what": "worker.image_parameter", "verdict": "wrong", "told": MISSING_IMAGE} in checks
    assert petctl.left(job) == []
