"""What programs find around them that tests start: a clean environment, no torch, installed packages. And their end."""

from __future__ import annotations

import contextlib
import os
import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What launchers, agents and torch look at, in case the tests themselves run below a launcher.
_DROPPED = ("PET_", "TORCH", "PLANARIA_", "OMP_", "CUDA_", "MASTER_", "LOGLEVEL", "RANK", "WORLD_SIZE", "PYTHON_EXEC")


def clean_environment(*dropped: str, **variables: str) -> dict[str, str]:
    """Return our environment without what means something to an agent or begins with one of `dropped`, and `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*_DROPPED, *dropped))}
    return kept | variables


def hide_torch(folder: Path) -> str:
    """Return the folder, made if need be, which hides torch from whoever has it first in PYTHONPATH."""
    folder.mkdir(exist_ok=True)
    (folder / "torch.py").write_text("raise ModuleNotFoundError('hidden by a test', name='torch')\n")
    return str(folder)


def install(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], version: str = "1.0") -> None:
    """Make a package with these entry points look installed to whoever has the folder in PYTHONPATH."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = (
        f"[{group}]\n" + "".join(f"{point} = {target}\n" for point, target in points.items())
        for group, points in groups.items()
    )
    (info / "entry_points.txt").write_text("\n".join(sections))


def install_example(folder: Path) -> str:
    """Install `examples/extending/plugin` there, as far as Python can tell; return the folder, for PYTHONPATH."""
    plugin = Path(__file__).parents[2] / "examples" / "extending" / "plugin"
    project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
    install(folder, project["name"], project["entry-points"], project["version"])
    (folder / "folder_plugin").symlink_to(plugin / "folder_plugin")
    return str(folder)


def marked(mark: str) -> list[int]:
    """Return the living processes that have the mark, such as a test's folder, in their command line or environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            texts = []
            for part in ("cmdline", "environ"):
                with open(f"/proc/{name}/{part}", "rb") as file:
                    texts.append(file.read())
            if any(mark.encode() in text for text in texts):
                found.append(int(name))
    return found


def end_marked(mark: str) -> None:
    """Kill what a failed test left behind."""
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
