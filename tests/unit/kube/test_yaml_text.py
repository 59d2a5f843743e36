from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planaria.kube import yaml_text
from planaria.kube.yaml_text import LONGEST_KEY, documents

LOADERS = (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # libyaml is what Go's reader was made from
AWKWARD = (
    "", " ", "~", "null", "Yes", "no", "ON", "y", "true", "1", "-1", "+1", "0x1f", "0o17", "1_000", "1e3", "1.5",
    ".5", ".inf", "-.inf", ".NaN", "12:30:45", "2026-11-16", "2026-11-16T04:00:00Z", "---", "...", "-", "- a", "?",
    "? a", ":", "a:", "a: b", "a :b", "a #b", "#a", "&a", "*a", "!a", "%a", "@a", "`a", "{a}", "[a]", "a, b", "|",
    ">", "'", '"', "\\", "=", "<<", "a\tb", "\ta", "a ", " a", "a  b", "\n", "a\n", "a\nb", "a\nb\n", "a\n\n", "\na",
    " a\nb", "a\n b\n", "a\n \nb", "a\n\n\nb", "a\r\nb", "a\x85b", "a\u2028b\n", "\ufeffa", "a\ufeff\nb", "\x00",
    "\x07\n", "\x7f", "\ufffe", "é", "日本\n語", "😀", "a\n😀", "\ta\nb", "a\t\n\tb", "-a", "--a", "--epochs=20",
    "--lr=1e-3", "s3://<BUCKET>/petctl/<USER>/<JOB_ID>/main.py", "hello_elastic:dev", "$(POD_IP)", "5Gi", "100m",
    "0m", "1e3m", "N", "None", "a:b:c", "a:1",
)  # fmt: skip
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(st.sampled_from(" \n\tab-:#|\"'"), max_size=12)
    | st.sampled_from(AWKWARD)
    | st.from_regex(yaml_text._PLAIN, fullmatch=True)
)
keys = st.text(max_size=20) | st.sampled_from(AWKWARD)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))
objects = st.dictionaries(keys, values, max_size=4)


@given(st.lists(st.tuples(st.text() | st.sampled_from(AWKWARD), objects), max_size=3))
def test_what_is_written_is_what_is_read(several: list[tuple[str, dict[str, object]]]) -> None:
    text = documents(several)  # type: ignore[arg-type]  hypothesis makes JSON
    for loader in LOADERS:
        read = [found for found in yaml.load_all(text, loader) if found is not None]
        assert read == [value for _, value in several]
        assert [repr(found) for found in read] == [repr(value) for _, value in several]  # True is not 1, 1.0 is not 1


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_strings_stay_themselves_as_values_keys_and_items(text: str) -> None:
    value = {text: text, "list": [text, [text], {text: [text]}]}
    for loader in LOADERS:
        assert list(yaml.load_all(documents([("", value)]), loader)) == [value]


def test_strings_are_quoted_only_where_they_have_to_be() -> None:
    plain = [
        "imagenet-worker-1",
        "hello_elastic:dev",
        "nvidia.com/gpu",
        "5Gi",
        "--epochs=20",
        "two words",
        "http://0.0.0.0:2379",
        "v1",
    ]
    assert documents([("", {"plain": plain})]) == "plain:\n" + "".join(f"- {text}\n" for text in plain)
    assert documents([("", {"quoted": ["8080", "yes", "", "a: b"]})]) == 'quoted:\n- "8080"\n- "yes"\n- ""\n- "a: b"\n'


def test_several_lines_stand_as_they_are() -> None:
    assert documents([("", {"a": {"script": "one\n\n  two\n"}, "b": ["x\ny"]})]) == (
        "a:\n  script: |\n    one\n\n      two\nb:\n- |-\n  x\n  y\n"
    )


def test_a_comment_stands_above_its_document() -> None:
    text = documents([("first\n\nof two", {"a": 1}), ("", {"b": [{"c": 2, "d": []}]})])
    assert text == "# first\n#\n# of two\na: 1\n---\nb:\n- c: 2\n  d: []\n"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": float("nan")}, "no such number"),
        ({"a": float("-inf")}, "no such number"),
        ({"a": "\ud800"}, "expects Unicode"),
        ({"a": b"x"}, "expects JSON"),
        ({"a": {1, 2}}, "expects JSON"),
        ({1: "a"}, "a key expects text"),
        ({"k" * (LONGEST_KEY + 1): "a"}, "a key expects text"),
    ],
)
def test_what_is_no_json_is_refused(value: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        documents([("", value)])  # type: ignore[arg-type]  that is the point


def test_a_key_of_the_greatest_length_is_read_back() -> None:
    for value in ({"k" * LONGEST_KEY: "a"}, {"\u2028" * (LONGEST_KEY // 6 - 1): "a"}):
        assert yaml.safe_load(documents([("", value)])) == value  # type: ignore[list-item]  a dict of text
