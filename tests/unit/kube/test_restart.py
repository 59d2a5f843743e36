from __future__ import annotations

import pytest

from planaria.kube import restart
from planaria.kube.seen import Ended, PodSeen


def _pod(
    status: int | None, *, phase: str = "", reason: str = "", ended_reason: str = "Error", **fields: object
) -> PodSeen:
    ended = None if status is None else Ended(status, ended_reason)
    shown = phase or ("Succeeded" if status == 0 else "Failed")
    return PodSeen("resnet-worker-0", "u", "Worker", 0, shown, ended=ended, reason=reason, **fields)  # type: ignore[arg-type]


def test_the_retry_list_comes_from_the_one_table_of_exit_statuses() -> None:
    assert set(restart.retry_list()) == {69, 71, 75, 124, 129, 130, 137, 138, 140, 143}
    assert {75, 124, 130, 137, 143} <= set(restart.retry_list())


@pytest.mark.parametrize("status", [69, 71, 75, 124, 130, 137, 138, 143])
def test_under_exit_code_a_status_of_the_list_is_tried_again(status: int) -> None:
    assert restart.judge("ExitCode", _pod(status)).verdict == restart.REPLACED


@pytest.mark.parametrize("status", [1, 2, 70, 126, 127, 134, 139, 255])
def test_under_exit_code_any_other_status_is_for_good(status: int) -> None:
    assert restart.judge("ExitCode", _pod(status)).verdict == restart.FATAL


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        ("Always", restart.REPLACED),
        ("OnFailure", restart.REPLACED),
        ("Never", restart.FATAL),
        ("ExitCode", restart.FATAL),
    ],
)
def test_a_failure_of_its_own_follows_the_policy_and_counts(policy: str, verdict: str) -> None:
    judged = restart.judge(policy, _pod(1))
    assert (judged.verdict, judged.counts) == (verdict, True)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
@pytest.mark.parametrize(
    "reason", ["Evicted", "NodeLost", "Preempting", "Shutdown", "OutOfnvidia.com/gpu", "UnexpectedAdmissionError"]
)
def test_what_the_cluster_takes_it_gives_back_and_nobody_counts(policy: str, reason: str) -> None:
    judged = restart.judge(policy, _pod(1, reason=reason))
    assert (judged.verdict, judged.counts) == (restart.REPLACED, False)
    assert judged.why == f"resnet-worker-0 was taken by the cluster ({reason})"


@pytest.mark.parametrize("pod", [_pod(None), _pod(143, is_disrupted=True)], ids=["no container ran", "announced"])
def test_a_pod_that_was_refused_or_preempted_is_weather_too(pod: PodSeen) -> None:
    assert restart.judge("Never", pod).verdict == restart.REPLACED


@pytest.mark.parametrize(("policy", "verdict"), [("Never", restart.FATAL), ("ExitCode", restart.FATAL)])
def test_a_container_that_fails_before_the_trainer_starts_is_no_weather(policy: str, verdict: str) -> None:
    pod = PodSeen("resnet-worker-0", "u", "Worker", 0, "Failed", ended=Ended(1, "Error", container="init"))
    judged = restart.judge(policy, pod)
    assert (judged.verdict, judged.counts) == (verdict, True)
    assert judged.why == "the container init of resnet-worker-0 ended with status 1"


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
def test_out_of_memory_is_tried_again_and_counts_since_it_may_happen_again(policy: str) -> None:
    judged = restart.judge(policy, _pod(137, ended_reason="OOMKilled"))
    assert (judged.verdict, judged.counts) == (restart.REPLACED, True)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
def test_status_0_is_done_under_every_policy(policy: str) -> None:
    assert restart.judge(policy, _pod(0)).verdict == restart.FINISHED
    assert restart.judge(policy, _pod(None, phase="Succeeded")).verdict == restart.FINISHED


@pytest.mark.parametrize(
    ("policy", "is_member", "status", "over"),
    [
        ("OnFailure", True, 1, False),  # the kubelet starts it again
        ("OnFailure", True, 0, True),
        ("Always", True, 0, True),
        ("Always", False, 0, False),
        ("ExitCode", True, 1, True),
        ("Never", True, 1, True),
    ],
)
def test_who_waits_to_be_restarted_in_place_is_not_over(policy: str, is_member: bool, status: int, over: bool) -> None:
    assert restart.is_over(policy, is_member, _pod(status, phase="Running")) is over


def test_a_status_is_told_with_its_meaning() -> None:
    assert restart.told("p", Ended(75)) == (
        "p ended with status 75 (drained after a notice, and what only this node had is on disk or with another node: "
        "run the job again)"
    )
    assert restart.told("p", Ended(139)) == "p ended with status 139 (signal 11)"
    assert restart.told("p", Ended(42)) == "p ended with status 42"
