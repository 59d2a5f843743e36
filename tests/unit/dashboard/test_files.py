from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from journals import Node

from planaria.dashboard.files import Folder, open_named, open_of, read_end
from planaria.dashboard.lookout import Lookout
from planaria.dashboard.source import Seen

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")


def read(folder: Folder, *names: str) -> bytes | None:
    descriptor = open_of(folder, names)
    return None if descriptor is None else read_end(descriptor, 100)


def read_named(folder: Folder, path: Path) -> bytes | None:
    descriptor = open_named(folder, str(path))
    return None if descriptor is None else read_end(descriptor, 100)


@pytest.fixture
def node(tmp_path: Path) -> Folder:
    """The folder of a node, below what the user named."""
    folder = tmp_path / "runs" / "job7" / "node-a"
    (folder / "evidence" / "hang-1").mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "evidence" / "hang-1" / "host.txt").write_text("load 7\n")
    return Folder(str(tmp_path / "runs"), str(folder))


def test_a_file_below_is_read_and_its_end_alone_if_it_is_long(node: Folder) -> None:
    assert read(node, "evidence", "hang-1", "host.txt") == b"load 7\n"
    descriptor = open_of(node, ("evidence", "hang-1", "host.txt"))
    assert descriptor is not None
    assert read_end(descriptor, 2) == b"7\n"


@pytest.mark.parametrize(
    "names", [("..", "node-a", "x"), ("evidence",), ("",), ("a/b",), ("nul\0l",), ("evidence", "no")]
)
def test_what_is_no_file_below_is_nothing(node: Folder, names: tuple[str, ...]) -> None:
    assert read(node, *names) is None


def test_no_link_below_what_the_user_named_is_followed(node: Folder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    evidence = tmp_path / "runs" / "job7" / "node-a" / "evidence"
    (evidence / "hang-1" / "link").symlink_to(secret)
    (evidence / "hang-2").symlink_to(evidence / "hang-1")
    (tmp_path / "runs" / "job8").symlink_to(tmp_path / "runs" / "job7")
    assert read(node, "evidence", "hang-1", "link") is None
    assert read(node, "evidence", "hang-2", "host.txt") is None
    far = Folder(node.top, f"{node.top}/job8/node-a")
    assert read(far, "evidence", "hang-1", "host.txt") is None
    (tmp_path / "named").symlink_to(tmp_path / "runs")
    own = Folder(str(tmp_path / "named"), str(tmp_path / "named" / "job7" / "node-a"))
    assert read(own, "evidence", "hang-1", "host.txt") == b"load 7\n", "what the user named may be a link"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_may_write_to_has_nothing_to_show(node: Folder, mode: int) -> None:
    os.chmod(node.path, mode)
    assert read(node, "evidence", "hang-1", "host.txt") is None


def test_a_log_elsewhere_is_read_where_no_link_of_a_users_is_on_the_way(node: Folder, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "stdout.log"
    log.parent.mkdir()
    log.write_text("step 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "stderr.log").symlink_to(log)
    assert read_named(node, log) == b"step 1\n"
    assert read_named(node, tmp_path / "logs" / "stderr.log") is None
    assert open_named(node, "logs/stdout.log") is None
    if os.geteuid() == 0:
        assert read_named(node, tmp_path / "link" / "stdout.log") == b"step 1\n", "root's own link"
        os.lchown(tmp_path / "link", NOBODY, -1)
    os.symlink(tmp_path / "turn", tmp_path / "turn")
    assert read_named(node, tmp_path / "link" / "stdout.log") is None
    assert read_named(node, tmp_path / "turn" / "stdout.log") is None


@needs_root
def test_a_file_of_another_user_is_nobodys_to_name(node: Folder, tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("sesame\n")
    assert read_named(node, log) == b"sesame\n"
    os.chown(node.path, NOBODY, -1)
    assert read_named(node, log) is None
    assert read(node, "evidence", "hang-1", "host.txt") is None


@needs_root
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
        seen = Seen(Lookout([], [str(top)], list), lambda: 0.0)
        found = seen.log_tail("trap", 0, "stdout")
        assert found is None or found["text"] == ""
        for name in ("node", "world"):
            assert seen.evidence("trap", name, "e", "f") is None
