from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.errors import UsageError
from planaria.launch.devices import Roots
from planaria.launch.numa import Topology, cpu_list, cpu_sets, read_topology

if TYPE_CHECKING:
    from pathlib import Path

MODES = ("node", "socket", "exclusive", "core-complex")


def topology(gpu_nodes: tuple[int | None, ...], nodes: dict[int, range], cores_per_cache: int = 4) -> Topology:
    """A machine whose CPUs n and n+100 share a core, with two NUMA nodes to a socket."""
    node_cpus = {node: frozenset([*cpus, *(cpu + 100 for cpu in cpus)]) for node, cpus in nodes.items()}
    every = [cpu for cpus in node_cpus.values() for cpu in cpus]
    home = {cpu: node for node, cpus in node_cpus.items() for cpu in cpus}
    return Topology(
        gpu_nodes,
        node_cpus,
        sockets={cpu: home[cpu] // 2 for cpu in every},
        cores={cpu: cpu % 100 for cpu in every},
        caches={cpu: cpu % 100 - cpu % 100 % cores_per_cache for cpu in every},
    )


def threads(*cores: int) -> set[int]:
    return {*cores, *(core + 100 for core in cores)}


FOUR_NODES = {node: range(8 * node, 8 * node + 8) for node in range(4)}


def test_node_gives_all_cpus_of_the_gpus_node() -> None:
    sets = cpu_sets("node", 2, topology((0, 3), FOUR_NODES))
    assert sets == (threads(*range(8)), threads(*range(24, 32)))


def test_socket_gives_all_cpus_of_all_nodes_of_the_socket() -> None:
    sets = cpu_sets("socket", 2, topology((1, 2), FOUR_NODES))
    assert sets == (threads(*range(16)), threads(*range(16, 32)))


def test_exclusive_deals_physical_cores_out_and_the_first_gpus_get_the_rest() -> None:
    sets = cpu_sets("exclusive", 3, topology((0, 0, 0), {0: range(8)}))
    assert sets == (threads(0, 1, 2), threads(3, 4, 5), threads(6, 7))


def test_exclusive_leaves_room_for_gpus_without_a_worker() -> None:
    assert cpu_sets("exclusive", 1, topology((0, 0), {0: range(8)})) == (threads(0, 1, 2, 3),)


def test_core_complexes_are_dealt_out_in_turn_the_fullest_first() -> None:
    sets = cpu_sets("core-complex", 3, topology((0, 0, 0), {0: range(1, 8)}))
    assert sets == (threads(4, 5, 6, 7), threads(1, 2, 3), threads(4, 5, 6, 7))


@pytest.mark.parametrize(
    ("mode", "nproc", "machine", "sentence"),
    [
        ("node", 1, topology((), FOUR_NODES), "--numa-binding=node needs GPUs, and none is visible"),
        (
            "socket",
            3,
            topology((0, 1), FOUR_NODES),
            "--numa-binding=socket binds worker n to GPU n: 3 workers, but 2 visible GPUs",
        ),
        (
            "exclusive",
            1,
            topology((0, 0, 0), {0: range(2)}),
            "--numa-binding=exclusive: NUMA node 0 has 2 usable cores for 3 GPUs",
        ),
        (
            "node",
            1,
            topology((5,), FOUR_NODES),
            "--numa-binding: GPU 0 is on NUMA node 5, where this process may use no CPU",
        ),
        (
            "node",
            1,
            topology((None,), FOUR_NODES),
            "--numa-binding cannot tell where GPU 0 is: the driver does not show its PCI address",
        ),
    ],
)
def test_what_cannot_be_bound_is_refused_in_one_sentence(
    mode: str, nproc: int, machine: Topology, sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        cpu_sets(mode, nproc, machine)
    assert str(caught.value) == sentence


def test_cpu_lists_of_the_kernel_are_read() -> None:
    assert cpu_list("0-2,4, 6-7\n") == {0, 1, 2, 4, 6, 7}
    assert cpu_list("") == frozenset()


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content + "\n")


def test_a_topology_is_read_from_files(tmp_path: Path) -> None:
    roots = Roots(str(tmp_path / "proc"), str(tmp_path / "sys"), str(tmp_path / "dev"))
    for bus, node in (("0a", 1), ("0b", -1)):
        write(tmp_path / "proc", {f"driver/nvidia/gpus/0000:{bus}:00.0/information": "Device Minor: 0"})
        write(tmp_path / "sys", {f"bus/pci/devices/0000:{bus}:00.0/numa_node": str(node)})
    system = tmp_path / "sys/devices/system"
    write(
        system,
        {"node/possible": "0-2", "node/node0/cpulist": "0-1", "node/node1/cpulist": "2-3", "node/node2/cpulist": ""},
    )
    for cpu in range(4):
        write(
            system / f"cpu/cpu{cpu}",
            {
                "topology/physical_package_id": str(cpu // 2),
                "topology/thread_siblings_list": f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}",
                "cache/index0/type": "Data",
                "cache/index0/level": "1",
                "cache/index0/shared_cpu_list": str(cpu),
                "cache/index1/type": "Instruction",
                "cache/index1/level": "9",
                "cache/index1/shared_cpu_list": "0-3",
                "cache/index3/type": "Unified",
                "cache/index3/level": "3",
                "cache/index3/shared_cpu_list": f"{cpu // 2 * 2},{cpu // 2 * 2 + 1}",
            },
        )
    allowed = frozenset({1, 2, 3})
    nodes = {0: {1}, 1: {2, 3}}
    assert read_topology("node", {}, allowed, roots) == Topology((1, 0), nodes)
    assert read_topology("socket", {}, allowed, roots).sockets == {1: 0, 2: 1, 3: 1}
    assert read_topology("exclusive", {}, allowed, roots).cores == {1: 0, 2: 2, 3: 2}
    assert read_topology("core-complex", {}, allowed, roots).caches == {1: 0, 2: 2, 3: 2}


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    nowhere = Roots(str(tmp_path), str(tmp_path), str(tmp_path))
    assert read_topology("node", {}, frozenset({0, 1}), nowhere) == Topology((), {0: frozenset({0, 1})})


machines = st.builds(
    lambda gpus, sizes, cache: topology(
        tuple(gpu % len(sizes) for gpu in gpus),
        {node: range(10 * node, 10 * node + size) for node, size in enumerate(sizes)},
        cache,
    ),
    st.lists(st.integers(0, 7), min_size=1, max_size=8),
    st.lists(st.integers(1, 10), min_size=1, max_size=4),
    st.integers(1, 6),
)


@pytest.mark.torch
@given(machine=machines, mode=st.sampled_from(MODES))
def test_the_cpus_are_those_torch_would_choose(machine: Topology, mode: str) -> None:
    pytest.importorskip("torch", reason="the rules to compare with are torch's")
    from torch.numa import binding

    def sharing(leader: dict[int, int]) -> object:
        return lambda *, logical_cpu_index: {cpu for cpu in leader if leader[cpu] == leader[logical_cpu_index]}

    fakes = {
        "_get_gpu_count": lambda: len(machine.gpu_nodes),
        "_get_numa_node_index_for_gpu_index": lambda *, gpu_index: machine.gpu_nodes[gpu_index],
        "_get_allowed_logical_cpu_indices_for_numa_node": lambda *, numa_node_index: set(
            machine.node_cpus[numa_node_index]
        ),
        "_get_systemwide_numa_node_indices": lambda: set(machine.node_cpus),
        "_get_socket_index_for_cpu": lambda *, cpu_index: machine.sockets[cpu_index],
        "_get_logical_cpu_indices_sharing_same_physical_core_as": sharing(dict(machine.cores)),
        "_get_logical_cpus_sharing_same_max_level_cache_as": sharing(dict(machine.caches)),
    }
    options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    everyone = range(len(machine.gpu_nodes))
    with mock.patch.multiple(binding, **fakes):
        try:
            theirs = tuple(
                binding._get_logical_cpus_to_bind_to(gpu_index=gpu, numa_options=options) for gpu in everyone
            )
        except RuntimeError:
            with pytest.raises(UsageError):
                cpu_sets(mode, len(everyone), machine)
            return
    assert cpu_sets(mode, len(everyone), machine) == theirs
