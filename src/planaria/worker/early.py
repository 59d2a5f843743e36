"""Refuse, in a standby, what only a worker can know or do: its rank, a process group. Loaded by path by `bootstrap.py`.

Only built-in modules are imported: a user's `json.py` must win over the real one.
"""

import os
import sys
from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, Self

GROUP = "torch.distributed.distributed_c10d"


def too_early(what: str) -> RuntimeError:
    """Return the error for what a standby cannot know or do yet."""
    return RuntimeError(
        f"{what} before planaria.worker.join(): this process is a standby, whose rank and world are known only when it "
        "takes the place of a worker; call join() first (in a process that is a worker already it returns at once)"
    )


class Refusals:
    """What was refused, as errors; the first is kept: a program that went on has another answer than a cold start would get."""

    def __init__(self) -> None:
        self._first: tuple[str, RuntimeError] | None = None

    def error(self, what: str) -> RuntimeError:
        """Return the error for what is refused now."""
        error = too_early(what)
        if self._first is None:
            self._first = what, error
        return error

    def check(self) -> None:
        """Raise the first again if somebody has caught it; say who, and who asked."""
        if self._first is None:
            return
        what, error = self._first
        trace = error.__traceback__  # it begins where the error was caught
        raise too_early(f"{what}{_where(trace)}") from error


def _where(trace: "Any") -> str:
    """Say where an error was caught, and where it comes from if that is elsewhere: neither here nor in `os.environ`."""
    lines = []
    while trace is not None:
        names = trace.tb_frame.f_globals
        if names is not globals() and names.get("__name__") not in ("os", "collections.abc"):
            lines.append(f"{trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}")
        trace = trace.tb_next
    if not lines:
        return ""
    asked = f" by {lines[-1]}" if lines[-1] != lines[0] else ""
    return f"{asked} ({lines[0]}, went on without)"


class _Copy(dict):  # type: ignore[type-arg]
    """A copy of the environment that was taken too early: it refuses what the environment refuses, and is made whole with it.

    What the program has put into it, or deleted from it, stays so: a cold start would have found that too.
    """

    guard: "Environment"
    is_bytes = False
    deleted: "frozenset[object]" = frozenset()

    def __new__(cls, *_content: object) -> "Self":
        new = super().__new__(cls)
        cls.guard.copies[id(new)] = ref(new)  # by number: a dict has no hash, and those that are gone make room
        return new

    def __getitem__(self, key: object) -> object:
        self.guard.refuse(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.guard.refuse(key)
        return super().__contains__(key)

    def get(self, key: object, default: object = None) -> object:
        self.guard.refuse(key)
        return super().get(key, default)

    def setdefault(self, key: object, default: object = None) -> object:
        self.guard.refuse(key)
        return super().setdefault(key, default)

    def pop(self, key: object, *default: object) -> object:
        self.guard.refuse(key)
        return super().pop(key, *default)

    def __delitem__(self, key: object) -> None:
        if not self.guard.is_unknown(key) or dict.__contains__(self, key):
            super().__delitem__(key)
        self.deleted |= {key}

    def clear(self) -> None:
        self.deleted = self.guard.names
        super().clear()

    def copy(self) -> "dict[Any, Any]":
        if not self.guard.names:
            return dict(self)
        new = type(self)(self)
        new.is_bytes, new.deleted = self.is_bytes, self.deleted
        return new

    __copy__ = copy

    def __deepcopy__(self, _memo: object) -> "dict[Any, Any]":
        return self.copy()

    def __or__(self, other: "Any") -> "dict[Any, Any]":
        new = self.copy()
        new.update(other)
        return new

    def __ror__(self, other: "Any") -> "dict[Any, Any]":
        return self.over(other)

    def over(self, other: "Any") -> "dict[Any, Any]":
        """Return `other | self`: what is to come wins over what is in `other`."""
        new = self.copy()
        dict.clear(new)
        new.update({key: value for key, value in dict(other).items() if not self.is_to_come(key)})
        new.update(self)
        return new

    def is_to_come(self, key: object) -> bool:
        """Tell whether `complete` will put this key in."""
        return self.guard.is_unknown(key) and key not in self.deleted and not dict.__contains__(self, key)

    def __reduce_ex__(self, _protocol: object) -> "tuple[type, tuple[object]]":
        return dict, (dict(self),)  # whoever unpickles it has no such class

    def complete(self, values: "dict[str, str]") -> None:
        """Put in what a cold start would have had."""
        for name, value in values.items():
            key, content = (os.fsencode(name), os.fsencode(value)) if self.is_bytes else (name, value)
            if key not in self.deleted and not dict.__contains__(self, key):
                dict.__setitem__(self, key, content)


class _Early(type(os.environ)):  # type: ignore[misc]  # noqa: TID251  the guard stands around it
    """`os.environ` as long as it is not whole. `get`, `in`, `setdefault` and `os.getenv` come through here too."""

    guard: "Environment"

    def __getitem__(self, key: object) -> object:
        self.guard.refuse(key)
        return super().__getitem__(key)

    def __setitem__(self, key: object, value: object) -> None:
        self.guard.refuse(key, "set in")  # promotion would overwrite it, and a cold start would not
        super().__setitem__(key, value)

    def __delitem__(self, key: object) -> None:
        self.guard.refuse(key, "deleted from")  # promotion would bring it back
        super().__delitem__(key)

    def copy(self) -> _Copy:
        self.guard.note("the whole environment")
        new = _Copy(self)
        new.is_bytes = isinstance(self.decodekey(b""), bytes)  # os.environb has bytes
        return new

    def __or__(self, other: "Any") -> "dict[Any, Any]":
        new = self.copy()
        new.update(other)
        return new

    def __ror__(self, other: "Any") -> "dict[Any, Any]":
        return self.copy().over(other)


class Environment:
    """Make `os.environ` refuse the variables that are not known yet, and a copy of it too; `note` is told of each try."""

    def __init__(self, unknown: "set[str]", note: "Callable[[str], None]", refusals: Refusals) -> None:
        self.names: frozenset[object] = frozenset((*unknown, *map(os.fsencode, unknown)))  # os.environb has bytes
        self.note = note
        self._refusals = refusals
        self.copies: dict[int, Any] = {}
        self._kind = type(os.environ)  # noqa: TID251
        self._entered: list[Any] = [os.environ, os.environb]  # noqa: TID251
        _Copy.guard = _Early.guard = self
        for environ in self._entered:
            environ.__class__ = _Early

    def is_unknown(self, key: object) -> bool:
        """Tell whether there is a value to come, and it has not come."""
        return isinstance(key, (str, bytes)) and key in self.names

    def refuse(self, key: object, what: str = "read from") -> None:
        """Raise when there is a value to come, and it has not come."""
        if self.is_unknown(key):
            name = os.fsdecode(key)  # type: ignore[arg-type]
            self.note(name)
            raise self._refusals.error(f"{name} was {what} the environment")

    def leave(self, values: "dict[str, str]") -> None:
        """Make it what it was, with the values that have come, also in copies that were taken before."""
        self.names = frozenset()
        for environ in self._entered:
            environ.__class__ = self._kind
        self._entered[0].update(values)  # this is where the environment is made
        for known in [*self.copies.values()]:
            copy = known()
            if copy is not None:
                copy.complete(values)


class Group:
    """Make `torch.distributed` refuse a process group before `join()`, should the program import it. A finder of modules."""

    def __init__(self, is_waiting: "Callable[[], bool]", refusals: Refusals) -> None:
        self._is_waiting, self._refusals = is_waiting, refusals
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
            if self._is_waiting():
                raise self._refusals.error("a process group was started")
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
