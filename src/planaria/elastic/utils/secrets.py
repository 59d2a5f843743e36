"""The secrets that programs with an agent inside find where `planaria run` finds them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from planaria.agent import credentials
from planaria.errors import UsageError

if TYPE_CHECKING:
    from planaria.agent.conf import Credentials


def credentials_here() -> Credentials:
    """Return the token and the passwords of this process' environment.

    Raises:
        ValueError: They cannot be used; the message says which.
    """
    try:
        return credentials.read(os.environ)
    except UsageError as problem:
        raise ValueError(str(problem)) from problem
