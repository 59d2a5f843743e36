from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from planaria.aws.doctor import _efs
from planaria.errors import AwsError

if TYPE_CHECKING:
    from planaria.aws.steps import Call

SPECS: Any = SimpleNamespace(
    worker=SimpleNamespace(subnets=("subnet-1",), security_groups=("sg-1",), efs_file_system_id="fs-1")
)


def account(*targets: tuple[str, str, str]) -> Any:
    """Return a cloud with one subnet in zone a, and mount targets: their name, zone and state."""
    states = {name: state for name, _, state in targets}
    told = [
        {"MountTargetId": name, "AvailabilityZoneName": zone, "LifeCycleState": state} for name, zone, state in targets
    ]

    def call(asked: Call) -> dict[str, Any]:
        if asked.method == "describe_subnets":
            return {"Subnets": [{"AvailabilityZone": "a"}]}
        if asked.method == "describe_security_groups":
            return {"SecurityGroups": [{"GroupId": "sg-1", "IpPermissions": []}]}
        assert asked.method == "describe_mount_target_security_groups"
        if states[str(str(asked.request["MountTargetId"]))] != "available":
            raise AwsError("IncorrectMountTargetState")
        return {"SecurityGroups": ["sg-1"]}

    return SimpleNamespace(call=call, pages=lambda _call, _key: told)


def test_a_mount_target_that_is_not_there_yet_is_missing_and_not_asked_who_may_come() -> None:
    (found,) = _efs(account(("fsmt-1", "a", "creating"), ("fsmt-2", "b", "available")), SPECS)
    assert (found.verdict, found.told) == ("wrong", "there is no mount target in a: hosts there cannot mount it")


def test_one_that_goes_does_not_hide_what_is_found_of_the_other() -> None:
    found, *doors = _efs(account(("fsmt-1", "a", "deleting"), ("fsmt-2", "a", "available")), SPECS)
    assert found.verdict == "ok"
    assert [("fsmt-2" in one.told, "fsmt-1" in one.told) for one in doors] == [(True, False)]
