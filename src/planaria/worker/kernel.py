"""A kernel that sums the blocks of many tensors in one launch: what `contract.snapshot` calls digests by blocks.

Compiled by the NVRTC that comes with torch or lies beside it, loaded and launched by the driver's own library. One launch reads
every byte once; with torch's operations it takes two passes and ten launches a tensor (`block_sums` in `device.py`, used where
this fails).
There are two forms. What the device can run is not all that counts: a compiler that is older than the device refuses the
faster one, as that of CUDA 11 does on Hopper, and the other is still far faster than torch's operations.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.worker.driver import NoMemory, check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Adler-32 of a block of n bytes is 1 + sum(b) and n + sum((n - i) * b), both modulo 65521. A warp sums a block. BULK tells
# that the device brings memory to a processor by itself (Hopper and later): a warp has its next block brought in halves, each
# as soon as its room is free, and needs fewer processors for it than with loads of its own.
SOURCE = """
struct Sums { unsigned sum, sums, within, turns; };

// The instruction itself: NVRTC 11.8 declares __dp4a and does not define it.
__device__ __forceinline__ unsigned dot(unsigned bytes, unsigned weights, unsigned sum)
{
    unsigned out;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(bytes), "r"(weights), "r"(sum));
    return out;
}

__device__ __forceinline__ void add(Sums &s, const uint4 v)
{
    s.sum = dot(v.x, 0x01010101u, s.sum);
    s.sum = dot(v.y, 0x01010101u, s.sum);
    s.sum = dot(v.z, 0x01010101u, s.sum);
    s.sum = dot(v.w, 0x01010101u, s.sum);
    s.within = dot(v.x, 0x03020100u, s.within);
    s.within = dot(v.y, 0x07060504u, s.within);
    s.within = dot(v.z, 0x0b0a0908u, s.within);
    s.within = dot(v.w, 0x0f0e0d0cu, s.within);
    s.sums += s.sum;
    ++s.turns;
}

// What came in turn t was added to `sums` in every turn from t on: what is missing there is t times what came.
__device__ __forceinline__ void finish(const Sums &s, const unsigned char *bytes, unsigned n, unsigned lane, unsigned *out)
{
    unsigned long long total = s.sum;
    unsigned long long weighted = 16ull * (lane * s.sum + 32 * (s.turns * s.sum - s.sums)) + s.within;
    for (unsigned k = n / 16 * 16 + lane; k < n; k += 32) {
        total += bytes[k];
        weighted += k * bytes[k];
    }
    for (int step = 16; step; step /= 2) {
        total += __shfl_down_sync(0xffffffffu, total, step);
        weighted += __shfl_down_sync(0xffffffffu, weighted, step);
    }
    if (lane == 0) {
        const unsigned long long second = n + n * total - weighted;
        *out = (unsigned)(second % 65521) << 16 | (unsigned)((1 + total) % 65521);
    }
}

#if BULK

__device__ __forceinline__ unsigned part(unsigned n, unsigned half)
{
    const unsigned whole = n / 16 * 16, start = half * HALF;
    return whole > start ? min(HALF, whole - start) : 0;
}

__device__ __forceinline__ void bring(unsigned bar, unsigned room, unsigned long long from, unsigned n, unsigned half)
{
    const unsigned bytes = part(n, half);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
    if (bytes)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
            :: "r"(room), "l"(from + half * HALF), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void await(unsigned bar, unsigned phase)
{
    unsigned is_there = 0;
    while (!is_there)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(is_there) : "r"(bar), "r"(phase) : "memory");
}

extern "C" __global__ void __launch_bounds__(224) block_sums(
    const unsigned long long *at, const unsigned *size, unsigned *out, const unsigned count)
{
    extern __shared__ __align__(128) unsigned char rooms[];
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = gridDim.x * warps;
    const unsigned char *mine = rooms + warp * 2 * HALF;
    const unsigned room = (unsigned)__cvta_generic_to_shared(mine);
    const unsigned bar = (unsigned)__cvta_generic_to_shared(rooms + warps * 2 * HALF) + 16 * warp;
    unsigned block = warp * gridDim.x + blockIdx.x;
    if (block >= count)
        return;
    unsigned long long next = at[block];
    unsigned next_n = size[block];
    if (lane == 0) {
        for (unsigned half = 0; half < 2; ++half)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar + 8 * half) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        for (unsigned half = 0; half < 2; ++half)
            bring(bar + 8 * half, room + half * HALF, next, next_n, half);
    }
    __syncwarp();
    for (unsigned phase = 0; block < count; block += stride, phase ^= 1) {
        const unsigned char *bytes = (const unsigned char *)next;
        const unsigned n = next_n;
        const bool has_next = block + stride < count;
        if (has_next) {
            next = at[block + stride];
            next_n = size[block + stride];
        }
        Sums s = {0, 0, 0, 0};
        for (unsigned half = 0; half < 2; ++half) {
            await(bar + 8 * half, phase);
            const uint4 *quads = (const uint4 *)(mine + half * HALF);
            const unsigned here = part(n, half) / 16;
#pragma unroll 8
            for (unsigned k = lane; k < here; k += 32)
                add(s, quads[k]);
            __syncwarp();
            if (lane == 0 && has_next)
                bring(bar + 8 * half, room + half * HALF, next, next_n, half);
        }
        finish(s, bytes, n, lane, out + block);
    }
}

#else

extern "C" __global__ void __launch_bounds__(1024) block_sums(
    const unsigned long long *at, const unsigned *size, unsigned *out, const unsigned count)
{
    const unsigned warps = blockDim.x / 32, lane = threadIdx.x % 32;
    for (unsigned block = blockIdx.x * warps + threadIdx.x / 32; block < count; block += gridDim.x * warps) {
        const unsigned char *bytes = (const unsigned char *)at[block];
        const uint4 *quads = (const uint4 *)bytes;
        const unsigned n = size[block];
        Sums s = {0, 0, 0, 0};
#pragma unroll 16
        for (unsigned k = lane; k < n / 16; k += 32)
            add(s, __ldcs(quads + k));
        finish(s, bytes, n, lane, out + block);
    }
}

#endif
"""


@dataclass(frozen=True, slots=True)
class Form:
    """How the kernel is launched: a group takes one processor of so many, for itself. The program's kernels have the others.

    On an H200 a commit in each step of 66 ms costs 0.63 ms with PLAIN, 0.56 to 0.58 with BULK, and 0.33 without any sums. More
    processors or fewer cost more, though more of them are faster by themselves.
    """

    is_bulk: bool
    processors_each_group: int
    threads: int
    shared_bytes: int


_WARPS = 7  # as many as have room for a block each
PLAIN = Form(is_bulk=False, processors_each_group=4, threads=1024, shared_bytes=0)
BULK = Form(is_bulk=True, processors_each_group=5, threads=32 * _WARPS, shared_bytes=_WARPS * (BLOCK_BYTES + 16))
_MAX_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def forms_for(major: int, shared_bytes: int) -> tuple[Form, ...]:
    """Return the forms for a device of a generation, with so much memory that the threads of a processor can share.

    The fastest is the first, and the next one is for who is refused it.
    """
    return (BULK, PLAIN) if major >= 9 and shared_bytes >= BULK.shared_bytes else (PLAIN,)


def source_for(form: Form) -> str:
    """Return the source of a form."""
    return f"#define BULK {form.is_bulk:d}\n#define HALF {BLOCK_BYTES // 2}u\n{SOURCE}"


class Blocks:
    """The blocks of some tensors on a device: where they are, and room for their sums. Good while the addresses are."""

    def __init__(self, tensors: list[Any]) -> None:
        torch: Any = sys.modules["torch"]
        starts, sizes = [], []
        for tensor in tensors:
            length = tensor.numel() * tensor.element_size()
            first = torch.arange(0, length, BLOCK_BYTES, dtype=torch.int64)
            starts.append(first + tensor.data_ptr())
            sizes.append((length - first).clamp(max=BLOCK_BYTES).to(torch.int32))
        self.counts = [len(part) for part in starts]
        self.at = torch.cat(starts).to(tensors[0].device)
        self.sizes = torch.cat(sizes).to(tensors[0].device)
        self.sums = torch.empty(len(self.at), dtype=torch.int32, device=tensors[0].device)


class Kernel:
    """The compiled kernel for one GPU. Compiling, some 0.2 s, is done by a thread that holds no lock of the interpreter."""

    def __init__(self, index: int) -> None:
        torch: Any = sys.modules["torch"]
        about = torch.cuda.get_device_properties(index)
        shared_bytes = getattr(about, "shared_memory_per_block_optin", 0)  # torch 2.4 tells it, or later
        self._forms = list(forms_for(about.major, shared_bytes))
        self._processors = about.multi_processor_count
        self._target = f"sm_{about.major}{about.minor}"
        self._library = _nvrtc(torch)
        self._binary = b""
        self._refusals: list[str] = []
        self._problem = ""
        self._driver: ctypes.CDLL | None = None
        self._function: ctypes.c_void_p | None = None
        self._take(self._forms.pop(0))
        # A thread, so that a program that builds its model or starts its process group meanwhile does not wait for it.
        self._thread = threading.Thread(target=self._compile, daemon=True)
        self._thread.start()

    def _take(self, form: Form) -> None:
        self.form = form
        self.groups = max(1, self._processors // form.processors_each_group)

    def _compile(self) -> None:
        """Compile the form that was taken, or the first after it that the compiler takes."""
        while True:
            try:
                self._binary = _compiled(self._library, source_for(self.form), self._target)
            except (OSError, RuntimeError, AttributeError) as problem:
                self._refusals.append(str(problem))
            else:
                return
            if not self._forms:
                self._problem = "; ".join(dict.fromkeys(self._refusals))
                return
            self._take(self._forms.pop(0))

    def launch(self, blocks: Blocks, stream: int) -> None:
        """Sum all blocks, on a stream of the current device.

        Raises:
            OSError: There is no compiler, or it or the driver refuses every form.
        """
        self._thread.join()
        driver, function = self._loaded()
        pointers = [ctypes.c_void_p(part.data_ptr()) for part in (blocks.at, blocks.sizes, blocks.sums)]
        count = ctypes.c_uint(len(blocks.at))
        given = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in (*pointers, count)))
        size = (self.groups, 1, 1, self.form.threads, 1, 1, self.form.shared_bytes)
        check(driver.cuLaunchKernel(function, *size, ctypes.c_void_p(stream), given, None))

    def _loaded(self) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
        """Return the driver and the kernel in it. A driver that refuses a form, as the compiler may, gets the next one."""
        while True:
            if self._problem:
                raise OSError(self._problem)
            if self._driver is None:
                self._driver = ctypes.CDLL("libcuda.so.1")
            try:
                self._function = self._function or _function(self._driver, self._binary, self.form)
            except NoMemory:  # that says nothing of the form, which is tried again at the next launch
                raise
            except OSError as problem:
                if not self._forms:
                    raise
                self._refusals.append(str(problem))
                self._take(self._forms.pop(0))
                self._compile()
            else:
                return self._driver, self._function


def _function(driver: ctypes.CDLL, binary: bytes, form: Form) -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), binary))
    try:  # where kernels are loaded late, as by CUDA 12 and later, it is here that memory may lack
        check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"block_sums"))
        check(driver.cuFuncSetAttribute(function, _MAX_SHARED_BYTES, form.shared_bytes))
    except OSError:
        driver.cuModuleUnload(module)  # this is tried again, perhaps at every commit
        raise
    return function


def _nvrtc(torch: Any) -> ctypes.CDLL | None:
    """Return the compiler's library; torch brings it along, in a folder that the loader may not know.

    It opens a second library by its bare name, only when it compiles. That of CUDA 13 does not look beside itself: what the
    process has loaded already is found by that name.
    """
    major = str(torch.version.cuda).split(".")[0]
    folder = Path(torch.__file__).parent
    beside = [*sorted(folder.parent.glob("nvidia/*/lib")), folder / "lib"]
    # All of CUDA 11 since 11.2 has the name of that. A torch that carries its libraries itself has a hash in their names.
    known = [f"libnvrtc.so.{major}", *(["libnvrtc.so.11.2"] if major == "11" else [])]
    files = f"libnvrtc.so.{major}", f"libnvrtc.so.{major}.*", f"libnvrtc-{'[0-9a-f]' * 8}.so.{major}*"
    # The system's comes last: its second library would serve, and may be of another version than, one that is found by name.
    for names, folders in ((known, beside), ([], [Path("/usr/local/cuda/lib64")])):
        for second in _found(folders, f"libnvrtc-builtins.so.{major}.*"):
            _opened(second)
        libraries = (_opened(candidate) for candidate in (*names, *_found(folders, *files)))
        if (library := next((one for one in libraries if one is not None), None)) is not None:
            return library
    return None


def _found(folders: list[Path], *patterns: str) -> list[str]:
    return [str(path) for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))]


def _opened(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _compiled(library: ctypes.CDLL | None, source: str, target: str) -> bytes:
    if library is None:
        raise OSError("torch's compiler for kernels, libnvrtc, was not found")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={target}".encode())
    steps: tuple[Callable[[], int], ...] = (
        lambda: library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"block_sums.cu", 0, None, None),
        lambda: library.nvrtcCompileProgram(program, 1, options),
        lambda: library.nvrtcGetCUBINSize(program, ctypes.byref(size)),
    )
    try:
        for step in steps:
            _check_compiler(step(), library, target)
        binary = ctypes.create_string_buffer(size.value)
        _check_compiler(library.nvrtcGetCUBIN(program, binary), library, target)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def _check_compiler(status: int, library: ctypes.CDLL, target: str) -> None:
    if status:
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        version = f"NVRTC {major.value}.{minor.value}"
        raise OSError(f"torch's compiler for kernels, {version}, refused those for {target} with status {status}")
