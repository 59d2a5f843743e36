"""Every request of petctl, held against what AWS itself says about its API: types, choices, lengths, patterns, permissions."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from planaria.aws.model import Group, JobSeen
from planaria.aws.names import check_job
from planaria.aws.plan import plan_removal
from planaria.aws.session import action
from planaria.aws.show import as_data
from planaria.aws.sizing import plan_scale, plan_stop
from planaria.aws.steps import Call

botocore_session = pytest.importorskip("botocore.session")
from botocore import xform_name  # noqa: E402  the line above skips where there is none
from botocore.validate import ParamValidator  # noqa: E402

ROOT = Path(__file__).parents[3]
MODELS: dict[str, Any] = {}


def operation(call: Call) -> Any:
    """Return what botocore knows of a call."""
    if call.service not in MODELS:
        MODELS[call.service] = botocore_session.get_session().get_service_model(call.service)
    model = MODELS[call.service]
    [name] = [name for name in model.operation_names if xform_name(name) == call.method]
    return model.operation_model(name)


def problems(shape: Any, value: object, path: str) -> list[str]:
    """Return what the model says against a value beyond its type, which botocore's own validator looks at."""
    found: list[str] = []
    if shape.type_name == "structure" and isinstance(value, dict):
        return [line for key, inner in value.items() for line in problems(shape.members[key], inner, f"{path}.{key}")]
    if shape.type_name == "list" and isinstance(value, list):
        found = [line for inner in value for line in problems(shape.member, inner, f"{path}[]")]
    if shape.type_name == "map" and isinstance(value, dict):
        for key, inner in value.items():
            found += problems(shape.key, key, f"{path} key") + problems(shape.value, inner, f"{path}.{key}")
    size = value if isinstance(value, int) else len(value) if isinstance(value, (str, list)) else 0
    limits = shape.metadata
    if "max" in limits and size > limits["max"]:
        found.append(f"{path} is more than {limits['max']}")
    if isinstance(value, str) and getattr(shape, "enum", None) and value not in shape.enum:
        found.append(f"{path} is {value!r}, not one of {shape.enum}")
    if isinstance(value, str) and "pattern" in limits and not re.search(python(limits["pattern"]), value):
        found.append(f"{path} is {value!r}, not {limits['pattern']}")
    return found


def python(pattern: str) -> str:
    r"""Return a pattern of the model as Python's `re` has it: it knows no \p{L}.

    One with \u, as those of auto scaling's names, names halves of characters that Python has whole: it fits all here.
    """
    for theirs, ours in (("\\p{L}", "A-Za-z"), ("\\p{Z}", " "), ("\\p{N}", "0-9")):
        pattern = pattern.replace(theirs, ours)
    return f"^(?:{pattern})$" if "\\u" not in pattern else ""


def requests() -> list[Call]:
    """Return the calls of the golden plans, and of the plans that are not among them."""
    job = check_job("x" * 63)
    seen = JobSeen(job, {}, Group(f"{job}_worker", 0, 0, 4, (), {"planaria:nodes": "1:4"}))
    others = [plan_removal(job, "any", logs=True), plan_scale(job, 2, seen), plan_stop(job, seen)]
    plans = [as_data(plan) for plan in others]
    golden = {path.stem: path for path in sorted((ROOT / "tests/data/petctl").glob("*.json"))}
    del golden["scale"]  # a dry run does not know a number there; the one above does
    plans += [json.loads(path.read_text()) for path in golden.values()]
    steps: list[Any] = [step for plan in plans for step in plan["steps"]]  # type: ignore[attr-defined]  it is any JSON
    return [Call(**step[part]) for step in steps for part in ("do", "look", "undo") if step[part] is not None]


def test_every_request_of_a_plan_is_one_that_the_model_of_the_service_takes() -> None:
    assert len(requests()) > 60
    for call in requests():
        shape = operation(call).input_shape
        report = ParamValidator().validate(dict(call.request), shape)
        assert not report.has_errors(), f"{call}: {report.generate_report()}"
        assert problems(shape, call.request, str(call)) == []


def test_a_request_that_the_model_refuses_is_seen() -> None:
    wrong = Call("autoscaling", "create_auto_scaling_group", {"AutoScalingGroupName": "x" * 256, "SpotMaxPrice": "1"})
    shape = operation(wrong).input_shape
    assert "SpotMaxPrice" in ParamValidator().validate(dict(wrong.request), shape).generate_report()
    assert problems(shape, {"AutoScalingGroupName": "x" * 256}, "") == [".AutoScalingGroupName is more than 255"]
    hook = {"LaunchTemplateData": {"MetadataOptions": {"HttpTokens": "sometimes"}}}
    assert "HttpTokens" in problems(operation(Call("ec2", "create_launch_template", {})).input_shape, hook, "")[0]


def calls_in_source() -> set[tuple[str, str]]:
    """Return every `Call("service", "method", ...)` that is written down in the room."""
    found = set()
    for path in (ROOT / "src/planaria/aws").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Call":
                words = [word.value for word in node.args[:2] if isinstance(word, ast.Constant)]
                if len(words) == 2:
                    found.add((str(words[0]), str(words[1])))
    return found


def policies() -> list[dict[str, Any]]:
    page = (ROOT / "docs/aws.md").read_text()
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]


def actions(policy: dict[str, Any]) -> set[str]:
    listed = [statement["Action"] for statement in policy["Statement"]]
    return {one for item in listed for one in ([item] if isinstance(item, str) else item)}


def test_the_documented_policies_allow_every_call_and_nothing_that_is_not_called() -> None:
    user, doctor, _ = policies()
    called = {action(Call(service, method, {})) for service, method in calls_in_source()} - {"sts:GetCallerIdentity"}
    assert called <= actions(user) | actions(doctor)
    # What a call of ours makes AWS do, or ask for beside it.
    followed = {"ec2:RunInstances", "ec2:CreateTags", "autoscaling:CreateOrUpdateTags", "ssm:AddTagsToResource"}
    followed |= {"s3:PutObjectTagging", "logs:TagResource", "iam:PassRole", "iam:CreateServiceLinkedRole"}
    assert (actions(user) | actions(doctor)) - called == followed


def test_the_documented_policy_of_hosts_allows_every_call_of_their_script_and_nothing_else() -> None:
    special = {"s3:Cp": "s3:GetObject", "s3:HeadObject": "s3:GetObject", "s3:ListObjectsV2": "s3:ListBucket"}
    special["ecr:GetLoginPassword"] = ""
    called = {"s3:ListBucket", "logs:CreateLogStream", "logs:PutLogEvents"}  # a 404 wants the first, docker the others
    for path in (ROOT / "src/planaria/aws/templates").glob("*.sh"):
        script = re.sub(r"#.*", "", path.read_text())
        for service, words in re.findall(r"\b(?:aws|call) ([a-z0-9]+) ([a-z][a-z0-9-]+)", script):
            name = f"{service.removesuffix('api')}:{''.join(word.capitalize() for word in words.split('-'))}"
            called.add(special.get(name, name))
    assert actions(policies()[2]) == called - {""}


def test_policies_open_nothing_to_everybody_that_can_be_named() -> None:
    for policy in policies():
        for statement in policy["Statement"]:
            names = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            changing = [name for name in names if not re.search(r":(Describe|Get|List|Filter|Create)", name)]
            assert statement["Resource"] != "*" or not changing or "Condition" in statement
            assert not any("*" in name for name in names)
