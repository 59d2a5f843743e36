"""`doctor`: hold a specs file against the account, before anything is made. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from planaria.aws.checks import (
    Check,
    check_efs,
    check_groups,
    check_image,
    check_mount,
    check_offered,
    check_reach,
    check_spares,
    check_subnets,
    check_talk,
    rows,
)
from planaria.aws.desk import Desk
from planaria.aws.hosts import STORE_PORT
from planaria.aws.session import Cloud
from planaria.aws.specs import Host, Specs, Worker, registered
from planaria.aws.status import table
from planaria.aws.steps import Call
from planaria.aws.survey import image_of
from planaria.errors import AwsError


def doctor(desk: Desk) -> int:
    """Check everything that a specs file names; return 1 where something is wrong."""
    specs = desk.specs
    assert specs is not None, "doctor has no meaning without --specs_file"
    cloud = desk.cloud
    checks = [Check("specs", "warning", line) for line in specs.warnings]
    who = cloud.call(Call("sts", "get_caller_identity", {}))  # without credentials nothing else can be asked
    checks.append(Check("credentials", "ok", f"{who['Arn']} in {cloud.region}"))
    checks += _asked("worker.s3_bucket", lambda: [_bucket(cloud, specs)])
    checks += _asked("worker.docker_image", lambda: _docker_image(cloud, specs))
    for path, host in (("worker", specs.worker), ("rdzv", specs.rdzv)):
        if host is not None:
            checks += _host(cloud, path, host)
    checks += _asked("worker.security_groups", lambda: _talk(cloud, specs.worker))
    if (store := specs.rdzv) is not None:
        checks += _asked("rdzv.security_groups", lambda: _reach(cloud, specs.worker, store))
    if specs.worker.efs_file_system_id is not None:
        checks += _asked("worker.efs_file_system_id", lambda: _efs(cloud, specs))
    desk.answer(table(rows(checks)), [asdict(check) for check in checks])
    return int(any(check.verdict == "wrong" for check in checks))


def _asked(what: str, look: Callable[[], list[Check]]) -> list[Check]:
    """Look; a call that is refused is a finding too, and the other checks go on."""
    try:
        return look()
    except AwsError as problem:
        return [Check(what, "wrong", str(problem))]


def _host(cloud: Cloud, path: str, host: Host) -> list[Check]:
    checks = _asked(f"{path}.image_id", lambda: [_image(cloud, path, host)])
    checks += _asked(f"{path}.instance_role", lambda: [_profile(cloud, path, host)])
    checks += _asked(f"{path}.subnets", lambda: _network(cloud, path, host))
    if host.key_pair is not None:
        checks += _asked(f"{path}.key_pair", lambda: [_key_pair(cloud, path, host)])
    return checks


def _image(cloud: Cloud, path: str, host: Host) -> Check:
    what = f"{path}.image_parameter" if host.image_id is None else f"{path}.image_id"
    name = image_of(cloud, host)
    if name is None:
        return Check(what, "wrong", f"there is no parameter {host.image_parameter} in this region")
    found = _ask_ec2(cloud, Call("ec2", "describe_images", {"ImageIds": [name]})).get("Images")
    return check_image(what, found[0] if found else None, host.arch, host.ebs_volume_gb)


def _profile(cloud: Cloud, path: str, host: Host) -> Check:
    name = host.instance_role.rpartition("/")[2]
    try:
        cloud.call(Call("iam", "get_instance_profile", {"InstanceProfileName": name}))
    except AwsError as problem:
        if problem.code == "NoSuchEntity":
            return Check(f"{path}.instance_role", "wrong", f"there is no instance profile {name}")
        raise
    return Check(f"{path}.instance_role", "ok", name)


def _network(cloud: Cloud, path: str, host: Host) -> list[Check]:
    found = _ask_ec2(cloud, Call("ec2", "describe_subnets", {"SubnetIds": list(host.subnets)})).get("Subnets", [])
    checks = check_subnets(path, host.subnets, found)
    networks = {str(subnet["VpcId"]) for subnet in found}
    network = networks.pop() if len(networks) == 1 else None
    checks += check_groups(path, host.security_groups, _groups(cloud, host.security_groups), network)
    zones = {str(subnet["AvailabilityZone"]) for subnet in found}
    if zones:
        others = host.instance_types if isinstance(host, Worker) else ()
        wanted = [{"Name": "instance-type", "Values": [host.instance_type, *others]}]
        request = {"LocationType": "availability-zone", "Filters": wanted}
        offered = list(cloud.pages(Call("ec2", "describe_instance_type_offerings", request), "InstanceTypeOfferings"))
        checks.append(check_offered(path, host.instance_type, zones, offered))
        checks += check_spares(others, zones, offered)
    return checks


def _groups(cloud: Cloud, names: Sequence[str]) -> list[dict[str, object]]:
    call = Call("ec2", "describe_security_groups", {"GroupIds": list(names)})
    return _ask_ec2(cloud, call).get("SecurityGroups", [])


def _talk(cloud: Cloud, worker: Host) -> list[Check]:
    found = _groups(cloud, worker.security_groups)
    return [check_talk(worker.security_groups, found)] if found else []  # one that is not there was told of


def _reach(cloud: Cloud, worker: Host, store: Host) -> list[Check]:
    found = _groups(cloud, store.security_groups)
    return [check_reach(worker.security_groups, found, STORE_PORT)] if found else []


def _key_pair(cloud: Cloud, path: str, host: Host) -> Check:
    found = _ask_ec2(cloud, Call("ec2", "describe_key_pairs", {"KeyNames": [host.key_pair]})).get("KeyPairs")
    return Check(
        f"{path}.key_pair", "ok" if found else "wrong", str(host.key_pair) if found else "there is no such key pair"
    )


def _bucket(cloud: Cloud, specs: Specs) -> Check:
    name = specs.worker.s3_bucket
    answer = cloud.ask(Call("s3", "head_bucket", {"Bucket": name}))
    if answer is None:
        return Check("worker.s3_bucket", "wrong", f"there is no bucket {name}")
    return Check("worker.s3_bucket", "ok", name)


def _docker_image(cloud: Cloud, specs: Specs) -> list[Check]:
    """Look for an image in ECR, in the job's region. Others only a host can pull, so nothing is said about them."""
    what, image = "worker.docker_image", registered(specs.worker.docker_image)
    if image is None or image.region != cloud.region:
        return []
    wanted = {"imageDigest": image.digest} if image.digest else {"imageTag": image.tag}
    request = {"registryId": image.account, "repositoryName": image.repository, "imageIds": [wanted]}
    try:
        cloud.call(Call("ecr", "describe_images", request))
    except AwsError as problem:
        if problem.code in ("RepositoryNotFoundException", "ImageNotFoundException"):
            return [Check(what, "wrong", f"there is no {specs.worker.docker_image}")]
        raise
    return [Check(what, "ok", specs.worker.docker_image)]


def _efs(cloud: Cloud, specs: Specs) -> list[Check]:
    subnets = _ask_ec2(cloud, Call("ec2", "describe_subnets", {"SubnetIds": list(specs.worker.subnets)})).get(
        "Subnets", []
    )
    zones = {str(subnet["AvailabilityZone"]) for subnet in subnets}
    request = {"FileSystemId": specs.worker.efs_file_system_id}
    try:
        targets = list(cloud.pages(Call("efs", "describe_mount_targets", request), "MountTargets"))
    except AwsError as problem:
        if problem.code == "FileSystemNotFound":
            missing = f"there is no volume {specs.worker.efs_file_system_id}"
            return [Check("worker.efs_file_system_id", "wrong", missing)]
        raise
    there = [target for target in targets if target.get("LifeCycleState") == "available"]  # of others AWS does not tell
    used = [str(target["MountTargetId"]) for target in there if target.get("AvailabilityZoneName") in zones]
    doors = {f"mount target {name}": _door(cloud, name) for name in used}
    return [check_efs(zones, targets), *check_mount(specs.worker.security_groups, doors)]


def _door(cloud: Cloud, target: str) -> list[dict[str, object]]:
    """Return the security groups of a mount target."""
    listed = cloud.call(Call("efs", "describe_mount_target_security_groups", {"MountTargetId": target}))
    return _groups(cloud, listed["SecurityGroups"])


def _ask_ec2(cloud: Cloud, call: Call) -> dict[str, list[dict[str, object]]]:
    """Ask EC2 about ids; one that is not there is an error of its own, which here is only an empty answer."""
    try:
        return dict(cloud.call(call))
    except AwsError as problem:
        if ".NotFound" in problem.code or ".Malformed" in problem.code:
            return {}
        raise
