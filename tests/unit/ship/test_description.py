from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.errors import UsageError
from planaria.ship.description import LIMIT_BYTES, Description, decode, encode

DIGEST = "0f" * 32
SIMPLE = Description("mnist", "r1", "s3://b/code/x.tar.gz", DIGEST, "train.py", ("--lr", "0.1"), ("--nnodes=2:4",))
TORTURE = (
    "",
    " ",
    "-",
    "--",
    "--help",
    "a b",
    "'",
    '"',
    "\n",
    "%d%%",
    "$HOME",
    "`id`",
    "$(id)",
    "\\",
    "é",
    "\udcff",
    "{}",
)
words = st.lists(st.binary(max_size=20).map(lambda raw: os.fsdecode(raw.replace(b"\0", b""))), max_size=5).map(tuple)


def fields(**changes: object) -> bytes:
    return json.dumps(json.loads(encode(SIMPLE)) | changes).encode()


def test_a_description_arrives_as_it_was_sent() -> None:
    assert decode(encode(SIMPLE)) == SIMPLE


def test_the_file_is_what_other_tools_are_told_it_is() -> None:
    assert json.loads(encode(SIMPLE)) == {
        "version": 1,
        "job": "mnist",
        "run": "r1",
        "source": "s3://b/code/x.tar.gz",
        "sha256": DIGEST,
        "script": "train.py",
        "argv": ["--lr", "0.1"],
        "launch": ["--nnodes=2:4"],
    }


def test_arguments_that_torment_shells_arrive_as_they_were_typed() -> None:
    sent = Description("j", "r", "/app/train.py", argv=TORTURE)
    assert decode(encode(sent)).argv == TORTURE
    encode(sent).decode("ascii")


@given(words)
def test_any_argument_a_process_can_have_arrives(argv: tuple[str, ...]) -> None:
    sent = Description("j", "r", "train.py", argv=argv)
    assert decode(encode(sent)) == sent


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "its version is 2, and this planaria reads version 1"),
        ({"version": True}, "its version is true"),
        ({"job": ""}, 'job is "", and not a string'),
        ({"job": 5}, "job is 5, and not a string"),
        ({"job": "a/b"}, 'job is "a/b", and a name has'),
        ({"run": "-x"}, 'run is "-x", and a name has'),
        ({"run": "x" * 129}, "and a name has"),
        ({"source": None}, "source is null"),
        ({"source": "http://host/x.py"}, "http:// is not supported"),
        ({"source": "s3://b/"}, "is no object in S3"),
        ({"source": "/work", "sha256": DIGEST}, "which has none: write null"),
        ({"sha256": "abc"}, 'sha256 is "abc", and not 64 digits'),
        ({"sha256": DIGEST.upper()}, "and not 64 digits"),
        ({"sha256": 1}, "sha256 is 1, and not 64 digits"),
        ({"script": None}, "script is null, and the source is an archive"),
        ({"source": "/app/d.tgz", "sha256": None, "script": None}, "script is null, and the source is an archive"),
        ({"script": "../x.py"}, "script '../x.py' is no path of a file below the directory"),
        ({"source": "s3://b/x.py"}, "and the source is a script already: write null"),
        ({"argv": "--lr 1"}, 'argv is "--lr 1", and not a list of strings'),
        ({"argv": ["a", 1]}, "argv[1] is 1, and not a string without NUL"),
        ({"argv": ["a\0b"]}, "argv[0] is "),
        ({"argv": ["\ud800"]}, "argv[0] is "),
        ({"launch": ["--x", "train.py"]}, 'launch[1] is "train.py", and not one flag in one word'),
        ({"launch": ["--"]}, 'launch[0] is "--", and not one flag in one word'),
        ({"color": 1}, "there is no field 'color'"),
    ],
)
def test_a_wrong_field_is_named_in_one_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode(fields(**changes))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["job", "run", "source", "sha256", "script", "argv", "launch"])
def test_a_missing_field_is_named(field: str) -> None:
    found = json.loads(encode(SIMPLE))
    del found[field]
    with pytest.raises(UsageError, match=f"the field {field} is missing"):
        decode(json.dumps(found).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b"[]", "it is no JSON object"),
        (b"[" * 100_000, "it is no JSON"),
        (b'{"job": "a", "job": "b"}', "a field is there twice"),
        (b" " * (LIMIT_BYTES + 1), "at most 4,194,304 are read"),
    ],
)
def test_a_file_that_is_no_description_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        decode(content)


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(UsageError, match="launch"):
        encode(Description("j", "r", "x.py", launch=("x",)))
