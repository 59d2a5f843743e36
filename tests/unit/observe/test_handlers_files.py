"""The file of Prometheus' numbers: nobody can guess the name of its draft, and a stream is written to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from planaria.observe.handlers import PrometheusHandler, Surroundings
from planaria.observe.metrics import Registry

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_link_at_a_name_that_could_be_guessed_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"x.prom.{os.getpid()}.tmp").symlink_to(victim)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    said: list[str] = []
    handler = PrometheusHandler(
        Surroundings(said.append, said.append, Registry(), lambda call: call()), str(tmp_path / "x.prom")
    )
    handler.handle({"name": "a"})
    handler.close()
    assert victim.read_text() == "precious"
    assert 'planaria_events_total{name="a"} 1' in (tmp_path / "x.prom").read_text()
    assert (synced, said) == ([], []), "no disk is waited for"
    assert len(list(tmp_path.iterdir())) == 3
