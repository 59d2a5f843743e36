from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from planaria.aws import code
from planaria.aws.code import ship, ship_whole
from planaria.aws.names import Place
from planaria.errors import UsageError

PLACE = Place("my-bucket", "jobs")


def test_a_directory_is_packed_and_hashed_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.py").write_text("print(1)\n")
    monkeypatch.setattr(code, "digest_of", lambda _: pytest.fail("the archive is read again"))
    found = ship(str(tmp_path / "d"), "train.py", PLACE, "j", str(tmp_path), inside=False)
    assert found.code is not None
    content = Path(found.code.file.path).read_bytes()
    assert (found.sha256, found.code.file.size_bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert found.code.key == f"jobs/j/code/{found.sha256}.tar.gz"


def test_a_script_is_shipped_as_it_is_and_an_archive_by_its_own_ending(tmp_path: Path) -> None:
    for name, script, ending in (("train", None, ".py"), ("d.tgz", "train.py", ".tgz")):
        (tmp_path / name).write_bytes(b"content")
        found = ship(str(tmp_path / name), script, PLACE, "j", str(tmp_path), inside=False)
        assert found.source == f"s3://my-bucket/jobs/j/code/{hashlib.sha256(b'content').hexdigest()}{ending}"


@pytest.mark.parametrize("name", ["code.tar.bz2", "code.ZIP", "code.tar.zst"])
def test_an_archive_that_no_node_unpacks_is_refused_here_as_in_s3(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    path = str(tmp_path / name)
    with pytest.raises(UsageError, match=r"is an archive of another kind .pack it as"):
        ship(path, None, PLACE, "j", str(tmp_path), inside=False)
    with pytest.raises(UsageError, match=r"is an archive of another kind .pack it as"):
        ship_whole(path, PLACE, str(tmp_path))


def test_an_archive_in_the_container_needs_its_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'/x.tar.gz' is an archive: which script in it"):
        ship("/x.tar.gz", None, PLACE, "j", str(tmp_path), inside=True)
    assert ship("/x.tar.gz", "t.py", PLACE, "j", str(tmp_path), inside=True).script == "t.py"


def test_what_is_no_file_is_refused_and_not_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", "/dev/null", str(tmp_path / "pipe")):
        with pytest.raises(UsageError, match="is not a regular file"):
            ship(path, None, PLACE, "j", str(tmp_path), inside=False)
        with pytest.raises(UsageError, match="is not a regular file"):
            ship_whole(path, PLACE, str(tmp_path))
