"""What /proc/self/cgroup and /proc/self/mounts say on kernels with cgroups of one version, the other, or both."""

from __future__ import annotations

UNIFIED = (b"0::/user.slice/a.scope\n", b"proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
LEGACY = (
    b"9:cpu,cpuacct:/docker/1\n8:memory:/docker/1\n1:name=systemd:/x\n",
    b"cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n",
)
HYBRID = (LEGACY[0] + b"0::/y\n", LEGACY[1] + b"cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n")
