"""Gather facts about NVIDIA GPUs, through the driver's own library, and about the installed torch, without importing it."""

from __future__ import annotations

import ctypes
import os
import time

from planaria.base.linux import read_file
from planaria.base.value import replace
from planaria.doctor.gpu import GpuFacts, GpuSeen
from planaria.doctor.gpu_log import read_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_RECORDS = 50_000
_UNCORRECTED, _VOLATILE = 1, 0
_MOST_PROCESSES = 64
_LACKS = (3, 4)  # not supported, no permission: that says nothing about a GPU's health


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Place(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("kinds", ctypes.c_uint * 2),
        ("text", ctypes.c_char * 32),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


class _Refused(Exception):
    """NVML said no; the message is its own."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.is_lack = status in _LACKS


def gpu_facts(variables: Mapping[str, str], workers: int) -> GpuFacts:
    """Ask the driver. Without a device there is nobody to ask."""
    torch, torch_cuda = _torch()
    plain = GpuFacts(torch=torch, torch_cuda=torch_cuda, workers=workers)
    devices = _devices()
    if not devices:
        return plain
    there = replace(
        plain,
        devices=devices,
        visible=variables.get("CUDA_VISIBLE_DEVICES"),
        is_by_bus=variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID",
        xids=read_log(_log(), time.clock_gettime(time.CLOCK_MONOTONIC)),
    )
    try:
        library = _Nvml()
        version = library.number("nvmlSystemGetCudaDriverVersion_v2")
        gpus, lost = _ask_all(library)
        return replace(
            there,
            driver=library.text("nvmlSystemGetDriverVersion"),
            driver_cuda=(version // 1000, version % 1000 // 10),
            gpus=gpus,
            lost=lost,
        )
    except _Refused as problem:
        return replace(there, problem=str(problem), driver=_kernel_driver())


def _ask_all(library: _Nvml) -> tuple[tuple[GpuSeen, ...], tuple[str, ...]]:
    """Return the GPUs that answer, and what is said of the others."""
    gpus, lost = [], []
    for index in range(library.number("nvmlDeviceGetCount_v2")):
        try:
            gpus.append(library.gpu(index))
        except _Refused as problem:
            lost.append(f"GPU {index}: {problem}")
    return tuple(gpus), tuple(lost)


def _devices() -> int:
    """Count the GPUs that the kernel's driver shows here: a container may have the files of some only."""
    try:
        return sum(name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir("/dev"))
    except OSError:
        return 0


def _kernel_driver() -> str:
    words = read_file("/proc/driver/nvidia/version", 4096).decode("ascii", "replace").split()
    return next((word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()), "unknown")


class _Nvml:
    """The driver's library."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as problem:
            raise _Refused("its library libnvidia-ml.so.1 is not there") from problem
        self._call("nvmlInit_v2")

    def _call(self, name: str, *words: object) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise _Refused(f"its library is too old for {name}")
        status = function(*words)
        if status:
            explain = self._library.nvmlErrorString
            explain.restype = ctypes.c_char_p
            raise _Refused((explain(status) or b"").decode("utf-8", "replace"), status)

    def text(self, name: str, *words: object) -> str:
        """Return what a call writes into a buffer."""
        buffer = ctypes.create_string_buffer(96)
        self._call(name, *words, buffer, 96)
        return buffer.value.decode("utf-8", "replace")

    def number(self, name: str, *words: object) -> int:
        """Return the number that a call answers."""
        found = ctypes.c_uint()
        self._call(name, *words, ctypes.byref(found))
        return found.value

    def gpu(self, index: int) -> GpuSeen:
        """Ask about one GPU; what a kind of GPU does not have, it does not tell."""
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        memory = self._memory(handle)
        pending, failed = self._remapped(handle)
        return GpuSeen(
            index=index,
            name=self._word("nvmlDeviceGetName", handle) or "of no name",
            uuid=self._word("nvmlDeviceGetUUID", handle),
            bus=self._bus(handle),
            total_bytes=memory.total,
            free_bytes=memory.free,
            uncorrected=self._uncorrected(handle),
            remap_pending=pending,
            remap_failed=failed,
            has_mig=self._has_mig(handle),
            strangers=self._strangers(handle),
        )

    def _word(self, name: str, handle: ctypes.c_void_p) -> str:
        try:
            return self.text(name, handle)
        except _Refused as problem:
            if not problem.is_lack:
                raise
            return ""

    def _memory(self, handle: ctypes.c_void_p) -> _Memory:
        """Return how much there is; nothing of a GPU without memory of its own, or in the hands of a hypervisor."""
        memory = _Memory()
        try:
            self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        except _Refused as problem:
            if not problem.is_lack:
                raise
            return _Memory()
        return memory

    def _bus(self, handle: ctypes.c_void_p) -> str:
        """Return where it is, as the kernel's log names it."""
        place = _Place()
        try:
            self._call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(place))
        except _Refused:
            return ""
        return f"PCI:{place.domain:04x}:{place.bus:02x}:{place.device:02x}"

    def _uncorrected(self, handle: ctypes.c_void_p) -> int | None:
        count = ctypes.c_ulonglong()
        try:
            self._call("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE, ctypes.byref(count))
        except _Refused:
            return None
        return count.value

    def _remapped(self, handle: ctypes.c_void_p) -> tuple[bool, bool]:
        counts = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
        try:
            self._call("nvmlDeviceGetRemappedRows", handle, *map(ctypes.byref, counts))
        except _Refused:
            return False, False
        return bool(counts[2].value), bool(counts[3].value)

    def _has_mig(self, handle: ctypes.c_void_p) -> bool:
        now, later = ctypes.c_uint(), ctypes.c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(later))
        except _Refused:
            return False
        return bool(now.value)

    def _strangers(self, handle: ctypes.c_void_p) -> tuple[int, ...] | None:
        count = ctypes.c_uint(_MOST_PROCESSES)
        found = (_Process * _MOST_PROCESSES)()
        try:
            self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        except _Refused:
            return None
        return tuple(found[at].pid for at in range(min(count.value, _MOST_PROCESSES)))


def _torch() -> tuple[str | None, str]:
    """Return the version of the torch that a worker would import, and the CUDA it was built for."""
    from importlib.util import find_spec

    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        return None, ""
    if spec is None or not spec.submodule_search_locations:
        return None, ""
    text = read_file(os.path.join(next(iter(spec.submodule_search_locations)), "version.py"), 65_536)
    values = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        name = name.partition(":")[0].strip()
        if equals and name in ("__version__", "cuda"):
            values[name] = value.strip().strip("'\"")
    cuda = values.get("cuda", "")
    return values.get("__version__", "unknown"), cuda if cuda[:1].isdigit() else ""


def _log() -> Iterator[bytes]:
    """Read the kernel's log from its beginning, where this user may."""
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:  # what was next is overwritten; the one after it is read next
                continue
            except OSError:
                break
            yield record
    finally:
        os.close(log)
