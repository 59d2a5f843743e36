"""Leases that run out early, for tests in which a node falls silent and the others go on without it.

By our own rule workers of a node with a TTL of 3 s are killed 1.3 s before the others go on, and only one with a TTL of more
than 10 s has 2 s. A processor may be away for that long. With TTL_S and `early()` the workers have 2 s to live, and whoever
kills them has 2.4 s.
"""

from __future__ import annotations

import os
from pathlib import Path

TTL_S = 4.0
_FOLDER = str(Path(__file__).with_name("early_fences"))


def early(paths: str = "") -> dict[str, str]:
    """Return the variables of a launcher whose leases run out early, with more paths for Python."""
    found = filter(None, [_FOLDER, paths or os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": os.pathsep.join(found)}
