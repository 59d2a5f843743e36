"""Variables that mislead launchers, workers and libraries. Pure."""

from __future__ import annotations

from planaria.doctor.dns import is_loopback
from planaria.doctor.model import ok, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.doctor.model import Finding

_OF_WORKERS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRAPS = {
    ("CUDA_LAUNCH_BLOCKING", "1"): ("makes every kernel wait for the one before: for debugging only", "unset it"),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"): (
        "lets a collective whose peer is gone wait for ever",
        "unset it; planaria sets it to 1",
    ),
    ("TORCH_NCCL_BLOCKING_WAIT", "1"): ("makes every collective wait on the host, which is slow", "unset it"),
    ("NCCL_P2P_DISABLE", "1"): ("keeps GPUs of one machine from using NVLink", "unset it unless NCCL fails without"),
    ("NCCL_SHM_DISABLE", "1"): (
        "keeps workers of one machine from sharing memory",
        "unset it unless NCCL fails without",
    ),
    ("NCCL_IB_DISABLE", "1"): ("keeps NCCL from using InfiniBand and RoCE", "unset it where there is an RDMA device"),
}


def check_environment(
    variables: Mapping[str, str], *, workers: int, cpus: int, hosts: Sequence[str] = ()
) -> list[Finding]:
    """Judge the environment. `hosts` are those that are talked to, besides this one."""
    return [_stale(variables), _proxy(variables, hosts), _threads(variables, workers, cpus), *_traps(variables)]


def _stale(variables: Mapping[str, str]) -> Finding:
    found = [name for name in _OF_WORKERS if name in variables]
    if not found:
        return ok("environment.stale", "no variable of another job's workers is set")
    shown = ", ".join(f"{name}={variables[name]}" for name in found[:4])
    return warn(
        "environment.stale",
        f"{shown} is set here: workers get their own values, but what you start by hand would join another job",
        f"unset {' '.join(found)}",
    )


def _proxy(variables: Mapping[str, str], hosts: Sequence[str]) -> Finding:
    check = "environment.proxy"
    proxies = [name for name in _PROXIES if variables.get(name)]
    if not proxies:
        return ok(check, "no proxy is set")
    excepted = (variables.get("no_proxy") or variables.get("NO_PROXY") or "").split(",")
    names = [part.strip() for part in excepted]
    wanted = ["localhost", "127.0.0.1", *(host for host in hosts if not is_loopback(host))]
    missing = [host for host in wanted if "*" not in names and not any(_covers(name, host) for name in names)]
    if not missing:
        return ok(check, f"{proxies[0]} is set, and no_proxy leaves the hosts of the job out")
    return warn(
        check,
        f"{proxies[0]} is set and no_proxy lacks {', '.join(missing)}: HTTP to the job's own ports, or to etcd, goes astray",
        f"export no_proxy={','.join([*filter(None, names), *missing])}",
    )


def _covers(name: str, host: str) -> bool:
    return bool(name) and (host == name or host.endswith(f".{name.lstrip('.')}"))


def _threads(variables: Mapping[str, str], workers: int, cpus: int) -> Finding:
    check, text = "environment.threads", variables.get("OMP_NUM_THREADS")
    if text is None:
        return ok(check, "OMP_NUM_THREADS is not set: planaria sets it to 1 where there are several workers")
    first = text.split(",")[0].strip()
    if not (first.isascii() and first.isdigit() and int(first)):
        return warn(
            check,
            f"OMP_NUM_THREADS={text} is no number of threads: OpenMP takes as many as there are CPUs, in every worker",
            "unset it, or set it to a number from 1",
        )
    if int(first) * workers > cpus:
        return warn(
            check,
            f"OMP_NUM_THREADS={text} and {workers} workers make {int(first) * workers} threads on {cpus} CPUs",
            f"export OMP_NUM_THREADS={max(1, cpus // workers)}",
        )
    return ok(check, f"OMP_NUM_THREADS={text} fits {workers} workers on {cpus} CPUs")


def _traps(variables: Mapping[str, str]) -> list[Finding]:
    found = [
        warn("environment.traps", f"{name}={value} {harm}", remedy)
        for (name, value), (harm, remedy) in _TRAPS.items()
        if variables.get(name) == value
    ]
    return found or [ok("environment.traps", "no variable is set that is known to do harm")]
