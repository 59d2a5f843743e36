"""A strict reader of Prometheus' text format 0.0.4, written from its specification and not from our writer."""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\n]|\\[\\n\"])*)\"")
_UNESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}

Sample = tuple[str, tuple[tuple[str, str], ...]]


class Family:
    """One metric as it was read."""

    def __init__(self) -> None:
        self.kind = ""
        self.help = ""
        self.samples: dict[Sample, float] = {}


def read(text: str) -> dict[str, Family]:
    """Return the families by name.

    Raises:
        ValueError: The text is not in the format.
    """
    if text and not text.endswith("\n"):
        raise ValueError("the last line must end with a line feed")
    families: dict[str, Family] = {}
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name, _, told = line[7:].partition(" ")
            families.setdefault(name, Family()).help = _unescape(told)
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            family = families.setdefault(name, Family())
            if family.kind or family.samples:
                raise ValueError(f"a second TYPE, or one after samples: {line}")
            family.kind = kind
        elif line and not line.startswith("#"):
            _read_sample(line, families)
    return families


def _read_sample(line: str, families: dict[str, Family]) -> None:
    found = _NAME.match(line)
    if found is None:
        raise ValueError(f"no name: {line}")
    name, rest = found.group(), line[found.end() :]
    labels: list[tuple[str, str]] = []
    if rest.startswith("{"):
        rest = rest[1:]
        while not rest.startswith("}"):
            pair = _LABEL.match(rest)
            if pair is None:
                raise ValueError(f"no label: {line}")
            labels.append((pair.group(1), _unescape(pair.group(2))))
            rest = rest[pair.end() :].removeprefix(",")
        rest = rest[1:]
    family = families.get(name) or families.get(re.sub("_(bucket|sum|count)$", "", name))
    if family is None:
        raise ValueError(f"a sample without a family: {line}")
    key = name, tuple(labels)
    if key in family.samples or len(dict(labels)) != len(labels):
        raise ValueError(f"twice the same: {line}")
    family.samples[key] = float(rest.strip())


def _unescape(text: str) -> str:
    return re.sub(r"\\[\\n\"]", lambda found: _UNESCAPED[found.group()], text)
