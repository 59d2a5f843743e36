from __future__ import annotations

import re

import pytest

from planaria.aws.flags import _VALUED, Help, read
from planaria.aws.help import VERB_HELP
from planaria.errors import UsageError

RUN = ("--size", "2", "--specs_file", "specs.json", "--name", "ann-job")


def test_the_line_of_the_quick_start_is_read_as_it_is_typed() -> None:
    asked = read(["run_job", *RUN, "examples/imagenet/main.py", "--", "model-arch", "resnet101"])
    assert (asked.verb, asked.options.source, asked.options.script) == ("run-job", "examples/imagenet/main.py", None)
    assert asked.script_args == ("model-arch", "resnet101")


def test_a_directory_is_followed_by_its_script_wherever_flags_stand() -> None:
    for words in (["examples", "main.py", *RUN], ["examples", *RUN, "main.py"], [*RUN, "examples", "main.py"]):
        asked = read(["run-job", *words, "--", "--", "-x", ""])
        assert (asked.options.source, asked.options.script) == ("examples", "main.py")
        assert asked.script_args == ("--", "-x", "")


@pytest.mark.parametrize(
    "words",
    [["kill_job", "j"], ["kill-job", "--name", "j"], ["kill_job", "--name=j"], ["kill_job", "j", "--name", "j"]],
)
def test_a_job_is_named_with_or_without_its_flag(words: list[str]) -> None:
    assert read(words).options.job == "j"


@pytest.mark.parametrize("words", [["--region", "eu-west-1", "list"], ["list", "--region=eu-west-1"]])
def test_region_and_profile_stand_before_or_after_the_verb(words: list[str]) -> None:
    asked = read([*words, "--profile", "list"])
    assert (asked.verb, asked.options.region, asked.options.profile) == ("list", "eu-west-1", "list")


def test_any_flag_may_stand_before_the_verb_with_its_value() -> None:
    asked = read([*RUN, "--min_size", "1", "--expires", "2", "--owner", "list", "run_job", "train.py"])
    assert (asked.verb, asked.options.size, asked.options.owner) == ("run-job", 2, "list")
    values = {word for text in VERB_HELP.values() for word in re.findall(r"^  .*?(--\w+) [A-Z]+  ", text, re.M)}
    assert {value.replace("_", "-") for value in values} <= set(_VALUED)


def test_list_hosts_is_hosts() -> None:
    assert read(["list_hosts", "j"]).verb == "hosts"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run_jbo"], "there is no verb 'run_jbo', did you mean run-job?"),
        (["--region", "x"], "a verb is missing"),
        (["run_job", *RUN], "source"),
        (["run_job", *RUN, "x.py", "--sizes", "3"], "--sizes"),
        (["run_job", *RUN[2:], "--size", "two", "x.py"], "--size: is 'two', expected a whole number"),
        (["kill_job"], "petctl kill-job needs a job's name"),
        (["kill_job", "a", "--name", "b"], "--name is 'b' and the job beside it 'a'"),
        (["kill_job", "a b"], "--name is 'a b', expected"),
        (["status", "a", "--", "b"], "takes nothing after --"),
        (["logs", "a", "--rank", "-1"], "--rank"),
        (["run_job", *RUN, "--expires", "1e8", "x.py"], "--expires: is '1e8', expected a number from 0.1 to 87600"),
        (["run_job", *RUN, "--expires", "nan", "x.py"], "--expires: is 'nan'"),
        (["status", "a", "--dry-run"], "--dry-run"),
        (["stop", "a", "--drain", "--no_wait"], "--drain waits until all have drained, and --no_wait does not"),
    ],
)
def test_bad_input_is_one_sentence_that_names_it(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(words)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("verb", VERB_HELP)
def test_every_verb_has_help_with_examples(verb: str) -> None:
    with pytest.raises(Help, match=r"(?s)usage: petctl .*Examples:"):
        read([verb, "--help"])


def test_help_alone_lists_every_verb() -> None:
    with pytest.raises(Help) as caught:
        read(["--help"])
    assert all(verb.replace("-", "_") in str(caught.value) for verb in VERB_HELP)
