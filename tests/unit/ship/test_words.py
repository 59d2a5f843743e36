from __future__ import annotations

import pytest

from planaria.errors import UsageError
from planaria.ship.words import Described, Help, Launch, Typed, entry, fetch_and_run


@pytest.mark.parametrize(
    ("argv", "environ", "asked"),
    [
        ([], {}, Launch(())),
        (["--nnodes=2", "x.py", "s3://b/k"], {}, Launch(("--nnodes=2", "x.py", "s3://b/k"))),
        (["x.py"], {"PLANARIA_FETCH": "0"}, Launch(("x.py",))),
        (["x.py"], {"PLANARIA_FETCH": "", "PLANARIA_JOB": ""}, Launch(("x.py",))),
        (["--help"], {}, Launch(("--help",))),
        (["x.py", "-a"], {"PLANARIA_FETCH": "1"}, Typed("x.py", ("-a",), None)),
        (["s3://b/k", ""], {}, Typed("s3://b/k", ("",), None)),
        (["s3://b/k"], {"PLANARIA_FETCH_SHA256": "A" * 64}, Typed("s3://b/k", (), "a" * 64)),
        ([], {"PLANARIA_JOB": "/job.json"}, Described("/job.json")),
    ],
)
def test_the_entry_point_knows_what_is_the_launchers(argv: list[str], environ: dict[str, str], asked: object) -> None:
    assert entry(argv, environ) == asked


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["--help"], Help()),
        (["-h"], Help()),
        (["x.py", "--help"], Typed("x.py", ("--help",), None)),
        (["./-x"], Typed("./-x", (), None)),
    ],
)
def test_fetch_and_run_always_fetches(argv: list[str], asked: object) -> None:
    assert fetch_and_run(argv, {}) == asked


@pytest.mark.parametrize(
    ("argv", "environ", "said"),
    [
        ([], {}, "what shall be run"),
        (["-x"], {}, "the first word has to be a script, a directory or s3"),
        (["x"], {"PLANARIA_JOB": "j"}, "is one word too many"),
        (["x"], {"PLANARIA_FETCH_SHA256": "12"}, "PLANARIA_FETCH_SHA256 expects 64 digits"),
        ([], {"PLANARIA_JOB": "j", "PLANARIA_FETCH_SHA256": "0" * 64}, "PLANARIA_FETCH_SHA256 is one too many"),
    ],
)
def test_what_cannot_be_meant_is_refused(argv: list[str], environ: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fetch_and_run(argv, environ)


@pytest.mark.parametrize("argv", [["x.py"], ["--nnodes=2", "x.py"], []])
def test_a_hash_that_nobody_would_look_at_is_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="PLANARIA_FETCH_SHA256 is set, and nothing is fetched"):
        entry(argv, {"PLANARIA_FETCH_SHA256": "0" * 64})


def test_a_variable_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(UsageError, match="PLANARIA_FETCH expects 0 or 1, got 'yes'"):
        entry(["x"], {"PLANARIA_FETCH": "yes"})
