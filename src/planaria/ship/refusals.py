"""What the codes of AWS's refusals mean. Pure. Services have words of their own for the same, and some add `Exception`."""

from __future__ import annotations

MISSING_OBJECT = frozenset({"404", "NoSuchKey", "NotFound"})
_DENIED = ("403", "AccessDenied", "Forbidden", "UnauthorizedOperation", "AuthorizationError")
_UNKNOWN = (
    "AuthFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "InvalidToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
)


def is_denied(code: str) -> bool:
    """Tell whether somebody lacks a permission."""
    return code.startswith(_DENIED)


def is_unknown(code: str) -> bool:
    """Tell whether AWS does not know these credentials, or no more."""
    return code.startswith(_UNKNOWN)
