"""Describe the public names of an API's modules as JSON: `python public_names.py ROOT [MODULES.json]`.

Without a second word every public name of every module below ROOT is described: those in `__all__`, else those without an
underscore that the module itself defines, and for a package also what its `__init__` takes from its own modules. With the
description of another root, the same names are looked for here, and importing torch is forbidden: what is missing is null.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import enum
import importlib
import importlib.abc
import inspect
import json
import logging
import pkgutil
import sys
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

PARTS = ("elastic", "launcher", "run")
NOBODY_S_INTERFACE = (logging.Logger, ModuleType, typing.TypeVar, typing.ParamSpec)
SIMPLE = (str, int, float, bool, type(None), dt.timedelta)


class NoTorch(importlib.abc.MetaPathFinder):
    """Let every import of torch fail, as where it is not installed."""

    def find_spec(self, fullname: str, *_rest: object) -> None:
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {fullname!r} (blocked)", name=fullname)


def modules(root: str) -> list[str]:
    """Return the names of all public modules below the parts of a root, without the root."""
    found = []
    for part in PARTS:
        top = importlib.import_module(f"{root}.{part}")
        found.append(part)
        for info in pkgutil.walk_packages(getattr(top, "__path__", []), f"{root}.{part}."):
            name = info.name.removeprefix(f"{root}.")
            if not any(piece.startswith("_") for piece in name.split(".")):
                found.append(name)
    return sorted(found)


def public_names(module: ModuleType, root: str) -> list[str]:
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    names = {name for name in _defined(module, root) if not name.startswith("_")}
    return sorted(name for name in names if not isinstance(getattr(module, name, None), NOBODY_S_INTERFACE))


def _defined(module: ModuleType, root: str) -> set[str]:
    names: set[str] = set()
    assert module.__file__ is not None
    for node in ast.parse(Path(module.__file__).read_text()).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(module=source, level=level) if hasattr(module, "__path__"):
                if level or (source or "").startswith(f"{root}."):
                    names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if hasattr(module, name)}


def describe(item: Any) -> dict[str, Any]:
    if inspect.isclass(item):
        return _describe_class(item)
    if inspect.isroutine(item) or isinstance(item, staticmethod | classmethod):
        return {"kind": "function", "signature": _signature(item)}
    return {"kind": "value", "value": shown(item)}


def _describe_class(item: type) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": "class", "attributes": {}}
    if issubclass(item, enum.Enum):
        told["members"] = {name: shown(member.value) for name, member in item.__members__.items()}
    else:
        told["signature"] = _signature(item)
    if dataclasses.is_dataclass(item):
        told["fields"] = [
            [one.name, one.init, shown(one.default), one.default_factory is not dataclasses.MISSING]
            for one in dataclasses.fields(item)
        ]
    for name in dir(item):
        if not name.startswith("_") and name not in told.get("members", ()) and _is_its_own(item, name):
            told["attributes"][name] = _attribute(item, name)
    return told


def _is_its_own(item: type, name: str) -> bool:
    """Tell whether an attribute comes from the API, not from Python or from torch's C++, and is more than a slot."""
    owner = next((one for one in item.__mro__ if name in vars(one)), None)
    return (
        owner is not None
        and owner.__module__.partition(".")[0] in ("torch", "planaria")
        and not owner.__module__.startswith("torch._C")
        and not inspect.ismemberdescriptor(vars(owner)[name])
    )


def _attribute(item: type, name: str) -> dict[str, Any]:
    if isinstance(inspect.getattr_static(item, name), property):
        return {"kind": "property"}
    return describe(getattr(item, name))


def _signature(item: Any) -> list[list[Any]] | None:
    try:
        found = inspect.signature(item)
    except (ValueError, TypeError):
        return None
    return [[one.name, one.kind.name, shown(one.default)] for one in found.parameters.values()]


def shown(value: Any) -> str:
    """Return a default or a constant in a form that is the same for equal things of both APIs."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, SIMPLE):
        return repr(value)
    if isinstance(value, list | tuple | set | frozenset):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{shown(key)}: {shown(one)}' for key, one in value.items())})"
    return value.__name__ if inspect.isroutine(value) or inspect.isclass(value) else f"<{type(value).__name__}>"


def describe_all(root: str) -> dict[str, dict[str, Any]]:
    told = {}
    for name in modules(root):
        module = importlib.import_module(f"{root}.{name}")
        told[name] = {one: describe(getattr(module, one)) for one in public_names(module, root)}
    return told


def describe_wanted(root: str, wanted: dict[str, list[str]]) -> dict[str, dict[str, Any] | None]:
    """Describe what is wanted as far as it is there; a module or a name that is missing is None."""
    told: dict[str, dict[str, Any] | None] = {}
    for name, names in wanted.items():
        try:
            module = importlib.import_module(f"{root}.{name}")
        except ModuleNotFoundError as exc:
            if not f"{root}.{name}".startswith(str(exc.name)):
                raise
            told[name] = None
            continue
        told[name] = {one: describe(getattr(module, one)) if hasattr(module, one) else None for one in names}
    return told


def import_everything(root: str) -> list[str]:
    """Import every module of ours there is below `elastic`, public or not; return their names."""
    top = importlib.import_module(f"{root}.elastic")
    found = [info.name for info in pkgutil.walk_packages(top.__path__, f"{root}.elastic.")]
    for name in (*found, f"{root}.launcher", f"{root}.run"):
        importlib.import_module(name)
    return found


def main(argv: list[str]) -> None:
    root = argv[0]
    if root != "torch.distributed":
        sys.meta_path.insert(0, NoTorch())
    if argv[1:] == ["--import-everything"]:
        told: object = import_everything(root)
    elif argv[1:]:
        with open(argv[1]) as file:
            told = describe_wanted(root, {name: list(names) for name, names in json.load(file).items()})
    else:
        told = describe_all(root)
    assert ("torch" in sys.modules) == (root == "torch.distributed")
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
