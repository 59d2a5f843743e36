"""Write down which modules a worker has loaded, while it runs. Loaded by path by `bootstrap.py` where standbys are wanted.

A worker may be killed at any moment, so the list cannot wait for its end. The interpreter tells an audit hook of every
import, and of much else that happens rarely; the hook looks at the number of loaded modules and writes the new ones into the
black box, many at a time. `import torch`, with 1,900 modules, takes 13 ms more. A record is the byte 0x1e, `modules`, and
name and file of each, with NULs between. `bootstrap.py` adds one of its own when the program joins.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_BYTES = 1 << 20  # of all records; `contract.blackbox.LIMIT_BYTES` has room for it
_IMPORTING = frozenset(
    {"import", "open", "exec", "compile", "marshal.loads", "os.listdir", "os.scandir", "ctypes.dlopen"}
)
_BATCH = 64
_ODD = ("\n", "\0", "\x1e")


def learn(black_box: int) -> "Callable[[], None]":
    """Begin to write down; return what writes the rest."""
    modules, worker = sys.modules, os.getpid()
    seen: set[str] = set()
    state = [0, LIMIT_BYTES]  # how many modules there were at the last look, and how many bytes may still be written

    def flush() -> None:
        state[0] = len(modules)
        if os.getpid() != worker:  # a forked child has the black box too, and its modules are not the worker's
            return
        new = {name: module for name, module in modules.copy().items() if name not in seen}
        seen.update(new)
        entries = [f"{name}\0{file}" for name, module in new.items() if (file := file_of(name, module)) is not None]
        record = b"\x1emodules\0" + os.fsencode("\0".join(entries)) + b"\n"
        state[1] -= len(record)
        if entries and state[1] >= 0:
            os.write(black_box, record)

    def safely_flush() -> None:
        try:
            flush()
        except Exception:  # noqa: BLE001  an audit hook that raises would forbid whatever the program was about to do
            state[1] = 0

    def hook(event: str, _args: object) -> None:
        more = len(modules) - state[0]
        if more and (more >= _BATCH or event not in _IMPORTING):
            safely_flush()

    sys.addaudithook(hook)
    return safely_flush


def main_file() -> str:
    """Return where the main program came from, links followed; empty when it has no file."""
    own = getattr(sys.modules.get("__main__"), "__dict__", {})
    file = own.get("__file__")
    return os.path.realpath(file) if isinstance(file, str) and file and not any(odd in file for odd in _ODD) else ""


def file_of(name: str, module: object) -> "str | None":
    """Return a module's file, empty for one that has none; None for what is no plain module of that name."""
    if name == "__main__" or not isinstance(module, type(sys)):
        return None
    # Some look like modules and import half the world when they are asked for anything: so do not ask.
    own = object.__getattribute__(module, "__dict__")
    if getattr(own.get("__spec__"), "name", None) != name:
        return None
    file = own.get("__file__") or ""
    return file if isinstance(file, str) and not any(odd in name + file for odd in _ODD) else None
