"""Which form of the kernel is used: by the device, by what its compiler takes, and by what its driver does."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.worker import kernel
from planaria.worker.kernel import BULK, PLAIN, Form, Kernel, forms_for, source_for

HOPPER, AMPERE, SMALL = (
    232_448,
    166_912,
    101_376,
)  # bytes that the threads of a processor share: H200, A100, consumers' GPUs
PROCESSORS = 132
IS_BULK = b"#define BULK 1\n"


@pytest.mark.parametrize(
    ("major", "shared_bytes", "forms"),
    [
        (9, HOPPER, (BULK, PLAIN)),
        (10, HOPPER, (BULK, PLAIN)),
        (12, SMALL, (PLAIN,)),
        (8, AMPERE, (PLAIN,)),
        (8, HOPPER, (PLAIN,)),
        (9, 0, (PLAIN,)),
    ],
)
def test_memory_is_brought_where_the_device_can_and_has_room(
    major: int, shared_bytes: int, forms: tuple[Form, ...]
) -> None:
    assert forms_for(major, shared_bytes) == forms


def test_each_warp_has_room_for_a_block_and_two_barriers() -> None:
    assert BULK.shared_bytes == BULK.threads // 32 * (BLOCK_BYTES + 2 * 8)


def test_a_source_is_of_its_form_and_of_the_size_of_blocks() -> None:
    assert source_for(BULK).splitlines()[:2] == ["#define BULK 1", f"#define HALF {BLOCK_BYTES // 2}u"]
    assert source_for(PLAIN).startswith("#define BULK 0\n")


class Compiler:
    """Stands in for NVRTC 11.8; what it makes of a source is that source. The statuses are of compiling, by form."""

    def __init__(self, bulk: int, plain: int) -> None:
        self._bulk, self._plain = bulk, plain
        self._source = b""
        self.open = 0
        self.targets: list[bytes] = []

    def nvrtcVersion(self, major: Any, minor: Any) -> int:  # noqa: N802  as NVRTC has it; likewise the others
        major._obj.value, minor._obj.value = 11, 8
        return 0

    def nvrtcCreateProgram(self, _program: Any, source: bytes, *_rest: object) -> int:  # noqa: N802
        self._source = source
        self.open += 1
        return 0

    def nvrtcCompileProgram(self, _program: Any, _count: int, options: Any) -> int:  # noqa: N802
        self.targets.append(options[0])
        return self._bulk if self._source.startswith(IS_BULK) else self._plain

    def nvrtcGetCUBINSize(self, _program: Any, size: Any) -> int:  # noqa: N802
        size._obj.value = len(self._source)
        return 0

    def nvrtcGetCUBIN(self, _program: Any, binary: Any) -> int:  # noqa: N802
        binary.raw = self._source
        return 0

    def nvrtcDestroyProgram(self, _program: Any) -> int:  # noqa: N802
        self.open -= 1
        return 0


class Gpu:
    """Stands in for the driver's library.

    `refuses` has the beginnings of binaries that it does not load, `why` its status, `at` the call that says so.
    """

    def __init__(self, *refuses: bytes) -> None:
        self.refuses = refuses
        self.why = 209
        self.at = "cuModuleLoadData"
        self.launched: list[tuple[int, int, int]] = []
        self.loads = 0
        self.held = 0  # modules that were loaded and not unloaded
        self._binary = b""

    def _status(self, call: str) -> int:
        return self.why if call == self.at and self._binary.startswith(self.refuses) else 0

    def cuModuleLoadData(self, _module: Any, binary: bytes) -> int:  # noqa: N802  as the driver has it; likewise the others
        self._binary = binary
        self.loads += 1
        status = self._status("cuModuleLoadData")
        self.held += not status
        return status

    def cuModuleUnload(self, _module: Any) -> int:  # noqa: N802
        self.held -= 1
        return 0

    def cuModuleGetFunction(self, function: Any, *_rest: object) -> int:  # noqa: N802
        function._obj.value = 1
        return self._status("cuModuleGetFunction")

    def cuFuncSetAttribute(self, *_rest: object) -> int:  # noqa: N802
        return self._status("cuFuncSetAttribute")

    def cuLaunchKernel(self, _function: Any, *size: Any) -> int:  # noqa: N802
        self.launched.append((size[0], size[3], size[6]))
        return 0


class Bench:
    """A Hopper with a compiler and a driver, of which each may refuse something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, compiler: Compiler | None, gpu: Gpu) -> None:
        about = SimpleNamespace(
            major=9, minor=0, shared_memory_per_block_optin=HOPPER, multi_processor_count=PROCESSORS
        )
        torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda _index: about))
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(kernel, "_nvrtc", lambda _torch: compiler)
        monkeypatch.setattr(kernel.ctypes, "CDLL", lambda _name: gpu)
        self.kernel = Kernel(0)

    def launch(self) -> None:
        class Part:
            def data_ptr(self) -> int:
                return 4096

            def __len__(self) -> int:
                return 3

        self.kernel.launch(SimpleNamespace(at=Part(), sizes=Part(), sums=Part()), 5)  # type: ignore[arg-type]  # as Blocks


def size_of(form: Form) -> tuple[int, int, int]:
    return PROCESSORS // form.processors_each_group, form.threads, form.shared_bytes


def test_a_compiler_that_takes_bulk_copies_makes_the_kernel_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, gpu = Compiler(0, 0), Gpu()
    bench = Bench(monkeypatch, compiler, gpu)
    bench.launch()
    bench.launch()
    assert gpu.launched == [size_of(BULK)] * 2
    assert compiler.targets == [b"--gpu-architecture=sm_90"]
    assert (compiler.open, gpu.loads) == (0, 1)


def test_a_compiler_older_than_the_device_makes_the_kernel_of_loads_with_its_own_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler, gpu = Compiler(6, 0), Gpu()
    Bench(monkeypatch, compiler, gpu).launch()
    assert gpu.launched == [size_of(PLAIN)]
    assert compiler.open == 0, "also of what it refused nothing is left"


def test_a_driver_that_does_not_load_bulk_copies_gets_the_kernel_of_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(IS_BULK)
    bench = Bench(monkeypatch, Compiler(0, 0), gpu)
    bench.launch()
    bench.launch()
    assert gpu.launched == [size_of(PLAIN)] * 2
    assert gpu.loads == 2


def test_what_takes_neither_is_told_apart_by_its_reason_each_reason_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Bench(monkeypatch, Compiler(5, 5), Gpu())
    with pytest.raises(
        OSError, match=r"^torch's compiler for kernels, NVRTC 11.8, refused those for sm_90 with status 5$"
    ):
        both.launch()
    different = Bench(monkeypatch, Compiler(6, 5), Gpu())
    with pytest.raises(OSError, match=r"status 6; .* status 5$"):
        different.launch()
    none = Bench(monkeypatch, None, Gpu())
    with pytest.raises(OSError, match=r"^torch's compiler for kernels, libnvrtc, was not found$"):
        none.launch()
    deaf = Bench(monkeypatch, Compiler(0, 5), Gpu(IS_BULK))
    with pytest.raises(OSError, match=r"driver refused with status 209; .* status 5$"):
        deaf.launch()


def test_a_driver_that_loads_nothing_now_is_asked_again_at_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(b"#define")
    bench = Bench(monkeypatch, Compiler(0, 0), gpu)
    with pytest.raises(OSError, match="status 209"):
        bench.launch()
    gpu.refuses = ()
    bench.launch()
    assert gpu.launched == [size_of(PLAIN)]


@pytest.mark.parametrize("at", ["cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"])
def test_a_gpu_that_is_full_for_a_moment_keeps_the_faster_kernel_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    gpu = Gpu(IS_BULK)
    gpu.why, gpu.at = 2, at
    bench = Bench(monkeypatch, Compiler(0, 0), gpu)
    for _ in range(3):
        with pytest.raises(OSError, match=r"status 2$"):  # that commit's sums are torch's
            bench.launch()
    gpu.refuses = ()
    bench.launch()
    assert gpu.launched == [size_of(BULK)]
    assert (gpu.loads, gpu.held) == (4, 1)
