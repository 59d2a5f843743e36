"""Clocks, memory, limits, GPUs, disks, kernel and variables: every row is facts, and what is found."""

from __future__ import annotations

from typing import Any

import pytest

from planaria.base.value import replace
from planaria.doctor.clock import ClockFacts, check_clock
from planaria.doctor.disk import Folder, check_disk
from planaria.doctor.environment import check_environment
from planaria.doctor.gpu import GpuFacts, GpuSeen, check_gpu
from planaria.doctor.gpu_log import Xid
from planaria.doctor.limits import LimitFacts, check_limits
from planaria.doctor.model import Finding
from planaria.doctor.shm import ShmFacts, check_shm
from planaria.doctor.system import SystemFacts, check_system

MIB, GIB = 1 << 20, 1 << 30
NOW_S = 1_800_000_000.0


def expect(found: list[Finding], verdict: str, check: str, words: str) -> None:
    """Check that this is all that is not well, and that it has a remedy."""
    for one in found:
        assert bool(one.remedy) == (one.verdict != "ok"), one
        assert "\n" not in one.sentence + one.remedy
    bad = [one for one in found if one.verdict != "ok"]
    assert [(one.verdict, one.check) for one in bad] == ([(verdict, check)] if check else [])
    assert words in "".join(f"{one.sentence} -> {one.remedy}" for one in bad)


CLOCK = ClockFacts((1.0, 1.0, 1.1), NOW_S, True, 0.001, "tsc")


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"readings": (1.0, 0.9, 1.1)}, "fail", "clock.monotonic", "another machine"),
        ({"readings": (1.0, 1.0, 1.0)}, "fail", "clock.monotonic", "does not run forward"),
        ({"wall_s": 0.0}, "fail", "clock.wall", "the year 1970"),
        ({"wall_s": 5e9}, "fail", "clock.wall", "the year 2128"),
        ({"is_synchronised": False}, "warn", "clock.synchronised", "chronyd"),
        ({"is_synchronised": None}, "", "", ""),
        ({"source": "hpet"}, "warn", "clock.source", "tsc"),
    ],
)
def test_clocks(changes: dict[str, Any], verdict: str, check: str, words: str) -> None:
    expect(check_clock(replace(CLOCK, **changes)), verdict, check, words)


SHM = ShmFacts(2, 8 * GIB, 8 * GIB, "tmpfs", shmmax_bytes=1 << 62)


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"problem": "Permission denied"}, "fail", "shm.there", "mount -t tmpfs"),
        ({"kind": "overlay"}, "warn", "shm.there", "not in memory"),
        ({"total_bytes": 64 * MIB, "free_bytes": 64 * MIB}, "warn", "shm.size", "--shm-size"),
        ({"total_bytes": 64 * MIB, "free_bytes": MIB}, "fail", "shm.size", "cannot share tensors"),
        ({"free_bytes": 100 * MIB}, "warn", "shm.size", "for 2 workers"),
        ({"left": ("torch_7_1", "torch_7_2"), "left_bytes": 5 * MIB}, "warn", "shm.left", "rm /dev/shm/torch_7_1 ..."),
        ({"shmmax_bytes": 32 * MIB}, "warn", "shm.ipc", "kernel.shmmax"),
    ],
)
def test_shared_memory(changes: dict[str, Any], verdict: str, check: str, words: str) -> None:
    expect(check_shm(replace(SHM, **changes)), verdict, check, words)


LIMITS = LimitFacts(2, 1024, 1 << 20, memory_bytes=64 * GIB, cpus=8)


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"files_soft": 64}, "fail", "limits.open-files", "ulimit -n"),
        ({"files_hard": 1024}, "warn", "limits.open-files", "data loaders"),
        ({"processes": 4096, "processes_used": 30}, "", "", ""),
        ({"processes": 100, "processes_used": 30}, "warn", "limits.processes", "64 threads"),
        ({"processes": 100, "processes_used": 99}, "fail", "limits.processes", "ulimit -u"),
        ({"pids": 100, "pids_used": 20}, "warn", "limits.pids", "--pids-limit"),
        ({"pids": 20, "pids_used": 18}, "fail", "limits.pids", "podPidsLimit"),
        ({"has_rdma": True, "memlock_bytes": 65536}, "fail", "limits.memlock", "64 KiB"),
        ({"has_rdma": True, "memlock_bytes": None}, "", "", ""),
        ({"memory_bytes": 100 * MIB, "is_memory_limited": True}, "fail", "limits.memory", "give the container more"),
        ({"memory_bytes": 600 * MIB}, "warn", "limits.memory", "ps aux"),
        ({"cpus": 1}, "warn", "limits.cpu", "1 CPUs can be used, for 2 workers"),
        ({"cpu_quota": 1.5}, "warn", "limits.cpu", "1.5 CPUs"),
        ({"core_bytes": None, "core_pattern": "core"}, "warn", "limits.core", "ulimit -c 0"),
        ({"core_bytes": None, "core_pattern": "|/lib/apport %p"}, "", "", ""),
        ({"core_bytes": None, "core_pattern": "/var/crash/core.%p"}, "", "", ""),
    ],
)
def test_limits(changes: dict[str, Any], verdict: str, check: str, words: str) -> None:
    expect(check_limits(replace(LIMITS, **changes)), verdict, check, words)


GPU = GpuSeen(0, "H200", 141 * GIB, 140 * GIB, 0, strangers=())
PAIR = (replace(GPU, uuid="GPU-aa1", bus="PCI:0000:1a:00"), replace(GPU, index=1, uuid="GPU-bb1", bus="PCI:0000:3b:00"))
BROKEN: dict[str, Any] = {"devices": 2, "gpus": (PAIR[0], replace(PAIR[1], remap_failed=True))}
MIXED = (PAIR[0], replace(PAIR[1], name="T4", remap_failed=True))
FALLEN: dict[str, Any] = {"devices": 2, "gpus": PAIR, "xids": (Xid("PCI:0000:3b:00", 79, 120.0),)}
GPUS = GpuFacts(1, "", "580.1", (13, 0), (GPU,), "2.11.0", "13.0")


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"devices": 0, "gpus": ()}, "", "", ""),
        ({"gpus": (), "problem": "Driver/library version mismatch"}, "fail", "gpu.driver", "rmmod"),
        (
            {"gpus": (), "problem": "its library libnvidia-ml.so.1 is not there"},
            "fail",
            "gpu.driver",
            "container toolkit",
        ),
        ({"gpus": (), "problem": "Unknown Error"}, "fail", "gpu.driver", "NVRM"),
        ({"driver_cuda": (12, 4)}, "fail", "gpu.torch", "knows CUDA 12.4"),
        ({"torch_cuda": "12.8"}, "", "", ""),
        ({"torch_cuda": ""}, "warn", "gpu.torch", "without CUDA"),
        ({"torch": None, "torch_cuda": ""}, "", "", ""),
        ({"visible": "0,3"}, "fail", "gpu.visible", "names GPU 3, and there are 1"),
        ({"visible": ""}, "warn", "gpu.visible", "hides all"),
        ({"visible": "-1"}, "warn", "gpu.visible", "hides all"),
        ({"visible": "GPU-8f3a"}, "", "", ""),
        ({"workers": 2}, "fail", "gpu.visible", "--nproc-per-node=1"),
        ({"workers": 2, "visible": "-1"}, "warn", "gpu.visible", "hides all"),
        ({"workers": 2, "gpus": PAIR, "devices": 2, "visible": "1"}, "warn", "gpu.visible", "shows 1 of 2"),
        ({"devices": 2}, "fail", "gpu.driver", "there are 2 NVIDIA GPUs, and the driver answers for 1 of them"),
        ({"devices": 2, "lost": ("GPU 1: GPU is lost",)}, "fail", "gpu.driver", "(GPU 1: GPU is lost)"),
        ({"devices": 2, "visible": "0"}, "warn", "gpu.driver", "answers for 1"),
        ({"gpus": (), "lost": ("GPU 0: GPU is lost",)}, "fail", "gpu.driver", "cannot be used: GPU 0: GPU is lost"),
        ({"gpus": (replace(GPU, total_bytes=0, free_bytes=0),)}, "", "", ""),
        ({**BROKEN, "visible": None}, "fail", "gpu.errors", "GPU 1 could not"),
        ({**BROKEN, "visible": "0"}, "warn", "gpu.errors", "leaves out"),
        ({**BROKEN, "visible": "GPU-aa"}, "warn", "gpu.errors", "leaves out"),
        ({**BROKEN, "visible": "GPU-bb1"}, "fail", "gpu.errors", "replaced"),
        ({**BROKEN, "visible": "MIG-0"}, "fail", "gpu.errors", "replaced"),
        ({**BROKEN, "visible": "0", "gpus": MIXED}, "fail", "gpu.errors", "replaced"),
        ({**BROKEN, "visible": "0", "gpus": MIXED, "is_by_bus": True}, "warn", "gpu.errors", "leaves out"),
        ({**FALLEN, "visible": "1"}, "fail", "gpu.xid", "fallen off the bus"),
        ({**FALLEN, "visible": "0"}, "warn", "gpu.xid", "leaves out"),
        ({"xids": (Xid("PCI:0000:3b:00", 79, 120.0, is_over=True),)}, "", "", ""),
        ({"gpus": (replace(GPU, remap_failed=True),)}, "fail", "gpu.errors", "replaced"),
        ({"gpus": (replace(GPU, remap_pending=True),)}, "fail", "gpu.errors", "nvidia-smi -r -i 0"),
        ({"gpus": (replace(GPU, uncorrected=2),)}, "warn", "gpu.errors", "2 uncorrected"),
        ({"gpus": (replace(GPU, strangers=(77,)),)}, "warn", "gpu.busy", "pid 77"),
        ({"gpus": (replace(GPU, free_bytes=GIB),)}, "warn", "gpu.busy", "nobody is seen"),
        ({"gpus": (replace(GPU, has_mig=True),)}, "warn", "gpu.mig", "-mig 0"),
        ({"gpus": (replace(GPU, has_mig=True),), "visible": "MIG-1"}, "", "", ""),
        ({"xids": (Xid("PCI:0000:3b:00", 79, 120.0),)}, "fail", "gpu.xid", "fallen off the bus"),
        ({"xids": (Xid("PCI:0000:3b:00", 79, 7200.0),)}, "warn", "gpu.xid", "2.0 hours ago"),
        ({"xids": (Xid("PCI:0000:3b:00", 79, 1e6), Xid("PCI:0000:3b:00", 31, 1.0))}, "", "", ""),
    ],
)
def test_gpus(changes: dict[str, Any], verdict: str, check: str, words: str) -> None:
    expect(check_gpu(replace(GPUS, **changes)), verdict, check, words)


FOLDER = Folder("--snapshot-dir", "/data/run", "/data", "", 100 * GIB, 200 * GIB, 10**6, 2 * 10**6, "ext4", 0.01)


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"problem": "Permission denied"}, "fail", "disk.writable", "looked at /data"),
        ({"problem": "Read-only file system"}, "fail", "disk.writable", "remount,rw"),
        ({"problem": "No space left on device", "free_bytes": 0}, "fail", "disk.space", "du -xsh /data/*"),
        ({"problem": "Disk quota exceeded"}, "fail", "disk.writable", "quota"),
        ({"free_bytes": 500 * MIB}, "warn", "disk.space", "500 MiB free"),
        ({"problem": "No space left on device", "free_inodes": 0}, "fail", "disk.inodes", "df -i"),
        ({"free_inodes": 5000}, "warn", "disk.inodes", "5000 more files"),
        ({"free_inodes": 0, "total_inodes": 0}, "", "", ""),
        ({"wrote_s": 3.0}, "warn", "disk.speed", "3.00 s"),
        ({"kind": "tmpfs"}, "warn", "disk.kind", "do not outlive this machine"),
        ({"role": "TMPDIR", "kind": "tmpfs"}, "", "", ""),
        ({"role": "TMPDIR", "kind": "nfs4"}, "warn", "disk.kind", "on a disk of this machine"),
    ],
)
def test_folders(changes: dict[str, Any], verdict: str, check: str, words: str) -> None:
    expect(check_disk((replace(FOLDER, **changes),)), verdict, check, words)


SYSTEM = SystemFacts("6.12", (3, 11, 7), "1.0", (), "1.0")


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"missing": (("pidfd", "Function not implemented"),)}, "warn", "system.kernel", "SIGCHLD"),
        ({"missing": (("memfd", "Operation not permitted"),)}, "fail", "system.kernel", "ElasticState"),
        ({"python": (3, 10, 1)}, "fail", "system.python", "3.11 or newer"),
        ({"installed": "0.9"}, "warn", "system.planaria", "PYTHONPATH"),
        ({"installed": None}, "", "", ""),
    ],
)
def test_the_system(changes: dict[str, Any], verdict: str, check: str, words: str) -> None:
    expect(check_system(replace(SYSTEM, **changes)), verdict, check, words)


@pytest.mark.parametrize(
    ("variables", "verdict", "check", "words"),
    [
        ({}, "", "", ""),
        ({"MASTER_ADDR": "n9", "RANK": "3"}, "warn", "environment.stale", "unset MASTER_ADDR RANK"),
        ({"http_proxy": "http://p:3128"}, "warn", "environment.proxy", "no_proxy=localhost,127.0.0.1,n0.cluster"),
        ({"http_proxy": "p", "no_proxy": "localhost,127.0.0.1,.cluster"}, "", "", ""),
        ({"HTTPS_PROXY": "p", "NO_PROXY": "*"}, "", "", ""),
        ({"https_proxy": "p", "no_proxy": "localhost,127.0.0.1"}, "warn", "environment.proxy", "lacks n0.cluster"),
        ({"OMP_NUM_THREADS": "4"}, "", "", ""),
        ({"OMP_NUM_THREADS": "8"}, "warn", "environment.threads", "OMP_NUM_THREADS=4"),
        ({"OMP_NUM_THREADS": "all"}, "warn", "environment.threads", "no number"),
        ({"OMP_NUM_THREADS": "0"}, "warn", "environment.threads", "no number"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "warn", "environment.traps", "debugging"),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, "", "", ""),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, "warn", "environment.traps", "for ever"),
    ],
)
def test_variables(variables: dict[str, str], verdict: str, check: str, words: str) -> None:
    expect(check_environment(variables, workers=2, cpus=8, hosts=("n0.cluster",)), verdict, check, words)
