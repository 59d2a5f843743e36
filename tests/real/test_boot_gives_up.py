"""A host that gives up, with the real aws program against moto's server: the group takes it, and the notes are counted."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aws_server import aws
from boot_host import Host, host
from petctl_desk import Petctl, cloud, fresh_job, petctl

if TYPE_CHECKING:
    from aws_server import Aws

__all__ = ["aws", "cloud", "host", "petctl"]

pytestmark = pytest.mark.timeout(300)

ALONE = "is_alive_elsewhere() { :; }\nleave() { echo left; exit 0; }\nsleep() { :; }\nhooks=1 patience=100\n"


def test_a_host_that_gives_up_is_taken_by_its_group_and_after_a_few_the_group_gets_smaller(
    petctl: Petctl, aws: Aws, host: Host
) -> None:
    pytest.importorskip("awscli", reason="the aws program is not installed")
    job = fresh_job()
    petctl.environ = {"USER": "ann", "AWS_ENDPOINT_URL": aws.endpoint}
    petctl.submit(job)
    run = json.loads(petctl.data("status", job))["run"]

    def look() -> Any:
        name = f"{job}_worker"
        (found,) = petctl.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
            "AutoScalingGroups"
        ]
        return found

    before = look()
    first, second = (one["InstanceId"] for one in before["Instances"])
    variables = "".join(f"export {name}='{value}'\n" for name, value in aws.environment.items())
    host.program("aws", f'{variables}exec {sys.executable} -m awscli "$@"')
    listed = petctl.client("ec2").describe_launch_template_versions(LaunchTemplateName=f"{job}_worker")
    data = listed["LaunchTemplateVersions"][0]["LaunchTemplateData"]["UserData"]
    script = base64.b64decode(data).decode()

    def give_up(instance: str) -> str:
        return host.run(script, f"{ALONE}instance={instance}\ngive_up 137 'too often'")

    assert give_up(first).endswith("the job goes on without it\nleft\n")
    health = {one["InstanceId"]: one["HealthStatus"] for one in look()["Instances"]}
    assert (health[first], health[second]) == ("Unhealthy", "Healthy")
    folder = f"jobs/{job}/{run}/gave-up/"
    assert [key for key in petctl.files(job) if "gave-up" in key] == [f"{folder}{first}"]
    for name in ("i-2", "i-3"):
        petctl.client("s3").put_object(Bucket=petctl.bucket, Key=f"{folder}{name}", Body=b"")
    assert give_up(second).endswith("4 hosts of this run gave up: the group gets smaller\nleft\n")
    after = look()
    assert second not in {one["InstanceId"] for one in after["Instances"]}
    assert after["DesiredCapacity"] == before["DesiredCapacity"] - 1
    petctl.type("kill_job", job, "--purge")
