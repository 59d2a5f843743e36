"""A kernel that sums the blocks of many tensors in one launch: what `contract.snapshot` calls digests by blocks.

Compiled by the NVRTC that comes with torch, loaded and launched by the driver's own library. One launch reads every byte once;
with torch's operations it takes two passes and ten launches a tensor (`block_sums` in `device.py`, used where this fails).
"""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.worker.driver import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

THREADS = 1024
# On a quarter of the processors: the program's kernels have the others meanwhile. Of a step of 58 ms it costs 0.55 ms on an
# H200, with the copies; on half of them, which is faster by itself, 0.63; on an eighth more again.
PROCESSORS_EACH_GROUP = 4
# Adler-32 of a block of n bytes is 1 + sum(b) and n + sum((n - i) * b), both modulo 65521. A warp sums a block.
SOURCE = """
extern "C" __global__ void __launch_bounds__(1024) block_sums(
    const unsigned long long *at, const unsigned *size, unsigned *out, const unsigned count)
{
    const unsigned warps = blockDim.x / 32, lane = threadIdx.x % 32;
    for (unsigned block = blockIdx.x * warps + threadIdx.x / 32; block < count; block += gridDim.x * warps) {
        const unsigned char *bytes = (const unsigned char *)at[block];
        const uint4 *quads = (const uint4 *)bytes;
        const unsigned n = size[block], whole = n / 16;
        unsigned sum = 0, sums = 0, within = 0, turns = 0;
#pragma unroll 16
        for (unsigned k = lane; k < whole; k += 32, ++turns) {
            const uint4 v = __ldcs(quads + k);
            sum = __dp4a(v.x, 0x01010101u, sum);
            sum = __dp4a(v.y, 0x01010101u, sum);
            sum = __dp4a(v.z, 0x01010101u, sum);
            sum = __dp4a(v.w, 0x01010101u, sum);
            within = __dp4a(v.x, 0x03020100u, within);
            within = __dp4a(v.y, 0x07060504u, within);
            within = __dp4a(v.z, 0x0b0a0908u, within);
            within = __dp4a(v.w, 0x0f0e0d0cu, within);
            sums += sum;
        }
        // What came in turn t was added to `sums` in every turn from t on: what is missing there is t times what came.
        unsigned long long total = sum;
        unsigned long long weighted = 16ull * (lane * sum + 32 * (turns * sum - sums)) + within;
        for (unsigned k = 16 * whole + lane; k < n; k += 32) {
            total += bytes[k];
            weighted += k * bytes[k];
        }
        for (int step = 16; step; step /= 2) {
            total += __shfl_down_sync(0xffffffffu, total, step);
            weighted += __shfl_down_sync(0xffffffffu, weighted, step);
        }
        if (lane == 0) {
            const unsigned long long second = n + n * total - weighted;
            out[block] = (unsigned)(second % 65521) << 16 | (unsigned)((1 + total) % 65521);
        }
    }
}
"""


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
        self.groups = max(1, about.multi_processor_count // PROCESSORS_EACH_GROUP)
        self._library = _nvrtc(torch)
        self._binary = b""
        self._problem = ""
        self._driver: ctypes.CDLL | None = None
        self._function: ctypes.c_void_p | None = None
        # A thread, so that a program that builds its model or starts its process group meanwhile does not wait for it.
        self._thread = threading.Thread(target=self._compile, args=(f"sm_{about.major}{about.minor}",), daemon=True)
        self._thread.start()

    def _compile(self, target: str) -> None:
        try:
            self._binary = _compiled(self._library, SOURCE, target)
        except (OSError, RuntimeError, AttributeError) as problem:
            self._problem = str(problem)

    def launch(self, blocks: Blocks, stream: int) -> None:
        """Sum all blocks, on a stream of the current device.

        Raises:
            OSError: There is no compiler, or the driver refuses.
        """
        self._thread.join()
        if self._problem:
            raise OSError(self._problem)
        if self._driver is None:
            self._driver = ctypes.CDLL("libcuda.so.1")
        driver = self._driver
        if self._function is None:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            check(driver.cuModuleLoadData(ctypes.byref(module), self._binary))
            check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"block_sums"))
            self._function = function
        pointers = [ctypes.c_void_p(part.data_ptr()) for part in (blocks.at, blocks.sizes, blocks.sums)]
        count = ctypes.c_uint(len(blocks.at))
        given = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in (*pointers, count)))
        size = (self.groups, 1, 1, THREADS, 1, 1)
        check(driver.cuLaunchKernel(self._function, *size, 0, ctypes.c_void_p(stream), given, None))


def _nvrtc(torch: Any) -> ctypes.CDLL | None:
    """Return the compiler's library; torch brings it along, in a folder that the loader may not know."""
    name = f"libnvrtc.so.{str(torch.version.cuda).split('.')[0]}"
    beside = sorted(Path(torch.__file__).parent.parent.glob(f"nvidia/*/lib/{name}"))
    for candidate in (name, *map(str, beside), f"/usr/local/cuda/lib64/{name}"):
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
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
    for step in steps:
        if status := step():
            raise OSError(f"the compiler for kernels refused with status {status}")
    binary = ctypes.create_string_buffer(size.value)
    if status := library.nvrtcGetCUBIN(program, binary):
        raise OSError(f"the compiler for kernels refused with status {status}")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw
