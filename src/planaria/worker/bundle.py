"""Commits of sharded state as folders: written by all ranks together, read again by any number of them.

    DIR/commit-0000000007/rank-00000.tensors     chunks of tensors, byte by byte
                          rank-00000.values      a sealed snapshot: scheduler, sampler, plain values, random numbers
                          ...
                          manifest.json          step, world size, every file with size and SHA-256, every chunk's place
    DIR/.life-0000000003/0000000008              one that is being written, or whose writers failed

A draft gets its name when the manifest is in it and all of it on the disk; so what is called a commit is whole. Nothing in here
is pickled: a manifest is JSON, and tensors are bytes.

Whoever begins to use a directory begins a *life* with a number above all others, and takes the folders of lower ones away
before it looks which commits there are. So a writer of an older life, however late it wakes, has nothing left to make one of.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager, suppress

from planaria.archive.shelf import checked_folder
from planaria.base.files import remove_tree, write_all
from planaria.base.value import Value
from planaria.contract.manifest import ShardFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Chunk = tuple[list[int], list[int], int, int, int]
    """Where it lies in its tensor, its shape, and whose file has it, from which byte on, how long."""

VERSION = 1
MANIFEST = "manifest.json"
_COMMIT, _LIFE, _GONE = "commit-", ".life-", ".gone-"
_STALE_DRAFT = ".draft-"  # as drafts were called before there were lives
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
    life: int = 0  # none, before there were lives


class Superseded(Exception):
    """A later life uses the directory: what this one writes does not count any more."""


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
        self._damaged: set[str] = set()
        self.directory = checked_folder(directory, keep)
        self._keep = keep
        self._at = at

    def begin(self) -> int:
        """Begin a life; return its number. From here on no life before it can add a commit, and what it added is listed.

        The mark comes first: a folder of this life, with a number that nobody else has. Then the folders of lower lives are
        renamed, so that their writers find nothing by the name they know, and removed, for who is in the midst of a call.

        Raises:
            OSError: The directory cannot be written to.
        """
        os.makedirs(self.directory, exist_ok=True)
        life = 0
        while not self._mark(life := 1 + max(life, *self._lives(), 0)):
            pass
        self._at("marked")
        self._bury(life)
        _sync_folder(self.directory)
        self._at("begun")
        return life

    def _mark(self, life: int) -> bool:
        """Make the folder of a life; False if the number is taken, or was: a higher one may have taken that folder away."""
        try:
            os.mkdir(self._life_path(life))
        except FileExistsError:
            return False
        if max(self._lives(), default=0) <= life:
            return True
        with suppress(OSError):
            os.rmdir(self._life_path(life))
        return False

    def _lives(self) -> list[int]:
        found = (_number(name, _LIFE) for name in os.listdir(self.directory))
        return [number for number in found if number is not None]

    def _life_path(self, life: int) -> str:
        return os.path.join(self.directory, f"{_LIFE}{life:010d}")

    def _bury(self, life: int) -> None:
        """Take away what lives below this one have not made commits of."""
        for lower in self._lives():
            if lower < life:
                with suppress(OSError):  # another one does the same
                    os.rename(self._life_path(lower), os.path.join(self.directory, f"{_GONE}{lower:010d}-{life:010d}"))
                self._at("renamed")
        for name in os.listdir(self.directory):
            if name.startswith((_GONE, _STALE_DRAFT)):
                remove_tree(os.path.join(self.directory, name))

    def check(self, life: int) -> None:
        """See that no later life has begun.

        Raises:
            Superseded: One has.
        """
        highest = max(self._lives(), default=0)
        if highest > life:
            raise Superseded(f"life {highest} has begun in {self.directory}, and this is life {life}")

    @contextmanager
    def _in(self, life: int) -> Iterator[None]:
        """Say what it means if something of a life is not there any more."""
        try:
            yield
        except FileNotFoundError:
            self.check(life)
            raise

    def draft(self, generation: int, life: int) -> str:
        """Make the folder of a commit that is being written, if no other rank has; return its path.

        Raises:
            Superseded: A later life has begun.
        """
        number = f"{generation:010d}"
        path = os.path.join(self._life_path(life), number)
        with self._in(life), suppress(FileExistsError):
            # One commit is written at a time, so lower ones have failed: what is left of them would keep a full disk full.
            for name in os.listdir(self._life_path(life)):
                if name < number:
                    remove_tree(os.path.join(self._life_path(life), name))
            os.mkdir(path)
        self._at("draft")
        return path

    def write(self, draft: str, rank: int, name: str, pieces: Iterable[memoryview]) -> ShardFile:
        """Write a file of a draft, piece by piece, to the disk.

        Raises:
            Superseded: A later life has begun, and taken the draft away.
        """
        digest, size = hashlib.sha256(), 0
        with self._in(_number(os.path.basename(os.path.dirname(draft)), _LIFE) or 0):
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
        """Make a commit of a draft whose files are all there, and remove what it supersedes.

        Raises:
            Superseded: A later life has begun. Nothing was changed.
        """
        fields = {
            "version": VERSION,
            "life": listed.life,
            "generation": listed.generation,
            "step": listed.step,
            "world_size": listed.world_size,
            "files": [(one.rank, one.name, one.size_bytes, one.sha256) for one in listed.files],
            "tensors": {name: (one.dtype, one.shape, one.chunks) for name, one in listed.tensors.items()},
        }
        self.write(draft, 0, MANIFEST, [memoryview(sealed(fields))])
        with self._in(listed.life):
            _sync_folder(draft)
            self._at("listed")
            self.check(listed.life)
            os.rename(draft, os.path.join(self.directory, listed.name))
        _sync_folder(self.directory)
        self._at("named")
        self._prune(listed.life)
        self._at("pruned")

    def _prune(self, life: int) -> None:
        """Remove older commits, and the drafts of this life: one commit is written at a time, so they are of those who failed.

        A later life's are its own, and so are the commits that it counts on: what to remove is listed before it is looked for.
        """
        commits = sorted(name for name in os.listdir(self.directory) if _generation(name) is not None)
        first = ([name for name in commits if name not in self._damaged] or commits)[-self._keep :][0]
        with suppress(Superseded, FileNotFoundError):
            drafts = os.listdir(self._life_path(life))
            self.check(life)
            older = (os.path.join(self.directory, name) for name in commits if name < first)
            for path in (*older, *(os.path.join(self._life_path(life), name) for name in drafts)):
                with suppress(OSError):
                    os.unlink(os.path.join(path, MANIFEST))  # first: from here on nobody takes it for a whole commit
                self._at("unlisted")
                remove_tree(path)
            self._bury(life)

    def commits(self) -> list[str]:
        """Return the names of the commits, the newest first. What is in them has not been looked at."""
        with suppress(FileNotFoundError, NotADirectoryError):
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

    def has(self, generation: int, life: int) -> bool:
        """Tell whether a life has made this commit, and see that it stays."""
        try:
            found = self.read(commit_name(generation))
            _sync_folder(self.directory)
        except (OSError, ValueError):
            return False
        return found.life == life

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
    return _number(name, _COMMIT)


def _number(name: str, prefix: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if digits != name and digits.isdecimal() and len(digits) == 10 else None


def _decode(name: str, content: bytes) -> Listed:
    told, _, digest = content.partition(b"\n")
    if hashlib.sha256(told).hexdigest().encode() != digest:
        raise ValueError("its manifest is damaged")
    try:
        found = json.loads(told)
        version = found["version"]
        generation, step, world_size = (int(found[key]) for key in ("generation", "step", "world_size"))
        life = int(found.get("life", 0))
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
    return Listed(name, generation, step, world_size, files, tensors, life)


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
