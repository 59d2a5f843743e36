"""Which files of a directory are shipped: `.petignore`, with the meaning of a `.gitignore`, over what is never shipped unasked.

Pure: paths in, verdicts out. The last rule that fits decides, so a line `!.env` brings back what a rule of ours left out.
Whoever walks the directory does not look into a directory that is left out, as git does not. No library does it: each verdict
comes with its reason, and packing needs nothing installed.
"""

from __future__ import annotations

import re

from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = ".petignore"
_OURS = {
    "history of a version control system": (".git", ".hg/", ".svn/", ".jj/"),
    "a virtual environment": (".venv/", "venv/"),
    "a cache": (
        "__pycache__/",
        "*.py[co]",
        ".mypy_cache/",
        ".pytest_cache/",
        ".ruff_cache/",
        ".hypothesis/",
        ".cache/",
        ".tox/",
        ".nox/",
        ".ipynb_checkpoints/",
        "node_modules/",
        ".DS_Store",
    ),
    "a secret": (
        "*.env",
        "!example.env",
        "!sample.env",
        "!template.env",
        ".env.*",
        "!.env.example",
        "!.env.sample",
        "!.env.template",
        ".envrc",
        "*.pem",
        "*.key",
        "*.p12",
        "*.pfx",
        "*.jks",
        "*.keystore",
        "*.kdbx",
        "id_rsa*",
        "id_dsa*",
        "id_ecdsa*",
        "id_ed25519*",
        ".ssh/",
        ".aws/",
        ".azure/",
        ".gcloud/",
        "**/.config/gcloud/",
        ".kube/",
        ".gnupg/",
        "**/.docker/config.json",
        ".netrc",
        "_netrc",
        ".pypirc",
        ".npmrc",
        ".git-credentials",
        ".pgpass",
        ".my.cnf",
        ".htpasswd",
        ".huggingface/",
        "kaggle.json",
        "credentials",
        "!credentials/",
        "credentials.json",
        "application_default_credentials.json",
        "token.json",
        ".dockercfg",
        ".s3cfg",
        ".boto",
        ".vault-token",
        "*.tfstate",
        "*.tfstate.*",
        "client_secret*.json",
        "service[-_]account*.json",
        "secrets.json",
        "secrets.y*ml",
        "secrets.toml",
    ),
}  # fmt: skip  (rows of names)


class Rule(Value):
    """One line: what it fits, whether it brings back instead of leaving out, and why it is there."""

    pattern: re.Pattern[str]
    keeps: bool
    directories_only: bool
    why: str


def rules(text: str = "") -> tuple[Rule, ...]:
    """Return our rules and those of a `.petignore`, in the order in which they count.

    Raises:
        UsageError: A line means nothing.
    """
    ours = (_rule(line, why) for why, lines in _OURS.items() for line in lines)
    theirs = (_rule(line, f"{FILE} line {number}") for number, line in enumerate(text.split("\n"), 1))
    return tuple(rule for rule in (*ours, *theirs) if rule is not None)


def verdict(given: Iterable[Rule], path: str, *, is_directory: bool) -> Rule | None:
    """Return the last rule that fits a path relative to the root; None: nobody says anything, so it is shipped."""
    found = None
    for rule in given:
        if (is_directory or not rule.directories_only) and rule.pattern.fullmatch(path):
            found = rule
    return found


def _rule(line: str, why: str) -> Rule | None:
    line = _trimmed(line)
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    body = line[1:] if keeps else line
    directories_only = body.endswith("/")
    body = body.rstrip("/") if directories_only else body
    if not body:
        raise UsageError(f"{why} means nothing: {quoted(line)}", hint="to leave out everything, write *")
    anchored = "/" in body
    body = body.removeprefix("/")
    try:
        pattern = re.compile(("" if anchored else "(?:.*/)?") + _regex(body), re.DOTALL)
    except re.error as problem:
        raise UsageError(f"{why} cannot be understood: {quoted(line)}", hint=str(problem)) from problem
    return Rule(pattern, keeps, directories_only, why)


def _trimmed(line: str) -> str:
    """Drop what editors add: a carriage return, and spaces at the end unless a backslash keeps them."""
    line = line.removesuffix("\r")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    return line


def _regex(body: str) -> str:
    """Translate one pattern without its slash at the end."""
    found = ""
    at = 0
    while at < len(body):
        piece, at = _piece(body, at)
        found += piece
    return found


def _piece(body: str, at: int) -> tuple[str, int]:
    """Translate what stands at one place; return it and the place after it."""
    starts = at == 0 or body[at - 1] == "/"
    if starts and body.startswith("**/", at):
        return "(?:.*/)?", at + 3
    if starts and body[at:] == "**":
        return ".+", at + 2
    match body[at]:
        case "*":
            while body.startswith("*", at):  # several are one, where no slash stands around them
                at += 1
            return "[^/]*", at
        case "?":
            return "[^/]", at + 1
        case "[":
            return _bracket(body, at)
        case "\\" if at + 1 < len(body):
            return re.escape(body[at + 1]), at + 2
        case letter:
            return re.escape(letter), at + 1


def _bracket(body: str, at: int) -> tuple[str, int]:
    """Translate `[a-z]` and `[!a-z]`; a bracket that nobody closes is a letter."""
    begin = at + 1
    negated = body[begin : begin + 1] in ("!", "^")
    begin += negated
    end = body.find("]", begin + 1)  # a bracket at the beginning is one of the letters
    if end < 0:
        return re.escape("["), at + 1
    letters = body[begin:end].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    for doubled in ("&&", "||", "~~", "--"):  # Python reserves them for operations on sets
        letters = letters.replace(doubled, "\\" + doubled[0] + "\\" + doubled[1])
    return f"(?!/)[{'^' if negated else ''}{letters}]", end + 1
