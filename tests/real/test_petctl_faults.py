"""Every call of AWS fails in turn: afterwards nothing is left, or the same command again finishes. Nothing is orphaned."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

import pytest
from aws_proxy import Proxy
from aws_server import Aws, aws
from petctl_desk import Petctl, cloud, fresh_job, open_cloud

from planaria.aws.names import Names
from planaria.errors import AwsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["aws", "cloud"]

TIMEOUT_S = 20.0  # but for what nobody hears: the proxy says when
LONGEST = 60  # attempts; far more than a command has calls


@pytest.fixture(scope="module")
def proxy(aws: Aws) -> Iterator[Proxy]:
    made = Proxy(aws.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="module")
def faulty(aws: Aws, cloud: object, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Petctl]:
    """`cloud` ends the clients that go past the proxy."""
    made = open_cloud(aws, proxy.endpoint, TIMEOUT_S)
    proxy.decide_for(made)
    found = Petctl(aws, made, tmp_path_factory.mktemp("petctl"))
    found.write_specs(found.with_image_parameter())
    yield found
    made.close()


def well(number: int) -> None:
    """Let every request pass."""


@pytest.fixture(scope="module")
def whole(faulty: Petctl, proxy: Proxy) -> list[str]:
    """Every request of a run_job that goes well."""
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    seen = list(proxy.seen)
    faulty.type("kill_job", job, "--purge")
    assert len([what for what in seen if is_write(what)]) == 9
    assert "ssm GetParameter" in seen
    return seen


@pytest.fixture(scope="module")
def standing(faulty: Petctl, proxy: Proxy) -> Iterator[str]:
    """A job that tests look at, stop and scale."""
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    yield job
    proxy.begin(well)
    faulty.type("kill_job", job, "--purge")


def is_write(what: str) -> bool:
    return any(word in what for word in ("Create", "Put", "PUT", "Delete", "DELETE"))


@pytest.mark.parametrize("fault", ["denied", "throttled", "unheard", "unanswered"])
def test_run_job_leaves_nothing_when_one_call_fails(faulty: Petctl, proxy: Proxy, whole: list[str], fault: str) -> None:
    """Where only the answer is lost, it may also go on: what it asked for is there."""
    for place, what in enumerate(whole):
        if fault == "unanswered" and not is_write(what):
            continue  # a look that nobody answers is as one that nobody hears
        job = fresh_job()
        proxy.begin(lambda number, at=place: fault if number == at else None)
        try:
            faulty.submit(job)
        except AwsError as problem:
            told = str(problem)
            proxy.begin(well)
            assert "; left:" not in told, what
            assert faulty.left(job) == faulty.files(job) == [], what
        else:
            assert fault == "unanswered", what
            assert len(faulty.left(job)) == 9, what
            faulty.type("kill_job", job, "--purge")
            assert faulty.left(job) == [], what


@pytest.mark.parametrize("way", ["run_job", "kill_job"])
def test_after_aws_was_gone_run_job_goes_on_and_kill_job_removes_what_is_left(
    faulty: Petctl, proxy: Proxy, whole: list[str], way: str
) -> None:
    for place, what in enumerate(whole):
        if not is_write(what):
            continue  # as when the write behind it fails
        job = fresh_job()
        proxy.begin(lambda number, at=place: "denied" if number >= at else None)
        with pytest.raises(AwsError):
            faulty.submit(job)
        proxy.begin(well)
        if way == "run_job":
            faulty.submit(job)
            assert len(faulty.left(job)) == 9, what
        if faulty.left(job):
            faulty.type("kill_job", job, "--purge")
        assert faulty.left(job) == [], what


def test_a_job_that_was_made_whole_while_the_network_broke_is_found_and_can_be_removed(
    faulty: Petctl, proxy: Proxy, whole: list[str]
) -> None:
    job, last = fresh_job(), max(place for place, what in enumerate(whole) if is_write(what))
    proxy.begin(lambda number: "unanswered" if number == last else "denied" if number > last else None)
    with pytest.raises(AwsError, match=f"left: auto scaling group {job}_worker.*kill_job {job}. removes what is left"):
        faulty.submit(job)
    proxy.begin(well)
    with pytest.raises(UsageError, match=r"is in use: run .* is running"):
        faulty.submit(job)
    faulty.type("kill_job", job, "--purge")
    assert faulty.left(job) == []


@pytest.mark.parametrize("kind", ["denied", "throttled", "unheard"])
@pytest.mark.parametrize("is_hit", [is_write, lambda what: not is_write(what)], ids=["removal", "look"])
@pytest.mark.parametrize("verb", ["kill_job", "gc"])
def test_kill_job_and_gc_again_finish_whichever_call_failed(
    faulty: Petctl, proxy: Proxy, is_hit: Callable[[str], bool], verb: str, kind: str
) -> None:
    """Each attempt removes one thing, and the next removal, or the look before it, fails."""
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    faulty.end(job, 0)
    hit: list[str] = []

    def fault(number: int) -> str | None:
        before = sum(is_write(what) for what in proxy.seen[:number])
        if not is_hit(proxy.seen[number]) or before < min(len(hit), 1):
            return None
        hit.append(proxy.seen[number])
        proxy.fault = well
        return kind

    for _ in range(LONGEST):
        proxy.begin(fault)
        try:
            faulty.type(*(["gc"] if verb == "gc" else ["kill_job", job, "--purge"]))
        except AwsError:
            assert hit
        else:
            break
    logs = ["DeleteLogGroup"] if verb == "kill_job" else []
    assert faulty.left(job) == ([] if logs else [f"logs {Names(job).log_group}"])
    assert len(hit) >= 5 + len(logs)  # two groups, two templates, logs, the claim
    if is_hit is is_write:
        assert [what.rpartition(" ")[2] for what in hit] == [
            *["DeleteAutoScalingGroup"] * 2, *["DeleteLaunchTemplate"] * 2, *logs, "DeleteParameter",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("denied", "AWS denied it (your policy lacks s3:PutObject"),
        ("throttled", "AWS has too many requests"),
        ("unheard", "AWS did not answer in time"),
        ("unanswered", "AWS did not answer"),
    ],
)
def test_upload_that_fails_is_one_sentence_and_the_same_command_again_finishes(
    faulty: Petctl, proxy: Proxy, fault: str, sentence: str
) -> None:
    key = f"uploads/{fresh_job()}.py"
    words = ("upload", str(faulty.script), f"s3://{faulty.bucket}/{key}")
    proxy.begin(lambda _: fault)
    with pytest.raises(AwsError, match=f"^s3.put_object: {re.escape(sentence)}.*$"):
        faulty.type(*words)
    proxy.begin(well)
    faulty.type(*words)
    stored = faulty.client("s3").get_object(Bucket=faulty.bucket, Key=key)["Body"].read()
    assert stored == faulty.script.read_bytes()


def test_kill_job_needs_no_answer_to_what_it_removes(faulty: Petctl, proxy: Proxy) -> None:
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    proxy.begin(lambda number: "unanswered" if is_write(proxy.seen[number]) else None)
    faulty.type("kill_job", job, "--purge")
    assert faulty.left(job) == []


def test_a_second_run_of_a_name_does_not_disturb_the_first_whatever_fails(faulty: Petctl, proxy: Proxy) -> None:
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    before = faulty.left(job)
    for place in range(6):
        proxy.begin(lambda number, at=place: "denied" if number == at else None)
        with pytest.raises((AwsError, UsageError)):
            faulty.submit(job)
    assert faulty.left(job) == before
    proxy.begin(well)
    faulty.type("kill_job", job, "--purge")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("denied", "AWS denied it (your policy lacks autoscaling:DescribeAutoScalingGroups"),
        ("throttled", "AWS has too many requests"),
        ("unheard", "AWS did not answer in time"),
        ("garbled", "what came is no answer of AWS's"),
    ],
)
def test_a_failure_is_one_sentence(faulty: Petctl, proxy: Proxy, fault: str, sentence: str) -> None:
    proxy.begin(lambda _: fault)
    with pytest.raises(AwsError) as caught:
        faulty.type("status", "some-job")
    proxy.begin(well)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.retryable == (fault != "denied")


@pytest.mark.parametrize(
    ("words", "request_", "sentence"),
    [
        (["hosts", "JOB"], "ec2 DescribeInstances", "ec2.describe_instances: AWS denied it (your policy lacks ec2:"),
        (["logs", "JOB"], "logs FilterLogEvents", "logs.filter_log_events: AWS denied it (your policy lacks logs:"),
        (["doctor", "--specs_file", "SPECS"], "sts GetCallerIdentity", "sts.get_caller_identity: AWS denied it ("),
    ],
)
def test_who_only_reads_says_in_one_sentence_what_was_denied(
    faulty: Petctl, proxy: Proxy, standing: str, words: list[str], request_: str, sentence: str
) -> None:
    proxy.begin(lambda number: "denied" if proxy.seen[number] == request_ else None)
    with pytest.raises(AwsError) as caught:
        faulty.type(*(word.replace("JOB", standing).replace("SPECS", str(faulty.specs_file)) for word in words))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    proxy.begin(well)


def test_doctor_goes_on_after_a_look_that_was_denied_and_that_is_a_finding(faulty: Petctl, proxy: Proxy) -> None:
    proxy.begin(lambda number: "denied" if "DescribeSubnets" in proxy.seen[number] else None)
    checks = json.loads(faulty.data("doctor", "--specs_file", str(faulty.specs_file)))
    proxy.begin(well)
    found = {check["what"]: check["told"] for check in checks}
    assert found["worker.subnets"].startswith("ec2.describe_subnets: AWS denied it (your policy lacks ec2:")
    assert found["worker.s3_bucket"] == faulty.bucket
    assert "rdzv.security_groups" in found


@pytest.mark.parametrize("kind", ["denied", "throttled", "unheard"])
@pytest.mark.parametrize("size", [0, 2], ids=["stop", "scale"])
def test_stop_and_scale_again_finish_whichever_call_failed(
    faulty: Petctl, proxy: Proxy, standing: str, size: int, kind: str
) -> None:
    """Each attempt fails one call later than the one before, and goes on where that one stopped."""
    words, before = (["scale", "--size", "2"], ["stop"])[:: 1 if size else -1]
    proxy.begin(well)
    faulty.type(*before, standing)
    failed: list[str] = []
    for _ in range(LONGEST):
        proxy.begin(lambda number: kind if number == len(failed) else None)
        try:
            faulty.type(*words, standing)
        except AwsError:
            failed.append(proxy.seen[len(failed)])
        else:
            break
    assert failed == proxy.seen
    assert failed.count("autoscaling UpdateAutoScalingGroup") == 2
    proxy.begin(well)
    found = json.loads(faulty.data("status", standing))
    assert (found["worker"]["desired"], found["rdzv"]["desired"]) == (size, min(size, 1))


def test_wait_bears_with_a_network_that_breaks_and_not_with_a_refusal(faulty: Petctl, proxy: Proxy) -> None:
    """Three looks fail: too many requests, an answer that never comes, nobody who listens."""
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    run = json.loads(faulty.data("status", job))["run"]
    first = len(faulty_looks(faulty, proxy, job))
    events = iter(["", "", "vanish", "appear"])

    def pause() -> None:
        event = next(events)
        if event == "vanish":
            proxy.vanish()
        elif event == "appear":
            proxy.appear()
            faulty.record(job, run, 5)

    faulty.on_pause = pause
    proxy.begin({first: "throttled", first + 1: "unanswered"}.get)
    try:
        assert faulty.type("wait", job) == 5
    finally:
        proxy.appear()
    told = [line for line in faulty.err.splitlines() if line.endswith("; looking again")]
    what = "autoscaling.describe_auto_scaling_groups: "
    assert [line.removeprefix(what).partition(":")[0] for line in told] == [
        "AWS has too many requests (ThrottlingException); looking again",
        "AWS did not answer; looking again",
        "there is no connection to AWS",
    ]
    faulty.client("s3").delete_object(Bucket=faulty.bucket, Key=f"jobs/{job}/{run}/result.json")
    faulty.type("scale", job, "--size", "2")
    faulty.on_pause = lambda: None
    proxy.begin(lambda number: "denied" if number >= first else None)
    with pytest.raises(AwsError, match="denied"):
        faulty.type("wait", job)
    proxy.begin(well)
    faulty.type("kill_job", job, "--purge")


def faulty_looks(faulty: Petctl, proxy: Proxy, job: str) -> list[str]:
    """Return the requests of one look at a job."""
    proxy.begin(well)
    faulty.type("status", job)
    return list(proxy.seen)


def test_jobs_whose_bucket_is_closed_are_listed_all_the_same(faulty: Petctl, proxy: Proxy) -> None:
    job = fresh_job()
    proxy.begin(well)
    faulty.submit(job)
    proxy.begin(lambda number: "denied" if proxy.seen[number].startswith("s3 GET") else None)
    faulty.type("list")
    assert f"{job} " in faulty.out
    with pytest.raises(AwsError, match=r"s3\.get_object: AWS denied it"):
        faulty.type("status", job)
    proxy.begin(well)
    faulty.type("kill_job", job, "--purge")


def test_code_that_breaks_off_while_it_is_pinned_is_one_sentence_and_nothing_is_made(
    faulty: Petctl, proxy: Proxy
) -> None:
    job = fresh_job()
    faulty.client("s3").put_object(Bucket=faulty.bucket, Key="long.py", Body=b"#" * 100_000)
    proxy.begin(lambda number: "half" if proxy.seen[number].startswith("s3 GET") else None)
    words = ("run_job", "--size", "1", "--specs_file", str(faulty.specs_file), "--name", job)
    with pytest.raises(AwsError, match=r"s3\.get_object: AWS did not answer"):
        faulty.type(*words, f"s3://{faulty.bucket}/long.py")
    proxy.begin(well)
    assert faulty.left(job) == []


def test_code_that_breaks_off_once_while_it_is_pinned_is_read_on_from_there(faulty: Petctl, proxy: Proxy) -> None:
    job, content = fresh_job(), bytes(range(256)) * 400
    faulty.client("s3").put_object(Bucket=faulty.bucket, Key="long.py", Body=content)
    reads: list[int] = []

    def fault(number: int) -> str | None:
        if not proxy.seen[number].endswith("/long.py"):
            return None
        reads.append(number)
        return "half" if len(reads) == 1 else None

    proxy.begin(fault)
    words = ("run_job", "--size", "1", "--specs_file", str(faulty.specs_file), "--name", job, "--json")
    faulty.type(*words, f"s3://{faulty.bucket}/long.py")
    assert json.loads(faulty.out)["sha256"] == hashlib.sha256(content).hexdigest()
    assert len(reads) == 2
    proxy.begin(well)
    faulty.type("kill_job", job, "--purge")
