"""How torch.distributed.checkpoint writes into a bundle and reads from it: its planners decide who has what, this moves bytes.

torch's own storage pickles its metadata, and unpickles it when it reads. Here metadata is the bundle's manifest, and tensors
are raw bytes, so reading runs nothing. Methods and their order are those of torch's StorageWriter and StorageReader.
"""

from __future__ import annotations

import os
from importlib import import_module

from planaria.base.value import Value
from planaria.worker import bundle
from planaria.worker.bundle import Listed, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from planaria.contract.manifest import ShardFile
    from planaria.worker.bundle import Bundles, Chunk


class Place(Value):
    """Which commit is being written, and by which rank."""

    generation: int
    step: int
    rank: int
    world_size: int
    life: int


class Writer:
    """Writes one rank's part of a commit, `values` beside the tensors; the coordinator makes it a commit."""

    def __init__(self, bundles: Bundles, place: Place, values: memoryview) -> None:
        self._bundles = bundles
        self._place = place
        self._values = values
        self._draft = ""
        self._commit = place.life, place.generation, place.step  # every rank's part says which one it is of

    def is_there(self) -> bool:
        """Tell whether the commit is on disk, whole. The rank that gave it its name may not have lived to see to that."""
        return self._bundles.has(self._place.generation, self._place.life)

    def reset(self, checkpoint_id: object = None) -> None:
        """Begin; there is nothing to forget."""

    def storage_meta(self) -> None:
        """Return nothing: the manifest has it all."""

    def set_up_storage_writer(self, *_args: object, **_kwargs: object) -> None:
        """Make the draft's folder."""
        self._draft = self._bundles.draft(self._place.generation, self._place.life)

    def prepare_local_plan(self, plan: Any) -> Any:
        """Change nothing."""
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        """Change nothing."""
        return plans

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write this rank's two files; return where each chunk lies."""
        rank = self._place.rank
        places: list[tuple[Any, int, int]] = []
        tensors = self._bundles.write(self._draft, rank, bundle.tensors_name(rank), _pieces(plan, planner, places))
        values = self._bundles.write(self._draft, rank, bundle.values_name(rank), [self._values])
        result = import_module("torch.distributed.checkpoint.storage").WriteResult
        written = [result(index, size, (rank, start)) for index, start, size in places]
        index = import_module("torch.distributed.checkpoint.metadata").MetadataIndex("")
        files = result(index, 0, (self._commit, (tensors, values)))
        done = import_module("torch.futures").Future()
        done.set_result([*written, files])
        return done

    def finish(self, metadata: Any, results: Any) -> None:
        """Make the draft a commit; only the coordinator does.

        Raises:
            ValueError: Ranks have written parts of different commits. Nothing is made of them.
        """
        files: list[ShardFile] = []
        places: dict[tuple[str, tuple[int, ...]], tuple[int, int, int]] = {}
        for one in (one for of_rank in results for one in of_rank):
            if not one.index.fqn:
                commit, written = one.storage_data
                if commit != self._commit:
                    raise ValueError(
                        f"{written[0].name} is of step {commit[2]}, and this commit of step {self._commit[2]}"
                    )
                files += written
            else:
                places[one.index.fqn, tuple(one.index.offset or ())] = *one.storage_data, one.size_in_bytes
        tensors = {key: _tensor(key, found, places) for key, found in metadata.state_dict_metadata.items()}
        place = self._place
        name = bundle.commit_name(place.generation)
        listed = Listed(name, place.generation, place.step, place.world_size, tuple(files), tensors, place.life)
        self._bundles.finish(self._draft, listed)


def _pieces(plan: Any, planner: Any, places: list[tuple[Any, int, int]]) -> Iterator[memoryview]:
    """Yield the bytes of each chunk of a rank, and note where they go."""
    torch = import_module("torch")
    start = 0
    for item in plan.items:
        tensor = planner.resolve_data(item).detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        memory = memoryview(bytearray(tensor.numel()))
        if tensor.numel():
            torch.frombuffer(memory, dtype=torch.uint8).copy_(tensor)
        places.append((item.index, start, len(memory)))
        start += len(memory)
        yield memory


def _tensor(key: str, found: Any, places: dict[tuple[str, tuple[int, ...]], tuple[int, int, int]]) -> Tensor:
    chunks: list[Chunk] = [
        ([*chunk.offsets], [*chunk.sizes], *places[key, tuple(chunk.offsets)]) for chunk in found.chunks
    ]
    return Tensor(str(found.properties.dtype).removeprefix("torch."), [*found.size], chunks)


class Reader:
    """Reads a commit into the tensors of a program, whatever world it was written in."""

    def __init__(self, bundles: Bundles, listed: Listed) -> None:
        self._bundles = bundles
        self._listed = listed
        self._places: dict[Any, Chunk] = {}

    def reset(self, checkpoint_id: object = None) -> None:
        """Begin; there is nothing to forget."""

    def read_metadata(self, *_args: object, **_kwargs: object) -> Any:
        """Return the manifest in torch's words."""
        torch, words = import_module("torch"), import_module("torch.distributed.checkpoint.metadata")
        tensors = {}
        for key, tensor in self._listed.tensors.items():
            chunks = [
                words.ChunkStorageMetadata(torch.Size(place), torch.Size(sizes)) for place, sizes, *_ in tensor.chunks
            ]
            properties = words.TensorProperties(dtype=getattr(torch, tensor.dtype))
            tensors[key] = words.TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)
            self._places |= {words.MetadataIndex(key, chunk[0]): chunk for chunk in tensor.chunks}
        return words.Metadata(tensors, planner_data={}, storage_data={})

    def set_up_storage_reader(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing: this object knows its commit."""

    def prepare_local_plan(self, plan: Any) -> Any:
        """Change nothing."""
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        """Change nothing."""
        return plans

    def read_data(self, plan: Any, planner: Any) -> Any:
        """Copy each part that this rank wants into its place."""
        for item in plan.items:
            found = self._chunk(item)
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                found = found.narrow(dimension, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(found)
            planner.commit_tensor(item, target)
        done = import_module("torch.futures").Future()
        done.set_result(None)
        return done

    def _chunk(self, item: Any) -> Any:
        torch = import_module("torch")
        index = item.storage_index
        _, sizes, rank, start, length = self._places[index]
        dtype = getattr(torch, self._listed.tensors[index.fqn].dtype)
        if not length:
            return torch.empty(sizes, dtype=dtype)
        descriptor = os.open(self._bundles.path(self._listed, bundle.tensors_name(rank)), os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = bytearray(length)
            at = 0
            while at < length and (got := os.preadv(descriptor, [memoryview(content)[at:]], start + at)):
                at += got
        finally:
            os.close(descriptor)
        return torch.frombuffer(content, dtype=dtype).reshape(sizes)
