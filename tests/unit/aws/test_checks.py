from __future__ import annotations

import pytest

from planaria.aws.checks import (
    check_efs,
    check_groups,
    check_image,
    check_mount,
    check_offered,
    check_reach,
    check_spares,
    check_subnets,
    check_talk,
)

SELF = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}]}
WORLD = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


def subnet(name: str, zone: str = "a", network: str = "vpc-1") -> dict[str, object]:
    return {"SubnetId": name, "AvailabilityZone": zone, "VpcId": network}


def test_subnets_are_there_and_in_one_network() -> None:
    assert check_subnets("worker", ["s1", "s2"], [subnet("s1")])[0].told == "there is no s2 in this region"
    assert check_subnets("worker", ["s1", "s2"], [subnet("s1"), subnet("s2", network="vpc-2")])[0].verdict == "wrong"
    assert check_subnets("worker", ["s1", "s2"], [subnet("s1"), subnet("s2", "b")])[0].told == "in a, b"


def rule(kind: str, low: int, high: int, **who: object) -> dict[str, object]:
    return {"IpProtocol": kind, "FromPort": low, "ToPort": high, **who}


PAIR = [{"GroupId": "sg-1"}]
OWN = [{"CidrIp": "10.0.0.0/16"}]


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([SELF], "ok"),
        ([rule("tcp", 0, 65535, UserIdGroupPairs=PAIR)], "ok"),
        ([rule("udp", 0, 65535, UserIdGroupPairs=PAIR)], "wrong"),
        ([rule("tcp", 1, 65535, UserIdGroupPairs=PAIR)], "ok"),
        ([rule("tcp", 1024, 65535, UserIdGroupPairs=PAIR)], "ok"),
        ([rule("tcp", 29400, 65535, UserIdGroupPairs=PAIR)], "wrong"),
        ([rule("tcp", 0, 65535, UserIdGroupPairs=[{"GroupId": "sg-2"}])], "wrong"),
        ([rule("tcp", 0, 65535, IpRanges=OWN)], "warning"),
        ([{"IpProtocol": "-1", "PrefixListIds": [{"PrefixListId": "pl-1"}]}], "warning"),
        ([rule("udp", 0, 65535, IpRanges=OWN)], "wrong"),
        ([rule("tcp", 0, 65535, IpRanges=OWN), SELF], "ok"),
        ([WORLD], "wrong"),
        ([], "wrong"),
    ],
)
def test_nodes_talk_by_a_rule_for_their_group_and_perhaps_by_one_for_addresses(
    rules: list[dict[str, object]], verdict: str
) -> None:
    found = check_talk(["sg-1"], [{"GroupId": "sg-1", "IpPermissions": rules}])
    assert found.verdict == verdict
    assert ("cannot tell" in found.told) == (verdict == "warning")


def test_a_security_group_is_of_the_network_and_lets_nobody_in_by_ssh() -> None:
    group = {"GroupId": "sg-1", "VpcId": "vpc-1", "IpPermissions": [SELF]}
    assert check_groups("rdzv", ["sg-1"], [group], "vpc-1") == []
    opened = {**group, "IpPermissions": [WORLD]}
    assert [check.verdict for check in check_groups("worker", ["sg-1"], [opened], "vpc-1")] == ["warning"]
    assert "another network" in check_groups("worker", ["sg-1"], [group], "vpc-2")[0].told
    assert check_groups("worker", ["sg-9"], [], None)[0].told == "there is no sg-9 in this region"


def test_an_instance_type_is_offered_where_the_subnets_are() -> None:
    offered = [{"InstanceType": "m5.large", "Location": "a"}]
    assert check_offered("worker", "m5.large", {"a"}, offered).verdict == "ok"
    assert check_offered("worker", "m5.large", {"a", "b"}, offered).verdict == "warning"
    assert check_offered("worker", "m5.large", {"b"}, offered).verdict == "wrong"


def test_a_type_that_is_to_stand_in_is_offered_somewhere() -> None:
    offered = [{"InstanceType": "m5.large", "Location": "a"}, {"InstanceType": "m4.large", "Location": "c"}]
    assert check_spares(["m5.large"], {"a", "b"}, offered) == []
    [found] = check_spares(["m4.large", "m5.large"], {"a", "b"}, offered)
    assert (found.verdict, found.told) == ("warning", "m4.large is not offered in a, b")


def test_workers_reach_the_mount_targets() -> None:
    def door(*rules: dict[str, object]) -> list[dict[str, object]]:
        return [{"GroupId": "sg-efs", "IpPermissions": list(rules)}]

    fine = {"one": door(rule("tcp", 2049, 2049, UserIdGroupPairs=PAIR)), "two": door(SELF)}
    assert check_mount(["sg-1"], fine) == []
    found = check_mount(["sg-1"], {"b": door(rule("tcp", 2049, 2049, IpRanges=OWN)), "a": door(WORLD)})
    assert [(check.verdict, check.told.partition(":")[0]) for check in found] == [
        ("wrong", "workers may not reach a"),
        ("warning", "cannot tell whether workers may reach b"),
    ]


def test_a_volume_has_a_mount_target_in_each_zone() -> None:
    targets = [
        {"AvailabilityZoneName": "a", "LifeCycleState": "available"},
        {"AvailabilityZoneName": "b", "LifeCycleState": "creating"},
    ]
    assert check_efs({"a"}, targets).verdict == "ok"
    assert check_efs({"a", "b"}, targets).told == "there is no mount target in b: hosts there cannot mount it"


def test_workers_reach_the_port_of_the_store() -> None:
    def group(low: int, high: int, who: str) -> dict[str, object]:
        rule = {"IpProtocol": "tcp", "FromPort": low, "ToPort": high, "UserIdGroupPairs": [{"GroupId": who}]}
        return {"GroupId": "sg-store", "IpPermissions": [rule]}

    assert check_reach(["sg-1"], [group(2379, 2379, "sg-1")], 2379).verdict == "ok"
    assert check_reach(["sg-1"], [{"GroupId": "sg-1", "IpPermissions": [SELF]}], 2379).verdict == "ok"
    for found in (group(2380, 2380, "sg-1"), group(0, 65535, "sg-store"), {"GroupId": "sg-store"}):
        told = "workers may not reach the store: let sg-1 in at port 2379"
        assert check_reach(["sg-1"], [found], 2379).told == told
    by_address = {"GroupId": "sg-store", "IpPermissions": [rule("tcp", 2379, 2379, IpRanges=OWN)]}
    assert check_reach(["sg-1"], [by_address], 2379).verdict == "warning"


def test_an_image_fits_the_instance_type_and_the_disk() -> None:
    def image(arch: str, root: str, size_gb: int) -> dict[str, object]:
        disks = [{"DeviceName": root, "Ebs": {"VolumeSize": size_gb}}, {"DeviceName": "/dev/other"}]
        return {"ImageId": "ami-1", "Architecture": arch, "RootDeviceName": root, "BlockDeviceMappings": disks}

    def verdict(found: dict[str, object] | None) -> str:
        return check_image("worker.image_id", found, "x86_64", 64).verdict

    assert verdict(image("x86_64", "/dev/xvda", 64)) == "ok"
    assert verdict(image("x86_64", "/dev/xvda", 65)) == "wrong"  # EC2 would refuse each host, one after the other
    assert verdict(image("arm64", "/dev/xvda", 8)) == "wrong"
    assert verdict(image("x86_64", "/dev/sda1", 8)) == "warning"
    assert verdict(None) == "wrong"
