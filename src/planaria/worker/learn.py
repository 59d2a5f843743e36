"""Write down which modules a worker has loaded, while it runs. Loaded by path by `bootstrap.py` where standbys are wanted.

A worker may be killed at any moment, so the list cannot wait for its end. The interpreter tells an audit hook of every
import, and of much else that happens rarely; the hook looks at the number of loaded modules and writes the new ones into the
black box, many at a time. `import torch`, with 1,900 modules, takes 13 ms more. A record is the byte 0x1e, `modules`, and
name and file of each, with NULs between. `bootstrap.py` adds one of its own when the program joins.

A library may read the environment when it is loaded, so what the program changes there is written down in between: `set`, or
`given` where a standby did so ahead of the program, the name, and the value if there is one, both in hexadecimal digits.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

LIMIT_BYTES = 1 << 20  # of all records; `contract.blackbox.LIMIT_BYTES` has room for it
_IMPORTING = frozenset(
    {"import", "open", "exec", "compile", "marshal.loads", "os.listdir", "os.scandir", "ctypes.dlopen"}
)
_SETTING = frozenset({"os.putenv", "os.unsetenv"})
_MOST_SET = 256  # more than a program sets before it trains; one that sets some in every step has loaded all by then
_BATCH = 64
_ODD = ("\n", "\0", "\x1e")
_INSTALLED = ("/site-packages/", "/dist-packages/", f"{os.path.dirname(os.__file__)}/")


class Notes:
    """What is written down of this process, from now on."""

    def __init__(self, black_box: int) -> None:
        self.is_quiet = False  # while the environment is changed on behalf of the agent, not by the program
        self._black_box, self._worker = black_box, os.getpid()
        self._seen: set[str] = set()
        self._count = 0  # how many modules there were at the last look
        self._left_bytes, self._left_to_set = LIMIT_BYTES, _MOST_SET
        modules = sys.modules

        def hook(event: str, args: "tuple[Any, ...]") -> None:
            if event not in _IMPORTING:
                if len(modules) != self._count:
                    self.flush()
                if event in _SETTING:
                    self._note_setting(args)
            elif len(modules) - self._count >= _BATCH:
                self.flush()

        sys.addaudithook(hook)

    def flush(self) -> None:
        """Write down what has been loaded since."""
        try:
            self._note_modules()
        except Exception:  # noqa: BLE001  an audit hook that raises would forbid whatever the program was about to do
            self._left_bytes = 0

    def give(self, name: str, value: "str | None") -> None:
        """Set a variable ahead of the program; without a value, take it away."""
        self.flush()
        self._write("given", name, value)
        self.put(name, value)

    def put(self, name: str, value: "str | None") -> None:
        """Change the environment without a word."""
        self.is_quiet = True
        try:
            if value is None:
                os.environ.pop(name, None)  # noqa: TID251  it is the program's
            else:
                os.environ[name] = value  # noqa: TID251  the same
        finally:
            self.is_quiet = False

    def _note_setting(self, args: "tuple[Any, ...]") -> None:
        if self.is_quiet or os.getpid() != self._worker or _runs_an_installed_module():
            return
        try:
            name, *value = map(os.fsdecode, args)
            self._write("set", name, value[0] if value else None)
        except Exception:  # noqa: BLE001  as above
            self._left_bytes = 0

    def _note_modules(self) -> None:
        self._count = len(sys.modules)
        if os.getpid() != self._worker:  # a forked child has the black box too, and its modules are not the worker's
            return
        new = {name: module for name, module in sys.modules.copy().items() if name not in self._seen}
        self._seen.update(new)
        entries = [f"{name}\0{file}" for name, module in new.items() if (file := file_of(name, module)) is not None]
        if entries:
            self._append(b"modules\0" + os.fsencode("\0".join(entries)))

    def _write(self, word: str, name: str, value: "str | None") -> None:
        self._left_to_set -= 1
        if self._left_to_set < 0:  # what is loaded from now on is loaded in an environment that nobody has written down
            self._left_bytes = 0
        parts = [name] if value is None else [name, value]
        self._append("\0".join([word, *(os.fsencode(part).hex() for part in parts)]).encode())

    def _append(self, text: bytes) -> None:
        record = b"\x1e" + text + b"\n"
        self._left_bytes -= len(record)
        if self._left_bytes >= 0:
            os.write(self._black_box, record)


def _runs_an_installed_module() -> bool:
    """Tell whether a module that is not the program's is being loaded: whoever loads that ahead does what it does."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  there is no other way
    while frame is not None:
        code = frame.f_code
        is_loaded = code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"
        if is_loaded and any(part in code.co_filename for part in _INSTALLED):
            return True
        frame = frame.f_back
    return False


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
