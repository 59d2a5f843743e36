"""Import the modules of `bench/`: they find each other where they lie, and tests have others under the same names."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"
_NAMES = {"gpu", "compare", "harness", "rows"}


def load(*names: str) -> list[Any]:
    """Return these modules, and leave nobody else with them."""
    taken = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in _NAMES}
    sys.path.insert(0, str(BENCH))
    try:
        return [import_module(name) for name in names]
    finally:
        sys.path.remove(str(BENCH))
        for name in [name for name in sys.modules if name.partition(".")[0] in _NAMES]:
            del sys.modules[name]
        sys.modules.update(taken)
