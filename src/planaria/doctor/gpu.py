"""NVIDIA GPUs, their driver, and whether the installed torch fits them. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import FAIL, fail, ok, size, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.doctor.gpu_log import Xid
    from planaria.doctor.model import Finding

HOUR_S = 3600.0
DAY_S = 86_400.0
FATAL_XIDS = {
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained ECC error",
    119: "its GSP processor does not answer",
    120: "its GSP processor failed",
}
"""After these a GPU wants a reset before it works on; NVIDIA's list of Xid errors."""
BENIGN_XIDS = (13, 31, 43, 45)
"""These are made by a program that is wrong or was ended, not by a GPU that is."""


class GpuSeen(Value):
    """One GPU. `strangers` are processes on it that are not ours to have; None: the driver does not tell."""

    index: int
    name: str
    total_bytes: int = 0
    free_bytes: int = 0
    uncorrected: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    has_mig: bool = False
    strangers: tuple[int, ...] | None = None
    uuid: str = ""
    bus: str = ""
    """As `Xid.device` has it."""


class GpuFacts(Value):
    """What is known of the GPUs. `devices` counts what the kernel's driver shows; `problem` is why NVML cannot be asked.

    `lost` says of each GPU that NVML counts and does not answer for why. `is_by_bus`: CUDA numbers GPUs as NVML does.
    `torch_cuda`: the CUDA that the installed torch was built for, empty for one that was built for none.
    """

    devices: int = 0
    problem: str = ""
    driver: str = ""
    driver_cuda: tuple[int, int] = (0, 0)
    gpus: tuple[GpuSeen, ...] = ()
    torch: str | None = None
    torch_cuda: str = ""
    visible: str | None = None
    workers: int = 1
    xids: tuple[Xid, ...] = ()
    lost: tuple[str, ...] = ()
    is_by_bus: bool = False


def check_gpu(facts: GpuFacts) -> list[Finding]:
    """Judge the GPUs."""
    if not facts.devices and not facts.gpus:
        return [_none(facts)]
    if not facts.gpus:
        return [_driver(facts), *_xids(facts)]
    found = [_driver(facts), *_torch(facts), _visible(facts), _errors(facts), _busy(facts), _mig(facts)]
    return [*found, *_xids(facts)]


def spared(facts: GpuFacts) -> frozenset[int]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES is known to leave out, by index.

    CUDA counts the fastest first unless it is told otherwise: by number GPUs are known where all are of one kind.
    """
    words = [word.strip() for word in (facts.visible or "").split(",")]
    is_ordered = facts.is_by_bus or len({gpu.name for gpu in facts.gpus}) == 1
    is_known = all(word.startswith("GPU-") or (is_ordered and word.lstrip("-").isdigit()) for word in words if word)
    if facts.visible is None or not is_known:
        return frozenset()
    return frozenset(gpu.index for gpu in facts.gpus if not any(_names(word, gpu) for word in words))


def _names(word: str, gpu: GpuSeen) -> bool:
    return word == str(gpu.index) or (word.startswith("GPU-") and gpu.uuid.startswith(word))


def _none(facts: GpuFacts) -> Finding:
    built = (
        f", though the installed torch {facts.torch} was built for CUDA {facts.torch_cuda}" if facts.torch_cuda else ""
    )
    return ok("gpu.driver", f"there is no NVIDIA GPU{built}")


def _driver(facts: GpuFacts) -> Finding:
    check = "gpu.driver"
    if facts.gpus and (facts.lost or len(facts.gpus) < facts.devices):
        return _missing(facts)
    if not facts.problem and facts.gpus:
        major, minor = facts.driver_cuda
        shown = ", ".join(f"{gpu.index} {gpu.name} {_amount(gpu)}".rstrip() for gpu in facts.gpus[:8])
        return ok(check, f"driver {facts.driver}, for CUDA {major}.{minor} and below; GPUs: {shown}")
    why = facts.problem or "; ".join(facts.lost[:3]) or "the driver counts none"
    told = f"the kernel shows {facts.devices} NVIDIA GPUs that cannot be used: {why}"
    if "mismatch" in facts.problem.lower():
        return fail(check, told, "the driver was updated under a running kernel module: reload it (rmmod), or reboot")
    if "librar" in facts.problem.lower():
        return fail(
            check,
            told,
            "install the driver's libraries; a container needs the NVIDIA container toolkit (docker run --gpus all)",
        )
    return fail(check, told, "run nvidia-smi and look in dmesg for NVRM; a reset (nvidia-smi -r) or a reboot may help")


def _amount(gpu: GpuSeen) -> str:
    return size(gpu.total_bytes) if gpu.total_bytes else ""


def _missing(facts: GpuFacts) -> Finding:
    """Judge that the driver does not answer for some. With CUDA_VISIBLE_DEVICES these may be GPUs that nobody wants."""
    why = f" ({'; '.join(facts.lost[:3])})" if facts.lost else ""
    count = max(facts.devices, len(facts.gpus) + len(facts.lost))
    told = f"there are {count} NVIDIA GPUs, and the driver answers for {len(facts.gpus)} of them{why}"
    judge = fail if facts.visible is None else warn
    return judge("gpu.driver", told, "look in dmesg for NVRM: one may have fallen off the bus, which a reboot may mend")


def _torch(facts: GpuFacts) -> list[Finding]:
    check = "gpu.torch"
    if facts.torch is None:
        return [ok(check, "no torch is installed for this Python")]
    if not facts.torch_cuda:
        return [
            warn(
                check,
                f"the installed torch {facts.torch} was built without CUDA, and there are {len(facts.gpus)} GPUs",
                "install a torch built for CUDA: see pytorch.org/get-started for the index to take it from",
            )
        ]
    wanted = _version(facts.torch_cuda)
    told = f"torch {facts.torch} was built for CUDA {facts.torch_cuda}"
    shown = f"{facts.driver_cuda[0]}.{facts.driver_cuda[1]}"
    if wanted[0] > facts.driver_cuda[0]:
        return [
            fail(
                check,
                f"{told}, and driver {facts.driver} knows CUDA {shown} and below",
                f"install a newer driver, or a torch built for CUDA {facts.driver_cuda[0]}",
            )
        ]
    return [ok(check, f"{told}, which driver {facts.driver} can run")]


def _version(text: str) -> tuple[int, int]:
    parts = [int(part) if part.isdigit() else 0 for part in [*text.split("."), "0"][:2]]
    return parts[0], parts[1]


def _visible(facts: GpuFacts) -> Finding:
    check, mask = "gpu.visible", facts.visible
    count = len(facts.gpus)
    if mask is None:
        return _enough(facts, count, f"all {count} GPUs can be seen")
    wrong = [word for word in mask.split(",") if word.strip().isdigit() and int(word) >= count]
    if wrong:
        return fail(
            check,
            f"CUDA_VISIBLE_DEVICES={mask} names GPU {wrong[0].strip()}, and there are {count}",
            f"unset it, or name GPUs from 0 to {count - 1}",
        )
    shown = [word for word in mask.split(",") if word.strip() and word.strip() != "-1"]
    if not shown:
        return warn(check, f"CUDA_VISIBLE_DEVICES={mask} hides all {count} GPUs", "unset CUDA_VISIBLE_DEVICES")
    return _enough(facts, len(shown), f"CUDA_VISIBLE_DEVICES={mask} shows {len(shown)} of {count} GPUs")


def _enough(facts: GpuFacts, count: int, told: str) -> Finding:
    if facts.workers <= count:
        return ok("gpu.visible", told)
    needs_none = facts.torch is not None and not facts.torch_cuda
    is_short = facts.workers > len(facts.gpus) and not needs_none
    return (fail if is_short else warn)(
        "gpu.visible",
        f"{told}, for {facts.workers} workers: NCCL refuses two of them on one GPU",
        f"--nproc-per-node={count} (planaria run also takes gpu), or make more GPUs visible; "
        "CUDA_VISIBLE_DEVICES= for workers that need none",
    )


def _errors(facts: GpuFacts) -> Finding:
    left_out = spared(facts)
    found = [one for gpu in facts.gpus if (one := _error(gpu, is_used=gpu.index not in left_out)) is not None]
    worst = sorted(found, key=lambda one: one.verdict != FAIL)
    return worst[0] if worst else ok("gpu.errors", "no GPU reports an uncorrected memory error")


def _error(gpu: GpuSeen, *, is_used: bool) -> Finding | None:
    check = "gpu.errors"
    judge = fail if is_used else warn
    which = f"GPU {gpu.index}" + ("" if is_used else ", which CUDA_VISIBLE_DEVICES leaves out,")
    if gpu.remap_failed:
        return judge(check, f"{which} could not remap a broken row of its memory", "have the GPU replaced")
    if gpu.remap_pending:
        return judge(
            check,
            f"{which} has broken memory that is set aside at the next reset only",
            f"end what uses it and reset it: nvidia-smi -r -i {gpu.index}",
        )
    if gpu.uncorrected:
        return warn(
            check,
            f"{which} has had {gpu.uncorrected} uncorrected memory errors since its last reset",
            f"reset it (nvidia-smi -r -i {gpu.index}); have it replaced if they come back",
        )
    return None


def _busy(facts: GpuFacts) -> Finding:
    check = "gpu.busy"
    for gpu in facts.gpus:
        if gpu.strangers:
            pids = ", ".join(map(str, gpu.strangers[:5]))
            return warn(
                check,
                f"other processes use GPU {gpu.index} (pid {pids}), and {size(gpu.free_bytes)} of its memory are free",
                "end them if they are left from another job, or choose other GPUs with CUDA_VISIBLE_DEVICES",
            )
        if gpu.total_bytes and gpu.free_bytes < gpu.total_bytes // 10:
            return warn(
                check,
                f"GPU {gpu.index} has only {size(gpu.free_bytes)} of {size(gpu.total_bytes)} free, and nobody is seen on it",
                "look from the host (nvidia-smi): a process outside of this container holds it",
            )
    return ok(check, "nobody else uses the GPUs")


def _mig(facts: GpuFacts) -> Finding:
    parted = [gpu.index for gpu in facts.gpus if gpu.has_mig]
    if parted and not (facts.visible or "").startswith("MIG-"):
        return warn(
            "gpu.mig",
            f"GPU {parted[0]} is divided (MIG): a process sees one of its parts only, and NCCL does not join parts",
            f"nvidia-smi -i {parted[0]} -mig 0, or name the parts in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them)",
        )
    return ok("gpu.mig", "the parts that are named are used" if parted else "no GPU is divided (MIG)")


def _xids(facts: GpuFacts) -> list[Finding]:
    check = "gpu.xid"
    left_out = {gpu.bus for gpu in facts.gpus if gpu.index in spared(facts)}
    recent = [one for one in facts.xids if one.age_s < DAY_S and one.number not in BENIGN_XIDS and not one.is_over]
    fatal = [one for one in recent if one.number in FATAL_XIDS and one.age_s < HOUR_S and one.device not in left_out]
    if fatal:
        one = fatal[-1]
        told = f"the driver logged Xid {one.number} ({FATAL_XIDS[one.number]}) of {one.device} {one.age_s / 60:.0f} minutes ago"
        remedy = (
            "reset the GPU (nvidia-smi -r) or reboot; have it replaced if that comes back. "
            "If it was reset since: not every driver logs that, and an hour after the error it counts no more"
        )
        return [fail(check, told, remedy)]
    if recent:
        one = recent[-1]
        told = f"the driver logged Xid {one.number} of {one.device} {one.age_s / HOUR_S:.1f} hours ago"
        told += ", which CUDA_VISIBLE_DEVICES leaves out" if one.device in left_out else ""
        return [warn(check, told, "look it up in NVIDIA's list of Xid errors; `dmesg | grep Xid` shows all of them")]
    return [ok(check, "the kernel's log, as far as it can be read, has no recent error of a GPU")]
