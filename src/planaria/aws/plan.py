"""Decide what a job is made of, in which order, and how it is taken apart. Pure: `--dry-run` prints what this returns.

The claim comes first and goes last: one atomic call gives the job's name to one run, and whoever sees the claim knows that
something of the job may be there. Workers are made after the store, and end before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from planaria.aws.hosts import DRAIN_HOOK, NODES_NAME, NODES_PORT, READY_HOOK, ROOT_DISK, STORE_NAME, STORE_PORT
from planaria.aws.names import NODES_TAG, PLACE_TAG, PLAN_TAG, Names, Place, tag_list
from planaria.aws.specs import Host, Specs, Worker
from planaria.aws.steps import Call, File, Kind, Plan, Script, Step, Token
from planaria.errors import UsageError

LAUNCH_S = 1800  # a host with a large image may take that long until its container runs; then it is given up
DRAIN_S = 300  # twice the grace and some, for the flush of the newest commit
USER_DATA_LIMIT = 16_384  # bytes, of EC2
MOST_HOSTS = 1000  # that fit into the list of hosts, 32 KiB


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many hosts."""

    min: int
    wanted: int
    max: int

    @property
    def nodes(self) -> str:
        """Return them as `--nnodes` has them."""
        return f"{self.min}:{self.max}"


@dataclass(frozen=True, slots=True)
class Code:
    """A file that is uploaded: its content's hash names it."""

    key: str
    file: File


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Everything that `run_job` decides by."""

    job: str
    run: str
    specs: Specs
    sizes: Sizes
    tags: Mapping[str, str]
    code: Code | None  # None: nothing is uploaded
    description: bytes
    images: Mapping[str, str]  # "worker" and "rdzv"
    user_data: Mapping[str, str]

    @property
    def place(self) -> Place:
        """Return where the job's files are."""
        return Place(self.specs.worker.s3_bucket, self.specs.worker.s3_prefix)


def sizes_of(size: int, low: int | None, high: int | None) -> Sizes:
    """Return the sizes that the flags say; a bound that is not given is the size itself.

    Raises:
        UsageError: They are not in order.
    """
    sizes = Sizes(size if low is None else low, size, size if high is None else high)
    if sizes.wanted < 1:
        raise UsageError(f"--size is {size}, expected at least 1")
    if not 1 <= sizes.min <= sizes.wanted:
        raise UsageError(f"--min_size is {sizes.min}, expected a number from 1 to --size, which is {size}")
    if sizes.max < sizes.wanted:
        raise UsageError(f"--max_size is {sizes.max}, expected at least --size, which is {size}")
    if sizes.max > MOST_HOSTS:
        flag = "--size" if high is None else "--max_size"
        raise UsageError(f"{flag} is {sizes.max}, expected at most {MOST_HOSTS}: so many hosts can know of each other")
    return sizes


def launch_flags(specs: Specs, sizes: Sizes, run: str) -> tuple[str, ...]:
    """Return the flags of `planaria run` on each host. Hosts are named by what their loop keeps current, never by address."""
    given = specs.worker.launch_flags
    per_node = [flag for flag in given if flag.lstrip("-").replace("_", "-").startswith("nproc-per-node")]
    where = ("c10d", f"{NODES_NAME}:{NODES_PORT}") if specs.rdzv is None else ("etcd", f"{STORE_NAME}:{STORE_PORT}")
    return (
        f"--nnodes={sizes.nodes}",
        *(() if per_node else ("--nproc-per-node=auto",)),
        f"--rdzv-backend={where[0]}",
        f"--rdzv-endpoint={where[1]}",
        f"--rdzv-id={run}",
        "--tee=3",  # each line says whose it is; how, the host's script says
        *given,
    )


def plan_run(order: Order) -> Plan:
    """Return the steps that make a job.

    Raises:
        UsageError: A boot script is longer than EC2 takes.
    """
    names = Names(order.job)
    steps = [_claim(order, names), *_logs(order, names), *_files(order)]
    if order.specs.rdzv is not None:
        steps.append(_template(order, names.store_group, order.specs.rdzv, "rdzv"))
        steps.append(_group(order, names.store_group, order.specs.rdzv, Sizes(1, 1, 1)))
    steps.append(_template(order, names.worker_group, order.specs.worker, "worker"))
    steps.append(_group(order, names.worker_group, order.specs.worker, order.sizes))
    return Plan(order.job, order.run, tuple(steps))


def plan_removal(job: str, run: str, *, logs: bool) -> Plan:
    """Return the steps of a job in the order in which they are taken back: workers first, the claim last.

    It needs no specs file: everything has the job's name. What is not there is skipped. Files stay, since results are among
    them; logs stay unless they are asked to go.
    """
    names = Names(job)
    groups = [_removed(Kind.GROUP, name) for name in (names.worker_group, names.store_group)]
    templates = [_removed(Kind.TEMPLATE, name) for name in (names.worker_group, names.store_group)]
    kept = [_removed(Kind.LOG_GROUP, names.log_group)] if logs else []
    return Plan(job, run, (*groups, *templates, *kept, _removed(Kind.CLAIM, names.token)))


def fingerprint(order: Order) -> str:
    """Return a short text that is the same for the same command, whenever it is given."""
    description = json.loads(order.description)
    description["run"] = description["launch"] = None  # the flags have the run's name too, and follow from the specs
    facts = [order.job, repr(order.specs), repr(order.sizes), description]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _claim(order: Order, names: Names) -> Step:
    tags = {**order.tags, PLAN_TAG: fingerprint(order), PLACE_TAG: order.place.text()}
    request = {
        "Name": names.token,
        "Description": f"planaria: the nodes of job {order.job} know each other by this",
        "Value": Token(),
        "Type": "SecureString",
        "Overwrite": False,
        "Tags": tag_list(tags),
    }
    return _step(Kind.CLAIM, names.token, Call("ssm", "put_parameter", request))


def _logs(order: Order, names: Names) -> list[Step]:
    name = names.log_group
    made = Call("logs", "create_log_group", {"logGroupName": name, "tags": dict(order.tags)})
    kept = {"logGroupName": name, "retentionInDays": order.specs.log_retention_days}
    return [
        _step(Kind.LOG_GROUP, name, made),
        Step(Kind.RETENTION, name, Call("logs", "put_retention_policy", kept), None, None),
    ]


def _files(order: Order) -> list[Step]:
    place = order.place
    steps = []
    if order.code is not None:
        steps.append(_file(Kind.CODE, place.bucket, order.code.key, order.code.file, order.tags))
    key = place.key(order.job, order.run, "job.json")
    steps.append(_file(Kind.DESCRIPTION, place.bucket, key, order.description, order.tags))
    return steps


def _file(kind: Kind, bucket: str, key: str, body: object, tags: Mapping[str, str]) -> Step:
    where = {"Bucket": bucket, "Key": key}
    request = {**where, "Body": body, "IfNoneMatch": "*", "Tagging": urlencode(tags)}
    return Step(
        kind,
        f"s3://{bucket}/{key}",
        Call("s3", "put_object", request),
        Call("s3", "get_object_tagging", where),
        Call("s3", "delete_object", where),
    )


def _template(order: Order, name: str, host: Host, role: str) -> Step:
    text = order.user_data[role]
    if len(text.encode()) > USER_DATA_LIMIT:
        raise UsageError(
            f"the boot script of {name} has {len(text.encode())} bytes, and EC2 takes {USER_DATA_LIMIT}",
            hint="shorten the names and the prefix in the specs file",
        )
    tagged = [{"ResourceType": kind, "Tags": tag_list(order.tags)} for kind in ("instance", "volume")]
    is_arn = host.instance_role.startswith("arn:")
    disk = {"VolumeSize": host.ebs_volume_gb, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    data: dict[str, object] = {
        "ImageId": order.images[role],
        "InstanceType": host.instance_type,
        "IamInstanceProfile": {"Arn" if is_arn else "Name": host.instance_role},
        # Hop limit 1: only the host itself, and containers on its network, reach the role's credentials.
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [{"DeviceName": ROOT_DISK, "Ebs": disk}],
        "SecurityGroupIds": list(host.security_groups),
        "TagSpecifications": tagged,
        "UserData": Script(text),
    }
    if host.key_pair is not None:
        data["KeyName"] = host.key_pair
    request = {
        "LaunchTemplateName": name,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tag_list(order.tags)}],
        "LaunchTemplateData": data,
    }
    return _step(Kind.TEMPLATE, name, Call("ec2", "create_launch_template", request))


def _group(order: Order, name: str, host: Host, sizes: Sizes) -> Step:
    tags = {**order.tags, PLACE_TAG: order.place.text(), NODES_TAG: sizes.nodes}
    template = {"LaunchTemplateName": name, "Version": "1"}
    request: dict[str, object] = {
        "AutoScalingGroupName": name,
        "MinSize": sizes.min,
        "DesiredCapacity": sizes.wanted,
        "MaxSize": sizes.max,
        "VPCZoneIdentifier": ",".join(host.subnets),
        "HealthCheckType": "EC2",
        "LifecycleHookSpecificationList": _hooks(drains=isinstance(host, Worker)),
        "Tags": [{**tag, "PropagateAtLaunch": True} for tag in tag_list(tags)],
    }
    if isinstance(host, Worker) and host.max_spot_price is not None:
        request["MixedInstancesPolicy"] = _mixed(host, host.max_spot_price, template)
        request["CapacityRebalance"] = True
    else:
        request["LaunchTemplate"] = template
    return _step(Kind.GROUP, name, Call("autoscaling", "create_auto_scaling_group", request))


def _hooks(*, drains: bool) -> list[dict[str, object]]:
    """Return a group's hooks: a host is in service once it works, and a worker's host goes once its agent has drained."""
    ready = _hook(READY_HOOK, "autoscaling:EC2_INSTANCE_LAUNCHING", LAUNCH_S, "ABANDON")
    return (
        [ready, _hook(DRAIN_HOOK, "autoscaling:EC2_INSTANCE_TERMINATING", DRAIN_S, "CONTINUE")] if drains else [ready]
    )


def _hook(name: str, transition: str, timeout_s: int, result: str) -> dict[str, object]:
    return {
        "LifecycleHookName": name,
        "LifecycleTransition": transition,
        "HeartbeatTimeout": timeout_s,
        "DefaultResult": result,  # when nobody completes it in time
    }


def _mixed(host: Worker, price: str, template: Mapping[str, str]) -> dict[str, object]:
    types = list(dict.fromkeys((host.instance_type, *host.instance_types)))
    return {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": dict(template),
            "Overrides": [{"InstanceType": kind} for kind in types],
        },
        "InstancesDistribution": {
            "OnDemandBaseCapacity": host.on_demand_base,
            "OnDemandPercentageAboveBaseCapacity": 0,
            "SpotAllocationStrategy": "price-capacity-optimized",
            "SpotMaxPrice": price,
        },
    }


def _step(kind: Kind, name: str, do: Call) -> Step:
    return Step(kind, name, do, look_at(kind, name), removal_of(kind, name))


def _removed(kind: Kind, name: str) -> Step:
    removal = removal_of(kind, name)
    return Step(kind, name, removal, look_at(kind, name), removal)


def look_at(kind: Kind, name: str) -> Call:
    """Return the call that shows whether something is there, and whose it is."""
    match kind:
        case Kind.CLAIM:
            return Call("ssm", "list_tags_for_resource", {"ResourceType": "Parameter", "ResourceId": name})
        case Kind.LOG_GROUP:
            # Its successor wants an ARN, and with it the number of the account.
            return Call("logs", "list_tags_log_group", {"logGroupName": name})
        case Kind.TEMPLATE:
            return Call("ec2", "describe_launch_templates", {"LaunchTemplateNames": [name]})
        case Kind.GROUP:
            return Call("autoscaling", "describe_auto_scaling_groups", {"AutoScalingGroupNames": [name]})
        case _:
            raise AssertionError(f"{kind} is looked at in another way")


def removal_of(kind: Kind, name: str) -> Call:
    """Return the call that takes something back."""
    match kind:
        case Kind.CLAIM:
            return Call("ssm", "delete_parameter", {"Name": name})
        case Kind.LOG_GROUP:
            return Call("logs", "delete_log_group", {"logGroupName": name})
        case Kind.TEMPLATE:
            return Call("ec2", "delete_launch_template", {"LaunchTemplateName": name})
        case Kind.GROUP:
            # With its instances; hooks are passed over. `stop` drains.
            return Call("autoscaling", "delete_auto_scaling_group", {"AutoScalingGroupName": name, "ForceDelete": True})
        case _:
            raise AssertionError(f"{kind} is removed in another way")
