"""The disk that commits are written to: a small file system of its own where root can make one, so that it can be full."""

from __future__ import annotations

import os
import subprocess

from planaria.archive.plan import folder_name
from planaria.archive.shelf import Shelf
from planaria.base.text import safe_line

FLIPPED_BYTES = 16


def _mount(*words: str) -> str:
    """Return why it did not work; empty: it did."""
    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    except OSError as exc:
        return f"mount: {exc.strerror}"
    return safe_line(done.stderr.strip()) or "mount failed" if done.returncode else ""


class Disk:
    """A folder of commits. `why_never_full` says why it cannot be filled; empty: it can. Whoever removes it unmounts it."""

    def __init__(self, folder: str, *, mounts: bool) -> None:
        self.folder = folder
        os.makedirs(folder)
        self.why_never_full = "not asked for"
        if mounts:
            why = (
                "only root can make a file system" if os.geteuid() else _mount("-t", "tmpfs", "planaria-chaos", folder)
            )
            self.why_never_full = why

    def fill(self) -> str:
        """Leave no room: the file system shrinks to what is in it. Return why it does not; empty: it did."""
        size = os.statvfs(self.folder)
        used = (size.f_blocks - size.f_bfree) * size.f_frsize
        return _mount("-o", f"remount,size={max(used, size.f_frsize)}", self.folder)

    def empty(self) -> str:
        """Have room again; return why not, empty: there is."""
        return _mount("-o", "remount,size=50%", self.folder)

    def corrupt(self) -> int | None:
        """Damage the newest complete commit; return the step of the one before it. None: there are no two."""
        commits = list(Shelf(self.folder).commits())
        if len(commits) < 2:
            return None
        newest = commits[0]
        path = os.path.join(self.folder, folder_name(newest.order), newest.files[-1].name)
        try:
            with open(path, "r+b") as file:
                file.seek(newest.files[-1].size_bytes // 2)
                found = file.read(FLIPPED_BYTES)
                file.seek(-len(found), os.SEEK_CUR)
                file.write(bytes(byte ^ 0xFF for byte in found))
        except FileNotFoundError:  # a newer commit was completed, and this one went
            return None
        return commits[1].step

    def step(self) -> int | None:
        """Return the step of the newest commit that is whole."""
        found = Shelf(self.folder).newest_whole(lambda _why: None)
        return found.step if found is not None else None
