"""HMAC-SHA256 (RFC 2104) with the key worked in once, on the bare C hash: `hashlib` costs 8 ms to import, this 0.3."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _hashlib import HASH
    from hashlib import sha256
else:
    # Not `_hashlib`: it halves the 0.9 us of a small message and takes 2.3 ms to load, which most nodes never earn back.
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # a build that leaves all hashes to OpenSSL
            from hashlib import sha256

_BLOCK_BYTES = 64
_MUCH_BYTES = 1 << 15  # from here on OpenSSL's hash, five times as fast, has paid for its import after a few messages
_INNER = bytes(number ^ 0x36 for number in range(256))
_OUTER = bytes(number ^ 0x5C for number in range(256))


class Mac:
    """Makes 32-byte codes that only holders of `key` can make."""

    __slots__ = ("_block", "_fast", "_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK_BYTES:
            key = sha256(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._block = block
        self._fast: HASH | None = None
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def code(self, head: bytes, body: bytes | memoryview = b"") -> bytes:
        """Return the code of `head` and `body` in one piece."""
        inner = (self._inner if len(body) < _MUCH_BYTES else self._fast or self._hurry()).copy()
        inner.update(head)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def _hurry(self) -> HASH:
        import hashlib

        self._fast = hashlib.sha256(self._block.translate(_INNER))
        return self._fast
