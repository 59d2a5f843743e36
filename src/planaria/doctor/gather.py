"""Look at everything that was asked for, all groups at once, and judge it."""

from __future__ import annotations

import os

from planaria.base.addresses import split_address
from planaria.doctor.model import BROKEN, CHECKS, UNANSWERED, fail
from planaria.doctor.together import together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.doctor.model import Asked, Finding

    Look = Callable[[], list[Finding]]

WITHIN_S = 15.0  # more than names and ports take at worst: look_network.py has a limit for each
_REMEDIES = {
    "dns": "look at the name servers in /etc/resolv.conf: one of them does not answer",
    "disk": "a disk does not answer: look in dmesg, and at network file systems (`mount`, `df` hang on them, too)",
    "gpu": "the driver of the GPUs does not answer: run nvidia-smi, look in dmesg for NVRM, reset or reboot",
    "ports": "an endpoint does not answer: name fewer, or look at them one by one",
}


def examine(
    asked: Asked, *, version: str, wall_s: float, token: bytes | None, within_s: float = WITHIN_S
) -> list[Finding]:
    """Return what was found, group by group. A group whose facts do not come in time is a finding itself."""
    looks = {group: _look(group, asked, version, wall_s, token) for group in asked.groups}
    found, late = together(looks, within_s)
    return [
        finding
        for group in CHECKS
        if group in looks
        for finding in found.get(group) or [_late(group, within_s) if group in late else _broken(group)]
    ]


def _late(group: str, within_s: float) -> Finding:
    return fail(
        f"{group}.{UNANSWERED}",
        f"what is asked about {group} was not answered within {within_s:g} s",
        _REMEDIES.get(group, "look in dmesg and at the machine's load"),
    )


def _broken(group: str) -> Finding:
    return fail(
        f"{group}.{BROKEN}",
        f"looking at {group} ended with an error: this is a bug in planaria",
        "please report it with what was printed; --checks with the other groups leaves it out",
    )


def _look(group: str, asked: Asked, version: str, wall_s: float, token: bytes | None) -> Look:
    """Return what gathers the facts of one group and judges them. Groups that are not asked for import nothing."""
    variables = asked.variables
    match group:
        case "dns" | "network" | "ports":
            return _network(group, asked, token)
        case "gpu":
            from planaria.doctor.gpu import check_gpu
            from planaria.doctor.look_gpu import gpu_facts

            return lambda: check_gpu(gpu_facts(variables, asked.workers))
        case "environment":
            from planaria.doctor.environment import check_environment

            hosts = tuple(split_address(one)[0] for one in asked.endpoints)
            cpus = len(os.sched_getaffinity(0))
            return lambda: check_environment(variables, workers=asked.workers, cpus=cpus, hosts=hosts)
        case _:
            return _machine(group, asked, version, wall_s)


def _network(group: str, asked: Asked, token: bytes | None) -> Look:
    from planaria.doctor import look_network
    from planaria.doctor.dns import check_dns
    from planaria.doctor.network import check_network
    from planaria.doctor.ports import check_ports

    endpoints, variables = asked.endpoints, asked.variables
    match group:
        case "dns":
            return lambda: check_dns(look_network.dns_facts(endpoints, variables))
        case "network":
            return lambda: check_network(look_network.network_facts(endpoints, variables))
        case _:
            is_ours = asked.backend in ("c10d", "static")
            return lambda: check_ports(look_network.port_facts(endpoints, token, is_ours=is_ours))


def _machine(group: str, asked: Asked, version: str, wall_s: float) -> Look:
    from planaria.doctor import look_machine
    from planaria.doctor.clock import check_clock
    from planaria.doctor.disk import check_disk
    from planaria.doctor.limits import check_limits
    from planaria.doctor.shm import check_shm
    from planaria.doctor.system import check_system

    match group:
        case "clock":
            return lambda: check_clock(look_machine.clock_facts(wall_s))
        case "shm":
            return lambda: check_shm(look_machine.shm_facts(asked.workers))
        case "limits":
            return lambda: check_limits(look_machine.limit_facts(asked.workers))
        case "disk":
            return lambda: check_disk(tuple(look_machine.folder_facts(role, path) for role, path in asked.folders))
        case _:
            return lambda: check_system(look_machine.system_facts(version))
