from __future__ import annotations

import pytest

from planaria.errors import UsageError
from planaria.kube.flags import HELP_OF, Help, _parser, read


def test_a_plain_run_and_a_plain_installation() -> None:
    asked = read(["run"])
    assert (asked.verb, asked.namespace, asked.lease, asked.port) == ("run", [], None, 8080)
    asked = read(["install", "--image", "registry.example.com/planaria:1"])
    assert (asked.verb, asked.namespace, asked.replicas) == ("install", "planaria-system", 2)
    assert read(["uninstall"]).namespace == "planaria-system"


def test_every_flag_is_read() -> None:
    asked = read(
        [
            "run",
            "--namespace=a",
            "--namespace=d",
            "--lease=b/c",
            "--identity=me",
            "--lease-duration=3",
            "--host=::1",
            "--port=0",
        ]
    )
    assert (asked.namespace, asked.lease, asked.identity, asked.lease_duration) == (["a", "d"], ("b", "c"), "me", 3.0)
    asked = read(["install", "--image=x", "--flag=--tasks=2", "--flag=--port=1", "--dry-run", "--no-wait", "--json"])
    assert asked.jobs_in == []
    assert read(["uninstall", "--jobs-in=a", "--jobs-in", "b"]).jobs_in == ["a", "b"]
    assert (asked.flag, asked.dry_run, asked.no_wait, asked.json) == (["--tasks=2", "--port=1"], True, True, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "planaria operator expects run, install or uninstall, got ''"),
        (["start"], "got 'start'"),
        (["install"], "--image"),
        (["install", "--image="], "argument --image: expected an image such as"),
        (["install", "--image=a b"], "argument --image: expected an image such as"),
        (["install", "--image=x", "--replicas=0"], "argument --replicas: expected a number from 1 to 64, got '0'"),
        (["install", "--image=x", "--pull-policy=never"], "argument --pull-policy"),
        (["install", "--image=x", "--flag=--tasks=0"], "argument --tasks: expected a number from 1 to 64, got '0'"),
        (["install", "--image=x", "--flag=--nonsense"], "--nonsense"),
        (["run", "--namespace=A"], "argument --namespace: expected a name of lower-case letters"),
        (["install", "--image=x", "--jobs-in="], "argument --jobs-in: expected a name of lower-case letters"),
        (["install", "--image=x", "--jobs-in=a", "--flag=--namespace=c"], "--flag cannot name others"),
        (["install", "--image=x", "--jobs-in=a", "--flag=--lease=a/b"], "--flag cannot name others"),
        (["run", "--lease=x"], "argument --lease: expected NAMESPACE/NAME, got 'x'"),
        (["run", "--port=65536"], "argument --port: expected a port from 0 to 65535, got '65536'"),
        (["run", "--lease-duration=nan"], "argument --lease-duration: expected seconds, at least 1, got 'nan'"),
        (["run", "--nonsense"], "--nonsense"),
        (["run", "--nam=x"], "--nam"),
    ],
)
def test_a_wrong_word_is_named_with_what_was_expected(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(words)
    assert sentence in str(refused.value)
    assert "--help" in refused.value.hint


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["help"], ["run", "--help"], ["install", "-h"], ["uninstall", "--help"]]
)
def test_help_is_given_wherever_it_is_asked_for(words: list[str]) -> None:
    with pytest.raises(Help, match="usage: planaria operator"):
        read(words)


@pytest.mark.parametrize("verb", HELP_OF)
def test_every_flag_has_its_line_in_the_help_and_the_other_way_round(verb: str) -> None:
    flags = {option for action in _parser(verb)._actions for option in action.option_strings}
    told = {
        word.partition("=")[0]
        for line in HELP_OF[verb].splitlines()
        if line.startswith("  --")
        for word in line.split()[:1]
    }
    assert told == flags
    assert "Examples:\n  planaria operator" in HELP_OF[verb]
