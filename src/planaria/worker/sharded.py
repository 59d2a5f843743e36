"""The training state of a sharded model, as `fully_shard` (FSDP2) makes it: on disk, readable in a world of any size.

    state = ShardedState("commits", model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, step=0)
    train_loop(state, step, commit_every=50)

Each rank writes what it has; torch.distributed.checkpoint decides who writes and who reads which part. See docs/state.md.
"""

from __future__ import annotations

import sys
from importlib import import_module

from planaria.base.value import Value
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Origin, Stamp, anew, checked_wait
from planaria.contract.control import CHECKPOINT
from planaria.errors import StateRefused
from planaria.worker import bundle, capture, exchange
from planaria.worker.bundle import Bundles
from planaria.worker.exchange import Group
from planaria.worker.given import check_names, check_sharded
from planaria.worker.link import LINK
from planaria.worker.outcome import Commit, Synced
from planaria.worker.phase import PhaseOfWork
from planaria.worker.restoration import Return
from planaria.worker.saving import Saving, copied, number_of
from planaria.worker.state import ElasticState
from planaria.worker.storage import Place, Reader, Writer
from planaria.worker.synced import log_synced
from planaria.worker.upload import Upload
from planaria.worker.vault import Loaded, LocalVault, check_tier, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from planaria.contract.commit import Tier
    from planaria.worker.bundle import Listed

_SHARDED = ("model", "optimizer")
_KNOWN: set[int] = set()  # folders, by number, that this process has restored from, or is writing to
_GROUPS = "optimizer"  # what of an optimizer is no tensor, among the plain values


class _Taken(Value):
    """What this rank writes of a commit, in memory of its own."""

    stamp: Stamp
    tensors: dict[str, Any]
    values: memoryview


class ShardedState(ElasticState):
    """An `ElasticState` whose model and optimizer may be sharded. It lives in `directory`, which all nodes share.

    `commit` copies the state and lets a thread write it; the next one waits for the one before. Every rank commits the same
    steps: it is a collective call. The newest `keep` commits stay.
    """

    def __init__(
        self,
        directory: str | Bundles,
        *,
        model: Any = None,
        optimizer: Any = None,
        keep: int = 2,
        **values: Any,
    ) -> None:
        check_names(values, ("vault", "replicated"))
        super().__init__(model=model, optimizer=optimizer, vault=LocalVault(Origin()), replicated=False, **values)
        check_sharded(model, optimizer)
        fields = vars(self)
        fields["_bundles"] = directory if isinstance(directory, Bundles) else Bundles(directory, keep)
        fields["_saving"] = Saving(number_of(self._bundles.directory))
        fields["_group"] = None
        fields["_life"] = 0
        fields["_no_life"] = ""
        fields["_highest"] = 0

    if TYPE_CHECKING:
        _bundles: Bundles
        _saving: Saving
        _group: Any
        _life: int
        _no_life: str
        _highest: int

    def commit(self, wait: Tier | None = None, timeout_s: float = 600.0) -> Commit:
        """Copy the state and have it written. With `wait`, whichever tier, it is on disk then, or a line says why not.

        All ranks make the commit, or none of them does.

        Raises:
            StateRefused: A value cannot be kept, here or on another rank, `wait` is no tier, or ranks commit different steps.
                Or another life uses the directory, so that no commit of this one counts.
        """
        self._begin_life()
        here = self._here()
        self._look_whether_restored(here)
        taken: _Taken | None = None
        problem: Exception | None = None
        try:
            # First: its thread talks in the group that ranks agree in below, and so all of them talk in the same order.
            self._saving.finish(None)
            check_tier(wait)
            timeout_s = checked_wait(timeout_s)
            taken = self._taken(here)
        except Exception as exc:  # noqa: BLE001  whatever it is, the others wait to hear of it; raised below
            problem = exc
        self._agree(here, taken.stamp if taken else None, problem)
        assert taken is not None
        stamp = taken.stamp
        vars(self).update(stamp=stamp, _highest=stamp.generation)
        self._saving.mark(stamp, is_done=False)
        if self._life:
            place = Place(stamp.generation, stamp.step, here.rank, here.world_size, self._life)
            self._saving.start(stamp, taken.tensors, Writer(self._bundles, place, taken.values), self._group)
        else:
            self._saving.tell(stamp, self._no_life)
        reached: Tier | None = None
        if wait is not None:
            with PhaseOfWork(LINK, CHECKPOINT):
                reached = "disk" if self._saving.finish(timeout_s) and self._life else None
        return Commit(stamp, len(taken.values) + _size_bytes(taken.tensors), reached)

    def _look_whether_restored(self, here: Group) -> None:
        """Tell, once a folder, of a program that has not gone back to what there is."""
        if self._life and self._saving.number not in _KNOWN:
            _KNOWN.add(self._saving.number)
            if self._highest and here.rank == 0:
                say(f"this program {anew('what its folder has')}")

    def _taken(self, here: Group) -> _Taken:
        """Copy everything there is to keep."""
        generation = self._highest + 1  # not that of the stamp: there may be newer ones, which are damaged
        stamp = Stamp(self._life, 0, generation, self._step(generation), here.world_size, here.rank)
        tensors, rest = self._split()
        captured = capture.Captured(rest)
        values = memoryview(bytearray(captured.layout.size_bytes))
        captured.copy_into(values)
        snapshots.seal(values, captured.layout, stamp)
        return _Taken(stamp, copied(tensors), values)

    def _agree(self, here: Group, stamp: Stamp | None, problem: Exception | None) -> None:
        """See that every rank makes this commit, and that it is the same one on all.

        A rank that did not would have the others wait, and its next commit taken for its part of this one.

        Raises:
            StateRefused: One rank does not, or it is not.
        """
        told = (self._highest + 1, stamp.step, 1) if stamp is not None else (self._highest + 1, 0, 0)
        found = [told] if here.world_size == 1 else exchange.gathered(here, told, self._group)
        vars(self)["_highest"] = max(generation for generation, *_ in found) - 1  # where ranks have counted differently
        if problem is not None:
            raise problem
        refusing = [rank for rank, (_, _, can) in enumerate(found) if not can]
        if refusing:
            raise StateRefused(
                f"rank {refusing[0]} cannot make this commit, so no rank does", hint="its own message says why"
            )
        other = next((rank for rank, one in enumerate(found) if one != told), None)
        if other is not None:
            raise StateRefused(
                f"rank {here.rank} makes commit {told[0]} of step {told[1]}, and rank {other} commit {found[other][0]} of step "
                f"{found[other][1]}, so neither is kept",
                hint="commit() is a collective call: every rank commits the same steps",
            )

    def restore(self) -> Stamp | None:
        """Go back to the newest commit whose files are all what they were; return which one it is, or None without one.

        With a process group of torch it is a collective call.

        Raises:
            StateRefused: There is a commit, and it is not one of this state.
        """
        self._begin_life()
        _KNOWN.add(self._saving.number)
        self._saving.finish(None)
        here = self._here()
        for name in self._names(here):
            listed = self._verified(name, here)
            if listed is not None:
                self._load(listed, here)
                stamp = Stamp(listed.life, 0, listed.generation, listed.step, here.world_size, here.rank)
                vars(self)["stamp"] = stamp
                self._mark_restored(listed.generation, listed.step, here)
                return stamp
        self._mark_restored(0, 0, here)  # nothing
        return None

    def _mark_restored(self, generation: int, step: int, here: Group) -> None:
        """Tell the agent what this life begins from, as a commit of its own: its next ones have higher numbers."""
        self._saving.mark(Stamp(self._life, 0, generation, step, here.world_size, here.rank), is_done=True)

    def sync(self) -> Synced:
        """Restore, all ranks together. At a first start every rank keeps what it has: seed all of them alike."""
        stamp = self.restore()
        here = self._here()
        log_synced(self, here.rank, here.rank)
        return Synced(stamp, here.rank)

    def settle(self, timeout_s: float = 600.0) -> bool:
        """Wait for the commit that is being written; tell whether it is on disk. Nobody ends the process group before."""
        return self._saving.finish(checked_wait(timeout_s))

    def _here(self) -> Group:
        dist: Any = sys.modules.get("torch.distributed")
        if dist and dist.is_available() and dist.is_initialized():
            return Group(dist.get_rank(), dist.get_world_size(), "cpu")
        return Group(0, 1, "cpu")

    def _begin_life(self) -> None:
        """Begin the life that this state's commits belong to, if it has none; it has its mark before commits are looked for.

        Also make the group that a thread may talk in while training talks in its own. Numbers of commits go on from the
        highest that is there. Where nothing can be written there is no life, and the next commit tries again.
        """
        if self._life:
            return
        dist: Any = sys.modules.get("torch.distributed")
        here = self._here()
        if self._group is None and dist and dist.is_available() and dist.is_initialized():
            vars(self)["_group"] = dist.new_group(backend="gloo")
        found = self._new_life() if here.rank == 0 else b""
        told = bytes(self._told(here, memoryview(bytearray(found))))
        life, highest = (int.from_bytes(told[at : at + 8], "big") for at in (0, 8))
        vars(self).update(_life=life, _highest=max(highest, self._highest), _no_life=told[16:].decode())

    def _new_life(self) -> bytes:
        """Return what rank 0 tells the others: the number of a new life, that of the newest commit, and why there is none."""
        life, problem = 0, ""
        try:
            life = self._bundles.begin()
        except OSError as exc:
            problem = str(exc)
        return b"".join(
            (life.to_bytes(8, "big"), self._bundles.highest().to_bytes(8, "big"), problem.encode(errors="replace"))
        )

    def _told(self, here: Group, sent: memoryview) -> memoryview:
        """Return what rank 0 has to say."""
        if here.world_size == 1:
            return sent
        return exchange.broadcast(here, 0, sent if here.rank == 0 else None, self._group)

    def _names(self, here: Group) -> list[str]:
        """Return the commits that rank 0 sees: folders that are shared over a network may look different elsewhere."""
        found = "\n".join(self._bundles.commits()).encode() if here.rank == 0 else b""
        return bytes(self._told(here, memoryview(bytearray(found or b"\n")))).decode().split()

    def _verified(self, name: str, here: Group) -> Listed | None:
        """Return a commit if its files are right. Each rank looks at some of them, and all go by what any rank finds."""
        is_bad, listed = False, None
        try:
            listed = self._bundles.read(name)
            self._bundles.verify(listed, listed.files[here.rank :: here.world_size])
        except (OSError, ValueError) as exc:
            is_bad = True
            say(f"passed over {name}: {str(exc) or repr(exc)}")
        if self._anywhere(here, is_bad):
            self._bundles.pass_over(name)
            return None
        return listed

    def _anywhere(self, here: Group, is_so: bool) -> bool:
        """Tell whether it is so on any rank."""
        return is_so if here.world_size == 1 else (1,) in exchange.gathered(here, (int(is_so),), self._group)

    def _split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tensors that ranks share out, by name, and everything else."""
        api = import_module("torch.distributed.checkpoint.state_dict")
        rest = {name: part for name, part in self._parts.items() if name not in _SHARDED}
        tensors: dict[str, Any] = {}
        model, optimizer = self._parts.get("model"), self._parts.get("optimizer")
        if model is not None:
            tensors |= {f"model/{key}": value for key, value in api.get_model_state_dict(model).items()}
        if optimizer is not None and optimizer.state:  # without a step there is none, and asking would make it
            found = api.get_optimizer_state_dict(model, optimizer)
            plain: dict[str, dict[str, object]] = {}
            for key, state in found["state"].items():
                for name, value in state.items():
                    if hasattr(value, "data_ptr"):
                        tensors[f"optimizer/{key}/{name}"] = value
                    else:
                        plain.setdefault(key, {})[name] = value
            rest[_GROUPS] = {"param_groups": found["param_groups"], "plain": plain}
        return tensors, rest

    def _load(self, listed: Listed, here: Group) -> None:
        saved = self._saved_values(listed, here)
        optimizer = self._parts.get("optimizer")
        api = import_module("torch.distributed.checkpoint.state_dict")
        if optimizer is not None and _GROUPS in saved and not optimizer.state:
            api.get_optimizer_state_dict(self._parts["model"], optimizer)  # makes it, to be overwritten
        tensors, rest = self._split()
        if _GROUPS not in saved:
            tensors = {key: value for key, value in tensors.items() if not key.startswith("optimizer/")}
            rest.pop(_GROUPS, None)
        upload = Upload(None, Loaded(None))  # these are the host's values
        for value in tensors.values():  # read below, and not to be written over by values that share them
            upload.claims.reserve(value.to_local() if hasattr(value, "to_local") else value, None)
        way = Return(saved, rest, upload)
        self._begin(way, listed, tensors, here)
        dcp = import_module("torch.distributed.checkpoint")
        planner = dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        reader = Reader(self._bundles, listed)
        dcp.load(
            tensors, storage_reader=reader, planner=planner, process_group=self._group, no_dist=self._group is None
        )
        way.finish()
        for line in way.differences:
            say(line)
        self._give_back(tensors, rest.pop(_GROUPS, None))
        self._parts.update(rest)

    def _begin(self, way: Return, listed: Listed, tensors: dict[str, Any], here: Group) -> None:
        """Do what may be refused, before any tensor is changed: all ranks go on, or none."""
        problem: StateRefused | None = None
        try:
            _check(listed, tensors)
            way.begin()
        except StateRefused as exc:
            problem = exc
        if self._anywhere(here, problem is not None):
            torn = way.undo()
            raise problem or StateRefused(
                f"another rank cannot take {listed.name}{torn}", hint="its own message says why"
            )

    def _saved_values(self, listed: Listed, here: Group) -> capture.Saved:
        """Return the plain values of a commit: this rank's own, or rank 0's without its random numbers."""
        rank = here.rank if here.rank < listed.world_size else 0
        with open(self._bundles.path(listed, bundle.values_name(rank)), "rb") as file:
            memory = memoryview(bytearray(file.read()))
        found = snapshots.read(memory)
        if found is None:
            raise StateRefused(f"{listed.name} has no values of rank {rank}")
        saved = capture.saved_parts(memory, found)
        return saved if rank == here.rank else capture.for_others(saved)

    def _give_back(self, tensors: dict[str, Any], groups: Any) -> None:
        api = import_module("torch.distributed.checkpoint.state_dict")
        model = self._parts.get("model")
        if model is not None:
            api.set_model_state_dict(model, _below("model/", tensors))
        if groups is None:
            return
        state: dict[str, dict[str, Any]] = {key: dict(plain) for key, plain in groups["plain"].items()}
        for key, value in _below("optimizer/", tensors).items():
            name, _, field = key.rpartition("/")
            state.setdefault(name, {})[field] = value
        found = {"state": state, "param_groups": groups["param_groups"]}
        api.set_optimizer_state_dict(model, self._parts["optimizer"], optim_state_dict=found)


def _size_bytes(tensors: dict[str, Any]) -> int:
    """Return how many bytes of these tensors this rank has."""
    here = [value.to_local() if hasattr(value, "to_local") else value for value in tensors.values()]
    return sum(value.numel() * value.element_size() for value in here)


def _below(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _check(listed: Listed, tensors: dict[str, Any]) -> None:
    """See that a commit has the tensors of this program, before any of them is changed."""
    hint = "was the commit made by another version of the program? choose another folder to begin anew"
    if tensors.keys() != listed.tensors.keys():
        only = sorted(tensors.keys() ^ listed.tensors.keys())
        where = "the commit" if only[0] in listed.tensors else "the program"
        raise StateRefused(
            f"{listed.name} has other tensors: {only[0]} is only in {where} ({len(only)} differ)", hint=hint
        )
    for key, value in tensors.items():
        kept = listed.tensors[key]
        form = str(value.dtype).removeprefix("torch."), [*value.shape]
        if form != (kept.dtype, kept.shape):
            raise StateRefused(
                f"{key} is {form[0]} {form[1]} here and {kept.dtype} {kept.shape} in {listed.name}", hint=hint
            )
