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

THREADS = 256
# Adler-32 of a block of n bytes is 1 + sum(b) and n + sum((n - i) * b), both modulo 65521. A thread sees 128 bytes at most, so
# its sums fit into 32 bits: 128 * 255 * 32768 is below 2^31.
SOURCE = """
extern "C" __global__ void block_sums(const unsigned long long *at, const unsigned *size, unsigned *out)
{
    const unsigned char *bytes = (const unsigned char *)at[blockIdx.x];
    const uint4 *quads = (const uint4 *)bytes;
    const unsigned n = size[blockIdx.x], whole = n / 16;
    unsigned sum = 0, placed = 0;
    for (unsigned k = threadIdx.x; k < whole; k += blockDim.x) {
        const uint4 v = __ldcs(quads + k);
        const unsigned a = __dp4a(v.x, 0x01010101u, 0u), b = __dp4a(v.y, 0x01010101u, 0u);
        const unsigned c = __dp4a(v.z, 0x01010101u, 0u), d = __dp4a(v.w, 0x01010101u, 0u);
        unsigned within = __dp4a(v.x, 0x03020100u, 4 * b + 8 * c + 12 * d);
        within = __dp4a(v.y, 0x03020100u, within);
        within = __dp4a(v.z, 0x03020100u, within);
        within = __dp4a(v.w, 0x03020100u, within);
        sum += a + b + c + d;
        placed += 16 * k * (a + b + c + d) + within;
    }
    for (unsigned k = 16 * whole + threadIdx.x; k < n; k += blockDim.x) {
        sum += bytes[k];
        placed += k * bytes[k];
    }
    unsigned long long total = sum, weighted = placed;
    __shared__ unsigned long long totals[32], weights[32];
    for (int lane = 16; lane; lane /= 2) {
        total += __shfl_down_sync(0xffffffffu, total, lane);
        weighted += __shfl_down_sync(0xffffffffu, weighted, lane);
    }
    if (threadIdx.x % 32 == 0) {
        totals[threadIdx.x / 32] = total;
        weights[threadIdx.x / 32] = weighted;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < blockDim.x / 32; warp++) {
            total += totals[warp];
            weighted += weights[warp];
        }
        const unsigned long long second = n + n * total - weighted;
        out[blockIdx.x] = (unsigned)(second % 65521) << 16 | (unsigned)((1 + total) % 65521);
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
        major, minor = torch.cuda.get_device_capability(index)
        self._library = _nvrtc(torch)
        self._binary = b""
        self._problem = ""
        self._driver: ctypes.CDLL | None = None
        self._function: ctypes.c_void_p | None = None
        # A thread, so that a program that builds its model or starts its process group meanwhile does not wait for it.
        self._thread = threading.Thread(target=self._compile, args=(f"sm_{major}{minor}",), daemon=True)
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
        given = (ctypes.c_void_p * 3)(*(ctypes.addressof(pointer) for pointer in pointers))
        check(
            driver.cuLaunchKernel(
                self._function, len(blocks.at), 1, 1, THREADS, 1, 1, 0, ctypes.c_void_p(stream), given, None
            )
        )


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
