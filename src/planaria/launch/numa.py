"""Choose the CPUs of each worker for `--numa-binding`, by the rules of torch's four modes.

Worker n is taken to use GPU n. The sets are applied with `sched_setaffinity` when a worker starts: no `numactl`.
"""

from __future__ import annotations

import os

from planaria.base.linux import read_file
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.launch.devices import Roots, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    Mode = Literal["node", "socket", "exclusive", "core-complex"]

_NO_CACHE = -1


class Topology(Value):
    """Which CPUs are near which GPU. Built by `read_topology`, which reads only what `mode` needs."""

    gpu_nodes: tuple[int | None, ...]
    """NUMA node of each visible GPU, by index; None where it cannot be told."""
    node_cpus: Mapping[int, frozenset[int]]
    """Allowed CPUs of each NUMA node that has any."""
    sockets: Mapping[int, int] = {}
    """Socket of a CPU."""
    cores: Mapping[int, int] = {}
    """Lowest CPU on the same physical core."""
    caches: Mapping[int, int] = {}
    """Lowest CPU under the same last-level cache."""


def cpu_sets(mode: str, nproc: int, topology: Topology) -> tuple[frozenset[int], ...]:
    """Return the CPUs of every worker, by local rank.

    Raises:
        UsageError: No GPU, more workers than GPUs, or too few CPUs near a GPU.
    """
    gpus = topology.gpu_nodes
    if not gpus:
        raise UsageError(f"--numa-binding={mode} needs GPUs, and none is visible")
    if nproc > len(gpus):
        raise UsageError(
            f"--numa-binding={mode} binds worker n to GPU n: {nproc} workers, but {len(gpus)} visible GPUs"
        )
    choose = {"node": _node, "socket": _socket, "exclusive": _exclusive, "core-complex": _core_complex}[mode]
    return tuple(choose(gpu, topology) for gpu in range(nproc))


def _home(gpu: int, topology: Topology) -> tuple[int, frozenset[int]]:
    """Return a GPU's NUMA node and the CPUs there that we may use."""
    node = topology.gpu_nodes[gpu]
    if node is None:
        raise UsageError(f"--numa-binding cannot tell where GPU {gpu} is: the driver does not show its PCI address")
    cpus = topology.node_cpus.get(node, frozenset())
    if not cpus:
        raise UsageError(f"--numa-binding: GPU {gpu} is on NUMA node {node}, where this process may use no CPU")
    return node, cpus


def _neighbours(gpu: int, topology: Topology) -> tuple[int, int]:
    """Return the place of a GPU among all GPUs of its node, and their number."""
    node = topology.gpu_nodes[gpu]
    there = [index for index, other in enumerate(topology.gpu_nodes) if other == node]
    return there.index(gpu), len(there)


def _node(gpu: int, topology: Topology) -> frozenset[int]:
    return _home(gpu, topology)[1]


def _socket(gpu: int, topology: Topology) -> frozenset[int]:
    _, cpus = _home(gpu, topology)
    socket = topology.sockets[min(cpus)]
    nodes = (there for there in topology.node_cpus.values() if there and topology.sockets[min(there)] == socket)
    return frozenset().union(*nodes)


def _exclusive(gpu: int, topology: Topology) -> frozenset[int]:
    """Deal a node's physical cores out to its GPUs, in order; the first GPUs get one more where it does not divide."""
    node, cpus = _home(gpu, topology)
    cores = sorted(_groups(cpus, topology.cores).items())
    place, gpus = _neighbours(gpu, topology)
    share, extra = divmod(len(cores), gpus)
    if share == 0:
        raise UsageError(f"--numa-binding=exclusive: NUMA node {node} has {len(cores)} usable cores for {gpus} GPUs")
    first = place * share + min(place, extra)
    mine = cores[first : first + share + (1 if place < extra else 0)]
    return frozenset().union(*(threads for _, threads in mine))


def _core_complex(gpu: int, topology: Topology) -> frozenset[int]:
    """Give each GPU of a node a cache of its own while there are enough; caches with more usable CPUs come first."""
    _, cpus = _home(gpu, topology)
    caches = sorted(_groups(cpus, topology.caches).items(), key=lambda item: (-len(item[1]), item[0]))
    place, _ = _neighbours(gpu, topology)
    return frozenset(caches[place % len(caches)][1])


def _groups(cpus: frozenset[int], leader: Mapping[int, int]) -> dict[int, set[int]]:
    groups: dict[int, set[int]] = {}
    for cpu in sorted(cpus):
        groups.setdefault(leader[cpu], set()).add(cpu)
    return groups


def read_topology(
    mode: str,
    environ: Mapping[str, str],
    allowed: frozenset[int],
    roots: Roots = Roots(),  # noqa: B008  (immutable)
) -> Topology:
    """Read from `/sys` and `/proc` what `cpu_sets` needs for `mode`; `allowed` are the CPUs this process may use."""
    cpus = sorted(allowed)
    return Topology(
        gpu_nodes=tuple(_node_of(gpu.address, roots) for gpu in visible_gpus(environ, roots)),
        node_cpus=_node_cpus(allowed, roots),
        sockets={cpu: _socket_of(cpu, roots) for cpu in cpus} if mode == "socket" else {},
        cores={cpu: _core_of(cpu, roots) for cpu in cpus} if mode == "exclusive" else {},
        caches={cpu: _cache_of(cpu, roots) for cpu in cpus} if mode == "core-complex" else {},
    )


def cpu_list(text: str) -> frozenset[int]:
    """Read the kernel's list format: `0-2,4,6-7`."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _read(roots: Roots, *parts: str) -> str:
    return read_file(os.path.join(roots.sys, *parts)).decode("ascii", "replace").strip()


def _node_of(address: str, roots: Roots) -> int | None:
    if not address:
        return None
    text = _read(roots, "bus/pci/devices", address, "numa_node")
    return max(int(text), 0) if text else None  # machines with one node often say -1


def _node_cpus(allowed: frozenset[int], roots: Roots) -> dict[int, frozenset[int]]:
    nodes = cpu_list(_read(roots, "devices/system/node/possible"))
    if not nodes:  # a kernel without NUMA
        return {0: allowed}
    by_node = {node: cpu_list(_read(roots, f"devices/system/node/node{node}/cpulist")) & allowed for node in nodes}
    return {node: cpus for node, cpus in sorted(by_node.items()) if cpus}


def _socket_of(cpu: int, roots: Roots) -> int:
    return int(_read(roots, f"devices/system/cpu/cpu{cpu}/topology/physical_package_id") or 0)


def _core_of(cpu: int, roots: Roots) -> int:
    return min(cpu_list(_read(roots, f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")) or {cpu})


def _cache_of(cpu: int, roots: Roots) -> int:
    """Return the lowest CPU under the same highest-level data cache."""
    folder = f"devices/system/cpu/cpu{cpu}/cache"
    try:
        names = [
            name for name in os.listdir(os.path.join(roots.sys, folder)) if name[:5] == "index" and name[5:].isdigit()
        ]
    except OSError:
        names = []
    best = (_NO_CACHE, cpu)
    for name in sorted(names):
        if _read(roots, folder, name, "type") not in ("Unified", "Data"):
            continue
        level = int(_read(roots, folder, name, "level") or _NO_CACHE)
        if level > best[0]:
            best = level, min(cpu_list(_read(roots, folder, name, "shared_cpu_list")) or {cpu})
    return best[1]
