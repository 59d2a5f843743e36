from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.errors import CodeRefused, FetchFailed
from planaria.ship.limits import MIB, Limits
from planaria.ship.pack import pack
from planaria.ship.unpack import unpack

SMALL = Limits(total_bytes=4 * MIB, members=50, ratio_free_bytes=MIB)


def info(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = kind
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes] | tarfile.TarInfo, mode: str = "w:gz") -> str:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for member in members:
            head, content = member if isinstance(member, tuple) else (member, b"")
            head.size = len(content) or head.size
            tar.addfile(head, io.BytesIO(content))
    return str(path)


def contents(folder: Path) -> dict[str, tuple[str, object]]:
    found: dict[str, tuple[str, object]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("directory", None)
        else:
            found[name] = ("program" if os.access(path, os.X_OK) else "file", path.read_bytes())
    return found


def refusal(archive: str, folder: Path, limits: Limits = SMALL) -> str:
    """Return why an archive is refused, and see that nothing of it is left."""
    before = set(folder.parent.rglob("*"))
    with pytest.raises(CodeRefused) as caught:
        unpack(archive, str(folder), limits)
    assert set(folder.parent.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_is_unpacked_whole(tmp_path: Path, mode: str) -> None:
    archive = tar_of(
        tmp_path / "x.tar.gz",
        info("./", tarfile.DIRTYPE),
        (info("./train.py", mode=0o755), b"x"),
        (info("lib/a.py"), b"y" * 3000),
        info("here.py", tarfile.LNKTYPE, linkname="lib/a.py"),
        info("link", tarfile.SYMTYPE, linkname="lib/../train.py"),
        mode=mode,
    )
    unpack(archive, str(tmp_path / "out"), SMALL)
    assert contents(tmp_path / "out") == {
        "here.py": ("file", b"y" * 3000),
        "lib": ("directory", None),
        "lib/a.py": ("file", b"y" * 3000),
        "link": ("link", "lib/../train.py"),
        "train.py": ("program", b"x"),
    }


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([info("../evil")], "'../evil' has a name that leads upwards"),
        ([info("a/../../evil")], "has a name that leads upwards"),
        ([info("/tmp/evil")], "'/tmp/evil' has an absolute name"),
        ([info("l", tarfile.SYMTYPE, linkname="/etc")], "'l' is a link to '/etc', out of the folder"),
        ([info("l", tarfile.SYMTYPE, linkname="../x")], "out of the folder"),
        ([info("l", tarfile.SYMTYPE, linkname="d"), info("l/x")], "'l/x' lies below 'l', which is a link"),
        ([info("h", tarfile.LNKTYPE, linkname="/etc/passwd")], "'/etc/passwd' has an absolute name"),
        ([info("h", tarfile.LNKTYPE, linkname="../x")], "leads upwards"),
        ([info("h", tarfile.LNKTYPE, linkname="nope")], "'h' is a hard link to 'nope', which is no file before it"),
        ([info("d", tarfile.CHRTYPE, devmajor=1, devminor=3)], "'d' is a device"),
        ([info("d", tarfile.BLKTYPE)], "'d' is a device"),
        ([info("p", tarfile.FIFOTYPE)], "'p' is a fifo"),
        ([info("u", b"Z")], "'u' is a member of an unknown kind"),
        ([info("x"), info("./x")], "is in it twice"),
        ([info(f"{number}") for number in range(60)], "more than 50 files and directories"),
        ([info("/".join(["d"] * 60))], "more than 50 files and directories"),
    ],
)  # fmt: skip
def test_what_would_leave_the_folder_or_is_no_code_is_refused(
    tmp_path: Path, members: list[tarfile.TarInfo], said: str
) -> None:
    (tmp_path / "room").mkdir()
    archive = tar_of(tmp_path / "x.tar.gz", (info("before.py"), b"x"), *members)
    assert said in refusal(archive, tmp_path / "room/out")


def test_bits_that_give_power_are_dropped(tmp_path: Path) -> None:
    archive = tar_of(
        tmp_path / "x.tar", (info("s", mode=0o7777), b"x"), info("d", tarfile.DIRTYPE, mode=0o7777), mode="w"
    )
    unpack(archive, str(tmp_path / "out"))
    for name in ("s", "d"):
        assert stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) & ~0o755 == 0


def test_a_bomb_of_zeros_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    archive = tar_of(tmp_path / "x.tar.gz", (info("zeros"), bytes(3 * MIB)))
    assert "more than 200 times as much" in refusal(archive, tmp_path / "room/out")
    archive = tar_of(tmp_path / "y.tar", (info("zeros"), bytes(5 * MIB)), mode="w")
    assert "more than 4.0 MiB of content" in refusal(archive, tmp_path / "room/out")


def test_a_bomb_of_many_small_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    archive = tar_of(tmp_path / "x.tar", *[(info(f"{number}"), os.urandom(MIB)) for number in range(5)], mode="w")
    assert "more than 4.0 MiB of content" in refusal(archive, tmp_path / "room/out")


def test_a_bomb_behind_the_end_of_the_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    plain = gzip.decompress(Path(tar_of(tmp_path / "x.tar.gz", (info("x"), b"x"))).read_bytes())
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(plain + bytes(3 * MIB)))
    assert "more than 200 times as much" in refusal(str(tmp_path / "x.tar.gz"), tmp_path / "room/out")


def test_a_bomb_in_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    archive = tar_of(tmp_path / "x.tar", info("x", pax_headers={"comment": "x" * 2 * MIB}), mode="w")
    assert "a header of more than 1,048,576 bytes" in refusal(archive, tmp_path / "room/out")


def test_a_sparse_file_counts_as_what_it_becomes(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(8 * MIB)
    sparse = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "s",
        "GNU.sparse.realsize": str(8 * MIB),
    }
    head = info("s", pax_headers=sparse)
    archive = tar_of(tmp_path / "x.tar", (head, b"1\n0\n0\n".ljust(512, b"\0")), mode="w")
    assert "more than 4.0 MiB of content" in refusal(archive, tmp_path / "room/out")


@pytest.mark.parametrize("cut", [1, 100, 600, 1100, 1600])
@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_half_an_archive_is_refused_and_not_half_unpacked(tmp_path: Path, cut: int, mode: str) -> None:
    (tmp_path / "room").mkdir()
    archive = tar_of(tmp_path / "x", (info("a"), os.urandom(700)), (info("b"), os.urandom(2000)), mode=mode)
    Path(archive).write_bytes(Path(archive).read_bytes()[:cut])
    assert "it is damaged, or no .tar.gz or .tar" in refusal(archive, tmp_path / "room/out")


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    archive = Path(tar_of(tmp_path / "x", info("a"), info("b"), mode="w"))
    content = bytearray(archive.read_bytes())
    content[512 + 100] ^= 0xFF
    archive.write_bytes(content)
    assert "it is damaged" in refusal(str(archive), tmp_path / "room/out")


@pytest.mark.parametrize("content", [b"", b"x", b"\x1f\x8b", b"print('hello')\n" * 100, bytes(100)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "x.tar.gz").write_bytes(content)
    assert "it is damaged, or no .tar.gz or .tar" in refusal(str(tmp_path / "x.tar.gz"), tmp_path / "room/out")


def test_a_disk_that_does_not_take_it_is_named(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "x.tar", (info("a"), b"x"), mode="w")
    with pytest.raises(FetchFailed, match=r"cannot unpack into .*: No such file or directory"):
        unpack(archive, str(tmp_path / "nowhere/out"))


@settings(max_examples=150)
@given(st.data())
def test_no_damage_does_anything_but_a_refusal(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        archive = Path(
            tar_of(room / "x", info("d" * 120 + "/é"), (info("b"), b"x" * 20), info("l", b"2", linkname="b"), mode="w")
        )
        content = bytearray(archive.read_bytes()[: data.draw(st.integers(0, 5000))])
        for _ in range(data.draw(st.integers(0, 4))):
            if content:
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        archive.write_bytes(content)
        try:
            unpack(str(archive), str(room / "out"), SMALL)
        except CodeRefused:
            assert [path.name for path in room.iterdir()] == ["x"]


parts = st.binary(min_size=1, max_size=12).map(lambda raw: os.fsdecode(raw.replace(b"/", b"_").replace(b"\0", b"0")))
paths = st.lists(parts.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4)


@settings(max_examples=60)
@given(st.dictionaries(paths.map("/".join), st.tuples(st.binary(max_size=600), st.booleans()), min_size=1, max_size=6))
def test_what_was_packed_is_what_is_unpacked(tree: dict[str, tuple[bytes, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        for path, (content, is_program) in tree.items():
            place = room / "in" / path
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            except OSError:  # a file and a directory of one name
                continue
            place.chmod(0o755 if is_program else 0o644)
        (room / "in/.petignore").write_text("!*\n")
        pack(str(room / "in"), str(room / "x.tar.gz"))
        unpack(str(room / "x.tar.gz"), str(room / "out"))
        assert contents(room / "out") == contents(room / "in")
