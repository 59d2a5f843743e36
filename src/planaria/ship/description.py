"""The description of a job: one JSON file, written once when a job is submitted and read by every node. Pure.

It carries the hash of the code, so that the code cannot vouch for itself, and the arguments as a list: nothing on the way is
ever joined into a line that a shell reads.
"""

from __future__ import annotations

import json

from planaria.base.text import safe_line
from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.ship.source import Inside, Local, Stored, is_archive, is_digest, script_of, source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
LIMIT_BYTES = 4 << 20  # Linux takes 2 MiB of arguments for a process
LONGEST_NAME = 128
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_FIELDS = ("version", "job", "run", "source", "sha256", "script", "argv", "launch")


class Description(Value):
    """What a node runs: code, script and arguments, and the flags of `planaria run`."""

    job: str
    run: str
    source: str
    """`s3://BUCKET/KEY`, or a path in the container."""
    sha256: str | None = None
    """Of the object in S3; None for a path."""
    script: str | None = None
    """The script in the source, where that is an archive or a directory."""
    argv: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()


def encode(description: Description) -> bytes:
    """Return the file. Bytes that are no UTF-8 travel as lone surrogates, as Python's own `sys.argv` has them.

    Raises:
        UsageError: A field is not what `decode` would take.
    """
    fields: dict[str, object] = {"version": VERSION}
    for name in _FIELDS[1:]:
        value = getattr(description, name)
        fields[name] = list(value) if isinstance(value, tuple) else value
    _checked(fields)
    return json.dumps(fields, indent=2).encode() + b"\n"


def decode(content: bytes) -> Description:
    """Return the description in a file.

    Raises:
        UsageError: One sentence about the first field that is wrong.
    """
    if len(content) > LIMIT_BYTES:
        raise _wrong(f"it has {len(content):,} bytes, and at most {LIMIT_BYTES:,} are read")
    try:
        found = json.loads(content, object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        raise _wrong(f"it is no JSON: {safe_line(str(problem))}") from problem
    if not isinstance(found, dict):
        raise _wrong("it is no JSON object")
    return _checked(found)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is there twice")
    return found


def _checked(fields: dict[str, object]) -> Description:
    if fields.get("version") != VERSION or isinstance(fields.get("version"), bool):
        raise _wrong(
            f"its version is {_shown(fields.get('version'))}, and this planaria reads version {VERSION}",
            hint="the image and the tool that submitted the job have to be of the same release",
        )
    for name in fields:
        if name not in _FIELDS:
            raise _wrong(f"there is no field {quoted(name)}")
    for name in _FIELDS:
        if name not in fields:
            raise _wrong(f"the field {name} is missing")
    source = source_of(_text(fields, "source"), inside=True)
    return Description(
        job=_name(fields, "job"),
        run=_name(fields, "run"),
        source=source.path if isinstance(source, Inside) else source.url if isinstance(source, Stored) else "",
        sha256=_digest(fields["sha256"], isinstance(source, Stored)),
        script=_script(fields, source),
        argv=_words(fields, "argv", _is_word, "a string without NUL"),
        launch=_words(fields, "launch", _is_flag, "one flag in one word, such as --nnodes=2:4"),
    )


def _name(fields: dict[str, object], field: str) -> str:
    found = _text(fields, field)
    if len(found) > LONGEST_NAME or found[0] not in _LETTERS or not set(found) <= _LETTERS | set("._-"):
        raise _wrong(
            f"{field} is {_shown(found)}, and a name has letters, digits, '.', '_' and '-' and begins with a letter or digit"
        )
    return found


def _text(fields: dict[str, object], field: str) -> str:
    found = fields[field]
    if not isinstance(found, str) or not found or not _is_word(found):
        raise _wrong(f"{field} is {_shown(found)}, and not a string with something in it")
    return found


def _digest(found: object, is_stored: bool) -> str | None:
    if found is None:
        return None
    if not is_stored:
        raise _wrong(
            f"sha256 is {_shown(found)}, and the source is a path in the container, which has none: write null"
        )
    if not isinstance(found, str) or not is_digest(found):
        raise _wrong(f"sha256 is {_shown(found)}, and not 64 digits 0-9a-f")
    return found


def _script(fields: dict[str, object], source: Stored | Local | Inside) -> str | None:
    holds = is_archive(source.key if isinstance(source, Stored) else source.path)
    if fields["script"] is None:
        if holds:
            raise _wrong("script is null, and the source is an archive: which script in it?")
        return None
    if isinstance(source, Stored) and not holds:
        raise _wrong(f"script is {_shown(fields['script'])}, and the source is a script already: write null")
    return script_of(_text(fields, "script"), "the job's description is wrong: script")


def _words(fields: dict[str, object], field: str, fits: Callable[[str], bool], wanted: str) -> tuple[str, ...]:
    found = fields[field]
    if not isinstance(found, list):
        raise _wrong(f"{field} is {_shown(found)}, and not a list of strings")
    for place, word in enumerate(found):
        if not isinstance(word, str) or not fits(word):
            raise _wrong(f"{field}[{place}] is {_shown(word)}, and not {wanted}")
    return tuple(found)


def _is_word(text: str) -> bool:
    """Tell whether a process can have this as an argument."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


def _is_flag(text: str) -> bool:
    """Tell whether this is a flag and nothing that could pass for the script."""
    return _is_word(text) and len(text.lstrip("-")) > 0 and text.startswith("-")


def _shown(value: object) -> str:
    return safe_line(json.dumps(value), 100)


def _wrong(what: str, hint: str = "") -> UsageError:
    return UsageError(f"the job's description is wrong: {what}", hint=hint)
