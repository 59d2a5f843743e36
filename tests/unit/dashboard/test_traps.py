from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from journals import Node

from planaria.dashboard.lookout import Lookout
from planaria.dashboard.source import Seen

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
def test_another_user_cannot_make_roots_dashboard_show_what_is_roots(tmp_path: Path) -> None:
    """A run folder of another user's leads to a folder that is root's and everybody's to write to, such as /tmp."""
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    secret.chmod(0o600)
    world = tmp_path / "world"
    log = world / "l" / "stdout.log"
    one = Node("node-a", 0, run_id="trap", workers=1).begins()
    one.tell(1.0, "round.started", round=1, nodes=1, world_size=1)
    one.tell(1.0, "worker.started", round=1, rank=0, local_rank=0, pid=1, log_files=[str(log)])
    folder = one.ends(2.0, "done", 0).write(tmp_path / "made")
    folder.rename(world)
    for name in ("l", "evidence/e"):
        (world / name).mkdir(parents=True)
    log.symlink_to(secret)
    (world / "evidence" / "e" / "f").symlink_to(secret)
    for path in (world / "l", world / "evidence", world / "evidence" / "e", world / "journal.jsonl"):
        os.chown(path, NOBODY, -1)
    for path in (log, world / "evidence" / "e" / "f"):
        os.lchown(path, NOBODY, -1)
    world.chmod(0o1777)
    runs = tmp_path / "runs" / "trap"
    runs.mkdir(parents=True)
    os.chown(runs, NOBODY, -1)
    (runs / "node").symlink_to(world)
    for top in (tmp_path / "runs", world):
        seen = Seen(Lookout([], [str(top)], list, lambda: 0.0), lambda: 0.0)
        found = seen.log_tail("trap", 0, "stdout")
        assert found is None or found["text"] == ""
        for name in ("node", "world"):
            assert seen.evidence("trap", name, "e", "f") is None
