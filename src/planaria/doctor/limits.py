"""Limits of the user, of the container and of the machine. Pure. None: there is no such limit, or nobody tells."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, size, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.doctor.model import Finding

MIB = 1 << 20
FEWEST_FILES = 256  # an agent, its pipes and sockets, and a worker with its libraries
FEW_FILES = 4096  # a data loader passes tensors by descriptor; the usual hard limit is 1,048,576
THREADS_PER_WORKER = 64  # torch, NCCL and data loaders
LEAST_MEMORY_BYTES = 256 * MIB  # importing torch takes that much
PER_WORKER_BYTES = 512 * MIB


class LimitFacts(Value):
    """What this process may have, and what is used of it. `cpus` is what may be used, `cpu_quota` its share by cgroup."""

    workers: int
    files_soft: int
    files_hard: int
    processes: int | None = None
    processes_used: int = 0
    pids: int | None = None
    pids_used: int = 0
    memlock_bytes: int | None = None
    has_rdma: bool = False
    memory_bytes: int = 0
    is_memory_limited: bool = False
    """It is the container that has no more, not the machine."""
    cpus: int = 1
    cpu_quota: float | None = None
    core_bytes: int | None = 0
    core_pattern: str = ""


def check_limits(facts: LimitFacts) -> list[Finding]:
    """Judge the limits."""
    found = [_files(facts), _processes(facts), _pids(facts), _memlock(facts)]
    return [*found, _memory(facts), _cpu(facts), _core(facts)]


def _files(facts: LimitFacts) -> Finding:
    told = f"a process may open {facts.files_soft} files, and allow itself {facts.files_hard}"
    remedy = "ulimit -n 65536; for services LimitNOFILE=, for containers --ulimit nofile=65536:65536"
    if facts.files_soft < FEWEST_FILES:
        return fail("limits.open-files", told, remedy)
    if facts.files_hard < FEW_FILES:
        return warn("limits.open-files", f"{told}: few for data loaders and large jobs", remedy)
    return ok("limits.open-files", told)


def _processes(facts: LimitFacts) -> Finding:
    check = "limits.processes"
    if facts.processes is None:
        return ok(check, "the user may have any number of processes")
    told = f"the user may have {facts.processes} processes and threads, and has {facts.processes_used} processes"
    remedy = "ulimit -u unlimited, or a line `* - nproc unlimited` in /etc/security/limits.conf"
    return _room(check, facts.processes - facts.processes_used, facts.workers, told, remedy)


def _pids(facts: LimitFacts) -> Finding:
    check = "limits.pids"
    if facts.pids is None:
        return ok(check, "the container may have any number of processes")
    told = f"the container may have {facts.pids} processes and threads, and has {facts.pids_used}"
    remedy = "docker run --pids-limit=-1; on Kubernetes the kubelet's podPidsLimit; TasksMax= of a service"
    return _room(check, facts.pids - facts.pids_used, facts.workers, told, remedy)


def _room(check: str, left: int, workers: int, told: str, remedy: str) -> Finding:
    """Judge whether so many processes and threads are enough for the workers."""
    if left < workers + 10:
        return fail(check, told, remedy)
    if left < workers * THREADS_PER_WORKER:
        return warn(check, f"{told}: a worker has some {THREADS_PER_WORKER} threads", remedy)
    return ok(check, told)


def _memlock(facts: LimitFacts) -> Finding:
    check = "limits.memlock"
    if not facts.has_rdma:
        return ok(check, "there is no RDMA device, which would need locked memory")
    if facts.memlock_bytes is None:
        return ok(check, "a process may lock any amount of memory, as RDMA needs it")
    return fail(
        check,
        f"there is an RDMA device, and a process may lock {size(facts.memlock_bytes)} of memory only",
        "ulimit -l unlimited; for containers --ulimit memlock=-1, for services LimitMEMLOCK=infinity",
    )


def _memory(facts: LimitFacts) -> Finding:
    check, left, is_limited = "limits.memory", facts.memory_bytes, facts.is_memory_limited
    told = f"{size(left)} of memory can be used" + (", by the limit of the container" if is_limited else "")
    remedy = "give the container more memory" if is_limited else "end what uses the memory: `ps aux --sort=-rss | head`"
    if left < LEAST_MEMORY_BYTES:
        return fail(check, told, remedy)
    if left < PER_WORKER_BYTES * facts.workers:
        return warn(check, f"{told}, for {facts.workers} workers", remedy)
    return ok(check, told)


def _cpu(facts: LimitFacts) -> Finding:
    quota = facts.cpu_quota if facts.cpu_quota is not None else float(facts.cpus)
    usable = min(quota, float(facts.cpus))
    told = f"{usable:g} CPUs can be used"
    if usable < facts.workers:
        return warn(
            "limits.cpu",
            f"{told}, for {facts.workers} workers: they will wait for each other",
            "fewer workers (--nproc-per-node), or more CPUs for the container or the job",
        )
    return ok("limits.cpu", told)


def _core(facts: LimitFacts) -> Finding:
    check, pattern = "limits.core", facts.core_pattern
    if facts.core_bytes == 0:
        return ok(check, "a crash leaves no core file")
    if pattern.startswith("|"):
        return ok(check, f"a crash is handed to {pattern[1:].split(' ')[0] or 'a program'}")
    if facts.core_bytes is None and not pattern.startswith("/"):
        return warn(
            check,
            f"a crash writes all memory of a worker into its working directory ({pattern or 'core'})",
            "ulimit -c 0, or a pattern with a folder that has room: sysctl -w kernel.core_pattern=/var/crash/core.%p",
        )
    return ok(check, f"a crash writes a core file ({pattern})")
