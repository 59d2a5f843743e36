"""Cut a worker's bytes into whole lines for the console. Pure: the same stream gives the same lines however it is cut.

Works on chunks, not on lines: 64 workers that print 1,000 lines a second must cost the launcher little.
"""

from __future__ import annotations

import os

LONGEST_LINE = 1 << 20
"""A longer line is shown in pieces of this many bytes, so that a worker that never ends its line costs no memory."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"


class LineCutter:
    r"""Hold back what is not a whole line yet.

    `\n`, `\r\n` and a lone `\r` (a progress bar that redraws itself) all end a line, and come out as `\n`.
    """

    __slots__ = ("_after_cr", "_held", "_longest")

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._held = bytearray()
        self._after_cr = False

    def feed(self, data: bytes) -> bytes:
        r"""Return the lines that are whole now, each ending in `\n`; often none."""
        if not data:
            return b""
        data = self._with_plain_ends(data)
        cut = data.rfind(b"\n") + 1
        lines = b""
        if cut:
            lines = bytes(self._held) + data[:cut] if self._held else data[:cut]
            self._held.clear()
            if len(lines) > self._longest:
                lines = b"".join(self._folded(line) for line in lines[:-1].split(b"\n"))
        self._held += data[cut:]
        if len(self._held) > self._longest:
            lines += self._overflow()
        return lines

    def end(self) -> bytes:
        """Return the last line if its end never came."""
        rest = bytes(self._held)
        self._held.clear()
        return rest + b"\n" if rest else b""

    def _with_plain_ends(self, data: bytes) -> bytes:
        # The `\r` that ended the chunk before was shown as a line end at once: its `\n`, if any, is not a second one.
        skip = 1 if self._after_cr and data.startswith(b"\n") else 0
        self._after_cr = data.endswith(b"\r")
        if skip:
            data = data[1:]
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _folded(self, line: bytes) -> bytes:
        size = self._longest
        return b"".join(line[at : at + size] + b"\n" for at in range(0, max(len(line), 1), size))

    def _overflow(self) -> bytes:
        """Return the full pieces of a line that is too long already; at least one byte of it stays held."""
        size = (len(self._held) - 1) // self._longest * self._longest
        pieces = self._folded(bytes(self._held[:size]))
        del self._held[:size]
        return pieces


def prefixed(prefix: bytes, lines: bytes) -> bytes:
    """Put `prefix` before each of some whole lines."""
    return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n" if lines else b""


def matching(filters: tuple[bytes, ...], lines: bytes) -> bytes:
    """Return those of some whole lines that contain any of the filters."""
    return b"".join(line + b"\n" for line in lines[:-1].split(b"\n") if any(word in line for word in filters))


def line_prefix(template: str | None, *, role: str, local_rank: int, rank: int) -> bytes:
    """Return what stands before each line of a worker: `[role0]:`, or the user's template filled in."""
    if template is None:
        return os.fsencode(f"[{role}{local_rank}]:")
    return os.fsencode(fill(template, {"role_name": role, "local_rank": str(local_rank), "rank": str(rank)}))


def fill(template: str, values: dict[str, str]) -> str:
    """Replace `$name` and `${name}`, and `$$` by one dollar; leave alone what is unknown or makes no sense.

    The meaning of `string.Template.safe_substitute`, which costs 10 ms to import.
    """
    parts: list[str] = []
    at = 0
    while (dollar := template.find("$", at)) >= 0:
        parts.append(template[at:dollar])
        at = dollar + 1
        if template.startswith("$", at):
            parts.append("$")
            at += 1
            continue
        braced = template.startswith("{", at)
        start = end = at + braced
        while end < len(template) and (template[end] in _LETTERS or (end > start and template[end] in "0123456789")):
            end += 1
        name = template[start:end]
        if name in values and (not braced or template.startswith("}", end)):
            parts.append(values[name])
            at = end + braced
        else:
            parts.append("$")
    return "".join(parts) + template[at:]
