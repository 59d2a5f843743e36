"""What follows when a pod ends, by restart policy. Pure. The table of docs/kubernetes-api.md is made by asking this."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.contract import exit_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.seen import Ended, PodSeen

FINISHED = "finished"
REPLACED = "replaced"
FATAL = "fatal"

_BY_KUBELET = ("Always", "OnFailure")

# What a kubelet or the control plane says of pods that they ended themselves. A cluster does so; the program did nothing.
_WEATHER = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempted",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
_NO_ROOM = "OutOf"  # OutOfcpu, OutOfpods, ...: the kubelet had less room than the scheduler thought
_OUT_OF_MEMORY = "OOMKilled"


class Judged(Value):
    """What follows, whether it counts against backoffLimit, and why, in words."""

    verdict: str
    counts: bool
    why: str


def retry_list() -> tuple[int, ...]:
    """Return the statuses after which running again makes sense, from the one table of exit statuses."""
    return tuple(status for status in range(256) if exit_status.may_run_again(status))


def kubelet_policy(restart: str, is_member: bool) -> str:
    """Return the restartPolicy of the pod itself. A member's status 0 ends the run, so nobody starts it again."""
    if restart in _BY_KUBELET:
        return "OnFailure" if is_member else restart
    return "Never"


def is_over(restart: str, is_member: bool, pod: PodSeen) -> bool:
    """Tell whether the pod will do nothing any more. Who waits to be restarted in place is not over."""
    if pod.phase in ("Failed", "Succeeded"):
        return True
    if pod.ended is None:
        return False
    policy = kubelet_policy(restart, is_member)
    return policy == "Never" or (policy == "OnFailure" and pod.ended.status == 0)


def judge(restart: str, pod: PodSeen) -> Judged:
    """Say what follows for a pod that is over."""
    if is_weather(pod):
        return Judged(REPLACED, False, f"{pod.name} was taken by the cluster ({pod.reason or 'no container ran'})")
    if pod.ended is None or pod.ended.status == 0:
        return Judged(FINISHED, False, f"{pod.name} is done")
    why = told(pod.name, pod.ended)
    if pod.ended.reason == _OUT_OF_MEMORY:
        return Judged(REPLACED, True, why)
    again = restart in _BY_KUBELET or (restart == "ExitCode" and exit_status.may_run_again(pod.ended.status))
    return Judged(REPLACED if again else FATAL, True, why)


def is_weather(pod: PodSeen) -> bool:
    """Tell whether the cluster ended the pod, not the program in it."""
    if pod.phase == "Succeeded":
        return False
    return pod.reason in _WEATHER or pod.reason.startswith(_NO_ROOM) or pod.is_disrupted or pod.ended is None


def told(name: str, ended: Ended) -> str:
    """Say how a container ended."""
    if ended.reason == _OUT_OF_MEMORY:
        meaning = f"{_OUT_OF_MEMORY}: it needed more memory than it may have"
    else:
        meaning = exit_status.meaning(ended.status)
    if ended.container:  # its statuses are not those of an agent
        return f"the container {ended.container} of {name} ended with status {ended.status}"
    return f"{name} ended with status {ended.status}" + (f" ({meaning})" if meaning else "")
