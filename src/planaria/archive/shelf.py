"""The directory itself: write one rank's file of a commit, find and open commits again.

    DIR/commit-000001-000004-0000000070/rank-00000.snapshot     a sealed snapshot, byte for byte
                                        rank-00001.snapshot
                                        manifest.json           written when every rank's file is there

A file gets its name only when it is whole and on the disk; so does the manifest. Whoever dies leaves drafts, which go with
their commit. Whoever finds all files of a commit writes its manifest; two that do at once write the same bytes.
"""

from __future__ import annotations

import errno
import os

from planaria.archive import plan
from planaria.archive.plan import Failed, Skipped, Unfinished, Written
from planaria.base.files import empty_folder, random_name, remove_tree, write_all
from planaria.contract import manifest as manifests
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import OtherStep, Stamp, other_step
from planaria.contract.manifest import Manifest, ShardFile
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from planaria.archive.plan import Outcome, World
    from planaria.contract.commit import Order
    from planaria.contract.snapshot import Snapshot

CHUNK_BYTES = 8 << 20
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def _nothing(_point: str) -> None:
    pass


def checked_folder(directory: object, keep: object) -> str:
    """Return where a directory of commits is, of which the newest `keep` stay.

    Raises:
        UsageError: It has no name, or that is no number of commits.
    """
    if type(keep) is not int or keep < 1:
        raise UsageError(f"keep expects a whole number of commits above 0, got {keep!r}")
    if not isinstance(directory, (str, os.PathLike)) or not os.fspath(directory):
        raise UsageError(f"directory expects the path of a folder, got {directory!r}")
    return os.path.abspath(directory)


class Shelf:
    """A directory of commits. `at` is called with the name of each point that is passed, for those who test deaths there."""

    def __init__(self, directory: str | os.PathLike[str], keep: int = 2, at: Callable[[str], None] = _nothing) -> None:
        self.directory = checked_folder(directory, keep)
        self._keep = keep
        self._at = at
        self._unfinished = Unfinished()

    def write(
        self,
        memory: memoryview,
        stamp: Stamp,
        is_given_up: Callable[[], bool] = plan.never,
        writer: World | None = None,
    ) -> Outcome:
        """Write a sealed snapshot that nobody changes meanwhile, or not before it `is_given_up`, which is a failure.

        `writer` is the run and round that writes, where that is a later one than the snapshot's. Whatever goes wrong is
        returned, not raised.
        """
        try:
            snapshot = snapshots.read(memory)
            if snapshot is None or snapshot.stamp != stamp:
                return Failed(stamp, "its memory holds something else")
            snapshots.verify(memory, snapshot)
        except ValueError as exc:
            return Failed(stamp, f"in memory already, {exc}")
        try:
            return self._write(memory[: snapshot.size_bytes], stamp, is_given_up, writer or stamp.order[:2])
        except ValueError as exc:
            return Failed(stamp, str(exc))
        except OSError as exc:
            return self._not_written(stamp, exc)

    def _not_written(self, stamp: Stamp, exc: OSError) -> Outcome:
        why = f"{exc.strerror or exc}: {exc.filename}" if exc.filename else str(exc.strerror or exc)
        try:
            is_overtaken = isinstance(exc, FileNotFoundError) and self.has(stamp.order)  # its folder was removed
        except OSError:
            is_overtaken = False
        return Skipped(stamp, "a newer commit was completed meanwhile") if is_overtaken else Failed(stamp, why)

    def _write(self, memory: memoryview, stamp: Stamp, is_given_up: Callable[[], bool], writer: World) -> Outcome:
        self._at("begin")
        os.makedirs(self.directory, exist_ok=True)
        over = Failed(stamp, f"round {writer[1]} is over: a later one has written to {self.directory}")
        if plan.is_fenced(writer, self._orders()):
            return over
        complete = {manifest.order for manifest in self.commits()}
        if any(order >= stamp.order for order in complete):
            return Skipped(stamp, "as new a commit is complete already")
        folder = self._folder(stamp.order)
        forsaken = self._empty_forsaken(stamp.order, complete, writer)
        self._unfinished = self._unfinished.after(stamp.order, is_written=False)  # until it is
        os.makedirs(folder, exist_ok=True)
        for empty in forsaken:  # until now they told older rounds that this one has begun to write
            remove_tree(empty)
        _sync_folder(self.directory)
        self._at("folder")
        self._write_file(folder, plan.file_name(stamp.rank), memory, is_given_up)
        found = self._gather(folder, stamp)
        if found is None:
            self._unfinished = self._unfinished.after(stamp.order, is_written=True)
            return Written(stamp, complete=False)
        if plan.is_fenced(writer, self._orders()):  # the world may have ended while this was written
            return over
        self._write_file(folder, plan.MANIFEST, memoryview(manifests.encode(found)))
        self._at("complete")
        self._unfinished = Unfinished()
        self.prune()
        return Written(stamp, complete=True)

    def _empty_forsaken(self, order: Order, complete: Collection[Order], writer: World) -> list[str]:
        """Delete the files of commits that nobody finishes; return their folders."""
        unfinished = {*self._orders()}.difference(complete)
        self._unfinished = self._unfinished.among(unfinished)
        dead = plan.forsaken(order, writer[0], unfinished, self._unfinished)
        emptied = []
        for one in dead:
            folder = self._folder(one)
            if _may_be_finished(folder, has_time=one in self._unfinished.written):
                continue
            empty_folder(folder)
            emptied.append(folder)
            self._at("emptied")
        return emptied

    def _write_file(
        self, folder: str, name: str, content: memoryview, is_given_up: Callable[[], bool] | None = None
    ) -> None:
        """Give a file its name when it is whole and on the disk. The first who finishes a rank's file has written it.

        A manifest, which nobody gives up, is replaced.
        """
        path, replaces = os.path.join(folder, name), is_given_up is None
        if not replaces and os.path.exists(path):
            return
        draft = os.path.join(folder, f".{name}.{random_name()}{plan.DRAFT}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                for start in range(0, len(content), CHUNK_BYTES):
                    write_all(descriptor, content[start : start + CHUNK_BYTES])
                    self._at(f"{name} chunk")
                    # Asked behind the chunk: what was read is what it was, or it is not used.
                    if is_given_up is not None and is_given_up():
                        raise OSError(errno.ECANCELED, "it was given up")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._at(f"{name} synced")
            if replaces:
                os.replace(draft, path)
            else:
                _rename_once(draft, path)
        except OSError:
            _unlink(draft)
            raise
        self._at(f"{name} named")
        _sync_folder(folder)
        self._at(f"{name} done")

    def _gather(self, folder: str, stamp: Stamp) -> Manifest | None:
        """Return the manifest of a commit when the files of all ranks are there.

        Raises:
            ValueError: One of them is not a part of this commit.
        """
        files = []
        for rank in range(stamp.world_size):
            name = plan.file_name(rank)
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    snapshot, digest = _read_ends(file.fileno())
            except FileNotFoundError:
                return None
            _check_step(snapshot.stamp, stamp)
            if snapshot.stamp != Stamp(*stamp.order, stamp.step, stamp.world_size, rank):
                raise ValueError(f"{name} is of another commit")
            files.append(ShardFile(rank, name, snapshot.size_bytes, digest))
        return Manifest(*stamp.order, stamp.step, stamp.world_size, tuple(files))

    def check_parts(self, stamp: Stamp) -> None:
        """See that the files of other ranks that are there have the step of this one: for who waits for the rest of them.

        Raises:
            OtherStep: One has another: they are not of one moment, and this commit will never be whole.
            ValueError: One is damaged.
            OSError: One cannot be read.
        """
        for rank in range(stamp.world_size):
            try:
                with open(os.path.join(self._folder(stamp.order), plan.file_name(rank)), "rb") as file:
                    found = snapshots.stamp_of(file.read(snapshots.HEADER_BYTES))
            except FileNotFoundError:
                continue
            _check_step(found, stamp)

    def prune(self) -> None:
        """Delete what is superseded; what cannot be deleted stays for the next time."""
        complete = {manifest.order for manifest in self.commits()}
        for order in plan.superseded(self._orders(), complete, self._keep):
            folder = self._folder(order)
            _unlink(os.path.join(folder, plan.MANIFEST))  # first: from here on nobody takes it for a whole commit
            self._at("unlisted")
            remove_tree(folder)
            self._at("removed")

    def commits(self) -> Iterator[Manifest]:
        """Yield the complete commits, newest first. One whose manifest or whose files' sizes are wrong is passed over."""
        for order in sorted(self._orders(), reverse=True):
            folder = self._folder(order)
            try:
                with open(os.path.join(folder, plan.MANIFEST), "rb") as file:
                    found = manifests.decode(file.read(manifests.SIZE_LIMIT_BYTES))
                sizes = [os.stat(os.path.join(folder, listed.name)).st_size for listed in found.files]
            except (OSError, ValueError):
                continue
            if found.order == order and sizes == [listed.size_bytes for listed in found.files]:
                yield found

    def open(self, manifest: Manifest, rank: int) -> tuple[memoryview, Snapshot]:
        """Read the file of a rank into memory of its own, and compare it with the manifest and its digests.

        Raises:
            ValueError: It is damaged or not the file that was meant.
            OSError: It cannot be read.
        """
        listed = manifest.files[rank]
        with open(os.path.join(self._folder(manifest.order), listed.name), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != listed.size_bytes:
                raise ValueError(f"{listed.name} has another size than its manifest says")
            memory = _read_all(file.fileno(), listed.size_bytes)
        snapshot = snapshots.read(memory)
        if snapshot is None or snapshot.size_bytes != listed.size_bytes or snapshot.stamp != manifest.stamp(rank):
            raise ValueError(f"{listed.name} is not the file that its manifest means")
        if snapshots.fingerprint(memory, snapshot) != listed.sha256:
            raise ValueError(f"{listed.name} is not what its manifest says")
        snapshots.verify(memory, snapshot)
        return memory, snapshot

    def newest(self, ranks: Collection[int] | None = None) -> Found | None:
        """Return the newest complete commit whose files of these ranks, or of all, are whole. Others are passed over."""
        passed_over = []
        for manifest in self.commits():
            try:
                wanted = range(manifest.world_size) if ranks is None else ranks
                opened = {rank: self.open(manifest, rank) for rank in wanted if rank < manifest.world_size}
            except (OSError, ValueError) as exc:
                passed_over.append(f"{plan.folder_name(manifest.order)}: {exc}")
                continue
            return Found(manifest, opened, passed_over)
        return None

    def newest_whole(self, say: Callable[[str], object], than: Order | None = None) -> Manifest | None:
        """Return the newest commit of which every file is whole, one file in memory at a time; `say` why others are not.

        One that is not newer `than` this is not looked at.
        """
        for manifest in self.commits():
            if than is not None and manifest.order <= than:
                return None
            try:
                for rank in range(manifest.world_size):
                    self.open(manifest, rank)
            except (OSError, ValueError) as exc:
                say(f"passed over a damaged commit: {plan.folder_name(manifest.order)}: {exc}")
                continue
            return manifest
        return None

    def has(self, order: Order) -> bool:
        """Tell whether this commit, or a newer one, is complete here."""
        return next((manifest.order >= order for manifest in self.commits()), False)

    def newest_run(self) -> int:
        """Return the highest run that has left a folder here, 0 without one: the next start of the job counts on from it."""
        newest = self.newest_order()
        return newest[0] if newest is not None else 0

    def newest_order(self) -> Order | None:
        """Return the newest commit that has left a folder here, whole or not."""
        return max(self._orders(), default=None)

    def _orders(self) -> list[Order]:
        """Return the commits that have a folder, whole or not."""
        try:
            names = os.listdir(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [order for name in names if (order := plan.order_of(name))]

    def _folder(self, order: Order) -> str:
        return os.path.join(self.directory, plan.folder_name(order))


class Found:
    """A commit that was found on disk and verified, by rank, and why newer ones were passed over."""

    def __init__(
        self, manifest: Manifest, opened: dict[int, tuple[memoryview, Snapshot]], passed_over: list[str]
    ) -> None:
        self.manifest = manifest
        self.opened = opened
        self.passed_over = passed_over


def _check_step(found: Stamp, wanted: Stamp) -> None:
    if found.order == wanted.order and found.step != wanted.step:
        low, high = sorted((found, wanted), key=lambda one: one.rank)
        raise OtherStep(other_step(low.step, low.rank, high.step, high.rank))


def _may_be_finished(folder: str, *, has_time: bool) -> bool:
    """Tell whether a commit may have a manifest: one that is damaged, or cannot be read at the moment, is left alone.

    And one that somebody slower writes to still, if it `has_time`.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return True
    return plan.MANIFEST in names or (has_time and any(name.endswith(plan.DRAFT) for name in names))


def _rename_once(draft: str, path: str) -> None:
    """Give a file its name unless somebody was first; a file system without links replaces instead, by equal bytes."""
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError as exc:
        if exc.errno not in NO_LINKS:
            raise
        os.replace(draft, path)
        return
    os.unlink(draft)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _sync_folder(path: str) -> None:
    """Make names in a folder outlive the machine's power; a file system that cannot is used as it is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size_bytes: int) -> memoryview:
    from mmap import mmap

    memory = memoryview(mmap(-1, max(size_bytes, 1)))[:size_bytes]
    _read_at(descriptor, memory, 0)
    return memory


def _read_ends(descriptor: int) -> tuple[Snapshot, str]:
    """Return what a snapshot's file says, and its fingerprint: header, table and values are read, tensors are not."""
    from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

    size_bytes = os.fstat(descriptor).st_size
    if size_bytes < snapshots.HEADER_BYTES:
        raise ValueError("the file is cut short")
    # The file itself is not mapped: one that is cut meanwhile, on whatever machine, would end this process.
    memory = memoryview(mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS))
    _read_at(descriptor, memory[: snapshots.HEADER_BYTES], 0)
    table_at = snapshots.table_at(memory)
    if table_at >= size_bytes:
        raise ValueError("the file is cut short")
    _read_at(descriptor, memory[table_at:], table_at)
    snapshot = snapshots.read(memory)
    if snapshot is None or snapshot.size_bytes != size_bytes:
        raise ValueError("the file is not a sealed snapshot")
    return snapshot, snapshots.fingerprint(memory, snapshot)


def _read_at(descriptor: int, memory: memoryview, offset: int) -> None:
    at = 0
    while at < len(memory):
        count = os.preadv(descriptor, [memory[at : at + CHUNK_BYTES]], offset + at)
        if count == 0:
            raise ValueError("the file became shorter while it was read")
        at += count
