"""Shared memory: /dev/shm and the limits of System V's. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, size, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.doctor.model import Finding

MIB = 1 << 20
DOCKERS_BYTES = 64 * MIB  # what Docker and Kubernetes give a container that asks for nothing
LEAST_BYTES = 16 * MIB  # less does not hold what NCCL or a data loader shares between two processes
PER_WORKER_BYTES = 64 * MIB
SHM = "/dev/shm"  # noqa: S108  it is looked at
_MORE = "docker run --shm-size=8g (or --ipc=host); on Kubernetes an emptyDir with medium: Memory at /dev/shm"


class ShmFacts(Value):
    """What /dev/shm is. `problem`: why nothing can be written there; `left_bytes`: of files whose makers are dead."""

    workers: int
    total_bytes: int = 0
    free_bytes: int = 0
    kind: str = ""
    problem: str = ""
    left_bytes: int = 0
    left: tuple[str, ...] = ()
    shmmax_bytes: int | None = None


def check_shm(facts: ShmFacts) -> list[Finding]:
    """Judge shared memory."""
    if facts.problem:
        return [
            fail("shm.there", f"{SHM} cannot be used: {facts.problem}", "mount -t tmpfs -o mode=1777 tmpfs /dev/shm")
        ]
    return [_there(facts), _size(facts), _left(facts), _ipc(facts)]


def _there(facts: ShmFacts) -> Finding:
    if facts.kind not in ("tmpfs", ""):
        return warn(
            "shm.there",
            f"{SHM} is on {facts.kind}, not in memory",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        )
    return ok("shm.there", f"{SHM} can be written to")


def _size(facts: ShmFacts) -> Finding:
    told = f"{SHM} has {size(facts.free_bytes)} free of {size(facts.total_bytes)}"
    if facts.free_bytes < LEAST_BYTES:
        return fail(
            "shm.size", f"{told}: workers cannot share tensors", f"remove what lies there, or more of it: {_MORE}"
        )
    if facts.total_bytes <= DOCKERS_BYTES:
        return warn(
            "shm.size",
            f"{told}, a container's default: data loaders and NCCL die of `Bus error` or `No space left` with it",
            _MORE,
        )
    if facts.free_bytes < PER_WORKER_BYTES * facts.workers:
        return warn(
            "shm.size", f"{told}, for {facts.workers} workers", f"remove what lies there, or more of it: {_MORE}"
        )
    return ok("shm.size", told)


def _left(facts: ShmFacts) -> Finding:
    if not facts.left:
        return ok("shm.left", "no file of a dead process lies in /dev/shm")
    return warn(
        "shm.left",
        f"{len(facts.left)} files of processes that are dead lie in /dev/shm, {size(facts.left_bytes)}",
        f"remove them, as whoever owns them: rm /dev/shm/{facts.left[0]}" + (" ..." if len(facts.left) > 1 else ""),
    )


def _ipc(facts: ShmFacts) -> Finding:
    if facts.shmmax_bytes is not None and facts.shmmax_bytes < DOCKERS_BYTES:
        return warn(
            "shm.ipc",
            f"a segment of System V shared memory may have {size(facts.shmmax_bytes)} at most",
            "sysctl -w kernel.shmmax=18446744073692774399",
        )
    return ok("shm.ipc", "System V shared memory is not limited below what is needed")
