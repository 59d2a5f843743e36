"""What an archive may put where. Pure: names in, places out, or a refusal.

Links are held back until everything else is there, so nothing is ever written through one; then all of them are followed on
paper, each through the others, and none may leave the folder. A name is there once, and nothing lies below a file or a link.
"""

from __future__ import annotations

from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import CodeRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal["file", "directory", "link", "hard link", "device", "fifo", "member of an unknown kind"]

LONGEST_PATH = 1000  # bytes; Linux takes 4096 for the whole path, and the folder before it is short
MOST_LINKS = 40  # as many as the kernel follows in one path


class Member(Value):
    """One member of an archive. The target is that of a link or hard link."""

    name: str
    kind: Kind
    target: str = ""


class Tree:
    """Everything that an archive has put somewhere so far."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}
        self._links: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def place(self, member: Member) -> str | None:
        """Return the path that a member is made at, relative to the folder; None when there is nothing to make now.

        Raises:
            CodeRefused: It must not be made.
        """
        if member.kind not in ("file", "directory", "link", "hard link"):
            raise _refused(member.name, f"is a {member.kind}")
        path = path_of(member.name)
        if not path:
            if member.kind != "directory":
                raise _refused(member.name, f"is the folder itself, as a {member.kind}")
            return None
        self._make_parents(member.name, path)
        there = self._kinds.get(path)
        if there == "directory" and member.kind == "directory":
            return None
        if there is not None:
            raise _refused(member.name, f"is in it twice, as a {there} and as a {member.kind}")
        self._kinds[path] = "file" if member.kind == "hard link" else member.kind
        if member.kind == "link":
            self._links[path] = member.target
            return None
        return path

    def original(self, member: Member) -> str:
        """Return the path of the file that a hard link is another name of.

        Raises:
            CodeRefused: There is none before it in the archive.
        """
        path = path_of(member.target)
        if self._kinds.get(path) != "file" or path == path_of(member.name):
            raise _refused(member.name, f"is a hard link to {quoted(member.target)}, which is no file before it")
        return path

    def links(self) -> tuple[tuple[str, str], ...]:
        """Return path and target of every link, once the archive is read.

        Raises:
            CodeRefused: One of them leads out of the folder.
        """
        for path, target in self._links.items():
            if leads_out(path, self._links):
                raise _refused(path, f"is a link to {quoted(target)}, out of the folder")
        return tuple(self._links.items())

    def _make_parents(self, name: str, path: str) -> None:
        at = path.find("/")
        while at >= 0:
            kind = self._kinds.setdefault(path[:at], "directory")
            if kind != "directory":
                raise _refused(name, f"lies below {quoted(path[:at])}, which is a {kind}")
            at = path.find("/", at + 1)


def path_of(name: str) -> str:
    """Return a member's path in its shortest form; empty for the folder itself.

    Raises:
        CodeRefused: It is absolute, leads upwards, or no file can be called so.
    """
    if name.startswith("/"):
        raise _refused(name, "has an absolute name")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(name, "has a name that leads upwards")
    path = "/".join(parts)
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _refused(name, "has a name that no file can have") from None
    if b"\0" in raw or len(raw) > LONGEST_PATH or any(len(part) > 255 for part in raw.split(b"/")):
        raise _refused(name, "has a name that no file can have")
    return path


def leads_out(path: str, links: dict[str, str]) -> bool:
    """Tell whether the link at `path` leads out of the folder, directly or through other links."""
    at = path.split("/")[:-1]
    ahead = _steps(links[path])
    followed = 0
    while ahead is not None and ahead and followed < MOST_LINKS:
        step = ahead.pop()
        if step == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(step)
        further = links.get("/".join(at))
        if further is not None:
            followed += 1
            at.pop()
            more = _steps(further)
            if more is None:
                return True
            ahead += more
    return ahead is None


def _steps(target: str) -> list[str] | None:
    """Return the steps of a link's target, the first one last; None when it is absolute or none at all."""
    if target.startswith("/") or not target or "\0" in target:
        return None
    return [part for part in reversed(target.split("/")) if part not in ("", ".")]


def _refused(name: str, what: str) -> CodeRefused:
    return CodeRefused(f"the archive is refused: {quoted(name)} {what}")
