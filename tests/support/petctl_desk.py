"""petctl in this process, with real boto3, against a server of moto's: a specs file, a desk, and a look at all that is left."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aws_server import REGION, Aws

from planaria.aws.desk import Desk
from planaria.aws.flags import Asked, read
from planaria.aws.main import _verb, given_specs
from planaria.aws.names import Names
from planaria.aws.session import Cloud

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
_JOBS = itertools.count()
_CLIENTS: dict[tuple[str, str], Any] = {}
_IMAGES: dict[str, str] = {}


def fresh_job() -> str:
    """Return a name that no other test of this session has."""
    return f"job-{next(_JOBS)}"


SERVICES = ("autoscaling", "ec2", "ecr", "efs", "iam", "logs", "s3", "ssm", "sts")


def open_cloud(aws: Aws, endpoint: str, timeout_s: float) -> Cloud:
    """Return AWS at an endpoint, its clients made: each takes a good while, so a session makes them once."""
    cloud = Cloud(REGION, None, timeout_s=timeout_s)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**aws.environment, "AWS_ENDPOINT_URL": endpoint, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        for service in SERVICES:
            cloud._client(service)
    return cloud


class Petctl:
    """Type commands, read what they said, look at what there is."""

    def __init__(self, aws: Aws, cloud: Cloud, folder: Path) -> None:
        self.aws = aws
        self.folder = folder
        self.cloud = cloud
        self.out = ""
        self.err = ""
        self.now = NOW
        self.environ = {"USER": "ann"}
        self.on_pause: Callable[[], None] = lambda: None
        self.on_say: Callable[[str], None] = lambda _: None
        self.bucket = aws.bucket()
        subnets = self.client("ec2").describe_subnets()["Subnets"][:2]
        self.specs: dict[str, Any] = {
            "region": REGION,
            "rdzv": {
                "instance_type": "t3.small",
                "instance_role": "store-profile",
                "subnets": [subnets[0]["SubnetId"]],
                "security_groups": [self.security_group(subnets[0]["VpcId"])],
                "image_id": self._image(),
            },
        }
        self.specs["worker"] = {
            **self.specs["rdzv"],
            "instance_type": "m5.large",
            "subnets": [subnet["SubnetId"] for subnet in subnets],
            "docker_image": "trainer:1",
            "s3_bucket": self.bucket,
            "s3_prefix": "jobs",
        }
        self.specs_file = folder / "specs.json"
        self.write_specs(self.specs)
        self.script = folder / "train.py"
        self.script.write_text("print('trained')\n")
        self._noise = itertools.count(1)

    def _image(self) -> str:
        """Return an image of our own. moto knows hundreds, and takes seconds to say which."""
        if self.aws.endpoint not in _IMAGES:
            _IMAGES[self.aws.endpoint] = self.client("ec2").register_image(Name="image", Architecture="x86_64")[
                "ImageId"
            ]
        return _IMAGES[self.aws.endpoint]

    def with_image_parameter(self) -> dict[str, Any]:
        """Return the specs with an SSM parameter in the place of the workers' image, which it has."""
        name = "/images/of-workers"
        image = self.specs["worker"]["image_id"]
        self.client("ssm").put_parameter(Name=name, Value=image, Type="String", Overwrite=True)
        worker = {key: value for key, value in self.specs["worker"].items() if key != "image_id"}
        return {**self.specs, "worker": {**worker, "image_parameter": name}}

    def security_group(self, network: str) -> str:
        groups = self.client("ec2").describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [network]}])
        return str(groups["SecurityGroups"][0]["GroupId"])

    def write_specs(self, specs: object) -> None:
        self.specs_file.write_text(json.dumps(specs))

    def client(self, service: str) -> Any:
        """Return a client that goes past every fault."""
        if (self.aws.endpoint, service) not in _CLIENTS:
            _CLIENTS[self.aws.endpoint, service] = self.aws.client(service)
        return _CLIENTS[self.aws.endpoint, service]

    def type(self, *argv: str) -> int:
        """Run one command; what it says is in `out` and `err`."""
        self.out = self.err = ""
        asked = read(argv)
        return _verb(asked.verb)(self.desk(asked))

    def desk(self, asked: Asked) -> Desk:
        return Desk(
            options=asked.options,
            script_args=asked.script_args,
            specs=given_specs(asked),
            environ=self.environ,
            cloud=self.cloud,
            say=self._say,
            show=self._show,
            pause=lambda _: self.on_pause(),
            now=itertools.count().__next__,
            utc=lambda: self.now,
            noise=lambda size: f"{next(self._noise):0{2 * size}x}",
        )

    def submit(self, job: str, *more: str) -> int:
        words = ("run_job", "--size", "2", "--specs_file", str(self.specs_file), "--name", job, str(self.script))
        return self.type(*words, *more)

    def _say(self, line: str) -> None:
        self.err += line + "\n"
        self.on_say(line)

    def _show(self, text: str) -> None:
        self.out += text

    def left(self, job: str) -> list[str]:
        """Return everything in the account that has to do with a job, files aside."""
        names = Names(job)
        wanted = [names.worker_group, names.store_group]  # by name: lists of everything come in pages
        groups = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=wanted)
        found = [f"group {group['AutoScalingGroupName']}" for group in groups["AutoScalingGroups"]]
        templates = self.client("ec2").describe_launch_templates(
            Filters=[{"Name": "launch-template-name", "Values": wanted}]
        )
        found += [f"template {item['LaunchTemplateName']}" for item in templates["LaunchTemplates"]]
        alive = [
            {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
            {"Name": "tag:planaria:job", "Values": [job]},
        ]
        for reservation in self.client("ec2").describe_instances(Filters=alive)["Reservations"]:
            found += [f"instance {item['InstanceId']}" for item in reservation["Instances"]]
        parameters = self.client("ssm").get_parameters(Names=[names.token])["Parameters"]
        found += [f"parameter {item['Name']}" for item in parameters]
        logs = self.client("logs").describe_log_groups(logGroupNamePrefix=names.log_group)["logGroups"]
        return found + [f"logs {item['logGroupName']}" for item in logs if item["logGroupName"] == names.log_group]

    def files(self, job: str) -> list[str]:
        listed = self.client("s3").list_objects_v2(Bucket=self.bucket, Prefix=f"jobs/{job}/")
        return [item["Key"] for item in listed.get("Contents", [])]

    def content(self, key: str) -> str:
        """Return what is in a file of the workers' bucket."""
        text: bytes = self.client("s3").get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return text.decode()

    def end(self, job: str, status: int) -> None:
        """Do what the first host does that sees the job's end."""
        self.record(job, json.loads(self.data("status", job))["run"], status)

    def record(self, job: str, run: str, status: int) -> None:
        result = {"version": 1, "job": job, "run": run, "status": status, "reason": "the end", "instance": "i-1"}
        self.client("s3").put_object(Bucket=self.bucket, Key=f"jobs/{job}/{run}/result.json", Body=json.dumps(result))
        for group in (Names(job).worker_group, Names(job).store_group):
            self.client("autoscaling").update_auto_scaling_group(
                AutoScalingGroupName=group, MinSize=0, DesiredCapacity=0
            )

    def data(self, *argv: str) -> str:
        self.type(*argv, "--json")
        return self.out


@pytest.fixture(scope="session")
def cloud(aws: Aws) -> Iterator[Cloud]:
    made = open_cloud(aws, aws.endpoint, 20)
    yield made
    made.close()
    for client in _CLIENTS.values():
        client.close()
    _CLIENTS.clear()


@pytest.fixture
def petctl(aws: Aws, cloud: Cloud, tmp_path: Path) -> Petctl:
    return Petctl(aws, cloud, tmp_path)
