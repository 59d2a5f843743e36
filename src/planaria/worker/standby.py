"""Wait, in a process started ahead of its life, for the order to be the worker. Loaded by path by `bootstrap.py`.

A standby has the whole environment of a worker but the variables of its rank. It loads the modules that the life before had
loaded, or runs the program up to `planaria.worker.join()`, tells its agent that it is ready, and sleeps. The order brings the
missing variables, and as descriptors the streams and the black box of the worker that it is from then on.

Only built-in modules and `_socket` are imported: a user's `json.py` must win over the real one. What is said on the socket
and in the papers is in `contract.standby`.
"""

import _io
import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

    Triple = tuple[str, str, str]

GROUP = "torch.distributed.distributed_c10d"
_PACKET = 1 << 18
_DESCRIPTORS = 16  # at most; with the promotion come three: stdout, stderr, black box
_MEMORY = "memory"
_PARTS = 3
_INSTALLED = ("/site-packages/", "/dist-packages/")


def encode(triples: "list[Triple]") -> bytes:
    """Return triples as bytes, as `contract.standby` does."""
    return b"".join(os.fsencode(part.replace("\0", " ")) + b"\0" for triple in triples for part in triple)


def decode(data: bytes) -> "list[Triple]":
    """Return the triples of `data`."""
    parts = list(map(os.fsdecode, data.split(b"\0")[:-1]))
    return list(zip(parts[0::_PARTS], parts[1::_PARTS], parts[2::_PARTS]))  # noqa: B905  a torn end is left out


def too_early(what: str) -> RuntimeError:
    """Return the error for what a standby cannot know or do yet."""
    return RuntimeError(
        f"{what} before planaria.worker.join(): this process is a standby, whose rank and world are known only when it "
        "takes the place of a worker; call join() first (in a process that is a worker already it returns at once)"
    )


class Standby:
    """This process until it is promoted. `file_of(name, module)` says where a module came from."""

    def __init__(self, words: str, black_box: int, file_of: "Callable[[str, object], str | None]") -> None:
        channel, papers = map(int, words.split(":"))
        self._black_box = black_box
        self._file_of = file_of
        self._channel = _socket.socket(fileno=_out_of_the_way(channel, black_box - 1))
        self._papers = _out_of_the_way(papers, black_box - 2)
        told = decode(_whole(self._papers))
        self.mode = next(first for word, first, _ in told if word == "mode")
        self._unknown = {first for word, first, _ in told if word == "rank"}
        self._wanted = [first for word, first, _ in told if word == "load"]
        self._files = {first: second for word, first, second in told if word in ("load", "own")}
        self._report: list[Triple] = []
        self._importing = ""
        self._pid = os.getpid()
        self.waiting = True
        self._environ = _Guard(self._unknown, self._reads)
        self._group = _Group(self)

    def preload(self) -> None:
        """Import what the life before had imported. A failure is told and harms nobody."""
        for name in self._wanted:
            if name in sys.modules or not self._is_where_it_was(name):
                continue
            self._importing = name
            try:
                __import__(name)
            except BaseException as problem:  # noqa: BLE001  SystemExit too: it is the module's, and the program may never import it
                self._report.append(("failed", name, f"{type(problem).__name__}: {_words(problem)}"))
            if _device_started():
                self._report.append(("device", name, ""))
        self._importing = ""

    def _is_where_it_was(self, name: str) -> bool:
        """Tell whether a name leads to the same file as before: a program may change `sys.path` before it imports."""
        package, _, _ = name.rpartition(".")
        parent = sys.modules.get(package)
        if package and parent is None:
            return False
        try:
            spec = sys.modules["_frozen_importlib"]._find_spec(name, getattr(parent, "__path__", None))  # noqa: SLF001
        except BaseException:  # noqa: BLE001  finders of other packages may raise anything
            return False
        if spec is None:
            self._report.append(("failed", name, "not found"))
            return False
        return bool(not self._files[name] or spec.origin == self._files[name])

    def _reads(self, what: str) -> None:
        if self._importing:
            self._report.append(("reads", self._importing, what))

    def _look_around(self) -> "Iterator[Triple]":
        library = f"{os.path.dirname(os.__file__)}/"
        for name, module in sys.modules.copy().items():
            file = self._file_of(name, module)
            if file is None:
                continue
            if self._files.get(name) not in (None, "", file):
                yield ("differs", name, file)
            if file and not any(part in file for part in _INSTALLED) and not file.startswith(library):
                yield ("watch", os.path.realpath(file), "")

    def wait(self) -> bytes:
        """Tell the agent that all is ready, sleep until the order comes, and be the worker. Ends with the agent.

        Returns what is in the black box that is left behind.
        """
        left = _whole(self._black_box)
        report = encode([*self._report, *self._look_around()])
        os.ftruncate(self._papers, 0)
        os.pwrite(self._papers, report, 0)
        os.close(self._papers)
        _fill_gaps()
        try:
            self._channel.send(b"ready")
        except OSError:
            os._exit(0)
        order, descriptors = self._next()
        while order[0][0] == _MEMORY:
            _map_ahead(order[1:], descriptors, self._is_due)
            order, descriptors = self._next()
        self._channel.close()
        self.waiting = False
        self._become(order, descriptors)
        return left

    def _next(self) -> "tuple[list[Triple], list[int]]":
        """Wait for what the agent has to say; without an agent there is nothing to wait for."""
        room = _socket.CMSG_SPACE(_DESCRIPTORS * 4)
        try:
            packet, rights, _, _ = self._channel.recvmsg(_PACKET, room, _socket.MSG_CMSG_CLOEXEC)
        except OSError:
            packet, rights = b"", []
        if not packet:
            os._exit(0)
        return decode(packet), memoryview(rights[0][2]).cast("i").tolist() if rights else []

    def _is_due(self) -> bool:
        """Tell whether what comes next is the order, or the agent's end, and not more memory."""
        try:
            head = self._channel.recv(len(_MEMORY) + 1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT)
        except OSError:  # there is nothing yet
            return False
        return head != f"{_MEMORY}\0".encode()

    def _become(self, order: "list[Triple]", descriptors: "list[int]") -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        said = [(number, os.dup(number)) for number in (1, 2)]
        stdout, stderr, black_box = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.dup2(black_box, self._black_box, inheritable=False)
        for descriptor in descriptors:
            os.close(descriptor)
        _renew(sys.__stdout__, 1)
        _renew(sys.__stderr__, 2)
        self._environ.leave()
        for _, name, value in order:
            os.environ[name] = value  # noqa: TID251  this is where the environment is made
        self._group.leave()
        for number, descriptor in said:
            _write(number, _whole(descriptor))
            os.close(descriptor)

    def check(self) -> None:
        """See that this is the process, and the state of it, in which `join()` may wait.

        Raises:
            RuntimeError: It is not.
        """
        if os.getpid() != self._pid:
            raise too_early("a forked child went on")
        self._group.check()


class _Copy(dict):  # type: ignore[type-arg]
    """A copy of the environment that was taken too early: it refuses what the environment itself refused."""

    guard: "_Guard"

    def __getitem__(self, key: object) -> object:
        self.guard.refuse(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.guard.refuse(key)
        return super().__contains__(key)

    def get(self, key: object, default: object = None) -> object:
        self.guard.refuse(key)
        return super().get(key, default)

    def copy(self) -> "_Copy":
        return type(self)(self)


class _Early(type(os.environ)):  # type: ignore[misc]  # noqa: TID251  the guard stands around it
    """`os.environ` as long as it is not whole. `get`, `in`, `setdefault` and `os.getenv` come through here too."""

    guard: "_Guard"

    def __getitem__(self, key: object) -> object:
        self.guard.refuse(key)
        return super().__getitem__(key)

    def __setitem__(self, key: object, value: object) -> None:
        self.guard.refuse(key)  # promotion would overwrite it, and a cold start would not
        super().__setitem__(key, value)

    def copy(self) -> _Copy:
        self.guard.note("the whole environment")
        return _Copy(self)


class _Guard:
    """Make `os.environ` refuse the variables that are not known yet, and a copy of it too; `note` is told of each try."""

    def __init__(self, unknown: "set[str]", note: "Callable[[str], None]") -> None:
        self._names = {*unknown, *map(os.fsencode, unknown)}  # os.environb has bytes
        self.note = note
        self._kind = type(os.environ)  # noqa: TID251
        self._entered: list[Any] = [os.environ, os.environb]  # noqa: TID251
        _Copy.guard = _Early.guard = self
        for environ in self._entered:
            environ.__class__ = _Early

    def refuse(self, key: object) -> None:
        """Raise when there is a value to come, and it has not come."""
        if isinstance(key, (str, bytes)) and key in self._names:
            self.note(os.fsdecode(key))
            raise too_early(f"{os.fsdecode(key)} was read from the environment")

    def leave(self) -> None:
        """Make it what it was."""
        for environ in self._entered:
            environ.__class__ = self._kind


class _Group:
    """Make `torch.distributed` refuse a process group before `join()`, should the program import it. A finder of modules."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby
        self._module: ModuleType | None = None
        self._start: Any = None
        self._refusing: Any = None
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: object = None, _target: object = None) -> object:
        """Let others find everything; see to it that we are asked when the one module has been run."""
        if name != GROUP:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec: Any = sys.modules["_frozen_importlib"]._find_spec(name, path)  # noqa: SLF001
        loader = getattr(spec, "loader", None)
        if loader is not None:
            run = loader.exec_module

            def run_and_wrap(module: "ModuleType") -> None:
                del loader.exec_module
                run(module)
                self._wrap(module)

            loader.exec_module = run_and_wrap
        return spec

    def _wrap(self, module: "ModuleType") -> None:
        start = getattr(module, "init_process_group", None)
        if start is None:
            return

        def init_process_group(*args: object, **named: object) -> object:
            if self._standby.waiting:
                raise too_early("a process group was started")
            return start(*args, **named)

        init_process_group.__doc__ = start.__doc__
        init_process_group.__wrapped__ = start  # type: ignore[attr-defined]  # what `inspect.signature` follows
        self._module, self._start, self._refusing = module, start, init_process_group
        module.init_process_group = init_process_group  # type: ignore[attr-defined]

    def check(self) -> None:
        """Refuse a group that was started all the same, by a way we do not know."""
        is_started = getattr(self._module, "is_initialized", None)
        if is_started is not None and is_started():
            raise too_early("a process group was started")

    def leave(self) -> None:
        """Put the real function back wherever the program can see ours."""
        finders: list[Any] = sys.meta_path
        if self in finders:
            finders.remove(self)
        if self._module is None:
            return
        for name, module in sys.modules.copy().items():
            if name == "__main__" or name.startswith("torch.distributed"):
                own = getattr(module, "__dict__", {})
                for key in [key for key, value in own.items() if value is self._refusing]:
                    own[key] = self._start


def _map_ahead(memories: "list[Triple]", descriptors: "list[int]", is_due: "Callable[[], bool]") -> None:
    """Have the memory mapped that this process will write its commits into, where the program keeps a state at all.

    Piece by piece: large ones take seconds where a device registers them, and a worker that is due does the rest by itself.
    """
    came = iter(descriptors)
    new = [(int(number), next(came, None)) for _, number, word in memories if word == "new"]
    known: dict[int, int | None] = {int(number): None for _, number, word in memories if word != "new"}
    vault = sys.modules.get("planaria.worker.agent_vault")
    if vault is not None:
        vault.map_ahead(known)  # what is not among them is let go
    for number, descriptor in new:
        if descriptor is None:  # there were no numbers left for it
            continue
        if vault is None or is_due():
            os.close(descriptor)
        else:
            vault.map_ahead({**known, number: descriptor})
            known[number] = None


def _out_of_the_way(descriptor: int, number: int) -> int:
    """Move a descriptor up, so that what is opened meanwhile and kept has the number that it would always have."""
    if descriptor == number:
        os.set_inheritable(descriptor, False)
        return number
    os.dup2(descriptor, number, inheritable=False)
    os.close(descriptor)
    return number


def _device_started() -> bool:
    cuda = sys.modules.get("torch.cuda")
    return bool(cuda is not None and cuda.__dict__.get("_initialized"))


def _renew(stream: "Any", number: int) -> None:
    """Make a standard stream anew, in place: others may hold it, and it remembers whether its old file could seek."""
    raw = getattr(stream, "buffer", None)
    if type(raw) is not _io.FileIO or raw.closed or raw.fileno() != number:
        return
    fresh: Any = _io.FileIO(number, "wb", closefd=False)
    fresh.name = raw.name
    stream.__init__(
        fresh,
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _fill_gaps() -> None:
    """Take the numbers of standard streams that the program has closed: nothing that comes from the agent may get them."""
    descriptor = os.memfd_create("planaria-closed")
    while descriptor < 3:
        descriptor = os.dup(descriptor)
    os.close(descriptor)


def _whole(descriptor: int) -> bytes:
    """Return all of an anonymous file; what is none, because the agent wanted no record, is empty."""
    try:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    except OSError:
        return b""


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:  # nobody reads; the program will find out by itself
        return


def _words(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:  # noqa: BLE001  a broken __str__ is the module's
        return ""
