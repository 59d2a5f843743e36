from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planaria.launch.devices import Counts, Gpu, Roots, count, visible_gpus

if TYPE_CHECKING:
    from pathlib import Path

UUIDS = ("GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    for name in ("proc", "sys", "dev"):
        (tmp_path / name).mkdir()
    return Roots(str(tmp_path / "proc"), str(tmp_path / "sys"), str(tmp_path / "dev"))


def add_nvidia(tmp_path: Path, number: int, device_files: tuple[int, ...] = ()) -> None:
    for minor in range(number):
        folder = tmp_path / "proc/driver/nvidia/gpus" / f"0000:{minor + 1:02X}:00.0"
        folder.mkdir(parents=True)
        facts = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {UUIDS[minor]}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(facts)
    for minor in device_files:
        (tmp_path / "dev" / f"nvidia{minor}").touch()
    (tmp_path / "dev" / "nvidiactl").touch()


def add_amd(tmp_path: Path, number: int) -> None:
    for node in range(number + 1):
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node)
        folder.mkdir(parents=True)
        facts = f"simd_count {0 if node == 0 else 304}\nlocation_id {node << 8}\ndomain 0\nunique_id {node}\n"
        (folder / "properties").write_text(facts)


def add_intel(tmp_path: Path, *addresses: str, vendor: str = "0x8086") -> None:
    for index, address in enumerate(addresses):
        device = tmp_path / "sys/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        for name in (f"renderD{128 + index}", f"card{index}"):
            folder = tmp_path / "sys/class/drm" / name
            folder.mkdir(parents=True)
            (folder / "device").symlink_to(device)


def test_a_machine_without_drivers_has_no_accelerators(roots: Roots) -> None:
    assert count({}, roots) == Counts(0, 0, 0)
    assert count({"CUDA_VISIBLE_DEVICES": "0,1"}, roots) == Counts(0, 0, 0)


@pytest.mark.parametrize(
    ("mask", "addresses"),
    [
        (None, ["01", "02", "03"]),
        ("", []),
        ("-1", []),
        ("0", ["01"]),
        ("2,0", ["03", "01"]),
        (" 1 , 2 ", ["02", "03"]),
        ("0,-1,1", ["01"]),
        ("0,7,1", ["01"]),
        ("0,0", []),
        ("GPU-bbbb", ["03"]),
        ("GPU-bbbb3333,GPU-aaaa1", ["03", "01"]),
        ("GPU-aaaa", []),
        ("NoDevFiles", []),
        ("none", []),
    ],
)
def test_the_mask_of_cuda_chooses_and_orders_gpus(
    tmp_path: Path, roots: Roots, mask: str | None, addresses: list[str]
) -> None:
    add_nvidia(tmp_path, 3)
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    found = [gpu.address for gpu in visible_gpus(environ, roots)]
    assert found == [f"0000:{bus}:00.0" for bus in addresses]


def test_parts_of_a_gpu_count_as_gpus(tmp_path: Path, roots: Roots) -> None:
    add_nvidia(tmp_path, 1)
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-11111111-0000,MIG-22222222-0000,MIG-GPU-aaaa1111/1/0"}
    assert [gpu.address for gpu in visible_gpus(environ, roots)] == ["", "", "0000:01:00.0"]


def test_a_container_counts_only_the_device_files_it_was_given(tmp_path: Path, roots: Roots) -> None:
    add_nvidia(tmp_path, 3, device_files=(1,))
    assert visible_gpus({}, roots) == (Gpu("0000:02:00.0", UUIDS[1]),)


def test_device_files_alone_are_counted(tmp_path: Path, roots: Roots) -> None:
    add_nvidia(tmp_path, 0, device_files=(0, 1))
    assert count({}, roots).gpus == 2
    assert count({"CUDA_VISIBLE_DEVICES": "1"}, roots).gpus == 1
    assert count({"CUDA_VISIBLE_DEVICES": "GPU-x,GPU-y"}, roots).gpus == 2


def test_wsl_has_one_gpu(tmp_path: Path, roots: Roots) -> None:
    (tmp_path / "dev" / "dxg").touch()
    assert count({}, roots).gpus == 1


def test_amd_gpus_are_counted_under_both_masks(tmp_path: Path, roots: Roots) -> None:
    add_amd(tmp_path, 3)
    assert [gpu.address for gpu in visible_gpus({}, roots)] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert count({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, roots).gpus == 1
    assert visible_gpus({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, roots)[0].address == "0000:03:00.0"
    assert count({"CUDA_VISIBLE_DEVICES": "0,1"}, roots).gpus == 2


def test_an_integrated_intel_gpu_counts_for_xpu_and_not_for_auto(tmp_path: Path, roots: Roots) -> None:
    add_intel(tmp_path, "0000:00:02.0")
    assert count({}, roots) == Counts(0, 1, 0)


def test_discrete_intel_gpus_hide_the_integrated_one(tmp_path: Path, roots: Roots) -> None:
    add_intel(tmp_path, "0000:00:02.0", "0000:03:00.0", "0000:04:00.0")
    assert count({}, roots) == Counts(0, 2, 2)
    assert count({"ZE_AFFINITY_MASK": "1"}, roots) == Counts(0, 1, 1)
    assert count({"ZE_AFFINITY_MASK": "0.0,0.1,1.0"}, roots) == Counts(0, 3, 3)
    assert count({"ZE_AFFINITY_MASK": "5"}, roots) == Counts(0, 0, 0)


def test_render_nodes_of_other_vendors_are_no_xpus(tmp_path: Path, roots: Roots) -> None:
    add_intel(tmp_path, "0000:03:00.0", vendor="0x10de")
    assert count({}, roots) == Counts(0, 0, 0)
