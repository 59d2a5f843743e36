"""`planaria dashboard` as users start it: a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

from programs import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def dashboard(*flags: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A dashboard, and where its page is."""
    server = subprocess.Popen(
        [sys.executable, "-m", "planaria", "dashboard", "--port=0", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=clean_environment(**variables),
        text=True,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("planaria: dashboard at http://127.0.0.1:")
        yield server, line.split()[-1]
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
