"""How large code may be, for those who pack it and those who unpack it: what the one takes, the other takes. Pure."""

from __future__ import annotations

from planaria.base.value import Value

MIB = 1 << 20


class Limits(Value):
    """At most this much. Code is small; data belongs on a volume or in S3, where it is not copied to every node."""

    total_bytes: int = 2048 * MIB
    members: int = 100_000
    ratio: int = 200
    """How many times larger than the archive its content may be. Text shrinks 3 to 20 times, zeros a thousand times."""
    ratio_free_bytes: int = 64 * MIB
    """Up to this size nobody asks about the ratio: a small file of zeros is no attack."""

    def excess(self, members: int, content_bytes: int, packed_bytes: int) -> str:
        """Return what is too much, as the end of a sentence; an empty text when all is well."""
        if members > self.members:
            return f"more than {self.members:,} files and directories"
        if content_bytes > self.total_bytes:
            return f"more than {mib(self.total_bytes)} of content"
        if content_bytes > self.ratio_free_bytes and content_bytes > self.ratio * max(packed_bytes, 1):
            return f"{mib(content_bytes)} of content out of {mib(packed_bytes)}, more than {self.ratio} times as much"
        return ""


PACKED = Limits(total_bytes=256 * MIB)
"""What is packed on a laptop."""
UNPACKED = Limits()
"""What a node unpacks."""


def mib(size_bytes: int) -> str:
    """Return a size as people read it."""
    return f"{size_bytes / MIB:,.1f} MiB" if size_bytes >= MIB // 10 else f"{size_bytes:,} bytes"
