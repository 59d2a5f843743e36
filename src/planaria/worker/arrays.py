"""Tensors and arrays of torch and NumPy as bytes in a snapshot, and back. The one file that knows how they lie in memory.

Neither library is imported before a value of it is there: whoever has a tensor has torch.
"""

from __future__ import annotations

import sys
from importlib import import_module

from planaria.contract.snapshot import BLOCK_BYTES, BLOCKS, CRC32, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from planaria.contract.snapshot import Layout, Snapshot
    from planaria.worker.claims import Claims

    Copy = Callable[[Any, Any], None]

DEVICES = ("cuda",)  # what is on one of these is copied beside the program, and digested there
TORCH, NUMPY, NUMPY_SCALAR = "torch", "numpy", "numpy scalar"
_NUMPY_KINDS = "biufcmMSU"  # what has no objects and no fields inside


class Arrays:
    """The tensors and arrays met in one walk through a state. One that is met twice, such as tied weights, is kept once."""

    def __init__(self, before: Arrays | None = None, sources: list[Any] | None = None) -> None:
        """Begin anew, or behind the first tensors of another walk, whose sources are `sources` now."""
        count = len(sources or ())
        self._first_rows: list[Tensor] = before.first_rows(count) if before else []  # shared, and never changed
        self._rows: list[Tensor] = []
        self.sources: list[Any] = sources or []
        self._numbers: dict[object, int] = {}
        self._first = before.first_numbers(count) if before else {}

    @property
    def tensors(self) -> list[Tensor]:
        """The rows of all tensors, without their places."""
        return [*self._first_rows, *self._rows]

    def first_rows(self, count: int) -> list[Tensor]:
        """Return the rows of the first tensors."""
        return self._first_rows if len(self._first_rows) == count else self.tensors[:count]

    def is_like(self, other: Arrays) -> bool:
        """Tell whether the rows are those of another walk. Rows that both share are not looked at."""
        if self._first_rows is other._first_rows:
            return self._rows == other._rows
        return self.tensors == other.tensors

    def first_numbers(self, count: int) -> dict[object, int]:
        """Return the numbers of the first tensors by what makes each the one it is."""
        if len(self._first) != count:
            known = self._first | self._numbers
            self._first = {identity: number for identity, number in known.items() if number < count}
        return self._first

    def number_of(self, value: Any) -> int | None:
        """Return the number of a tensor of torch that was met; None for another, and for one without bytes."""
        identity = _identity(value)
        return self._first.get(identity, self._numbers.get(identity))

    def keep(self, value: object, path: str) -> int | None:
        """Take in a tensor or array and return its number; None for anything else.

        Raises:
            ValueError: It is one whose bytes cannot be kept.
        """
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch and isinstance(value, torch.Tensor):
            return self._add(_torch_tensor(value, path), value, _identity(value))
        if numpy and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._add(_numpy_array(value, path), value, id(value))
        return None

    def _add(self, tensor: Tensor, source: object, identity: object) -> int:
        if identity in self._first:
            return self._first[identity]
        count = len(self._first_rows) + len(self._rows)
        number = self._numbers.setdefault(identity, count)
        if number == count:
            self._rows.append(tensor)
            self.sources.append(source)
        return number

    def copy(self, layout: Layout, buffer: memoryview, numbers: Iterable[int] | None = None) -> None:
        """Copy tensors, all or those with the numbers, to their places in `buffer`; what is on a device is waited for."""
        for number in range(len(layout.tensors)) if numbers is None else numbers:
            row = layout.tensors[number]
            if row.length:
                self._copy(row, self.sources[number], buffer[row.offset : row.offset + row.length])

    def taken(self, layout: Layout, numbers: Iterable[int]) -> list[tuple[int, memoryview]]:
        """Return copies of tensors, each with its place: for a buffer that is not there yet."""
        found = []
        for number in numbers:
            row = layout.tensors[number]
            if row.length:
                found.append((row.offset, memoryview(bytearray(row.length))))
                self._copy(row, self.sources[number], found[-1][1])
        return found

    def _copy(self, row: Tensor, source: Any, target: memoryview) -> None:
        (_copy_torch if row.kind == TORCH else _copy_numpy)(source, target)

    def let_go(self) -> None:
        """Forget the sources, which are copied: a program may want to let go of them."""
        self.sources = []


def is_on_device(value: Any) -> bool:
    """Tell whether a source is a tensor on a device."""
    return hasattr(value, "data_ptr") and value.device.type in DEVICES


def _identity(value: Any) -> object:
    """Return what two tensors share when they are one: the same bytes, read in the same way."""
    if not value.numel():
        return id(value)
    return (
        value.data_ptr(),
        str(value.device),
        value.dtype,
        tuple(value.shape),
        value.stride(),
        value.is_conj(),
        value.is_neg(),
    )


def _torch_tensor(value: Any, path: str) -> Tensor:
    torch = sys.modules["torch"]
    kind = type(value)
    if kind.__module__.startswith("torch.distributed") or hasattr(value, "_local_tensor"):
        raise ValueError(
            "it is sharded (a DTensor), and snapshots in memory take whole tensors; "
            "planaria.worker.ShardedState keeps it on disk"
        )
    if value.layout != torch.strided or value.is_quantized or value.is_nested or value.device.type == "meta":
        raise ValueError(f"it is a tensor without plain bytes ({value.layout}, {value.device}, {value.dtype})")
    if kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and hasattr(value, "__tensor_flatten__"):
        raise ValueError(f"it is a {kind.__qualname__}, a tensor made of other tensors")
    dtype = str(value.dtype).removeprefix("torch.")
    length = value.numel() * value.element_size()
    digest_kind = BLOCKS if length >= BLOCK_BYTES and value.device.type in DEVICES else CRC32
    return Tensor(path, TORCH, dtype, tuple(value.shape), length, digest_kind=digest_kind)


def _numpy_array(value: Any, path: str) -> Tensor:
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.ndarray) and type(value) is not numpy.ndarray:
        raise ValueError(f"it is a {type(value).__qualname__}, and arrays are kept as numpy.ndarray only")
    if value.dtype.kind not in _NUMPY_KINDS:
        raise ValueError(f"it is an array of {value.dtype}, which is not plain numbers, times or texts")
    kind = NUMPY if isinstance(value, numpy.ndarray) else NUMPY_SCALAR
    return Tensor(path, kind, value.dtype.str, tuple(value.shape), value.nbytes)


def _copy_torch(value: Any, target: memoryview) -> None:
    torch = sys.modules["torch"]
    whole = value.detach().resolve_conj().resolve_neg()
    copy_now(torch.frombuffer(target, dtype=torch.uint8).view(whole.dtype).reshape(whole.shape), whole)


def copy_now(target: Any, source: Any) -> None:
    """Copy one tensor into another of the same form."""
    if all(
        one.device.type == "cpu" and one.is_contiguous() and not one.is_conj() and not one.is_neg()
        for one in (target, source)
    ):
        # Three times as fast as torch's own copy on the two cores it was measured on, and other threads run meanwhile.
        from ctypes import memmove

        memmove(target.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
        return
    with sys.modules["torch"].no_grad():
        target.copy_(source)


def _copy_numpy(value: Any, target: memoryview) -> None:
    numpy = sys.modules["numpy"]
    numpy.frombuffer(target, dtype=value.dtype).reshape(value.shape)[...] = value


class Views:
    """The tensors of a snapshot as torch and NumPy see them. A view shows the snapshot's memory; a clone has its own."""

    def __init__(self, memory: memoryview, snapshot: Snapshot) -> None:
        self._memory = memory
        self._tensors = snapshot.tensors
        self.rows: dict[int, Tensor] = {}  # by the address of the view, of tensors of torch

    def view(self, number: int) -> Any:
        """Return the tensor or array with this number, to copy from.

        Raises:
            ValueError: There is none, or it is of a dtype that is not known here.
        """
        if number >= len(self._tensors):
            raise ValueError(f"there is no tensor {number} in the table")
        tensor = self._tensors[number]
        try:
            if tensor.kind == TORCH:
                found = _torch_view(tensor, self._memory)
                if tensor.length:
                    self.rows[found.data_ptr()] = tensor
                return found
            if tensor.kind in (NUMPY, NUMPY_SCALAR):
                return _numpy_view(tensor, self._memory[tensor.offset : tensor.offset + tensor.length])
        except (TypeError, RuntimeError, ValueError) as exc:
            raise ValueError(f"{tensor.name} cannot be read: {exc}") from exc
        raise ValueError(f"{tensor.name} is of a kind that is not known here: {tensor.kind[:20]!r}")


def _torch_view(tensor: Tensor, memory: memoryview) -> Any:
    torch: Any = sys.modules.get("torch") or import_module("torch")
    dtype = getattr(torch, tensor.dtype, None) if tensor.dtype.isidentifier() else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {tensor.dtype[:20]!r}")
    if not tensor.length:
        return torch.empty(tensor.shape, dtype=dtype)
    # One call and one view: a thousand of these are a good part of a restore.
    count = tensor.length // dtype.itemsize
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=tensor.offset).view(tensor.shape)


def _numpy_view(tensor: Tensor, memory: memoryview) -> Any:
    numpy = import_module("numpy")
    if not (2 < len(tensor.dtype) < 32 and tensor.dtype[0] in "<>|=" and tensor.dtype[1] in _NUMPY_KINDS):
        raise ValueError(f"NumPy has no dtype {tensor.dtype[:20]!r}")
    dtype = numpy.dtype(tensor.dtype)
    if not tensor.length:
        return numpy.empty(tensor.shape, dtype=dtype)
    found = numpy.frombuffer(memory, dtype=dtype).reshape(tensor.shape)
    return found[()].copy() if tensor.kind == NUMPY_SCALAR else found


def copied(found: Any) -> Any:
    """Return a tensor or array in memory of its own."""
    return found.clone() if hasattr(found, "clone") else found.copy()


def is_array(value: object) -> bool:
    """Tell whether a value is a tensor or an array that can be written into."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    return bool((torch and isinstance(value, torch.Tensor)) or (numpy and type(value) is numpy.ndarray))


def same_form(one: Any, other: Any) -> bool:
    """Tell whether two tensors or arrays have one library, dtype and shape."""
    is_torch = hasattr(one, "data_ptr"), hasattr(other, "data_ptr")
    return is_torch[0] == is_torch[1] and one.dtype == other.dtype and tuple(one.shape) == tuple(other.shape)


def same_bytes(one: Any, other: Any) -> bool:
    """Tell whether two tensors or arrays of a snapshot have the same form and the same bytes."""
    if not same_form(one, other):
        return False
    if not hasattr(one, "data_ptr"):
        return bool(one.tobytes() == other.tobytes())
    torch: Any = sys.modules["torch"]
    return torch.equal(*(found.reshape(-1).view(torch.uint8) for found in (one, other)))  # type: ignore[no-any-return]


def write_into(target: Any, source: Any, copy: Copy, claims: Claims | None = None) -> Any:
    """Return `target` with the content of `source` when it has the same form, else a copy of `source` on the same device.

    `copy` copies between tensors of torch; it may do so later. With `claims` only what is nobody else's is written to.
    """
    if not is_array(target):
        return copied(source)
    can_be_written = same_form(target, source) and is_writable(target)
    if not can_be_written or (claims is not None and not claims.take(target, source)):
        if not hasattr(target, "data_ptr") or not hasattr(source, "data_ptr") or target.is_cpu:
            return copied(source)
        torch: Any = sys.modules["torch"]
        target = torch.empty(source.shape, dtype=source.dtype, device=target.device)
    if hasattr(target, "data_ptr"):
        copy(target, source)
    else:
        target[...] = source
    return target


def is_writable(target: Any) -> bool:
    """Tell whether each element of a tensor or array is one of its own, to be written to."""
    if hasattr(target, "data_ptr"):
        return not (0 in target.stride() and target.numel() > 1)  # expanded: several of its elements are one
    return bool(target.flags.writeable)


def span(found: Any) -> tuple[str, int, int]:
    """Return where a tensor or array lies: in which memory, from which address up to which."""
    if hasattr(found, "data_ptr"):
        where, first = "cpu" if found.is_cpu else str(found.device), found.data_ptr()
        is_whole, item_bytes = found.is_contiguous(), found.element_size()
    else:
        where, first = "cpu", found.__array_interface__["data"][0]
        is_whole, item_bytes = found.flags.c_contiguous, found.itemsize
    if is_whole:  # most are, and a restore has thousands of them
        return where, first, first + found.nbytes
    steps = [step * item_bytes for step in found.stride()] if hasattr(found, "data_ptr") else found.strides
    ways = [(size - 1) * step for size, step in zip(found.shape, steps, strict=True)]
    return where, first + sum(way for way in ways if way < 0), first + sum(way for way in ways if way > 0) + item_bytes


def identity(found: Any) -> object:
    """Return what two tensors or arrays share when they are one: the same bytes, read in the same way."""
    if hasattr(found, "data_ptr"):
        return _identity(found)
    return found.__array_interface__["data"][0], "cpu", str(found.dtype), found.shape, found.strides
