"""Bring the code of a job to this node: fetched into a folder of its own, verified, and only then unpacked.

The folder is in use as long as somebody holds its lock. The lock goes through exec to the launcher and its agent, and the
kernel drops it when the last of them is gone, however it went; whoever fetches next removes folders that nobody holds.
So nothing has to outlive the job to tidy up after it, and in a container the folder goes with the container.
"""

from __future__ import annotations

import fcntl
import hashlib
import os

from planaria.base.files import random_name, remove_tree
from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import CodeRefused, FetchFailed
from planaria.ship.limits import UNPACKED, mib
from planaria.ship.source import Local, Stored, is_archive
from planaria.ship.unpack import unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planaria.ship.source import Inside

PREFIX = "planaria-code-"
_TRIES = 100


class Code(Value):
    """What is run: the script, and the directory it is run in; None: where we are."""

    script: str
    directory: str | None


class Folder:
    """A fresh folder of ours alone, held by a lock that outlives exec."""

    def __init__(self, parent: str) -> None:
        sweep(parent)
        for _ in range(_TRIES):
            self.path = os.path.join(parent, f"{PREFIX}{random_name()}{random_name()}")
            try:
                os.mkdir(self.path, 0o700)
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except FileNotFoundError:
                if not os.path.isdir(parent):
                    raise FetchFailed(
                        f"there is no directory {quoted(parent)} for the code", hint="TMPDIR names it"
                    ) from None
                continue  # somebody swept it before we held it
            except OSError as problem:
                raise FetchFailed(
                    f"cannot make a folder in {quoted(parent)}: {problem.strerror}", hint="TMPDIR names another place"
                ) from problem
            if _locked(self._lock) and os.path.isdir(self.path):
                os.set_inheritable(self._lock, True)
                return
            remove_tree(self.path)  # a disk without locks, or somebody who sweeps it at this moment
            os.close(self._lock)
        raise FetchFailed(f"cannot lock a folder in {quoted(parent)}", hint="TMPDIR names another place")

    def remove(self) -> None:
        """Remove it, when nothing is run after all."""
        remove_tree(self.path)
        os.close(self._lock)


def sweep(parent: str) -> None:
    """Remove the folders of ended jobs of this user: those whose lock nobody holds."""
    try:
        found = [entry.path for entry in os.scandir(parent) if entry.name.startswith(PREFIX)]
    except OSError:
        return
    for path in found:
        try:
            if os.lstat(path).st_uid != os.geteuid():
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        if _locked(descriptor):
            remove_tree(path)
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def code_at(source: Local | Inside, script: str | None) -> Code:
    """Return the code at a path of this machine, which stays where it is.

    Raises:
        CodeRefused: It is not there.
    """
    path = os.path.abspath(source.path)
    if not os.path.exists(path):
        raise CodeRefused(f"there is no file or directory {quoted(source.path)}")
    if not os.path.isdir(path):
        if script is not None:
            raise CodeRefused(f"{quoted(source.path)} is no directory, so {quoted(script)} cannot be in it")
        return Code(path, None)
    if script is None:
        raise CodeRefused(f"{quoted(source.path)} is a directory: which script in it?")
    return _below(path, script, source.path)


def unpacked(archive: str, script: str, folder: Folder, shown: str) -> Code:
    """Unpack a verified archive; return the script in it."""
    tree = os.path.join(folder.path, "code")
    unpack(archive, tree)
    return _below(tree, script, shown)


def _below(directory: str, script: str, shown: str) -> Code:
    path = os.path.join(directory, script)
    if not os.path.isfile(path):
        raise CodeRefused(f"there is no script {quoted(script)} in {quoted(shown)}")
    return Code(path, directory)


def take(pieces: Iterable[bytes], path: str, seen: Callable[[int], None]) -> str:
    """Write a stream to a file and return its SHA-256; `seen` hears how much there is by now.

    Raises:
        CodeRefused: There is more of it than code ever has.
        FetchFailed: The disk does not take it.
    """
    digest = hashlib.sha256()
    taken = 0
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700), "wb") as file:
            for piece in pieces:
                taken += len(piece)
                if taken > UNPACKED.total_bytes:
                    raise CodeRefused(f"the code is refused: it has more than {mib(UNPACKED.total_bytes)}")
                digest.update(piece)
                file.write(piece)
                seen(taken)
    except OSError as problem:
        raise FetchFailed(f"cannot write {path}: {problem.strerror}", hint="TMPDIR names another place") from problem
    return digest.hexdigest()


def verify(shown: str, found: str, wanted: str | None) -> None:
    """Compare the hash of what was fetched with the one the job was described with.

    Raises:
        CodeRefused: They differ.
    """
    if wanted is not None and found != wanted:
        raise CodeRefused(
            f"{quoted(shown)} is not the code of this job: its SHA-256 is {found}, and the job's is {wanted}",
            hint="it was replaced or damaged after the job was submitted; submit the job again",
        )


def is_packed(source: Stored | Local | Inside) -> bool:
    """Tell whether a source has to be unpacked."""
    if isinstance(source, Stored):
        return source.is_archive
    return is_archive(source.path) and not os.path.isdir(source.path)
