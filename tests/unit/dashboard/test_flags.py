from __future__ import annotations

import pytest

from planaria.contract.secret import Secret
from planaria.dashboard.flags import HELP, PORT, Settings, check_host, read_flags


def test_without_flags_it_is_for_this_machine_only() -> None:
    assert read_flags([]) == Settings("127.0.0.1", PORT, (), (), all_users=False)


def test_every_flag_is_heard() -> None:
    argv = [
        "--all-users",
        "--host",
        "::1",
        "--port=0",
        "--at=node-a:8080",
        "--at=[::1]:81",
        "--run-dir=/a",
        "--run-dir",
        "b",
    ]
    assert read_flags(argv) == Settings("::1", 0, (("node-a", 8080), ("::1", 81)), ("/a", "b"), all_users=True)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_wins(word: str) -> None:
    assert read_flags(["--port=1", word]).help


def test_the_help_has_every_flag_and_fits_a_terminal() -> None:
    for name in ("--host", "--port", "--at", "--run-dir", "--all-users", "--help"):
        assert f"\n  {name}" in HELP
    assert max(map(len, HELP.splitlines())) <= 128


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_host_of_this_machine_needs_no_token(host: str) -> None:
    check_host(Settings(host), None)


def test_any_other_host_is_fine_with_a_token() -> None:
    check_host(Settings("0.0.0.0"), Secret(b"x"))
