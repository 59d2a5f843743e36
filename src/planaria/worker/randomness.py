"""The states of the random number generators of this process: Python's, NumPy's, torch's on the CPU and one GPU."""

from __future__ import annotations

import sys
from struct import pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def taken(gpu: Any = None) -> dict[str, Any]:
    """Return the state of every generator whose library has been loaded; of GPUs that of `gpu`, else of the current one.

    As the libraries give them, which is a copy that nobody else has: `states` makes of it what is kept, at any time.
    """
    import random  # noqa: TID251  its global state is what user code draws from

    found: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy:
        found["numpy"] = numpy.random.get_state(legacy=False)
    if torch:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state(gpu or "cuda")
    return found


def is_usual(found: Mapping[str, Any]) -> bool:
    """Tell whether `states` will be without arrays: NumPy's generator is not one that a program has chosen."""
    return "numpy" not in found or found["numpy"]["bit_generator"] == _USUAL


def states(found: Mapping[str, Any]) -> dict[str, object]:
    """Return what was taken as plain data."""
    made: dict[str, object] = {}
    if "python" in found:
        version, words, gauss = found["python"]
        made["python"] = version, pack(f"<{len(words)}I", *words), gauss
    if "numpy" in found:
        made["numpy"] = _numpy_state(found["numpy"])
    return made | {name: _bytes(found[name]) for name in ("torch", "cuda") if name in found}


_USUAL = "MT19937"


def _numpy_state(state: dict[str, Any]) -> object:
    """Return the state of NumPy's usual generator as plain data; that of another one, which a program may choose, as it is."""
    if state["bit_generator"] != _USUAL:
        return state
    inside = state["state"]
    return state["bit_generator"], inside["key"].tobytes(), int(inside["pos"]), state["has_gauss"], state["gauss"]


def _bytes(tensor: Any) -> bytes:
    """Return a generator's state as plain data: a commit at every step has no time for tensors of its own beside those."""
    from ctypes import string_at

    return string_at(tensor.data_ptr(), tensor.numel())


def _tensor(torch: Any, content: bytes) -> Any:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def set_states(found: Mapping[str, Any], gpu: Any = None) -> None:
    """Continue each sequence where the snapshot left it; a library that is not loaded here draws nothing, and is left alone."""
    import random  # noqa: TID251  as above

    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if "python" in found:
        version, words, gauss = found["python"]
        random.setstate((version, unpack(f"<{len(words) // 4}I", words), gauss))
    if numpy and isinstance(found.get("numpy"), dict):
        numpy.random.set_state(found["numpy"])
    elif numpy and "numpy" in found:
        name, keys, *rest = found["numpy"]
        numpy.random.set_state((name, numpy.frombuffer(keys, numpy.uint32), *rest))
    if torch and "torch" in found:
        torch.set_rng_state(_tensor(torch, found["torch"]))
    if torch and "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(_tensor(torch, found["cuda"]), gpu or "cuda")
