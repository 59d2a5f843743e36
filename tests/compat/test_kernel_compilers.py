"""The kernel for digests and real compilers of two generations of CUDA; they need no GPU.

Each compiles in a process of its own: what a process has loaded is found by its bare name ever after, and would hide that a
compiler does not find its own second library.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest


class Made(NamedTuple):
    """What became of a kernel: the form that was taken, its size, and why it is not another."""

    is_bulk: bool
    size: int
    problem: str
    refusals: list[str]
    library: str


NEW, OLD = ("nvidia-cuda-nvrtc", "13.0"), ("nvidia-cuda-nvrtc-cu11", "11.8")
COMPILE = """
import json, sys
from types import SimpleNamespace
from planaria.worker.kernel import Kernel

about = SimpleNamespace(major=int(sys.argv[3]), minor=0, shared_memory_per_block_optin=232_448, multi_processor_count=132)
sys.modules["torch"] = SimpleNamespace(
    __file__=sys.argv[1],
    version=SimpleNamespace(cuda=sys.argv[2]),
    cuda=SimpleNamespace(get_device_properties=lambda index: about),
)
kernel = Kernel(0)
kernel._thread.join()
library = kernel._library._name if kernel._library else ""
print(json.dumps([kernel.form.is_bulk, len(kernel._binary), kernel._problem, kernel._refusals, library]))
"""


def libraries_of(package: str) -> Path:
    """Return the folder that pip put the package's libraries into."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        pytest.skip(f"{package}, a compiler for GPUs, is not installed")
    return next(Path(str(file.locate())).parent for file in files if file.name.startswith("libnvrtc.so"))


def compiled(torch: Path, cuda: str, major: int) -> Made:
    """Compile for a GPU of that generation, as a process would whose torch is in that folder."""
    command = [sys.executable, "-c", COMPILE, str(torch / "__init__.py"), cuda, str(major)]
    environment = {"PATH": "/usr/bin:/bin"}  # no LD_LIBRARY_PATH: the loader knows none of these folders
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    made = Made(*json.loads(done.stdout))
    if made.library and "/" not in made.library:
        pytest.skip(f"the loader knows a compiler of its own here, {made.library}, and that comes first")
    return made


def beside(libraries: Path) -> Path:
    """Return where torch is for whom pip has installed it beside these libraries."""
    return libraries.parents[2] / "torch"


def test_the_compiler_that_pip_installs_for_cuda_13_finds_its_second_library_and_takes_bulk_copies() -> None:
    made = compiled(beside(libraries_of(NEW[0])), NEW[1], 9)
    assert made.is_bulk, made
    assert made.size > 0
    assert made.refusals == []


def test_the_compiler_of_cuda_13_makes_the_kernel_of_loads_for_gpus_before_hopper() -> None:
    made = compiled(beside(libraries_of(NEW[0])), NEW[1], 8)
    assert not made.is_bulk
    assert made.size > 0, made


@pytest.mark.parametrize("major", [8, 9])
def test_the_compiler_of_cuda_11_8_is_found_and_takes_the_kernel_of_loads(major: int) -> None:
    made = compiled(beside(libraries_of(OLD[0])), OLD[1], major)
    assert not made.is_bulk
    assert made.size > 0, made
    assert made.problem == ""
    refused = "torch's compiler for kernels, NVRTC 11.8, refused those for sm_90 with status 6"
    assert made.refusals == ([refused] if major == 9 else [])


@pytest.mark.parametrize(("compiler", "is_bulk"), [(NEW, True), (OLD, False)])
def test_a_torch_that_carries_its_compiler_under_a_name_with_a_hash_has_it_used(
    compiler: tuple[str, str], is_bulk: bool, tmp_path: Path
) -> None:
    package, cuda = compiler
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    for library in libraries_of(package).iterdir():
        if library.name.startswith(("libnvrtc.so", "libnvrtc-builtins.so")):
            (folder / library.name.replace("libnvrtc.so", "libnvrtc-672ee683.so")).symlink_to(library)
    made = compiled(tmp_path / "torch", cuda, 9)
    assert (made.is_bulk, made.problem) == (is_bulk, "")
    assert made.size > 0


def test_where_there_is_no_compiler_the_reason_is_told(tmp_path: Path) -> None:
    made = compiled(tmp_path / "torch", "99.0", 9)  # of a CUDA that no machine has
    assert (made.size, made.problem) == (0, "torch's compiler for kernels, libnvrtc, was not found")
