"""The training state that survives: committed between steps, restored after any kind of death.

    state = ElasticState(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, epoch=0, step=0)
    state.sync()
    for batch in batches:
        train(batch)
        state.step += 1
        state.commit()

`docs/state.md` says what is kept and what a commit promises.
"""

from __future__ import annotations

import functools

from planaria.contract import snapshot as snapshots
from planaria.contract.commit import TIERS, checked_wait
from planaria.contract.control import CHECKPOINT
from planaria.errors import StateRefused
from planaria.worker import capture, exchange, parts, randomness, restoration
from planaria.worker.given import check_names, check_options, check_parts
from planaria.worker.link import LINK
from planaria.worker.outcome import Commit, Synced
from planaria.worker.phase import PhaseOfWork
from planaria.worker.runway import OTHERS, Runway
from planaria.worker.synced import log_synced, tell_other_world
from planaria.worker.tenancy import Tenancy, vault_here
from planaria.worker.upload import Damaged, Upload
from planaria.worker.vault import Loaded, check_tier, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any

    from planaria.contract.commit import Stamp, Tier
    from planaria.worker.capture import Captured
    from planaria.worker.flight import Flight
    from planaria.worker.vault import Vault

SEAL_AT_ONCE_BYTES = 1 << 20  # 0.3 ms of digesting: less than a thread is worth
SHARED = ("model", "optimizer")  # what is equal on all ranks of a replicated model, and large


class ElasticState:
    """Model, optimizer, scheduler, sampler and any other values, kept together.

    Values are attributes: `state.epoch += 1`. A value called `step` is the step that commits are known by; without one they
    are counted. `replicated` says that every rank has the same model and optimizer, so that one rank of a node keeps them for
    all; by default that is so under DDP. Not for use by several threads at once.

    Raises:
        StateRefused: A part or an option is not what it has to be.
    """

    def __init__(
        self,
        *,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        sampler: Any = None,
        vault: Vault | None = None,
        replicated: bool | None = None,
        **values: Any,
    ) -> None:
        named = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}
        check_names(values, vars(ElasticState))
        check_options(vault, replicated)
        given = {name: value for name, value in named.items() if value is not None} | values
        check_parts(given)
        fields = vars(self)
        fields["_parts"] = given
        fields["_vault"], fields["_tenancy"] = (vault, Tenancy()) if vault is not None else vault_here()
        fields["_replicated"] = parts.is_replicated(model) if replicated is None else replicated
        fields["_is_apart"] = replicated is False
        fields["_sealer"] = None
        fields["_sealing"] = None
        fields["_captured"] = None
        fields["_is_other"] = False
        fields["_room_bytes"] = 0
        fields["_runway"] = Runway()
        fields["_trouble"] = None
        fields["_unreached"] = set()
        fields["stamp"] = None
        self._runway.look(given)

    if TYPE_CHECKING:
        _parts: dict[str, Any]
        _vault: Vault
        _tenancy: Tenancy
        _replicated: bool
        _is_apart: bool
        _sealer: ThreadPoolExecutor | None
        _sealing: Future[None] | None
        _captured: Captured | None
        _is_other: bool
        _room_bytes: int
        _runway: Runway
        _trouble: BaseException | None
        _unreached: set[str]
        stamp: Stamp | None

    def __getattr__(self, name: str) -> Any:
        kept = vars(self).get("_parts", {})
        if name in kept:
            return kept[name]
        raise AttributeError(f"this ElasticState has no value {name!r}; it was made with {', '.join(kept) or 'none'}")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._parts:
            raise AttributeError(f"this ElasticState has no value {name!r}: name it when the state is made, {name}=...")
        parts.check_whole(name, value)
        self._parts[name] = value

    def commit(self, wait: Tier | None = None, timeout_s: float = 600.0) -> Commit:
        """Copy the state into a snapshot. What is changed after this returns does not change the snapshot.

        On a GPU that holds for steps of the state's optimizers, and for all that does not belong to one. Whoever changes
        parameters by other means before the next step waits for `commit(wait="node")`; a change that came too early is
        noticed where torch counts it, and the commit is not sealed.

        A commit counts when it is sealed, which happens in the background; `wait` waits until it has reached a tier. If that
        tier is not reached, `Commit.reached` says which one was, and one line says so.

        All ranks call it at the same steps. A call that raises counts as one: who goes on calls it again at the next step of
        all ranks, not at once, and the commit that this rank does not have counts nowhere. (Not so a second state's.)

        Raises:
            StateRefused: A value cannot be kept, or the snapshot does not fit into memory. The commit before it still counts.
                Or the ranks had different values of `step` in this commit or the one before, which then counts nowhere.
                Or `wait` or `timeout_s` are not what they may be.
        """
        self._tenancy.take(self)
        generation = self._tenancy.next_generation()  # used up, whatever comes: ranks that go on count alike
        try:
            check_tier(wait)
            timeout_s = checked_wait(timeout_s)
            self._raise_trouble()
            if wait:
                self._finish_sealing()
                if self._captured:  # the agent looks for memory while this thread walks
                    self._vault.begin_open(self._captured.layout.size_bytes)
            stamp, captured = self._commit(generation, wait)
        except BaseException:
            self._vault.skipped(generation)
            raise
        if wait and self._is_other:
            stamp, captured = self._commit(self._tenancy.next_generation(), wait)
        return Commit(stamp, captured.layout.size_bytes, self._wait(stamp, wait, timeout_s) if wait else None)

    def settle(self, timeout_s: float = 600.0) -> bool:
        """Wait until the last commit made here has reached this node, the parts of all ranks; tell whether it has."""
        timeout_s = checked_wait(timeout_s)
        self._finish_sealing()
        if self._is_other:  # it was not kept
            return self.commit("node", timeout_s).reached is not None
        if self.stamp is None or self._captured is None:
            return True
        return self._wait(self.stamp, "node", timeout_s) is not None

    def _commit(self, generation: int, wait: Tier | None) -> tuple[Stamp, Captured]:
        captured = capture.Captured(
            self._kept_here(),
            random=functools.partial(randomness.taken, self._runway.gpu),
            shared=self._shared(),
            before=self._captured_before(),
            near=self._near(),
            ready=self._runway.readiness.taken(),
        )
        is_known = self._runway.knows(captured) and captured.layout.size_bytes <= self._room_bytes
        if not is_known:
            self._finish_sealing()
        stamp = self._vault.origin.stamp(generation, self._step(generation))
        buffer = None if is_known else self._open(captured)
        flight: Flight | None = None
        try:
            flight, numbers = self._runway.depart(captured)
            filled = functools.partial(self._fill, buffer, captured, stamp, flight, captured.taken(buffer, numbers))
            if wait or (flight is None and captured.layout.size_bytes <= SEAL_AT_ONCE_BYTES):
                filled()
            else:
                self._seal(stamp, filled)
        except BaseException:
            vars(self)["_captured"] = None  # the next walk is a whole one
            if flight is not None:
                flight.give_up()  # else the next step would wait for it for ever
            raise
        vars(self).update(_captured=captured, stamp=stamp)
        return stamp, captured

    def _near(self) -> list[int] | None:
        """Return which tensors are looked at before the commit; all others may be behind it, which may then not be kept.

        None where other ranks keep it: they would wait for this one to have it too, and for memory until then.
        """
        return self._runway.near if self._vault.origin.world_size == 1 else None

    def _captured_before(self) -> Captured | None:
        """Return the commit before, unless a whole walk is due."""
        if self._is_other:
            vars(self)["_is_other"], vars(self)["_captured"] = False, None
        return self._captured

    def prepare(self) -> None:
        """Make ahead what the first restore onto a GPU needs, pinned memory above all: 0.1 s that a standby has time for.

        For programs that call `planaria.worker.join()`: before it, when the model is on the GPU by then. Else it does nothing.
        """
        self._runway.look(self._parts)
        if self._runway.device is not None:
            self._runway.device.prepare()

    def restore(self) -> Stamp | None:
        """Go back to the newest complete commit; return which one it is, or None when there is none. All or nothing.

        It comes before the first commit. Called again later in a life, all ranks call it, equally often.

        Raises:
            StateRefused: There is a commit, and it is not one of this state: nothing was changed. Or it was damaged, which
                was noticed after it had been sent to the GPU, and there is no other: then the message says so.
        """
        self._tenancy.take(self)
        if self._sealing:
            self._sealing.result()
        vars(self).update(_sealing=None, _trouble=None, _captured=None)  # a trouble was said, and its commit skipped
        self._runway.look(self._parts)
        loaded = self._vault.load()
        try:
            newest = self._take(loaded) if loaded else None
        except Damaged as problem:
            say(f"the commit in memory is damaged ({problem}); an older one is used, if there is one")
            newest = self._take_other()
        vars(self)["stamp"] = newest
        self._tenancy.restored(newest.order if newest else None)
        return newest

    def _take(self, loaded: Loaded) -> Stamp | None:
        upload = Upload(self._runway.device, loaded)
        shared, own = (capture.parts_of(*found, upload) if found else {} for found in (loaded.shared, loaded.own))
        for line in restoration.give_back(capture.merged(shared, own), self._parts, upload):
            say(line)
        newest = loaded.own or loaded.shared
        if newest and self._is_apart and "model" in self._parts:
            tell_other_world(newest[1].stamp, self._vault.origin)
        return newest[1].stamp if newest else None

    def _take_other(self) -> Stamp | None:
        loaded = self._vault.load(is_damaged=True)
        try:
            if loaded is not None:
                return self._take(loaded)
        except Damaged as problem:
            raise StateRefused(f"{_TORN}: every commit is damaged ({problem})", hint=_BEGIN_ANEW) from problem
        raise StateRefused(f"{_TORN}: the commit was damaged, and there is no other", hint=_BEGIN_ANEW)

    def sync(self) -> Synced:
        """Restore, and make the state of all ranks that of the rank with the newest commit; rank 0's at a first start.

        With a process group of torch it is a collective call: every rank makes it at the same place. Without one it is
        `restore`. A rank's own random numbers stay its own, and with `replicated=False` all that it has. The first one of a
        life is told in the log.

        Raises:
            StateRefused: As `restore()`. Or, with `replicated=False`, ranks have gone back to different commits.
        """
        synced = self._sync()
        log_synced(self, self._vault.origin.rank, synced.from_rank)
        return synced

    def _sync(self) -> Synced:
        stamp = self.restore()
        group = exchange.group()
        if group is None:
            return Synced(stamp, self._vault.origin.rank)
        source, newest, self._tenancy.generation = exchange.agree(group, stamp, self._tenancy.generation)
        if source is None or (self._is_apart and newest is None):
            return Synced(stamp, group.rank)
        if self._is_apart:
            raise StateRefused(
                f"not all ranks have the newest commit, which rank {source} has, and with replicated=False no rank's state is "
                "another's",
                hint="end the program: an agent begins all ranks at one commit; without one they share a folder",
            )
        sent = exchange.pack(self._parts, stamp or self._vault.origin.stamp(0, 0)) if group.rank == source else None
        memory = exchange.broadcast(group, source, sent)
        if group.rank != source and (newest is None or stamp is None or stamp.order != newest):
            found = exchange.unpack(memory)
            upload = Upload(self._runway.device, Loaded((memory, found)))
            try:
                restoration.give_back(capture.parts_of(memory, found, upload), self._parts, upload)
            except Damaged as problem:
                raise StateRefused(
                    f"{_TORN}: what rank {source} sent is damaged ({problem})", hint=_BEGIN_ANEW
                ) from problem
            stamp = found.stamp if newest else None
        vars(self)["stamp"] = stamp
        return Synced(stamp, source)

    def _shared(self) -> tuple[str, ...]:
        """Return the parts that another rank of this node keeps for all."""
        return SHARED if self._replicated and not self._vault.origin.keeps_shared else ()

    def _kept_here(self) -> dict[str, Any]:
        """Return what this rank keeps: of a model that another one keeps, what is not a parameter."""
        shared = self._shared()
        left_out = [name for name in shared if parts.kind_of(self._parts.get(name)) != parts.MODULE]
        return {name: value for name, value in self._parts.items() if name not in left_out}

    def _step(self, generation: int) -> int:
        step = self._parts.get("step", generation)
        if type(step) is not int or not 0 <= step < 1 << 63:
            raise StateRefused(
                f"step is the number of a step, from 0 on, not {step!r}",
                hint="int(...) makes one of a number of NumPy's; another value needs another name",
            )
        return step

    def _open(self, captured: Captured) -> memoryview:
        captured.finish()
        buffer = self._vault.open(captured.layout.size_bytes)
        snapshots.unseal(buffer)
        vars(self)["_room_bytes"] = len(buffer)
        return buffer

    def _seal(self, stamp: Stamp, fill: Callable[[], object]) -> None:
        """Seal a commit in a thread."""

        def seal() -> None:
            try:
                fill()
            except BaseException as exc:  # noqa: BLE001  raised by the next commit, in the thread that can handle it
                say(f"{stamp} was not sealed: {exc!r}")
                self._vault.skipped(stamp.generation)
                vars(self)["_trouble"] = exc

        sealer = self._sealer
        if sealer is None:
            from concurrent.futures import ThreadPoolExecutor

            # A thread, because digesting takes three times as long as copying and needs nothing of the state any more. One
            # for all commits: they are sealed in their order, and a new one costs a commit 0.2 ms. It ends when the state
            # goes, and when the program ends, behind the last commit.
            vars(self)["_sealer"] = sealer = ThreadPoolExecutor(1, "planaria seal")
        vars(self)["_sealing"] = sealer.submit(seal)

    def _fill(
        self,
        buffer: memoryview | None,
        captured: Captured,
        stamp: Stamp,
        flight: Flight | None,
        taken: Sequence[tuple[int, memoryview]],
    ) -> None:
        """Fill a buffer and seal it, if it is to be kept. Without one it is asked for here, behind the commit before."""
        try:
            if why := self._runway.trusted_in_vain(captured, flight):
                self._tell_other(stamp, why)
                return
            if buffer is None:
                buffer = self._open(captured)
            for at, content in taken:
                buffer[at : at + len(content)] = content
            if flight is not None:
                flight.issue(buffer)
            is_kept = captured.is_as_before()
            if not is_kept:  # only told here: the next commit forgets it, perhaps before this one has landed
                self._tell_other(stamp, OTHERS)
            if flight is not None:
                flight.seal(buffer, captured.layout, stamp if is_kept else None)
            elif is_kept:
                snapshots.seal(buffer, captured.layout, stamp)
        finally:
            if flight is not None:
                flight.give_up()
            captured.arrays.let_go()
        if is_kept:
            self._vault.sealed(stamp)

    def _tell_other(self, stamp: Stamp, why: str) -> None:
        vars(self)["_is_other"] = True
        self._vault.skipped(stamp.generation)
        say(f"{stamp} is not kept: {why}; the next commit has them")

    def _finish_sealing(self) -> None:
        if self._sealing:
            self._sealing.result()
            vars(self)["_sealing"] = None
        self._raise_trouble()

    def _raise_trouble(self) -> None:
        if self._trouble:
            trouble = self._trouble
            vars(self)["_trouble"] = vars(self)["_captured"] = None  # the next walk is a whole one
            raise trouble

    def _wait(self, stamp: Stamp, wait: Tier, timeout_s: float) -> Tier | None:
        with PhaseOfWork(LINK, CHECKPOINT):
            self._finish_sealing()
            reached = self._vault.wait(stamp, wait, timeout_s)
        if (reached is None or TIERS.index(reached) < TIERS.index(wait)) and wait not in self._unreached:
            self._unreached.add(wait)
            say(f"{stamp} has not reached {wait}, only {reached or 'nothing'}; training goes on (said once)")
        return reached


_TORN = "the state has been changed in part"
_BEGIN_ANEW = "end the program: what it has in memory is of no commit"
