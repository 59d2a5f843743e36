"""Count GPUs without importing torch, from what the drivers show in `/proc`, `/dev` and `/sys`.

Only `--nproc-per-node=auto|gpu|xpu` and `--numa-binding` load this module. The masks that vendors' runtimes obey
(`CUDA_VISIBLE_DEVICES` and its relatives) are obeyed here too. What cannot be seen from files: whether the torch that
is installed was built for the device.
"""

from __future__ import annotations

import os

from planaria.base.linux import read_file
from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_INTEL = "0x8086"
_NVIDIA_WITHOUT_PROC = ("dxg", "nvhost-gpu")  # WSL 2 and Tegra: one GPU each, no /proc/driver/nvidia/gpus


class Roots(Value):
    """Where the kernel's file systems are; tests bring their own."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"


class Gpu(Value):
    """One physical GPU in PCI order. `address` is empty where the driver does not tell it."""

    address: str
    uuid: str = ""


class Counts(Value):
    """Visible accelerators. Integrated Intel GPUs count for `xpu`, not for `auto`: most Intel CPUs have one."""

    gpus: int
    xpus: int
    discrete_xpus: int


def count(environ: Mapping[str, str], roots: Roots = Roots()) -> Counts:  # noqa: B008  (immutable)
    """Count what torch would call devices of `cuda` (NVIDIA and AMD) and `xpu` (Intel)."""
    xpus = _intel_addresses(roots)
    discrete = [address for address in xpus if not address.startswith("0000:00:")]
    mask = environ.get("ZE_AFFINITY_MASK", "")
    return Counts(
        gpus=len(visible_gpus(environ, roots)),
        xpus=_masked_xpus(len(discrete or xpus), mask),
        discrete_xpus=_masked_xpus(len(discrete), mask),
    )


def visible_gpus(environ: Mapping[str, str], roots: Roots = Roots()) -> tuple[Gpu, ...]:  # noqa: B008  (immutable)
    """Return NVIDIA's or else AMD's GPUs in the order in which a worker would number them."""
    nvidia = _nvidia(roots)
    cuda_mask = environ.get("CUDA_VISIBLE_DEVICES")
    if nvidia:
        return select(nvidia, cuda_mask)
    amd = select(_amd(roots), environ.get("ROCR_VISIBLE_DEVICES"))
    return select(amd, environ.get("HIP_VISIBLE_DEVICES", cuda_mask))  # HIP reads CUDA's name as well


def select(gpus: tuple[Gpu, ...], mask: str | None) -> tuple[Gpu, ...]:
    """Apply a mask such as `0,2` or `GPU-8f3a,GPU-11c2` as CUDA does: the first bad entry ends the list.

    No mask means all, an empty one or -1 none, a repeated entry none at all.
    """
    if mask is None or not gpus:
        return gpus
    chosen: list[Gpu] = []
    seen: set[object] = set()
    for entry in (part.strip() for part in mask.split(",")):
        gpu = _find(gpus, entry)
        if gpu is None:
            break
        key: object = entry if entry.startswith("MIG-") else (gpu.address, gpu.uuid, _index(entry))
        if key in seen:
            return ()
        seen.add(key)
        chosen.append(gpu)
    return tuple(chosen)


def _index(entry: str) -> int:
    return int(entry) if entry.isascii() and entry.isdigit() else -1


def _find(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    index = _index(entry)
    if index >= 0:
        return gpus[index] if index < len(gpus) else None
    if entry.startswith("MIG-"):
        parent = entry.removeprefix("MIG-").partition("/")[0]  # MIG-GPU-<uuid>/1/0 of older drivers names the GPU
        return next((gpu for gpu in gpus if gpu.uuid and gpu.uuid == parent), Gpu(""))
    if not entry.startswith("GPU-"):
        return None
    if not any(gpu.uuid for gpu in gpus):  # names cannot be checked: believe them
        return Gpu("", entry)
    matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]  # a unique beginning is enough
    return matches[0] if len(matches) == 1 else None


def _nvidia(roots: Roots) -> tuple[Gpu, ...]:
    folder = os.path.join(roots.proc, "driver/nvidia/gpus")
    nodes = {name[6:] for name in _names(roots.dev) if name.startswith("nvidia") and name[6:].isdigit()}
    found = []
    for address in _names(folder):
        facts = _facts(os.path.join(folder, address, "information"), ":")
        minor = facts.get("Device Minor", "")
        # A container may show the host's /proc but only some device files; without any they are made on first use.
        if not nodes or not minor or minor in nodes:
            found.append(Gpu(address.lower(), facts.get("GPU UUID", "")))
    if found:
        return tuple(found)
    if not nodes and any(os.path.exists(os.path.join(roots.dev, name)) for name in _NVIDIA_WITHOUT_PROC):
        nodes = {"0"}
    return tuple(Gpu("") for _ in nodes)


def _amd(roots: Roots) -> tuple[Gpu, ...]:
    folder = os.path.join(roots.sys, "class/kfd/kfd/topology/nodes")
    found = []
    for node in sorted((name for name in _names(folder) if name.isdigit()), key=int):
        facts = _facts(os.path.join(folder, node, "properties"), " ")
        if int(facts.get("simd_count", "0")) == 0:
            continue  # a CPU, or a GPU of somebody else's container
        place = int(facts.get("location_id", "0"))
        domain = int(facts.get("domain", "0"))
        address = f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
        unique = int(facts.get("unique_id", "0"))
        found.append(Gpu(address, f"GPU-{unique:016x}" if unique else ""))
    return tuple(found)


def _intel_addresses(roots: Roots) -> list[str]:
    folder = os.path.join(roots.sys, "class/drm")
    found = set()
    for name in _names(folder):
        device = os.path.join(folder, name, "device")
        if name.startswith("renderD") and _text(os.path.join(device, "vendor")) == _INTEL:
            found.add(os.path.basename(os.path.realpath(device)))
    return sorted(found)


def _masked_xpus(found: int, mask: str) -> int:
    entries = {entry.strip() for entry in mask.split(",") if entry.strip()}
    if not entries or not found:
        return found
    return sum(1 for entry in entries if 0 <= _index(entry.partition(".")[0]) < found)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    return read_file(path).decode("utf-8", "replace").strip()


def _facts(path: str, separator: str) -> dict[str, str]:
    """Return a file of `key<separator>value` lines as a dictionary."""
    pairs = (line.partition(separator) for line in _text(path).splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
