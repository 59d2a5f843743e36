from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from planaria.errors import CodeRefused, FetchFailed
from planaria.ship import fetch
from planaria.ship.fetch import Code, Folder, code_at, sweep, take, verify
from planaria.ship.limits import Limits
from planaria.ship.source import Local


def test_a_folder_is_left_alone_while_somebody_holds_it_and_swept_afterwards(tmp_path: Path) -> None:
    held = Folder(str(tmp_path))
    (Path(held.path) / "code").mkdir()
    sweep(str(tmp_path))
    assert Path(held.path, "code").is_dir()
    assert os.get_inheritable(held._lock)
    os.close(held._lock)  # as the kernel does when the last process is gone
    fresh = Folder(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [Path(fresh.path).name]
    fresh.remove()
    assert list(tmp_path.iterdir()) == []


def test_nothing_but_our_own_folders_is_swept(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "planaria-code-link").symlink_to("elsewhere")
    (tmp_path / "planaria-code-file").write_text("x")
    (tmp_path / "planaria-other").mkdir()
    before = sorted(tmp_path.iterdir())
    sweep(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_folders_of_others_are_not_swept(tmp_path: Path) -> None:
    (tmp_path / "planaria-code-theirs").mkdir()
    os.chown(tmp_path / "planaria-code-theirs", 65534, 65534)
    sweep(str(tmp_path))
    assert (tmp_path / "planaria-code-theirs").is_dir()


def test_a_place_that_takes_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"there is no directory '.*/nowhere' for the code"):
        Folder(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(FetchFailed, match=r"cannot make a folder in '.*/file': Not a directory"):
        Folder(str(tmp_path / "file"))


def test_a_disk_without_locks_is_named_and_nothing_is_left_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_locked", lambda _descriptor: False)
    with pytest.raises(FetchFailed, match="cannot lock a folder in"):
        Folder(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_code_of_this_machine_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("x")
    assert code_at(Local(f"{tmp_path}/"), "t.py") == Code(f"{tmp_path}/t.py", str(tmp_path))
    assert code_at(Local(f"{tmp_path}/t.py"), None) == Code(f"{tmp_path}/t.py", None)
    for path, script in (("nope", None), ("t.py", "t.py"), ("", None), ("", "nope.py")):
        with pytest.raises(CodeRefused):
            code_at(Local(f"{tmp_path}/{path}"), script)


def test_a_stream_is_hashed_while_it_is_written(tmp_path: Path) -> None:
    seen: list[int] = []
    assert take([b"ab", b"c"], str(tmp_path / "x"), seen.append) == hashlib.sha256(b"abc").hexdigest()
    assert (tmp_path / "x").read_bytes() == b"abc"
    assert seen == [2, 3]
    with pytest.raises(FetchFailed, match="File exists"):
        take([b""], str(tmp_path / "x"), seen.append)


def test_a_stream_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "UNPACKED", Limits(total_bytes=10))
    with pytest.raises(CodeRefused, match="it has more than 10 bytes"):
        take(iter(lambda: b"abc", b""), str(tmp_path / "x"), lambda _taken: None)


def test_another_hash_is_refused_and_no_hash_is_not_asked_for() -> None:
    verify("s3://b/k", "a" * 64, None)
    verify("s3://b/k", "a" * 64, "a" * 64)
    with pytest.raises(CodeRefused, match=f"its SHA-256 is {'a' * 64}, and the job's is {'b' * 64}"):
        verify("s3://b/k", "a" * 64, "b" * 64)
