"""What did the user name? A file or directory here, an object in S3, or a path in the container. Pure: nothing is looked at."""

from __future__ import annotations

import posixpath

from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

S3 = "s3://"
ARCHIVES = (".tar.gz", ".tgz", ".tar")
_OTHER_ARCHIVES = (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tar.lz4", ".zip", ".7z", ".rar")
_BUCKET_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")  # old buckets have `_`
_HEX = frozenset("0123456789abcdef")
_KEY_BYTES = 1024  # S3's own limit
_NAME_BYTES = 255  # that of a file on a node's disk


class Stored(Value):
    """An object in S3: a script, or an archive that holds one."""

    bucket: str
    key: str

    @property
    def url(self) -> str:
        """Return it as the user writes it."""
        return f"{S3}{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        """Return the last part of the key, which the file on the node is called by."""
        return posixpath.basename(self.key)

    @property
    def is_archive(self) -> bool:
        """Tell whether it is unpacked and holds the script, or is the script itself."""
        return is_archive(self.key)


class Local(Value):
    """A file or directory on the machine where the user types."""

    path: str


class Inside(Value):
    """A file or directory in the container; nothing is uploaded."""

    path: str


def is_digest(text: str) -> bool:
    """Tell whether this is a SHA-256 as `sha256sum` prints it."""
    return len(text) == 64 and set(text) <= _HEX


def is_archive(name: str) -> bool:
    """Tell by a name whether it is an archive that we unpack."""
    return name.lower().endswith(ARCHIVES)


def source_of(text: str, *, inside: bool = False) -> Stored | Local | Inside:
    """Return what `text` names; with `inside` a path is one in the container.

    Raises:
        UsageError: It names nothing we can fetch.
    """
    if text.startswith(S3):
        return _stored(text)
    if not text or "\0" in text:
        raise UsageError(
            f"the source {quoted(text)} is no path",
            hint="name a script, a directory or s3://BUCKET/KEY",
        )
    scheme, found, _ = text.partition("://")
    if found and scheme.replace("+", "").replace("-", "").isalnum():
        raise UsageError(
            f"the source {quoted(text)} cannot be fetched: {scheme}:// is not supported",
            hint="name a script, a directory or s3://BUCKET/KEY; for a path that looks like this, put ./ before it",
        )
    return Inside(text) if inside else Local(text)


def _stored(text: str) -> Stored:
    bucket, _, key = text.removeprefix(S3).partition("/")
    shown = quoted(text)
    if not bucket or not key or not set(bucket) <= _BUCKET_LETTERS:
        raise UsageError(
            f"the source {shown} is no object in S3", hint="write s3://BUCKET/KEY, such as s3://my-bucket/train.py"
        )
    if posixpath.basename(key) in ("", ".", ".."):
        raise UsageError(
            f"the source {shown} names no file: its key ends in {quoted(key[-1:])}",
            hint="a directory in S3 cannot be fetched; pack it as .tar.gz",
        )
    if not _is_text(key) or len(key.encode()) > _KEY_BYTES:
        raise UsageError(
            f"the source {shown} has an impossible key",
            hint=f"S3 takes {_KEY_BYTES} bytes of UTF-8, without NUL",
        )
    check_kind(text)
    found = Stored(bucket, key)
    if not found.is_archive and len(found.name.encode()) > _NAME_BYTES:
        raise UsageError(
            f"the source {shown} has a name of {len(found.name.encode())} bytes, and a disk takes {_NAME_BYTES}",
            hint="copy it to a key whose last part is shorter",
        )
    return found


def check_kind(text: str) -> None:
    """Refuse the name of a file that no node could unpack.

    Raises:
        UsageError: It is an archive of another kind than ours.
    """
    if text.lower().endswith(_OTHER_ARCHIVES):
        raise UsageError(
            f"the source {quoted(text)} is an archive of another kind", hint="pack it as .tar.gz, .tgz or .tar"
        )


def _is_text(key: str) -> bool:
    try:
        return b"\0" not in key.encode()
    except UnicodeEncodeError:
        return False


def script_of(script: str, where: str = "the script") -> str:
    """Return the path of a script inside a directory or archive, in its shortest form; `where` begins the message.

    Raises:
        UsageError: It is not below that directory.
    """
    parts = [part for part in script.split("/") if part not in ("", ".")]
    if not parts or script.endswith("/") or script.startswith("/") or ".." in parts or "\0" in script:
        raise UsageError(
            f"{where} {quoted(script)} is no path of a file below the directory",
            hint="it is relative to the directory or archive before it, without .., such as train.py",
        )
    return "/".join(parts)


def split_words(
    source: Stored | Local | Inside, is_directory: bool, words: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return script and arguments of `SOURCE [SCRIPT] args...`: a directory or archive is followed by the script in it.

    Raises:
        UsageError: The script is missing, or is not below the directory.
    """
    holds = is_directory or (source.is_archive if isinstance(source, Stored) else is_archive(source.path))
    if not holds:
        return None, tuple(words)
    shown = quoted(source.url if isinstance(source, Stored) else source.path)
    if not words:
        what = "a directory" if is_directory else "an archive"
        raise UsageError(f"{shown} is {what}: which script in it?", hint=f"write the script after it: {shown} train.py")
    return script_of(words[0]), tuple(words[1:])


def check_script(source: Stored | Local | Inside, is_directory: bool | None, script: str | None) -> str | None:
    """Return the script that was named beside a source, in its shortest form; None where the source is the script itself.

    `is_directory` is None where nobody can look, as with a path in a container.

    Raises:
        UsageError: A script is missing or is one too many.
    """
    if is_directory is None and script is not None:
        return script_of(script)
    found, rest = split_words(source, bool(is_directory), () if script is None else (script,))
    if rest:
        shown = quoted(source.url if isinstance(source, Stored) else source.path)
        raise UsageError(
            f"{shown} is a script already, and {quoted(rest[0])} is one too many",
            hint="arguments of the script come after --",
        )
    return found
