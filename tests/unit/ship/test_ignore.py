from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.errors import UsageError
from planaria.ship.ignore import rules, verdict


def ships(text: str, path: str) -> bool:
    """Walk as whoever packs does: what lies below a directory that is left out is never asked about."""
    given = rules(text)
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        found = verdict(given, "/".join(parts[:depth]), is_directory=depth < len(parts))
        if found is not None and not found.keeps:
            return False
    return True


@pytest.mark.parametrize(
    ("text", "left_out", "shipped"),
    [
        ("data", ["data", "a/data", "data/x", "a/data/x"], ["data2", "mydata"]),
        ("/data", ["data", "data/x"], ["a/data"]),
        ("a/data", ["a/data"], ["b/a/data", "data"]),
        ("data/", ["data/x", "a/data/x"], ["data", "a/data"]),
        ("*.bin", ["x.bin", "a/x.bin", ".bin"], ["x.bin2", "x.bi"]),
        ("a/*", ["a/x"], ["b/a/x", "a"]),
        ("a/*.bin", ["a/x.bin"], ["a/b/x.bin"]),
        ("**/logs", ["logs", "a/logs", "a/b/logs/x"], ["logs2"]),
        ("logs/**", ["logs/x", "logs/a/b"], ["a/logs/x", "logs"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "x/a/b"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("?.py", ["a.py"], ["ab.py", ".py"]),
        ("[ab].py", ["a.py", "b.py"], ["c.py", "[ab].py"]),
        ("[!ab].py", ["c.py"], ["a.py"]),
        ("[a-c]", ["b"], ["d", "-"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("[x", ["[x"], ["x"]),
        ("[[&&x]", ["[", "&", "x"], ["y"]),
        ("\\#x", ["#x"], ["x"]),
        ("#x", [], ["#x", "x"]),
        ("\\!x", ["!x"], ["x"]),
        ("x\\ ", ["x "], ["x"]),
        ("x   ", ["x"], ["x   "]),
        ("x\r\ny\r", ["x", "y"], []),
        ("*\n!keep.py", ["x"], ["keep.py"]),
        ("*.bin\n!a.bin\na.*", ["a.bin", "b.bin"], ["b.py"]),
        ("d/\n!d/x", ["d/x"], []),  # as in git: nobody looks into a directory that is left out
        ("", [], ["a", "a/b", "train.py", "a b", "-x", "x\ny"]),
    ],
)
def test_a_petignore_means_what_a_gitignore_means(text: str, left_out: list[str], shipped: list[str]) -> None:
    assert [path for path in left_out if ships(text, path)] == []
    assert [path for path in shipped if not ships(text, path)] == []


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".git", "history"),
        ("a/.git", "history"),
        (".env", "a secret"),
        ("a/.env.local", "a secret"),
        ("key.pem", "a secret"),
        ("id_rsa", "a secret"),
        ("id_ed25519.pub", "a secret"),
        ("kaggle.json", "a secret"),
        ("service-account-x.json", "a secret"),
        ("prod.env", "a secret"),
        ("config/credentials", "a secret"),
        (".dockercfg", "a secret"),
        (".s3cfg", "a secret"),
        (".boto", "a secret"),
        (".vault-token", "a secret"),
        ("application_default_credentials.json", "a secret"),
        ("a/token.json", "a secret"),
        ("terraform.tfstate", "a secret"),
        ("terraform.tfstate.backup", "a secret"),
        ("x.pyc", "a cache"),
    ],
)
def test_what_nobody_wants_shipped_is_left_out_with_the_reason(path: str, why: str) -> None:
    found = verdict(rules(), path, is_directory=False)
    assert found is not None
    assert not found.keeps
    assert why in found.why


@pytest.mark.parametrize("path", [".aws", ".ssh", ".venv", "__pycache__", "node_modules", "a/.config/gcloud", ".git"])
def test_directories_nobody_wants_shipped_are_left_out(path: str) -> None:
    found = verdict(rules(), path, is_directory=True)
    assert found is not None
    assert not found.keeps


@pytest.mark.parametrize(
    "path", [".env.example", "monkey.py", "environment.yml", "env.py", "config.json", ".gitignore", "keys.py"]
)
def test_harmless_files_with_similar_names_are_shipped(path: str) -> None:
    assert ships("", path)


def test_a_line_brings_back_what_is_left_out_unasked() -> None:
    assert not ships("", ".env")
    assert ships("!.env", ".env")


@pytest.mark.parametrize(
    ("line", "said"), [("/", "line 2 means nothing"), ("!", "line 2 means nothing"), ("[z-a]", "line 2 cannot")]
)
def test_a_line_that_means_nothing_is_refused_by_its_number(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"petignore {said}"):
        rules(f"x\n{line}")


@given(st.text("ab*?/![]-\\ #\n.", max_size=12), st.text("ab/.]!", min_size=1, max_size=6))
def test_no_line_breaks_anything_but_by_a_sentence(text: str, path: str) -> None:
    try:
        found = rules(text)
    except UsageError as problem:
        assert "petignore line" in str(problem)  # noqa: PT017  both outcomes are fine
        return
    verdict(found, path, is_directory=False)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_agrees(tmp_path: Path) -> None:
    patterns = [
        "data",
        "/top",
        "a/b",
        "x/",
        "*.bin",
        "**/logs",
        "deep/**",
        "a/**/c",
        "?.q",
        "[ab]z",
        "!keep.bin",
        "w\\*w",
    ]
    paths = [
        "data", "s/data", "top", "s/top", "a/b", "s/a/b", "s/x/f", "f.bin", "s/keep.bin", "keep.bin", "logs", "s/logs/f",
        "deep/f", "s/deep/f", "a/c", "a/s/t/c", "1.q", "12.q", "az", "cz", "w*w", "wxw", "s/x2/f", "a/s/t/d",
    ]  # fmt: skip
    (tmp_path / ".gitignore").write_text("\n".join(patterns))
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=60)
    told = subprocess.run(
        ["git", "-C", tmp_path, "check-ignore", "--no-index", "--stdin"],
        input="\n".join(paths), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    by_git = {path for path in told.stdout.split("\n") if path}
    assert {path for path in paths if not ships("\n".join(patterns), path)} == by_git


@pytest.mark.parametrize("path", ["credentials/store.py", "example.env", ".env.example", "tokenizer.json", "env.py"])
def test_what_only_looks_like_a_secret_is_shipped(path: str) -> None:
    assert ships("", path)
