"""What the numbers were taken on: the machine and the versions, without anything that names this very machine."""

from __future__ import annotations

import os
import platform
import subprocess
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
    found = {"python": platform.python_version()} | {name: _version(name) for name in ("torch", "planaria")}
    return found | {"commit": _commit()}


def load() -> str:
    """Return the load averages of 1, 5 and 15 minutes."""
    return " ".join(f"{number:.2f}" for number in os.getloadavg())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Return the commit that lies here, with a + where files were changed since."""
    words = [
        "git",
        "-C",
        os.path.dirname(os.path.abspath(__file__)),
        "describe",
        "--always",
        "--dirty=+",
        "--abbrev=12",
    ]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "unknown"
