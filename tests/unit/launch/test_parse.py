from __future__ import annotations

import pytest

from planaria.errors import UsageError
from planaria.launch.flags import BY_DEST, OURS, TORCHRUN
from planaria.launch.parse import Options, parse, split_list


def refused(argv: list[str], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        parse(argv, environ or {})
    return str(caught.value)


def test_every_flag_has_a_field_and_every_field_a_flag() -> None:
    own = {"training_script", "training_script_args", "given", "from_variable"}
    assert set(Options._fields) - own == set(BY_DEST)


def test_a_script_alone_gets_every_default() -> None:
    options = parse(["train.py"], {})
    assert options.training_script == "train.py"
    assert options.training_script_args == ()
    assert options.given == frozenset()
    assert all(getattr(options, flag.dest) == flag.default for flag in (*TORCHRUN, *OURS))


def test_everything_behind_the_script_is_the_scripts() -> None:
    options = parse(["--tee", "3", "train.py", "--tee", "1", "--help", "-x", "--no"], {})
    assert options.tee == "3"
    assert options.training_script_args == ("--tee", "1", "--help", "-x", "--no")
    assert not options.help


@pytest.mark.parametrize(
    ("argv", "script", "args"),
    [
        (["--", "a.py", "--", "b"], "a.py", ("--", "b")),
        (["a.py", "--", "b"], "a.py", ("b",)),
        (["a.py", "--", "--", "b"], "a.py", ("--", "b")),
        (["a.py", "b", "--", "c"], "a.py", ("b", "--", "c")),
        (["--standalone", "--", "--tee"], "--tee", ()),
    ],
    ids=str,
)
def test_one_double_dash_beside_the_script_is_dropped(argv: list[str], script: str, args: tuple[str, ...]) -> None:
    options = parse(argv, {})
    assert (options.training_script, options.training_script_args) == (script, args)


@pytest.mark.parametrize(
    "argv", [["-r3"], ["-r", "3"], ["-r=3"], ["--redirects=3"], ["--redirects", "3"], ["--redi", "3"]]
)
def test_a_value_may_be_attached_or_follow(argv: list[str]) -> None:
    assert parse([*argv, "a.py"], {}).redirects == "3"


@pytest.mark.parametrize("argv", [["-mt3", "pkg"], ["-mt", "3", "pkg"], ["-m", "-t=3", "pkg"]])
def test_short_flags_may_stand_together(argv: list[str]) -> None:
    options = parse(argv, {})
    assert (options.module, options.tee, options.training_script) == (True, "3", "pkg")


def test_the_last_of_several_values_wins() -> None:
    assert parse(["--tee=1", "-t2", "--tee", "3", "a.py"], {}).tee == "3"


def test_a_prefix_of_two_spellings_of_one_flag_is_not_ambiguous() -> None:
    assert parse(["--nproc", "2", "a.py"], {}).nproc_per_node == "2"


def test_a_prefix_of_several_flags_is_refused_with_the_candidates() -> None:
    assert refused(["--no", "a.py"]) == "'--no' could mean any of --no-python, --node-rank"


@pytest.mark.parametrize("flag", OURS, ids=lambda flag: flag.name)
def test_our_own_flags_are_accepted_in_full_only(flag: object) -> None:
    for name in flag.names:  # type: ignore[attr-defined]
        value = {"text": ["x"], "choice": list(flag.choices[-1:]), "number": ["1"], "integer": ["1"]}.get(flag.kind, [])  # type: ignore[attr-defined]
        assert parse([name, *value, "a.py"], {}).given == {flag.dest}  # type: ignore[attr-defined]
        assert "there is no flag" in refused([name[:-1], *value, "a.py"])


def test_negative_numbers_and_texts_with_spaces_are_values() -> None:
    assert parse(["--node-rank", "-1", "--role", "-a b", "a.py"], {}).node_rank == -1


def test_help_ends_the_reading() -> None:
    assert parse(["--help", "--bogus"], {"PET_NNODES": "1", "PET_MODULE": "broken"}).help
    assert parse(["-mh"], {}).help
    assert parse(["--he"], {}).help


def test_the_command_line_beats_the_variable_and_the_variable_the_default() -> None:
    environ = {"PET_NPROC_PER_NODE": "3", "PET_MODULE": "1", "PET_MAX_RESTARTS": "", "PET_STANDALONE": "0"}
    options = parse(["--nproc-per-node=2", "pkg"], environ)
    assert (options.nproc_per_node, options.module, options.max_restarts, options.standalone) == ("2", True, 0, False)
    assert options.given == {"nproc_per_node"}
    assert options.from_variable == {"module", "standalone"}


def test_messages_name_the_flag_or_the_variable_the_value_came_from() -> None:
    assert parse(["a.py"], {"PET_TEE": "1"}).source("tee") == "PET_TEE"
    assert parse(["-t1", "a.py"], {"PET_TEE": "1"}).source("tee") == "--tee"
    assert refused(["a.py"], {"PET_MAX_RESTARTS": "x"}) == "PET_MAX_RESTARTS expects a whole number, got 'x'"


def test_flags_without_a_variable_ignore_the_environment() -> None:
    options = parse(["a.py"], {"PET_LOGS_SPECS": "x", "PET_NUMA_BINDING": "x", "PET_DRY_RUN": "1", "PET_HELP": "1"})
    assert options == parse(["a.py"], {})


def test_control_characters_of_the_command_line_never_reach_the_terminal() -> None:
    sentence = refused(["--max-restarts=\x1b[2J\n\x07\udc80", "a.py"])
    assert sentence.isprintable()
    assert len(refused(["--max-restarts=" + "9x" * 10_000, "a.py"])) < 200


@pytest.mark.parametrize(
    ("text", "items"),
    [("a,b", ("a", "b")), ("a,,b", ("a,b",)), (",,,", (",", "")), ("", ("",)), ("a,,,b", ("a,", "b"))],
)
def test_two_commas_are_one_comma_of_the_text(text: str, items: tuple[str, ...]) -> None:
    assert split_list(text) == items


def test_an_enormous_number_is_refused_and_not_computed() -> None:
    assert refused(["--max-restarts=" + "9" * 5000, "a.py"]).startswith("--max-restarts expects a whole number")


def test_a_flag_whose_value_may_be_left_out_never_takes_the_script_for_it() -> None:
    assert parse(["--preflight", "a.py"], {}).preflight == "all"
    assert parse(["--preflight=disk,gpu", "a.py"], {}).preflight == "disk,gpu"
    assert [parse(["a.py"], {"PET_PREFLIGHT": text}).preflight for text in ("1", "0", "disk")] == ["all", None, "disk"]
    assert parse(["a.py"], {}).preflight is None
