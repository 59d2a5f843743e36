"""Immutable records with slots, typed like frozen dataclasses and without the 20 ms that `dataclasses` costs to import.

    class Exited(Value):
        local_rank: int
        status: int = 0

A subclass lists its fields as annotations; defaults are class attributes. Fields are set once by the constructor
(by position or by name), compared and hashed by value, matched by position in `case Exited(0, status)`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self, TypeVar, dataclass_transform

    V = TypeVar("V", bound="Value")
else:

    def dataclass_transform(**_kwargs):
        """Stand in for `typing.dataclass_transform`, which only type checkers read."""
        return lambda cls: cls


_set = object.__setattr__


class _ValueType(type):
    """Turn annotations into slots, the one thing that has to happen before the class exists."""

    _fields: tuple[str, ...]
    _defaults: Mapping[str, Any]

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _ValueType:
        own = tuple(field for field in namespace.get("__annotations__", ()) if not field.startswith("_"))
        defaults = {field: namespace.pop(field) for field in own if field in namespace}
        inherited = [base for base in bases if isinstance(base, _ValueType)]
        namespace["__slots__"] = own
        namespace["_fields"] = fields = tuple(field for base in inherited for field in base._fields) + own
        namespace["_defaults"] = dict(item for base in inherited for item in base._defaults.items()) | defaults  # noqa: SLF001  its own kind
        namespace["__match_args__"] = fields
        return super().__new__(mcls, name, bases, namespace)


@dataclass_transform(frozen_default=True)
class Value(metaclass=_ValueType):
    """Base of every immutable record."""

    if not TYPE_CHECKING:

        def __init__(self, *args, **kwargs):
            cls = type(self)
            if len(args) == len(cls._fields) and not kwargs:  # most are made by decoding: twice as fast
                for name, value in zip(cls._fields, args, strict=True):
                    _set(self, name, value)
                return
            if len(args) > len(cls._fields):
                raise TypeError(f"{cls.__name__} takes {len(cls._fields)} values, got {len(args)}")
            given = dict(zip(cls._fields, args, strict=False))
            for name, value in kwargs.items():
                if name not in cls._fields or name in given:
                    raise TypeError(f"{cls.__name__} got an unexpected or repeated field {name!r}")
                given[name] = value
            for name in cls._fields:
                if name not in given and name not in cls._defaults:
                    raise TypeError(f"{cls.__name__} misses the field {name!r}")
                _set(self, name, given[name] if name in given else cls._defaults[name])

        def __setattr__(self, name, value):
            raise AttributeError(f"{type(self).__name__} is immutable; use replace()")

        def __delattr__(self, name):
            raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self)._fields)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in type(self)._fields)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._fields)
        return f"{type(self).__name__}({shown})"

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in type(self)._fields)


def replace(value: V, **changes: object) -> V:
    """Return a copy of `value` with some fields changed."""
    return type(value)(**{name: changes.pop(name, getattr(value, name)) for name in type(value)._fields}, **changes)


def as_dict(value: Value) -> dict[str, object]:
    """Return the fields of `value` by name, values inside it included, ready for JSON."""
    return {name: _plain(getattr(value, name)) for name in type(value)._fields}


_PLAIN = frozenset((str, int, float, bool, type(None)))


def _plain(item: object) -> object:
    if type(item) in _PLAIN:  # most are, and a picture of a thousand workers has many
        return item
    if isinstance(item, Value):
        return as_dict(item)
    if isinstance(item, (tuple, list)):
        return [_plain(part) for part in item]
    if isinstance(item, dict):
        return {str(key): _plain(part) for key, part in item.items()}
    return item
