"""A row of the tables of wrong command lines: `wrong_run.py`, `wrong_nodes.py`, `wrong_orders.py`, `wrong_looks.py`."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A command line, the variables that matter, and the one sentence."""

    argv: list[str]
    environ: dict[str, str]
    sentence: str
    command: str = "run"
