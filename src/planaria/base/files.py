"""Files written whole or not at all, and folders removed whole, without `shutil` and `tempfile` (14-19 ms to import)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


LONGEST_SOCKET_FOLDER = 70  # a UNIX socket's path has 107 bytes, and ours adds a folder and a name


def random_name() -> str:
    """Return eight characters nobody else has."""
    return os.urandom(4).hex()


def private_path(temp_dir: str | None) -> str:
    """Name a folder for a run's private things: control socket and error files. Whoever uses it makes and removes it.

    It is in `temp_dir` unless that cannot be: a UNIX socket's path is short.
    """
    parent = os.path.abspath(temp_dir) if temp_dir else ""
    if not parent or len(parent.encode()) > LONGEST_SOCKET_FOLDER or not os.access(parent, os.W_OK | os.X_OK):
        parent = "/tmp"  # noqa: S108  the folder below has a random name and belongs to us alone
    return os.path.join(parent, f"planaria-{random_name()}{random_name()}")


def write_atomically(path: str, content: bytes, *, sync: bool = True) -> None:
    """Replace `path` by a file with `content`; readers see the old one or the whole new one, also after a crash.

    Without `sync` a power cut may leave an empty one, and no disk is waited for.
    A link is followed; a device, a pipe and whatever `/dev/stdout` stands for are written to, never replaced.
    """
    if os.path.exists(path) and (not os.path.isfile(path) or _stands_for_a_stream(path)):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            os.set_blocking(descriptor, True)
            write_all(descriptor, content)
        finally:
            os.close(descriptor)
        return
    path = os.path.realpath(path)
    draft = f"{path}.{random_name()}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            write_all(descriptor, content)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise


def _stands_for_a_stream(path: str) -> bool:
    """Tell whether a path leads through /dev or /proc, as `/dev/stdout` and links to it do."""
    for _ in range(40):  # as many links as the kernel follows
        path = os.path.abspath(path)
        if path.startswith(("/dev/", "/proc/")):
            return True
        if not os.path.islink(path):
            return False
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return False


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write until everything is written."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def tell(descriptor: int, text: str) -> None:
    """Write a text for people. Where nobody listens it is lost, and that is no error: the exit status still tells."""
    try:
        write_all(descriptor, text.encode("utf-8", "backslashreplace"))
    except OSError:
        return


def remove_tree(path: str) -> None:
    """Remove a folder of ours and all in it; links are removed, not followed. What is gone already is fine."""
    empty_folder(path)
    _quietly(os.rmdir, path)


def empty_folder(path: str) -> None:
    """Remove all in a folder of ours, likewise."""
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            _quietly(os.unlink, entry.path)


def _quietly(action: Callable[[str], None], path: str) -> None:
    try:
        action(path)
    except OSError:
        return
