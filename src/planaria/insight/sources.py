"""Find the run that a command means: agents that answer, folders, or both."""

from __future__ import annotations

import os

from planaria.agent import credentials
from planaria.base.text import safe_line
from planaria.errors import UsageError
from planaria.insight.fields import part, text
from planaria.insight.gather import AgentSource, FolderSource, run_folder
from planaria.launch.owner_flags import Order
from planaria.launch.owner_http import Door
from planaria.launch.owner_runs import all_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.insight.flags import Asked
    from planaria.insight.gather import Source
    from planaria.insight.model import NodeSeen
    from planaria.launch.owner_runs import Run

RUN_DIR = "PET_RUN_DIR"
MOST_SHOWN = 8
MOST_ASKED = 32  # agents at a time


class Found:
    """Where a run is seen."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources

    @property
    def agents(self) -> dict[str, AgentSource]:
        """The agents that have told anything, by node: all of this machine have one name as a source."""
        return {one.node: one for one in self.sources if isinstance(one, AgentSource) and one.node}

    def look(self) -> list[NodeSeen]:
        """Look everywhere once. Agents are asked in threads, many at a time: one that hangs costs our patience with it only."""
        from threading import Thread

        found: dict[int, list[NodeSeen]] = {}

        def look(number: int) -> None:
            found[number] = self.sources[number].look()

        asked = [number for number, source in enumerate(self.sources) if isinstance(source, AgentSource)]
        at_once = asked if len(asked) > 1 else []
        threads = [
            Thread(target=_each, args=(look, at_once[first::MOST_ASKED]), daemon=True) for first in range(MOST_ASKED)
        ]
        threads = threads[: len(at_once)]
        for thread in threads:
            thread.start()
        for number in range(len(self.sources)):
            if number not in at_once:
                look(number)
        for thread in threads:
            thread.join()
        return [node for number in range(len(self.sources)) for node in found.get(number, [])]


def _each(look: Callable[[int], object], numbers: list[int]) -> None:
    for number in numbers:
        look(number)


def find(asked: Asked, environ: Mapping[str, str]) -> Found | str:
    """Return where the run is seen, or a sentence that says why it is nowhere.

    Raises:
        UsageError: There are several.
    """
    sources: list[Source] = []
    if asked.at:
        token = credentials.read(environ).token
        sources += [AgentSource(target, None if token is None else token.reveal()) for target in asked.at]
    if asked.run_dir is not None:
        folder = _folder(asked.run_dir, asked.run_id)
        if folder is None:
            return _no_folder(asked.run_dir, asked.run_id)
        sources.append(FolderSource(folder))
    if sources:
        return Found(sources)
    return _find_here(asked, environ)


def _folder(run_dir: str, run_id: str) -> str | None:
    if not os.path.isdir(run_dir):
        raise UsageError(f"--run-dir expects a directory, got '{safe_line(run_dir, 120)}'")
    return run_folder(run_dir, run_id)


def _no_folder(run_dir: str, run_id: str) -> str:
    which = f"no run {safe_line(run_id, 200)}" if run_id else "no run"
    return f"there is {which} in {safe_line(run_dir)}; planaria run --run-dir keeps one there"


def _find_here(asked: Asked, environ: Mapping[str, str]) -> Found | str:
    runs, silent = all_here(Order(asked.command, run_id=asked.run_id), environ)
    ids = sorted({run.run_id for run in runs})
    if len(ids) > 1:
        shown = ", ".join(f"--run-id={one}" for one in ids[:MOST_SHOWN])
        raise UsageError(f"planaria {asked.command} found {len(ids)} runs of yours: choose one by {shown}")
    if runs:
        sources: list[Source] = [AgentSource(run.target) for run in runs]
        return Found([*sources, *(FolderSource(folder) for folder in _shared_folders(runs))])
    run_dir = environ.get(RUN_DIR)
    if run_dir and os.path.isdir(run_dir) and (folder := run_folder(run_dir, asked.run_id)) is not None:
        return Found([FolderSource(folder)])
    if silent:
        return str(silent[0])
    which = f" {safe_line(asked.run_id, 200)}" if asked.run_id else ""
    return f"no run{which} of yours is on this machine; --run-dir shows one that has ended, --at asks another machine"


def _shared_folders(runs: list[Run]) -> list[str]:
    """Return the folders that these agents of ours write to: with a shared disk, the other nodes are there too."""
    ours = [run for run in runs if isinstance(run.target, Door) and run.target.owner == os.geteuid()]
    found = dict.fromkeys(text(part(run.status, "job"), "run_folder") for run in ours)
    return [folder for folder in found if folder and os.path.isdir(folder)]
