"""`planaria drain` and `planaria stop`: their command lines, and how they find an agent, against a small agent of our own."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from owned_agent import Agent

from planaria.errors import UsageError
from planaria.launch import owner_runs
from planaria.launch.owner import run_order
from planaria.launch.owner_flags import Order, help_text, read_flags

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short folder: a UNIX socket's path has 107 bytes. What else runs on this machine is not looked at."""
    found = tmp_path_factory.mktemp("o")
    honest = owner_runs._folders
    monkeypatch.setattr(
        owner_runs, "_folders", lambda environ: [x for x in honest(environ) if x.startswith(str(found))]
    )
    return found


@pytest.fixture
def agents(folder: Path) -> Iterator[dict[str, Agent]]:
    found: dict[str, Agent] = {}
    yield found
    for agent in found.values():
        agent.close()


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {"TMPDIR": str(folder), **more}


def refused(command: str, *argv: str, env: dict[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        run_order(command, argv, env)
    text = str(caught.value)
    assert text.isprintable()
    return text


@pytest.mark.parametrize("command", ["drain", "stop"])
def test_the_only_run_is_found_told_and_waited_for(
    command: str, folder: Path, agents: dict[str, Agent], capfd: pytest.CaptureFixture[str]
) -> None:
    agents["a"] = Agent(folder, "a")
    assert run_order(command, [], environ(folder)) == 0
    assert agents["a"].told[0].startswith(f"POST /v1/{command} HTTP/1.1\r\nHost: localhost\r\n".encode())
    assert b"Authorization" not in agents["a"].told[0]
    out, err = capfd.readouterr()
    assert out == "run job7 has ended on this node\n"
    assert err == "planaria: run job7: running, 0 workers running\n"


def test_a_stop_that_drains_says_for_how_long(folder: Path, agents: dict[str, Agent]) -> None:
    agents["a"] = Agent(folder, "a")
    assert run_order("stop", ["--drain", "--grace=2.5", "--no-wait"], environ(folder)) == 0
    assert agents["a"].told[0].endswith(b'\r\n\r\n{"grace_s": 2.5}')


def test_json_is_one_object(folder: Path, agents: dict[str, Agent], capfd: pytest.CaptureFixture[str]) -> None:
    agents["a"] = Agent(folder, "a")
    assert run_order("drain", ["--json"], environ(folder)) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == {"schema": 1, "command": "drain", "run_id": "job7", "accepted": True, "ended": True}
    assert err == ""


def test_an_agent_that_takes_too_long_is_an_exit_status(
    folder: Path, agents: dict[str, Agent], capfd: pytest.CaptureFixture[str]
) -> None:
    agents["a"] = Agent(folder, "a")
    assert run_order("drain", ["--timeout=0"], environ(folder)) == 1
    assert "has not ended within --timeout=0" in capfd.readouterr().err


def test_several_runs_are_listed_and_one_is_chosen(folder: Path, agents: dict[str, Agent]) -> None:
    agents["a"], agents["b"] = Agent(folder, "a", "job7", 11), Agent(folder, "b", "job8", 12)
    text = refused("stop", env=environ(folder))
    assert text == (
        "planaria stop found 2 agents: choose one by --run-id=job7 --pid=11 (running); --run-id=job8 --pid=12 (running)"
    )
    assert run_order("stop", ["--run-id=job8", "--no-wait"], environ(folder)) == 0
    assert (len(agents["a"].told), len(agents["b"].told)) == (0, 1)


def test_several_nodes_of_one_run_are_one_run_to_stop_and_several_to_drain(
    folder: Path, agents: dict[str, Agent]
) -> None:
    agents["a"], agents["b"] = Agent(folder, "a", pid=11), Agent(folder, "b", pid=12)
    assert "found 2 agents" in refused("drain", "--run-id=job7", env=environ(folder))
    assert run_order("drain", ["--pid=12", "--no-wait"], environ(folder)) == 0
    assert len(agents["b"].told) == 1
    assert run_order("stop", ["--no-wait"], environ(folder)) == 0


def test_the_port_finds_our_own_agent_by_its_socket_without_a_token(folder: Path, agents: dict[str, Agent]) -> None:
    agents["a"] = Agent(folder, "a")
    assert run_order("drain", ["--no-wait", "--port=81"], environ(folder, PLANARIA_TOKEN="s3cret")) == 0
    assert b"s3cret" not in agents["a"].told[0]


def test_nobody_there_is_a_sentence(folder: Path) -> None:
    (folder / "planaria-dead").mkdir()
    (folder / "planaria-file").write_text("")
    os.symlink("/tmp", folder / "planaria-link")
    where = f"in {folder} or /tmp (it is in the TMPDIR of its launcher)"
    assert refused("drain", env=environ(folder)) == f"planaria drain found no run of yours {where}"
    wanted = refused("drain", "--run-id=x", "--pid=3", env=environ(folder))
    assert wanted == f"planaria drain found no run of yours with run id x with pid 3 {where}"
    far = refused("drain", "--port=1", env=environ(folder))
    assert far == (
        "no run of yours answers at 127.0.0.1:1, and others take orders with a token only (set PLANARIA_TOKEN)"
    )
    told = refused("drain", "--port=1", env=environ(folder, PLANARIA_TOKEN="x"))
    assert told == "no agent answers at 127.0.0.1:1: Connection refused"


def test_an_agent_that_refuses_is_quoted(folder: Path, agents: dict[str, Agent]) -> None:
    agents["a"] = Agent(folder, "a", code=503)
    assert refused("drain", env=environ(folder)).startswith("the agent of run job7 refuses: ")


def test_a_token_that_no_header_can_carry_is_not_sent(folder: Path) -> None:
    text = refused("drain", "--port=1", env=environ(folder, PLANARIA_TOKEN="a b"))
    assert text == (
        "no agent answers at 127.0.0.1:1: the token has spaces or control characters, which no header can carry"
    )


def test_flags_may_have_their_value_behind_a_space_or_an_equals_sign() -> None:
    expected = Order(
        "stop", run_id="a", pid=3, port=81, host="::1", timeout_s=5.0, grace_s=10.0, waits=False, json=True
    )
    words = [
        "--run-id",
        "a",
        "--pid=3",
        "--port",
        "81",
        "--host=[::1]",
        "--timeout",
        "5",
        "--drain",
        "--no-wait",
        "--json",
    ]
    assert read_flags("stop", words, {}) == expected


@pytest.mark.parametrize("command", ["drain", "stop"])
def test_the_help_has_examples_and_every_flag(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_order(command, ["--port=x", "--help"], {}) == 0
    out = capfd.readouterr().out
    assert out == help_text(command)
    assert "Examples:" in out
    for flag in ("--run-id", "--pid", "--port", "--host", "--timeout", "--no-wait", "--json"):
        assert flag in out
    assert ("--drain" in out) == (command == "stop")
