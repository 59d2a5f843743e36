from __future__ import annotations

import sys
from pathlib import Path

import pytest

from planaria.aws.session import Cloud, _refused, action
from planaria.aws.steps import Call
from planaria.errors import UsageError


def test_the_region_that_was_asked_for_is_the_one_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    cloud = Cloud("eu-west-1", None)
    assert cloud.region == "eu-west-1"
    assert cloud._client("sts").meta.region_name == "eu-west-1"
    assert Cloud(None, None).region == "us-west-2"
    cloud.close()


def test_without_a_region_the_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(UsageError, match="--region is missing"):
        _ = Cloud(None, None).region


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_profile_that_the_environment_names_and_nobody_has_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_lazy: bool
) -> None:
    pytest.importorskip("boto3")
    if is_lazy:  # then a session needs nothing of the files to begin with
        monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(UsageError, match=r"--profile is 'nobody', and there is no such profile .AWS_PROFILE counts"):
        _ = Cloud(None, None).region


def test_a_file_of_settings_that_aws_cannot_read_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("boto3")
    (tmp_path / "config").write_text("[default\nregion = here\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(UsageError, match=r"the files of AWS's own settings are wrong: .*config"):
        _ = Cloud(None, None).region


def test_an_endpoint_that_is_no_address_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "foo")
    with pytest.raises(UsageError, match=r"AWS's own settings are wrong: Invalid endpoint: foo .AWS_ENDPOINT_URL, or "):
        Cloud("us-west-2", None).call(Call("sts", "get_caller_identity", {}))


def test_settings_that_boto3_stumbles_over_are_one_sentence_each_about_the_right_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("boto3")
    config = tmp_path / "config"
    config.write_text("")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    def told(region: str | None = "us-west-2") -> str:
        with pytest.raises(UsageError, match=r"^AWS's own settings are wrong: [^\n]*$") as caught:
            Cloud(region, None).call(Call("s3", "list_buckets", {}))
        return str(caught.value)

    assert told("x y").endswith("(the region in ~/.aws/config expects one such as us-west-2)")
    config.write_text("[default]\ns3 = x\n")
    assert told().endswith("(a variable AWS_..., or a line in ~/.aws/config, is not what it should be)")
    config.write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_MAX_ATTEMPTS", "abc")
        assert "'abc' (a variable AWS_..." in told()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "nope"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
    assert "/nope' (a variable such as AWS_WEB_IDENTITY_TOKEN_FILE, " in told()


@pytest.mark.parametrize("code", ["UnrecognizedClientException", "InvalidSignatureException", "AuthFailure"])
def test_whom_aws_does_not_know_is_told_to_log_in_and_not_to_change_a_policy(code: str) -> None:
    told = _refused(Call("ec2", "describe_subnets", {}), {"Code": code, "Message": "no"})
    assert str(told).startswith(f"ec2.describe_subnets: AWS does not accept these credentials ({code}) (set --profile")
    assert "policy" not in str(told)


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)  # as Python marks what cannot be imported
    with pytest.raises(UsageError, match=r"petctl needs boto3 .*planaria\[aws\]"):
        Cloud("us-west-2", None).call(Call("sts", "get_caller_identity", {}))


def test_a_denied_call_names_the_permission_as_policies_spell_it() -> None:
    assert action(Call("autoscaling", "create_auto_scaling_group", {})) == "autoscaling:CreateAutoScalingGroup"
    assert action(Call("efs", "describe_mount_targets", {})) == "elasticfilesystem:DescribeMountTargets"
    assert action(Call("s3", "head_bucket", {})) == "s3:ListBucket"
