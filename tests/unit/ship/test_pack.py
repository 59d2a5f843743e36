from __future__ import annotations

import gzip
import hashlib
import os
import socket
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from planaria.errors import UsageError
from planaria.ship.limits import MIB, Limits
from planaria.ship.pack import LeftOut, digest_of, pack, told

if TYPE_CHECKING:
    from collections.abc import Iterator


def grow(root: Path, *, names: tuple[str, ...] = ("train.py", "lib/model.py", "lib/data/x.txt", "run.sh")) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    (root / "run.sh").chmod(0o755)
    (root / "empty").mkdir()
    (root / "link.py").symlink_to("lib/model.py")
    return root


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "code.tar.gz"


def members(archive: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return tar.getmembers()


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    one = grow(tmp_path / "one")
    other = grow(tmp_path / "other", names=("run.sh", "lib/data/x.txt", "lib/model.py", "train.py"))
    for path in sorted(other.rglob("*")):
        os.utime(path, (1, 1), follow_symlinks=False)
    (other / "train.py").chmod(0o600)
    (other / "lib").chmod(0o700)
    (other / "run.sh").chmod(0o4711)
    first = pack(str(one), str(tmp_path / "1.tar.gz"))
    second = pack(str(other) + "/", str(tmp_path / "2.tar.gz"))
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    assert first == second
    assert first.sha256 == hashlib.sha256((tmp_path / "1.tar.gz").read_bytes()).hexdigest()
    assert first.sha256 == digest_of(str(tmp_path / "1.tar.gz"))


def test_other_content_gives_another_hash(tmp_path: Path) -> None:
    one = grow(tmp_path / "one")
    before = pack(str(one), str(tmp_path / "1.tar.gz"))
    (one / "train.py").chmod(0o755)
    assert pack(str(one), str(tmp_path / "2.tar.gz")).sha256 != before.sha256


def test_an_archive_names_no_owner_no_time_and_every_path_in_order(tmp_path: Path, archive: Path) -> None:
    found = pack(str(grow(tmp_path / "d")), str(archive))
    infos = members(archive)
    assert [info.name for info in infos] == [
        "empty", "lib", "lib/data", "lib/data/x.txt", "lib/model.py", "link.py", "run.sh", "train.py",
    ]  # fmt: skip
    assert {(info.uid, info.gid, info.uname, info.gname, info.mtime) for info in infos} == {(0, 0, "", "", 0)}
    assert {info.name: info.mode for info in infos if info.isreg()} == {
        "lib/data/x.txt": 0o644, "lib/model.py": 0o644, "run.sh": 0o755, "train.py": 0o644,
    }  # fmt: skip
    assert gzip.decompress(archive.read_bytes())
    assert archive.read_bytes()[4:8] == b"\0\0\0\0"
    assert (found.packed_bytes, found.left_out) == (archive.stat().st_size, ())


def test_secrets_history_caches_and_environments_stay_behind_and_that_is_said(tmp_path: Path, archive: Path) -> None:
    root = grow(tmp_path / "d")
    for name in (
        ".git/config",
        ".env",
        "lib/id_rsa",
        "__pycache__/x.pyc",
        ".aws/credentials",
        "py311/pyvenv.cfg",
        "big.bin",
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    (root / ".petignore").write_text("*.bin\n")
    found = pack(str(root), str(archive))
    assert {item.path: item.why for item in found.left_out} == {
        ".aws": "a secret",
        ".env": "a secret",
        ".git": "history of a version control system",
        "__pycache__": "a cache",
        "big.bin": ".petignore line 1",
        "lib/id_rsa": "a secret",
        "py311": "a virtual environment",
    }
    assert ".petignore" in {info.name for info in members(archive)}
    assert not {".env", ".git", "lib/id_rsa", "py311", "py311/pyvenv.cfg"} & {info.name for info in members(archive)}


def test_an_environment_is_shipped_by_whoever_asks_for_it(tmp_path: Path, archive: Path) -> None:
    root = grow(tmp_path / "d")
    (root / "py311").mkdir()
    (root / "py311/pyvenv.cfg").write_text("x")
    (root / ".petignore").write_text("!py311/\n")
    assert pack(str(root), str(archive)).left_out == ()


def test_what_was_left_out_is_told_in_a_line_for_each_reason() -> None:
    paths = [LeftOut(f"{number}/__pycache__", "a cache") for number in range(5)]
    assert told((LeftOut(".env", "a secret"), *paths)) == [
        "left out (a secret): '.env'",
        "left out (a cache): '0/__pycache__', '1/__pycache__', '2/__pycache__' and 2 more",
    ]


def test_a_directory_that_is_too_large_is_refused_with_the_numbers(tmp_path: Path, archive: Path) -> None:
    root = grow(tmp_path / "d")
    with (root / "weights.bin").open("wb") as file:
        file.truncate(3 * MIB)
    with pytest.raises(UsageError) as caught:
        pack(str(root), str(archive), limits=Limits(total_bytes=2 * MIB))
    assert "has 3.0 MiB in 5 files to ship, and 2.0 MiB in 100,000 are taken" in str(caught.value)
    assert "the largest: 'weights.bin' (3.0 MiB)" in str(caught.value)
    assert ".petignore" in str(caught.value)
    assert not archive.exists()


def test_too_many_files_are_refused(tmp_path: Path, archive: Path) -> None:
    with pytest.raises(UsageError, match=r"in 4 files to ship, and .* in 5 are taken"):
        pack(str(grow(tmp_path / "d")), str(archive), limits=Limits(members=5))


def test_what_a_node_would_take_for_a_bomb_is_not_packed(tmp_path: Path, archive: Path) -> None:
    root = grow(tmp_path / "d")
    with (root / "zeros").open("wb") as file:
        file.truncate(4 * MIB)
    with pytest.raises(UsageError, match="more than 200 times as much"):
        pack(str(root), str(archive), limits=Limits(ratio_free_bytes=MIB))


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "lib/../../outside", ".."])
def test_a_link_out_of_the_directory_is_refused(tmp_path: Path, archive: Path, target: str) -> None:
    root = grow(tmp_path / "d")
    (root / "bad").symlink_to(target)
    with pytest.raises(UsageError, match=r"'bad' in .* is a link out of the directory, to"):
        pack(str(root), str(archive))


def test_a_link_out_of_the_directory_that_is_left_out_harms_nobody(tmp_path: Path, archive: Path) -> None:
    root = grow(tmp_path / "d")
    (root / "data").symlink_to("/mnt/efs1")
    (root / ".petignore").write_text("/data\n")
    assert [item.path for item in pack(str(root), str(archive)).left_out] == ["data"]


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pt-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
def test_a_file_that_cannot_be_read_is_named(public: Path) -> None:
    root = grow(public / "d")
    (root / "train.py").chmod(0)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setuid(65534)
            pack(str(root), os.devnull)
        except UsageError as problem:
            status = 42 if "cannot read 'train.py': Permission denied" in str(problem) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def test_sockets_and_pipes_stay_behind(tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = grow(tmp_path / "d")
    os.mkfifo(root / "fifo")
    monkeypatch.chdir(root)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    assert [item.path for item in pack(str(root), str(archive)).left_out] == ["fifo", "socket"]


def test_the_script_has_to_be_in_the_archive(tmp_path: Path, archive: Path) -> None:
    root = grow(tmp_path / "d")
    pack(str(root), str(archive), script="lib/model.py")
    with pytest.raises(UsageError, match=r"there is no script 'nope.py' in '.*/d'$"):
        pack(str(root), str(archive), script="nope.py")
    (root / ".petignore").write_text("lib/\n")
    with pytest.raises(UsageError, match=r"'lib' is left out: .petignore line 1"):
        pack(str(root), str(archive), script="lib/model.py")


def test_a_directory_of_nothing_is_refused(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/.env").write_text("x")
    with pytest.raises(UsageError, match=r"has nothing to ship .*'.env' is left out: a secret"):
        pack(str(tmp_path / "d"), str(archive))


@pytest.mark.parametrize(("name", "said"), [("nope", "there is no directory"), ("file", "is not a directory")])
def test_what_is_no_directory_is_refused(tmp_path: Path, archive: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=said):
        pack(str(tmp_path / name), str(archive))


def test_a_file_without_a_hash_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read '.*/nope': No such file"):
        digest_of(str(tmp_path / "nope"))
