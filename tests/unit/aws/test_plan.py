from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from planaria.aws.names import tags
from planaria.aws.plan import Code, Order, fingerprint, launch_flags, plan_removal, plan_run, sizes_of
from planaria.aws.show import as_data, as_text
from planaria.aws.sizing import plan_scale, plan_stop
from planaria.aws.specs import read_specs
from planaria.aws.steps import ANY_RUN, Call, File, Kind, Plan, Step
from planaria.errors import UsageError

DATA = Path(__file__).parents[2] / "data/petctl"
HOST = {
    "instance_type": "m5.large",
    "instance_role": "profile",
    "subnets": ["subnet-0a1b2c3d", "subnet-1a1b2c3d"],
    "security_groups": ["sg-0a1b2c3d"],
}
WORKER = {**HOST, "docker_image": "trainer:1", "s3_bucket": "my-bucket", "s3_prefix": "jobs"}
RUN = "20260301-120000-aabbcc"


def order(*, rdzv: bool = False, code: bool = True, run: str = RUN, **worker: object) -> Order:
    specs = read_specs(
        {"worker": {**WORKER, **worker}, **({"rdzv": {**HOST, "instance_type": "t3.small"}} if rdzv else {})}
    )
    sizes = sizes_of(2, 1, 4)
    launch = launch_flags(specs, sizes, run)
    description = {"job": "ann-job", "run": run, "argv": ["--epochs", "3"], "launch": launch}
    return Order(
        job="ann-job",
        run=run,
        specs=specs,
        sizes=sizes,
        tags=tags("ann-job", run, "ann", "2026-03-08T12:00:00Z"),
        code=Code("jobs/ann-job/code/0123.py", File("train.py", 17, "0123")) if code else None,
        description=json.dumps(description).encode(),
        images={"worker": "ami-0a1b2c3d", "rdzv": "ami-1a1b2c3d"},
        user_data={"worker": "#!/bin/bash\nworker\n", "rdzv": "#!/bin/bash\nstore\n"},
    )


PLANS = {
    "agents": plan_run(order()),
    "etcd": plan_run(order(rdzv=True, key_pair="mine", code=False)),
    "spot": plan_run(order(max_spot_price=0.75, instance_types=["m5a.large"], on_demand_base=1)),
    "removal": plan_removal("ann-job", RUN, logs=True),
    "scale": plan_scale("ann-job", 3, None),
    "stop": plan_stop("ann-job", None),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_the_one_that_was_read_in_review(name: str) -> None:
    for ending, text in ((".txt", as_text(PLANS[name])), (".json", json.dumps(as_data(PLANS[name]), indent=2) + "\n")):
        path = DATA / f"{name}{ending}"
        if os.environ.get("PLANARIA_REWRITE") == "1":
            path.write_text(text)
        assert path.read_text() == text, "PLANARIA_REWRITE=1 writes it anew; read the difference"


def request(plan: Plan, kind: Kind, place: int = 0) -> dict[str, object]:
    return dict([step.do.request for step in plan.steps if step.kind is kind][place])


def test_the_claim_is_made_first_and_removed_last_and_workers_end_before_the_store() -> None:
    assert PLANS["etcd"].steps[0].kind is Kind.CLAIM
    assert PLANS["removal"].steps[-1].kind is Kind.CLAIM
    assert [step.name for step in PLANS["removal"].steps][:2] == ["ann-job_worker", "ann-job_rdzv"]
    assert [step.name for step in PLANS["etcd"].steps if step.kind is Kind.GROUP] == ["ann-job_rdzv", "ann-job_worker"]


def test_spot_is_a_mixed_instances_policy_with_the_highest_price() -> None:
    group = request(PLANS["spot"], Kind.GROUP)
    policy = group["MixedInstancesPolicy"]
    assert policy["InstancesDistribution"]["SpotMaxPrice"] == "0.75"  # type: ignore[index]  a request is any JSON
    assert policy["LaunchTemplate"]["Overrides"] == [{"InstanceType": "m5.large"}, {"InstanceType": "m5a.large"}]  # type: ignore[index]
    assert group["CapacityRebalance"] is True
    assert "LaunchTemplate" not in group


def test_a_host_takes_version_2_of_the_metadata_service_only_and_its_disk_is_encrypted() -> None:
    for plan, place in ((PLANS["etcd"], 0), (PLANS["etcd"], 1), (PLANS["spot"], 0)):
        data = request(plan, Kind.TEMPLATE, place)["LaunchTemplateData"]
        assert data["MetadataOptions"] == {  # type: ignore[index]
            "HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1,
        }  # fmt: skip
        assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True  # type: ignore[index]
        assert data["UserData"].text.startswith("#!")  # type: ignore[index]


def test_a_host_is_in_service_when_it_works_and_goes_when_it_has_drained() -> None:
    hooks = {
        hook["LifecycleHookName"]: hook
        for hook in request(PLANS["agents"], Kind.GROUP)["LifecycleHookSpecificationList"]
    }  # type: ignore[attr-defined]
    assert hooks["planaria-ready"]["DefaultResult"] == "ABANDON"
    assert hooks["planaria-drain"]["DefaultResult"] == "CONTINUE"
    store = request(PLANS["etcd"], Kind.GROUP)["LifecycleHookSpecificationList"]
    assert [hook["LifecycleHookName"] for hook in store] == ["planaria-ready"]  # type: ignore[attr-defined]


def test_no_address_of_a_host_is_in_a_plan_but_a_name_that_hosts_look_up() -> None:
    assert "--rdzv-endpoint=nodes.planaria:29400" in launch_flags(order().specs, order().sizes, RUN)
    assert "--rdzv-endpoint=store.planaria:2379" in launch_flags(order(rdzv=True).specs, order().sizes, RUN)


def test_no_token_is_in_a_plan() -> None:
    assert "never shown" in as_text(PLANS["agents"])
    assert as_data(PLANS["agents"])["steps"][0]["do"]["request"]["Value"].startswith("(made when")  # type: ignore[index]


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((0, None, None), "--size is 0, expected at least 1"),
        ((2, 0, None), "--min_size is 0, expected a number from 1 to --size"),
        ((2, 3, None), "--min_size is 3"),
        ((2, None, 1), "--max_size is 1, expected at least --size, which is 2"),
        ((2, None, 1001), "--max_size is 1001, expected at most 1000"),
        ((10**20, None, None), "--size is 100000000000000000000, expected at most 1000"),
    ],
)
def test_sizes_that_are_not_in_order_are_refused(sizes: tuple[int, int | None, int | None], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        sizes_of(*sizes)


def test_a_bound_that_is_not_given_is_the_size_itself() -> None:
    assert sizes_of(3, None, None).nodes == "3:3"


def test_the_same_command_has_the_same_fingerprint_and_another_has_another() -> None:
    assert fingerprint(order()) == fingerprint(order(run="20260302-120000-ffffff"))
    assert fingerprint(order()) != fingerprint(order(ebs_volume_gb=64))
    changed = replace(order(), description=order().description.replace(b"--epochs", b"--epoch2"))
    assert fingerprint(order()) != fingerprint(changed)


def test_a_boot_script_that_ec2_does_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match="has 20000 bytes, and EC2 takes 16384"):
        plan_run(replace(order(), user_data={"worker": "x" * 20_000}))


def test_a_size_that_is_changed_is_no_step_that_another_one_takes_back() -> None:
    do = Call("autoscaling", "update_auto_scaling_group", {"AutoScalingGroupName": "ann-job_worker"})
    told = as_text(Plan("ann-job", ANY_RUN, (Step(Kind.GROUP, "ann-job_worker", do, None, None),)))
    assert told.startswith("job ann-job: 1 step; nothing was asked of AWS\n")
    assert "\n   undo  none: scale sets another size\n" in told
    assert "\n   undo  with the step before it\n" in as_text(PLANS["agents"])
