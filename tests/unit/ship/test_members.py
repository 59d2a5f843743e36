from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.errors import CodeRefused
from planaria.ship.members import Member, Tree, leads_out, path_of

names = st.sampled_from(["a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/b/c"])
targets = st.lists(st.sampled_from(["..", "a", "b", "c", "."]), min_size=1, max_size=6).map("/".join)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "//x", "..", "../x", "a/../../x", "a/..", "a\0b", "x" * 256, "a/" * 501 + "b"]
)
def test_a_name_that_leads_out_or_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(CodeRefused, match="the archive is refused: "):
        path_of(name)


@pytest.mark.parametrize(("name", "path"), [("./a//b/.", "a/b"), (".", ""), ("", ""), ("..a", "..a"), ("a\nb", "a\nb")])
def test_a_name_has_one_short_form(name: str, path: str) -> None:
    assert path_of(name) == path


@pytest.mark.parametrize("kind", ["device", "fifo", "member of an unknown kind"])
def test_devices_pipes_and_strangers_are_refused(kind: str) -> None:
    with pytest.raises(CodeRefused, match=f"'x' is a {kind}"):
        Tree().place(Member("x", kind))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (Member("a", "file"), Member("./a", "file"), "is in it twice"),
        (Member("a", "file"), Member("a", "directory"), "is in it twice, as a file and as a directory"),
        (Member("a", "directory"), Member("a", "link", "b"), "is in it twice"),
        (Member("a/b", "file"), Member("a", "link", "b"), "is in it twice, as a directory and as a link"),
        (Member("a", "file"), Member("a/b", "file"), "lies below 'a', which is a file"),
        (Member("a", "link", "b"), Member("a/b", "file"), "lies below 'a', which is a link"),
        (Member("a", "link", "b"), Member("a/b/c", "link", "x"), "lies below 'a', which is a link"),
        (Member("a", "file"), Member(".", "file"), "is the folder itself"),
    ],
)
def test_a_name_is_there_once_and_nothing_lies_below_a_file_or_link(first: Member, second: Member, said: str) -> None:
    tree = Tree()
    tree.place(first)
    with pytest.raises(CodeRefused, match=said):
        tree.place(second)


def test_a_directory_may_be_named_again() -> None:
    tree = Tree()
    assert tree.place(Member("a/b", "file")) == "a/b"
    assert tree.place(Member("a", "directory")) is None
    assert tree.place(Member("./", "directory")) is None
    assert len(tree) == 2


@pytest.mark.parametrize("target", ["../../etc/passwd", "/etc/passwd", "nope", "d", "link", "self"])
def test_a_hard_link_leads_to_a_file_that_is_there_already(target: str) -> None:
    tree = Tree()
    for member in (Member("d/f", "file"), Member("link", "link", "d/f")):
        tree.place(member)
    hard = Member("self", "hard link", "./d/f")
    tree.place(hard)
    assert tree.original(hard) == "d/f"
    with pytest.raises(CodeRefused):
        tree.original(Member("self", "hard link", target))


@pytest.mark.parametrize(
    ("links", "out"),
    [
        ({"a": "b"}, False),
        ({"a": "."}, False),
        ({"a/b": ".."}, False),
        ({"a/b": "../../x"}, True),
        ({"a": ".."}, True),
        ({"a": "/x"}, True),
        ({"a": ""}, True),
        ({"a": "a"}, False),  # leads nowhere
        ({"a": "b", "b": "a"}, False),
        ({"p/q/r": "../..", "y": "p/q/r/../z"}, True),  # looks like p/q/z and is above the folder
        ({"y": "x/..", "x": "../../z"}, True),
        ({"y": "x/../z", "x": "d"}, False),
    ],
)
def test_a_link_leads_out_also_through_other_links(links: dict[str, str], out: bool) -> None:
    assert any(leads_out(path, links) for path in links) is out
    assert leads_out(next(iter(links)), links) in (out, False)


@settings(max_examples=200)
@given(st.dictionaries(names, targets, min_size=1, max_size=4))
def test_the_kernel_finds_no_way_out_that_we_do_not_find(links: dict[str, str]) -> None:
    tree = Tree()
    try:
        for path, target in links.items():
            tree.place(Member(path, "link", target))
        found = tree.links()
    except CodeRefused:
        return
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "1/2/3/4/5/6/root"
        for path, target in found:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
        for folder in ("a/b", "b/c", "c"):  # where no link is
            with contextlib.suppress(OSError):
                (root / folder).mkdir(parents=True)
        for path, _ in found:
            with contextlib.suppress(OSError):  # it leads nowhere
                descriptor = os.open(root / path, os.O_PATH)
                try:
                    assert (os.readlink(f"/proc/self/fd/{descriptor}") + "/").startswith(f"{root}/")
                finally:
                    os.close(descriptor)
