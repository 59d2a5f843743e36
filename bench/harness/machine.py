"""What the numbers were taken on: the machine and the versions, without anything that names this very machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version


def describe() -> dict[str, str]:
    """Return cores, CPU model, memory, kernel."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "CPU": _field("/proc/cpuinfo", "model name"),
        "memory": f"{int(_field('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Return the versions of what takes part."""
    return {"python": platform.python_version()} | {name: _version(name) for name in ("torch", "planaria")}


def load() -> str:
    """Return the load averages of 1, 5 and 15 minutes."""
    return " ".join(f"{number:.2f}" for number in os.getloadavg())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "unknown"
