from __future__ import annotations

import pytest

from planaria.ship.refusals import is_denied, is_unknown


@pytest.mark.parametrize(
    ("code", "denied", "unknown"),
    [
        ("AccessDenied", True, False),
        ("AccessDeniedException", True, False),
        ("403", True, False),
        ("Forbidden", True, False),
        ("UnauthorizedOperation", True, False),
        ("ExpiredTokenException", False, True),
        ("RequestExpired", False, True),
        ("InvalidToken", False, True),
        ("TokenRefreshRequired", False, True),
        ("AuthFailure", False, True),
        ("NoSuchKey", False, False),
        ("", False, False),
    ],
)
def test_a_code_says_who_can_help(code: str, denied: bool, unknown: bool) -> None:
    assert (is_denied(code), is_unknown(code)) == (denied, unknown)
