"""The command lines that are right; the wrong ones are a table: `tests/support/wrong_looks.py`."""

from __future__ import annotations

import pytest

from planaria.insight.flags import COMMANDS, Asked, help_text, read_flags


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_and_exit_statuses(command: str) -> None:
    text = help_text(command)
    assert text.startswith(f"usage: planaria {command} ")
    for part in ("\nExamples:\n", "--run-dir DIR", "--at HOST:PORT", "\nExit statuses: 0 ", "--json"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 128
    assert read_flags(command, ["--help"]) == read_flags(command, ["-h"]) == Asked(command, help=True)


def test_without_flags_the_run_of_this_machine_is_meant() -> None:
    assert read_flags("status", []) == Asked("status")


def test_agents_may_be_named_in_two_ways_and_several_times() -> None:
    asked = read_flags("top", ["--at=node-a:80", "--at", "[::1]:81", "--port=82", "--host=node-b", "--at=node-a:80"])
    assert asked.at == (("node-a", 80), ("::1", 81), ("node-b", 82))
    assert read_flags("top", ["--port=82"]).at == (("127.0.0.1", 82),)


def test_ranks_add_up_and_one_stream_leaves_the_other_out() -> None:
    asked = read_flags("logs", ["-f", "--rank=0,3", "--rank", "7", "--stream=stderr", "--lines=0", "--json"])
    assert (asked.follow, asked.ranks, asked.streams, asked.lines) == (True, frozenset({0, 3, 7}), ("stderr",), 0)
    assert read_flags("logs", []).ranks is None


def test_the_rest_is_as_it_reads() -> None:
    assert read_flags("why", ["--round=3", "--run-dir", "runs"]) == Asked("why", run_dir="runs", round=3)
    assert read_flags("top", ["--every=0.5", "--once"]) == Asked("top", every_s=0.5, once=True)
    assert read_flags("status", ["--watch"]).watch
