"""Judge what AWS says about the things a specs file names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from planaria.aws.hosts import ROOT_DISK
from planaria.aws.names import mappings

Verdict = Literal["ok", "warning", "wrong"]
Answer = Mapping[str, object]
_ANYWHERE = ("0.0.0.0/0", "::/0")
SSH = 22
NFS = 2049
_FREE_PORTS = 1024, 65535  # nothing of ours listens below
_BY_ADDRESS = "a rule goes by addresses, so look whether those of the subnets are among them"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    told: str


def check_subnets(path: str, wanted: Sequence[str], found: Sequence[Answer]) -> list[Check]:
    """Judge subnets: all are there, and in one network."""
    missing = sorted(set(wanted) - {str(subnet["SubnetId"]) for subnet in found})
    if missing:
        return [Check(f"{path}.subnets", "wrong", f"there is no {', '.join(missing)} in this region")]
    networks = {str(subnet["VpcId"]) for subnet in found}
    if len(networks) > 1:
        return [
            Check(f"{path}.subnets", "wrong", f"they are in {len(networks)} networks, {', '.join(sorted(networks))}")
        ]
    zones = sorted({str(subnet["AvailabilityZone"]) for subnet in found})
    return [Check(f"{path}.subnets", "ok", f"in {', '.join(zones)}")]


def check_groups(path: str, wanted: Sequence[str], found: Sequence[Answer], network: str | None) -> list[Check]:
    """Judge security groups: they are there, in the subnets' network, and let nobody in by SSH."""
    what = f"{path}.security_groups"
    missing = sorted(set(wanted) - {str(group["GroupId"]) for group in found})
    if missing:
        return [Check(what, "wrong", f"there is no {', '.join(missing)} in this region")]
    strangers = [str(group["GroupId"]) for group in found if network and group.get("VpcId") != network]
    if strangers:
        return [Check(what, "wrong", f"{', '.join(strangers)} is of another network than the subnets, {network}")]
    return [
        Check(what, "warning", f"{group['GroupId']} lets the whole world in by SSH; nothing of ours needs it")
        for group in found
        if _open_ssh(group)
    ]


def check_talk(groups: Sequence[str], found: Sequence[Answer]) -> Check:
    """Judge the workers' security groups: nodes have to reach each other, at any port that everybody may listen at."""
    what = "worker.security_groups"
    match _entry(found, set(groups), *_FREE_PORTS):
        case "ok":
            return Check(what, "ok", "nodes may talk to each other")
        case "warning":
            return Check(what, "warning", f"cannot tell whether nodes may talk to each other: {_BY_ADDRESS}")
        case _:
            told = f"nodes may not talk to each other: let {groups[0]} in from itself, all traffic"
            return Check(what, "wrong", told)


def check_reach(workers: Sequence[str], found: Sequence[Answer], port: int) -> Check:
    """Judge the store's security groups: the workers have to reach it."""
    what = "rdzv.security_groups"
    match _entry(found, set(workers), port, port):
        case "ok":
            return Check(what, "ok", "workers may reach the store")
        case "warning":
            return Check(what, "warning", f"cannot tell whether workers may reach the store: {_BY_ADDRESS}")
        case _:
            return Check(what, "wrong", f"workers may not reach the store: let {workers[0]} in at port {port}")


def check_mount(workers: Sequence[str], targets: Mapping[str, Sequence[Answer]]) -> list[Check]:
    """Judge the security groups of a volume's mount targets: the workers have to reach each of them."""
    what, checks = "worker.efs_file_system_id", []
    for name, found in sorted(targets.items()):
        match _entry(found, set(workers), NFS, NFS):
            case "warning":
                checks.append(Check(what, "warning", f"cannot tell whether workers may reach {name}: {_BY_ADDRESS}"))
            case "wrong":
                told = f"workers may not reach {name}: let {workers[0]} in at port {NFS} of its security group"
                checks.append(Check(what, "wrong", told))
    return checks


def _entry(found: Sequence[Answer], others: set[str], low: int, high: int) -> Verdict:
    """Judge whether security groups let members of others in by TCP: surely, if their addresses are the right ones, or not."""
    rules = [rule for group in found for rule in mappings(group.get("IpPermissions")) if _covers(rule, low, high)]
    if any(str(pair.get("GroupId")) in others for rule in rules for pair in mappings(rule.get("UserIdGroupPairs"))):
        return "ok"
    by_address = any(mappings(rule.get(kind)) for rule in rules for kind in ("IpRanges", "PrefixListIds"))
    return "warning" if by_address else "wrong"


def _covers(rule: Answer, low: int, high: int) -> bool:
    """Tell whether a rule is about TCP at all these ports."""
    if rule.get("IpProtocol") == "-1":
        return True
    first, last = rule.get("FromPort"), rule.get("ToPort")
    is_in = isinstance(first, int) and isinstance(last, int) and first <= low and high <= last
    return rule.get("IpProtocol") == "tcp" and is_in


def _open_ssh(group: Answer) -> bool:
    for rule in mappings(group.get("IpPermissions")):
        ranges = [str(item.get("CidrIp")) for item in mappings(rule.get("IpRanges"))]
        ranges += [str(item.get("CidrIpv6")) for item in mappings(rule.get("Ipv6Ranges"))]
        if _covers(rule, SSH, SSH) and set(ranges) & set(_ANYWHERE):
            return True
    return False


def check_image(what: str, image: Answer | None, arch: str, disk_gb: int) -> Check:
    """Judge the image of a host: for its instruction set, and with a disk that ours can stand in for."""
    if image is None:
        return Check(what, "wrong", "there is no such image")
    name, root = str(image.get("ImageId")), str(image.get("RootDeviceName"))
    if image.get("Architecture") not in (None, arch):
        return Check(what, "wrong", f"{name} is for {image['Architecture']}, and the instance type for {arch}")
    disks = [disk for disk in mappings(image.get("BlockDeviceMappings")) if disk.get("DeviceName") == root]
    sizes = [ebs.get("VolumeSize") for disk in disks if isinstance(ebs := disk.get("Ebs"), Mapping)]
    least = max((size for size in sizes if isinstance(size, int)), default=0)
    if least > disk_gb:
        return Check(what, "wrong", f"{name} needs a disk of {least} GB, and ebs_volume_gb is {disk_gb}")
    if root != ROOT_DISK:
        told = f"the root disk of {name} is {root}: ebs_volume_gb makes a second one, {ROOT_DISK}, and the root stays as it is"
        return Check(what, "warning", told)
    return Check(what, "ok", name)


def check_offered(path: str, instance_type: str, zones: set[str], offered: Sequence[Answer]) -> Check:
    """Judge an instance type: is it to be had where the subnets are?"""
    where = {str(item["Location"]) for item in offered if item.get("InstanceType") == instance_type}
    lacking = sorted(zones - where)
    if not where & zones:
        return Check(f"{path}.instance_type", "wrong", f"{instance_type} is not offered in {', '.join(sorted(zones))}")
    if lacking:
        return Check(f"{path}.instance_type", "warning", f"{instance_type} is not offered in {', '.join(lacking)}")
    return Check(f"{path}.instance_type", "ok", f"{instance_type} is offered in {', '.join(sorted(zones))}")


def check_spares(types: Sequence[str], zones: set[str], offered: Sequence[Answer]) -> list[Check]:
    """Judge further instance types: one that is to be had in no zone stands in for nobody."""
    where = {str(item["InstanceType"]) for item in offered if str(item["Location"]) in zones}
    lacking = [kind for kind in types if kind not in where]
    told = f"{', '.join(lacking)} is not offered in {', '.join(sorted(zones))}"
    return [Check("worker.instance_types", "warning", told)] if lacking else []


def check_efs(zones: set[str], targets: Sequence[Answer]) -> Check:
    """Judge a volume: does it have a mount target in each zone of the subnets?"""
    what = "worker.efs_file_system_id"
    available = {str(item.get("AvailabilityZoneName")) for item in targets if item.get("LifeCycleState") == "available"}
    lacking = sorted(zones - available)
    if lacking:
        return Check(what, "wrong", f"there is no mount target in {', '.join(lacking)}: hosts there cannot mount it")
    return Check(what, "ok", f"mount targets in {', '.join(sorted(zones))}")


def rows(checks: Sequence[Check]) -> list[list[str]]:
    """Return the table of `doctor`."""
    return [["", "WHAT", "FOUND"], *([check.verdict, check.what, check.told] for check in checks)]
