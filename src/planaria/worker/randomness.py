"""The states of the random number generators of this process: Python's, NumPy's, torch's on the CPU and the current GPU."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def states() -> dict[str, object]:
    """Return the state of every generator whose library has been loaded."""
    import random  # noqa: TID251  its global state is what user code draws from

    found: dict[str, object] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy:
        found["numpy"] = numpy.random.get_state()
    if torch:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state()
    return found


def set_states(found: Mapping[str, Any]) -> None:
    """Continue each sequence where the snapshot left it; a library that is not loaded here draws nothing, and is left alone."""
    import random  # noqa: TID251  as above

    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if "python" in found:
        random.setstate(found["python"])
    if numpy and "numpy" in found:
        numpy.random.set_state(found["numpy"])
    if torch and "torch" in found:
        torch.set_rng_state(found["torch"])
    if torch and "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
