from __future__ import annotations

import pytest

from planaria.errors import UsageError
from planaria.ship.source import Inside, Local, Stored, check_script, script_of, source_of, split_words

TAR = Stored("b", "d/my_dir.tar.gz")


def test_an_object_in_s3_is_a_bucket_and_a_key() -> None:
    found = source_of("s3://my-bucket/a/my script.py")
    assert found == Stored("my-bucket", "a/my script.py")
    assert isinstance(found, Stored)
    assert (found.url, found.name, found.is_archive) == ("s3://my-bucket/a/my script.py", "my script.py", False)


@pytest.mark.parametrize("name", ["d.tar.gz", "d.tgz", "d.tar", "D.TAR.GZ"])
def test_an_archive_is_known_by_its_name(name: str) -> None:
    found = source_of(f"s3://b/{name}")
    assert isinstance(found, Stored)
    assert found.is_archive


@pytest.mark.parametrize("path", ["train.py", "./a", "/a/b/", "-x", "~", "a:b", "./s3://b", "a b://c"])
def test_everything_else_is_a_path(path: str) -> None:
    assert source_of(path) == Local(path)
    assert source_of(path, inside=True) == Inside(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no path"),
        ("a\0b", "is no path"),
        ("s3://", "is no object in S3"),
        ("s3://bucket", "is no object in S3"),
        ("s3://bucket/", "is no object in S3"),
        ("s3:///key", "is no object in S3"),
        ("s3://buc ket/k", "is no object in S3"),
        ("s3://b;id/k", "is no object in S3"),
        ("s3://b/dir/", "names no file"),
        ("s3://b/dir/..", "names no file"),
        ("s3://b/\udcff", "has an impossible key"),
        ("s3://b/" + "x" * 1025, "has an impossible key"),
        ("s3://b/x.zip", "pack it as .tar.gz"),
        ("https://h/x.py", "https:// is not supported"),
    ],
)
def test_what_cannot_be_fetched_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        source_of(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "short"), [("a.py", "a.py"), ("./a//b/./c.py", "a/b/c.py"), ("-x", "-x"), ("..a", "..a")]
)
def test_a_script_in_a_directory_has_one_short_name(script: str, short: str) -> None:
    assert script_of(script) == short


@pytest.mark.parametrize("script", ["", ".", "/etc/passwd", "../x.py", "a/../b.py", "a/", "a\0"])
def test_a_script_that_is_not_below_the_directory_is_refused(script: str) -> None:
    with pytest.raises(UsageError, match="below the directory"):
        script_of(script)


def test_a_directory_or_archive_is_followed_by_its_script_and_a_script_by_its_arguments() -> None:
    assert split_words(TAR, False, ["./t.py", "-x", ""]) == ("t.py", ("-x", ""))
    assert split_words(Local("d"), True, ["t.py"]) == ("t.py", ())
    assert split_words(Local("d.tar"), False, ["t.py", "1"]) == ("t.py", ("1",))
    assert split_words(Local("t.py"), False, ["t.py", "1"]) == (None, ("t.py", "1"))


@pytest.mark.parametrize("source", [TAR, Local("d.tgz")])
def test_an_archive_without_a_script_is_asked_for_one(source: Stored | Local) -> None:
    with pytest.raises(UsageError, match="is an archive: which script in it"):
        split_words(source, False, [])


def test_a_script_beside_a_source_is_checked() -> None:
    assert check_script(Local("d"), True, "./t.py") == "t.py"
    assert check_script(Local("t.py"), False, None) is None
    assert check_script(Inside("/app"), None, "t.py") == "t.py"
    assert check_script(Inside("/app/t.py"), None, None) is None
    assert check_script(Inside("/app/d.tar.gz"), None, "t.py") == "t.py"
    with pytest.raises(UsageError, match=r"'/app/d.tar.gz' is an archive: which script in it"):
        check_script(Inside("/app/d.tar.gz"), None, None)
    with pytest.raises(UsageError, match="is a directory: which script"):
        check_script(Local("d"), True, None)
    with pytest.raises(UsageError, match="'x' is one too many"):
        check_script(Local("t.py"), False, "x")


def test_an_object_whose_name_no_disk_takes_is_refused_where_it_is_typed() -> None:
    source_of(f"s3://b/{'d' * 300}/{'x' * 252}.py")
    source_of(f"s3://b/{'x' * 300}.tar.gz")  # it is unpacked, and never called so
    with pytest.raises(UsageError, match="has a name of 256 bytes, and a disk takes 255"):
        source_of(f"s3://b/{'x' * 251}é.py")
