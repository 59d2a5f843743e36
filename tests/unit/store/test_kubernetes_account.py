from __future__ import annotations

from pathlib import Path

import pytest

from planaria.store import kubernetes_account


def test_a_pod_knows_its_namespace_and_others_have_the_one_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_account, "ACCOUNT", str(tmp_path))
    assert kubernetes_account.own_namespace("default") == "default"
    (tmp_path / "namespace").write_text("ours\n")
    assert kubernetes_account.own_namespace("default") == "ours"
    (tmp_path / "namespace").write_text("")
    assert kubernetes_account.own_namespace("planaria-system") == "planaria-system"
