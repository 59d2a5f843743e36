"""Files that others have laid out: nobody is made to read what is his own for them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from journals import Node

from planaria.agent.journal import JOURNAL
from planaria.insight.flags import Asked
from planaria.insight.follow import follow
from planaria.insight.gather import FolderSource, node_folders, run_folder, run_folders
from planaria.insight.plainfiles import open_within, owner_of
from planaria.insight.sources import Found

OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")


def read(folder: Path, *names: str) -> bytes | None:
    descriptor = open_within(str(folder), *names)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def test_a_plain_file_below_a_folder_is_read_and_nothing_beside_it(tmp_path: Path) -> None:
    inner = tmp_path / "node" / "logs" / "0"
    inner.mkdir(parents=True)
    (inner / "stdout.log").write_text("hello")
    (tmp_path / "secret").write_text("secret")
    node = tmp_path / "node"
    assert read(node, "logs", "0", "stdout.log") == b"hello"
    for names in (("..", "secret"), ("logs/0/stdout.log",), ("logs", "0"), ("logs", ".", "0", "stdout.log"), ("x\0",)):
        assert read(node, *names) is None
    assert owner_of(str(node)) == os.geteuid()


def test_links_are_not_followed_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("secret")
    node = tmp_path / "node"
    node.mkdir()
    (node / "file").symlink_to(tmp_path / "real" / "file")
    (node / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read(tmp_path / "real", "file") == b"secret"
    assert read(node, "file") is None
    assert read(node, "folder", "file") is None
    assert read(tmp_path / "link", "file") is None
    assert owner_of(str(tmp_path / "link")) is None


def test_a_folder_that_everybody_may_write_to_is_not_read_and_that_is_said(tmp_path: Path) -> None:
    folder = Node("a", 0).begins().write(tmp_path)
    for mode in (0o777, 0o1777):
        folder.chmod(mode)
        (seen,) = FolderSource(str(tmp_path / "job7")).look()
        assert (seen.events, seen.report) == ((), None)
        assert seen.gap.endswith("everybody may write to its folder")
    folder.chmod(0o775)
    assert FolderSource(str(tmp_path / "job7")).look()[0].events


def test_a_link_in_the_place_of_a_node_or_a_run_is_none_and_one_that_the_reader_names_is_followed(
    tmp_path: Path,
) -> None:
    folder = Node("a", 0).begins().write(tmp_path / "real")
    runs = tmp_path / "runs"
    (runs / "job8").mkdir(parents=True)
    (runs / "job8" / "node").symlink_to(folder)
    (runs / "job9").symlink_to(folder.parent)
    assert node_folders(str(runs / "job8")) == []
    assert run_folders(str(runs)) == []
    assert run_folder(str(runs / "job9"), "") == str(folder.parent)


@needs_root
def test_a_folder_of_another_user_makes_nobody_read_what_is_not_that_users(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret of root\n")
    world = tmp_path / "world"  # as /tmp is: root's, and everybody may write there
    links = world / "l"
    links.mkdir(parents=True)
    world.chmod(0o1777)
    (links / "stdout.log").symlink_to(secret)
    node = Node("a", 0, workers=1).begins()
    paths = [str(links / "stdout.log"), str(secret)]
    worker = {"round": 0, "rank": 0, "local_rank": 0, "pid": 5, "log_files": paths}
    node.tell(1.0, "worker.started", **worker).ends(5.0, "done", 0)
    (world / JOURNAL).write_text("".join(f"{json.dumps(event)}\n" for event in node.events))
    os.chown(world / JOURNAL, OTHER, OTHER)
    run = tmp_path / "runs" / "job7"
    run.mkdir(parents=True)
    os.chown(run, OTHER, OTHER)
    (run / node.name).symlink_to(world)
    assert node_folders(str(run)) == []
    for folder in (world, node.write(tmp_path / "own")):
        if folder is not world:
            os.chown(folder, OTHER, OTHER)
            assert FolderSource(str(folder)).look()[0].gap.endswith("it is not of the owner of its folder")
            os.chown(folder / JOURNAL, OTHER, OTHER)
            assert FolderSource(str(folder)).look()[0].events
        said: list[str] = []
        follow(Asked("logs"), Found([FolderSource(str(folder))]), lambda line, said=said: said.append(str(line)))
        assert said == []
