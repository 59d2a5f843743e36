"""The manifest of a commit on disk: which ranks it has, and what their files must be. JSON, written when all files are there.

{"version": 1, "run": 1, "round": 4, "generation": 70, "step": 70, "world_size": 2,
 "files": [{"rank": 0, "name": "rank-00000.snapshot", "size_bytes": 8192, "sha256": "..."}, ...]}

`sha256` is `snapshot.fingerprint`. A file's own header repeats the stamp, so a file of another commit is noticed.
"""

from __future__ import annotations

from planaria.base.value import Value, as_dict
from planaria.contract.commit import Stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.commit import Order

VERSION = 1
SIZE_LIMIT_BYTES = 64 << 20  # 300,000 ranks


class ShardFile(Value):
    """The file of one rank."""

    rank: int
    name: str
    size_bytes: int
    sha256: str


class Manifest(Value):
    """A commit that is whole on disk; `files` are in the order of ranks."""

    run: int
    round: int
    generation: int
    step: int
    world_size: int
    files: tuple[ShardFile, ...]

    @property
    def order(self) -> Order:
        """Return what makes this commit newer than another."""
        return self.run, self.round, self.generation

    def stamp(self, rank: int) -> Stamp:
        """Return the stamp that the file of a rank must carry."""
        return Stamp(self.run, self.round, self.generation, self.step, self.world_size, rank)


def encode(manifest: Manifest) -> bytes:
    """Return the content of a manifest's file."""
    import json

    return json.dumps({"version": VERSION, **as_dict(manifest)}).encode()


def decode(content: bytes) -> Manifest:
    """Return the manifest in a file's content.

    Raises:
        ValueError: It is not one, or not whole.
    """
    import json

    try:
        found = json.loads(content)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(found, dict) or found.pop("version", None) != VERSION:
        raise ValueError(f"not a manifest of version {VERSION}")
    rows = found.pop("files", None)
    files = tuple(_file(row) for row in rows) if isinstance(rows, list) else ()
    run, round_, generation = (_number(found, name) for name in ("run", "round", "generation"))
    manifest = Manifest(run, round_, generation, _number(found, "step"), _number(found, "world_size"), files)
    if not files or [file.rank for file in files] != [*range(manifest.world_size)]:
        raise ValueError("a manifest has one file of every rank")
    return manifest


def _number(found: Mapping[str, object], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is not a number of a commit")
    return value


def _file(row: object) -> ShardFile:
    if not isinstance(row, dict):
        raise ValueError("a file of a manifest is an object")
    name, digest = row.get("name"), row.get("sha256")
    if not isinstance(name, str) or not isinstance(digest, str) or "/" in name or name.startswith("."):
        raise ValueError("a file of a manifest has a name and a sha256")
    return ShardFile(_number(row, "rank"), name, _number(row, "size_bytes"), digest)
