"""Wait, in a process started ahead of its life, for the order to be the worker. Loaded by path by `bootstrap.py`.

A standby has the whole environment of a worker but the variables of its rank. It loads the modules that the life before had
loaded, or runs the program up to `planaria.worker.join()` and loads the rest of them there, tells its agent that it is ready,
and sleeps. The order brings the missing variables, and as descriptors the streams and the black box of the worker that it is
from then on.

Only built-in modules and `_socket` are imported: a user's `json.py` must win over the real one. What is said on the socket
and in the papers is in `contract.standby`.
"""

import _io
import _socket
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Triple = tuple[str, str, str]

_PACKET = 1 << 18
_DESCRIPTORS = 16  # at most; with the promotion come three: stdout, stderr, black box
_MEMORY = "memory"
_JOIN = "join"
_PARTS = 3
_INSTALLED = ("/site-packages/", "/dist-packages/")


def encode(triples: "list[Triple]") -> bytes:
    """Return triples as bytes, as `contract.standby` does."""
    return b"".join(os.fsencode(part.replace("\0", " ")) + b"\0" for triple in triples for part in triple)


def decode(data: bytes) -> "list[Triple]":
    """Return the triples of `data`."""
    parts = list(map(os.fsdecode, data.split(b"\0")[:-1]))
    return list(zip(parts[0::_PARTS], parts[1::_PARTS], parts[2::_PARTS]))  # noqa: B905  a torn end is left out


class Standby:
    """This process until it is promoted. `learning` and `early` are the names of `learn.py` and `early.py`."""

    def __init__(self, words: str, black_box: int, learning: "dict[str, Any]", early: "dict[str, Any]") -> None:
        channel, papers = map(int, words.split(":"))
        self._black_box = black_box
        self._file_of, self._main_file = learning["file_of"], learning["main_file"]
        self._channel = _socket.socket(fileno=_out_of_the_way(channel, black_box - 1))
        self._papers = _out_of_the_way(papers, black_box - 2)
        told = decode(_whole(self._papers))
        self.mode = next(first for word, first, _ in told if word == "mode")
        unknown = {first for word, first, _ in told if word == "rank"}
        self._wanted = [first for word, first, _ in told if word == "load"]
        self._files = {first: second for word, first, second in told if word in ("load", "own")}
        self._report: list[Triple] = []
        self._importing = ""
        self._ran: frozenset[str] = frozenset()
        self._pid = os.getpid()
        self._since = time.monotonic()
        self._loaded_s = 0.0
        self.waiting = True
        self._too_early = early["too_early"]
        self._refusals = early["Refusals"]()
        self._environ = early["Environment"](unknown, self._reads, self._refusals)
        self._group = early["Group"](lambda: self.waiting, self._refusals)

    def age_s(self) -> float:
        """Return how long this process is what it is: a standby, or the worker."""
        return time.monotonic() - self._since

    def restart_clock(self) -> None:
        """Count from now on: the worker's life begins. What was imported ahead is a part of it: another has to do that."""
        self._since = time.monotonic() - self._loaded_s

    def arrive(self) -> None:
        """Say that the program has come to `join()`.

        Raises:
            RuntimeError: It must not wait here.
        """
        self._check()
        self._say(b"joined")

    def preload(self) -> None:
        """Import what the life before had imported, and this process has not. A failure is told and harms nobody.

        What the program itself has done by then is its own: a device that it has started, files that it has chosen. But it
        may have seeded random numbers, or be about to, and a cold start would draw from them when it imports, which is later.
        """
        began = time.monotonic()
        self._ran = frozenset(sys.modules) if self.mode == _JOIN else frozenset()
        is_started, states = _device_started(), _random_states()
        for name in self._wanted:
            if name in sys.modules or not self._is_where_it_was(name):
                continue
            self._importing = name
            try:
                __import__(name)
            except BaseException as problem:  # noqa: BLE001  SystemExit too: it is the module's, and the program may never import it
                self._report.append(("failed", name, f"{type(problem).__name__}: {_words(problem)}"))
            if not is_started and _device_started():
                is_started = True
                self._report.append(("device", name, ""))
            now = _random_states()
            if any(now.get(kind) != state for kind, state in states.items()):
                self._report.append(("draws", name, ""))
            states = now
        self._importing = ""
        self._loaded_s = time.monotonic() - began

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
        if self.mode == _JOIN and (main := self._main_file()):
            yield ("watch", main, "")
        library = f"{os.path.dirname(os.__file__)}/"
        for name, module in sys.modules.copy().items():
            file = self._file_of(name, module)
            if file is None:
                continue
            if name not in self._ran and self._files.get(name) not in (None, "", file):
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
        self._say(b"ready")
        order, descriptors = self._next()
        while order[0][0] == _MEMORY:
            _map_ahead(order[1:], descriptors, self._is_due)
            order, descriptors = self._next()
        self._channel.close()
        self.waiting = False
        self._become(order, descriptors)
        return left

    def _say(self, word: bytes) -> None:
        try:
            self._channel.send(word)
        except OSError:  # without an agent there is nothing to wait for
            os._exit(0)

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
            try:
                if stream is not None:
                    stream.flush()
            except ValueError:  # it is closed, or detached
                continue
        said = [(number, os.dup(number)) for number in (1, 2)]
        stdout, stderr, black_box = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.dup2(black_box, self._black_box, inheritable=False)
        for descriptor in descriptors:
            os.close(descriptor)
        _renew(sys.__stdout__, 1)
        _renew(sys.__stderr__, 2)
        self._environ.leave({name: value for _, name, value in order})
        self._group.leave()
        for number, descriptor in said:
            _write(number, _whole(descriptor))
            os.close(descriptor)

    def _check(self) -> None:
        """See that this is the process, and the state of it, in which `join()` may wait.

        Raises:
            RuntimeError: It is not.
        """
        if os.getpid() != self._pid:
            raise self._too_early("a forked child went on")
        self._refusals.check()
        self._group.check()


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


def _random_states() -> "dict[str, object]":
    """Return where the global generators of random numbers are, those that there are; one that will not say is left out."""
    found: dict[str, object] = {}
    for kind, ask in (("random", "getstate"), ("numpy.random", "get_state"), ("torch.random", "get_rng_state")):
        try:
            state = getattr(sys.modules[kind], ask)()
            parts = state if isinstance(state, tuple) else (state,)
            found[kind] = [part.tolist() if hasattr(part, "tolist") else part for part in parts]
        except Exception:  # noqa: BLE001, S112  there is no such module, or the program has put something else into its place
            continue
    return found


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
