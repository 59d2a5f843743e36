"""A file to send: a little of it at a time, so that many who save large files cost little memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

from planaria.base.value import Value

if TYPE_CHECKING:
    from planaria.observe.request import Reply

PART_BYTES = 64 << 10


class Parcel(Value):
    """An answer whose body is an open file, as long as that was when it was packed. Whoever has it closes it."""

    reply: Reply
    file: BinaryIO
    length: int


def packed(reply: Reply, file: BinaryIO) -> Parcel:
    """Return a file as the body of an answer. Raises OSError."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    return Parcel(reply, file, length)
