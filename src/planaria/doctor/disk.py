"""Folders that a job writes to: there, writable, with room, and quick. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, size, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.doctor.model import Finding

MIB = 1 << 20
LEAST_BYTES = 64 * MIB  # a traceback, a log and a socket fit; a commit does not
FEW_BYTES = 1024 * MIB
FEWEST_INODES = 100
SLOW_S = 1.0  # for a mebibyte, on its way to the disk
IN_MEMORY = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "fuse.sshfs")
SNAPSHOTS = "--snapshot-dir"
TEMPORARY = "TMPDIR"


class Folder(Value):
    """A folder by what it is for. `checked` is the one that is there: itself, or the nearest above it.

    `problem` is why nothing can be written; `total_inodes` 0: the file system counts none; `wrote_s`: for a mebibyte.
    """

    role: str
    path: str
    checked: str
    problem: str = ""
    free_bytes: int = 0
    total_bytes: int = 0
    free_inodes: int = 0
    total_inodes: int = 0
    kind: str = ""
    wrote_s: float = 0.0


def check_disk(folders: tuple[Folder, ...]) -> list[Finding]:
    """Judge every folder."""
    return [finding for folder in folders for finding in _folder(folder)]


def _folder(folder: Folder) -> list[Finding]:
    room = [_space(folder), _inodes(folder)]
    if folder.problem:
        is_full = [one for one in room if one.verdict == "fail"]
        return is_full or [_not_writable(folder)]
    written = ok("disk.writable", f"{folder.role} {folder.path} can be written to")
    return [written, *room, _speed(folder), _kind(folder)]


def _not_writable(folder: Folder) -> Finding:
    at = "" if folder.checked == folder.path else f" (looked at {folder.checked}, the part of it that is there)"
    remedy = f"choose another folder for {folder.role}, or: chown, chmod"
    if "read-only" in folder.problem.lower():
        remedy = (
            f"mount it for writing (mount -o remount,rw), or choose another folder for {folder.role}; look in dmesg"
        )
    return fail("disk.writable", f"{folder.role} {folder.path} cannot be written to: {folder.problem}{at}", remedy)


def _space(folder: Folder) -> Finding:
    told = f"{folder.role} {folder.path} has {size(folder.free_bytes)} free"
    remedy = f"remove what is not needed there (du -xsh {folder.checked}/*), or choose another folder for {folder.role}"
    if folder.free_bytes < LEAST_BYTES:
        return fail("disk.space", told, remedy)
    if folder.free_bytes < FEW_BYTES:
        return warn("disk.space", told, remedy)
    return ok("disk.space", told)


def _inodes(folder: Folder) -> Finding:
    told = f"{folder.role} {folder.path} has room for {folder.free_inodes} more files"
    if not folder.total_inodes:
        return ok("disk.inodes", f"{folder.role} {folder.path} has room for any number of files")
    remedy = "remove old files there: `df -i` shows it, and small files are often left in caches"
    if folder.free_inodes < FEWEST_INODES:
        return fail("disk.inodes", told, remedy)
    if folder.free_inodes < folder.total_inodes // 100:
        return warn("disk.inodes", told, remedy)
    return ok("disk.inodes", told)


def _speed(folder: Folder) -> Finding:
    told = f"writing a mebibyte to {folder.role} {folder.path} took {folder.wrote_s:.2f} s"
    if folder.wrote_s > SLOW_S:
        return warn("disk.speed", told, f"choose a faster disk for {folder.role}; others may be busy with this one")
    return ok("disk.speed", told)


def _kind(folder: Folder) -> Finding:
    if folder.role == SNAPSHOTS and folder.kind in IN_MEMORY:
        return warn(
            "disk.kind",
            f"{folder.role} {folder.path} is in memory ({folder.kind}): commits there do not outlive this machine",
            "choose a folder on a disk, best one that all nodes share",
        )
    if folder.role == TEMPORARY and folder.kind in REMOTE:
        return warn(
            "disk.kind",
            f"{folder.role} {folder.path} is on another machine ({folder.kind}): sockets and pipes may not work there",
            "set TMPDIR to a folder on a disk of this machine",
        )
    return ok("disk.kind", f"{folder.role} {folder.path} is on {folder.kind or 'an unknown file system'}")
