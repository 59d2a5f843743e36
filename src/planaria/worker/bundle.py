"""Commits of sharded state as folders: written by all ranks together, read again by any number of them.

    DIR/commit-0000000007/rank-00000.tensors     chunks of tensors, byte by byte
                          rank-00000.values      a sealed snapshot: scheduler, sampler, plain values, random numbers
                          ...
                          manifest.json          step, world size, every file with size and SHA-256, every chunk's place
    DIR/.draft-0000000008-1f3a...                one that is being written, or whose writers died

A draft gets its name when the manifest is in it and all of it on the disk; so what is called a commit is whole. Nothing in here
is pickled: a manifest is JSON, and tensors are bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress

from planaria.base.files import remove_tree, write_all
from planaria.base.value import Value
from planaria.contract.manifest import ShardFile
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Chunk = tuple[list[int], list[int], int, int, int]
    """Where it lies in its tensor, its shape, and whose file has it, from which byte on, how long."""

VERSION = 1
MANIFEST = "manifest.json"
_COMMIT, _DRAFT = "commit-", ".draft-"
_PIECE_BYTES = 8 << 20


class Tensor(Value):
    """A tensor, whole as the program sees it, and the chunks that ranks have written of it."""

    dtype: str
    shape: list[int]
    chunks: list[Chunk]


class Listed(Value):
    """A commit that is whole, as its manifest says."""

    name: str
    generation: int
    step: int
    world_size: int
    files: tuple[ShardFile, ...]
    tensors: Mapping[str, Tensor]


def values_name(rank: int) -> str:
    """Return the name of a rank's file of plain values."""
    return f"rank-{rank:05d}.values"


def tensors_name(rank: int) -> str:
    """Return the name of a rank's file of chunks."""
    return f"rank-{rank:05d}.tensors"


def _nothing(_point: str) -> None:
    pass


class Bundles:
    """A directory of such commits. `at` is called with the name of each point passed, for those who test deaths there."""

    def __init__(self, directory: str, keep: int = 2, at: Callable[[str], None] = _nothing) -> None:
        if type(keep) is not int or keep < 1:
            raise UsageError(f"keep expects a whole number of commits above 0, got {keep!r}")
        self._damaged: set[str] = set()
        self.directory = os.path.abspath(directory)
        self._keep = keep
        self._at = at

    def draft(self, generation: int, life: str) -> str:
        """Make the folder of a commit that is being written, if no other rank has; return its path."""
        path = os.path.join(self.directory, f"{_DRAFT}{generation:010d}-{life}")
        os.makedirs(path, exist_ok=True)
        self._at("draft")
        return path

    def write(self, draft: str, rank: int, name: str, pieces: Iterable[memoryview]) -> ShardFile:
        """Write a file of a draft, piece by piece, to the disk."""
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(os.path.join(draft, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for piece in pieces:
                write_all(descriptor, piece)
                digest.update(piece)
                size += len(piece)
                self._at(f"{name} piece")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._at(f"{name} done")
        return ShardFile(rank, name, size, digest.hexdigest())

    def finish(self, draft: str, listed: Listed) -> None:
        """Make a commit of a draft whose files are all there, and remove what it supersedes."""
        fields = {
            "version": VERSION,
            "generation": listed.generation,
            "step": listed.step,
            "world_size": listed.world_size,
            "files": [(one.rank, one.name, one.size_bytes, one.sha256) for one in listed.files],
            "tensors": {name: (one.dtype, one.shape, one.chunks) for name, one in listed.tensors.items()},
        }
        self.write(draft, 0, MANIFEST, [memoryview(sealed(fields))])
        _sync_folder(draft)
        self._at("listed")
        os.rename(draft, os.path.join(self.directory, listed.name))
        _sync_folder(self.directory)
        self._at("named")
        self._prune()
        self._at("pruned")

    def _prune(self) -> None:
        """Remove older commits, and every draft: one commit is written at a time, so they are of those who failed or died."""
        names = sorted(os.listdir(self.directory))
        commits = [name for name in names if _generation(name) is not None]
        first = ([name for name in commits if name not in self._damaged] or commits)[-self._keep :][0]
        drafts = [name for name in names if name.startswith(_DRAFT)]
        for name in (*(name for name in commits if name < first), *drafts):
            path = os.path.join(self.directory, name)
            with suppress(OSError):
                os.unlink(os.path.join(path, MANIFEST))  # first: from here on nobody takes it for a whole commit
            self._at("unlisted")
            remove_tree(path)

    def commits(self) -> list[str]:
        """Return the names of the commits, the newest first. What is in them has not been looked at."""
        with suppress(FileNotFoundError):
            return sorted((name for name in os.listdir(self.directory) if _generation(name) is not None), reverse=True)
        return []

    def highest(self) -> int:
        """Return the number of the newest commit, whole or not; 0 without one. The next one has a higher number."""
        return max((number for name in self.commits() if (number := _generation(name)) is not None), default=0)

    def pass_over(self, name: str) -> None:
        """Do not count a commit among those that stay: it was found damaged. It goes with the oldest."""
        self._damaged.add(name)

    def read(self, name: str) -> Listed:
        """Return what a commit's manifest says.

        Raises:
            ValueError: It is not one of ours, or damaged.
            OSError: It cannot be read.
        """
        with open(os.path.join(self.directory, name, MANIFEST), "rb") as file:
            return _decode(name, file.read())

    def verify(self, listed: Listed, files: Iterable[ShardFile]) -> None:
        """See that files are what the manifest says.

        Raises:
            ValueError: One is not.
            OSError: One cannot be read.
        """
        for file in files:
            path = os.path.join(self.directory, listed.name, file.name)
            digest = hashlib.sha256()
            with open(path, "rb") as content:
                if os.fstat(content.fileno()).st_size != file.size_bytes:
                    raise ValueError(f"{file.name} is not as long as it was")
                while piece := content.read(_PIECE_BYTES):
                    digest.update(piece)
            if digest.hexdigest() != file.sha256:
                raise ValueError(f"{file.name} is damaged")

    def path(self, listed: Listed, name: str) -> str:
        """Return where a file of a commit is."""
        return os.path.join(self.directory, listed.name, name)


def commit_name(generation: int) -> str:
    """Return what the folder of a commit is called."""
    return f"{_COMMIT}{generation:010d}"


def sealed(fields: Mapping[str, object]) -> bytes:
    """Return the content of a manifest's file: one line of JSON, and the SHA-256 of that line."""
    told = json.dumps(fields).encode()
    return told + b"\n" + hashlib.sha256(told).hexdigest().encode()


def _generation(name: str) -> int | None:
    digits = name.removeprefix(_COMMIT)
    return int(digits) if digits != name and digits.isdecimal() and len(digits) == 10 else None


def _decode(name: str, content: bytes) -> Listed:
    told, _, digest = content.partition(b"\n")
    if hashlib.sha256(told).hexdigest().encode() != digest:
        raise ValueError("its manifest is damaged")
    try:
        found = json.loads(told)
        version = found["version"]
        generation, step, world_size = (int(found[key]) for key in ("generation", "step", "world_size"))
        files = tuple(ShardFile(*fields) for fields in found["files"])
        tensors = {
            key: Tensor(str(kind), [*shape], _chunks(chunks)) for key, (kind, shape, chunks) in found["tensors"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as exc:
        raise ValueError(f"its manifest is none of ours: {exc}") from exc
    if version != VERSION:
        raise ValueError(f"its manifest is none of ours: its version is {version!r}, not {VERSION}")
    wanted = [make(rank) for rank in range(world_size) for make in (tensors_name, values_name)]
    if generation != _generation(name) or sorted(one.name for one in files) != sorted(wanted):
        raise ValueError("its manifest belongs to something else")
    return Listed(name, generation, step, world_size, files, tensors)


def _chunks(found: list[list[object]]) -> list[Chunk]:
    chunks: list[Chunk] = []
    for place, shape, rank, start, size in found:
        whole = [*place, *shape, rank, start, size]  # type: ignore[misc]  # what is no list raises, and is damage
        if not all(type(number) is int and number >= 0 for number in whole):
            raise ValueError("a chunk lies nowhere")
        chunks.append((place, shape, rank, start, size))  # type: ignore[arg-type]  # seen above
    return chunks


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
