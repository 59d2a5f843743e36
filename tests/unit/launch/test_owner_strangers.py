"""Orders reach the run that is meant, or nobody: other hosts, strangers at a port, other users, agents that are stuck."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from owned_agent import Agent

from planaria.errors import UsageError
from planaria.launch import owner, owner_http, owner_runs
from planaria.launch.owner import run_order
from planaria.launch.owner_http import Door, NotAnswered, ask, is_here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = {"PLANARIA_TOKEN": "s3cret"}
STATUS = {"state": "running", "job": {"run_id": "far", "launcher_pid": 5}}


class Scripted:
    """Serves one connection after the other, each as its line of a script says; what was asked is in `asked`."""

    def __init__(self, listening: socket.socket, *answers: bytes | None) -> None:
        self.asked: list[bytes] = []
        self._answers = list(answers)
        self._listening = listening
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._answers:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                self.asked.append(client.recv(65536))
                answer = self._answers.pop(0)
                if answer is not None:
                    client.sendall(answer)
        self._listening.close()

    def close(self) -> None:
        self._answers.clear()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(30)


def reply(code: int, content: object) -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n\r\n{json.dumps(content)}".encode()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path_factory.mktemp("s")
    honest = owner_runs._folders
    monkeypatch.setattr(owner_runs, "_folders", lambda env: [x for x in honest(env) if x.startswith(str(found))])
    return found


@pytest.fixture
def closing() -> Iterator[list[Agent | Scripted]]:
    found: list[Agent | Scripted] = []
    yield found
    for one in found:
        one.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_http, "ANSWER_S", 0.3)


def listening_socket() -> tuple[socket.socket, int]:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    return found, found.getsockname()[1]


def refused(command: str, *argv: str, env: dict[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        run_order(command, argv, env)
    return str(caught.value)


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {"TMPDIR": str(folder), **more}


def silent_door(folder: Path, name: str = "stuck") -> socket.socket:
    (folder / f"planaria-{name}").mkdir(mode=0o700)
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(folder / f"planaria-{name}" / "http"))
    found.listen()
    return found


# Other hosts, and strangers at a port.


def test_another_host_is_spoken_to_although_a_run_here_has_the_same_port(
    folder: Path, closing: list[Agent | Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, port = listening_socket()
    far = Scripted(listening, reply(200, STATUS), reply(202, {}))
    here = Agent(folder, "a", port=port)
    closing += [far, here]
    monkeypatch.setattr(owner, "is_here", lambda host: host != "127.0.0.1")  # the far one has to be reachable
    argv = ["--host=127.0.0.1", f"--port={port}", "--no-wait"]
    assert run_order("drain", argv, environ(folder, **TOKEN)) == 0
    assert here.told == []
    assert far.asked[1].startswith(b"POST /v1/drain ")


def test_an_address_of_this_machine_is_this_machine(folder: Path, closing: list[Agent | Scripted]) -> None:
    here = Agent(folder, "a")
    closing.append(here)
    assert run_order("drain", ["--host=127.0.0.1", "--port=81", "--no-wait"], environ(folder)) == 0
    assert len(here.told) == 1


@pytest.mark.parametrize(("host", "ours"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.1", False)])
def test_a_host_is_here_if_one_can_listen_at_it(host: str, ours: bool) -> None:
    assert is_here(host) == ours


def test_a_variable_chooses_among_runs_and_its_port_is_never_spoken_to(
    folder: Path, closing: list[Agent | Scripted]
) -> None:
    listening, port = listening_socket()
    stranger = Scripted(listening, reply(200, {}))
    closing.append(stranger)
    env = environ(folder, TORCHELASTIC_HEALTH_CHECK_PORT=str(port), **TOKEN)
    assert refused("drain", env=env).startswith("planaria drain found no run of yours in ")
    here = Agent(folder, "a", port=9)
    closing.append(here)
    assert run_order("drain", ["--no-wait"], env) == 0
    assert (len(here.told), stranger.asked) == (1, [])


def test_of_several_runs_that_of_the_variable_is_meant(folder: Path, closing: list[Agent | Scripted]) -> None:
    one, two = Agent(folder, "a", "job7", 11, port=81), Agent(folder, "b", "job8", 12, port=82)
    closing += [one, two]
    assert run_order("stop", ["--no-wait"], environ(folder, PET_HEALTH_CHECK_PORT="82")) == 0
    assert (len(one.told), len(two.told)) == (0, 1)
    assert "found 2 agents" in refused("stop", env=environ(folder, PET_HEALTH_CHECK_PORT="83"))


# Agents that do not answer.


@pytest.mark.usefixtures("impatient")
def test_a_run_that_does_not_answer_is_named(folder: Path) -> None:
    with silent_door(folder):
        text = refused("drain", env=environ(folder))
        launcher = os.getppid()
        assert text == (
            f"a run in {folder}/planaria-stuck does not answer; send SIGTERM to its launcher, pid {launcher}"
        )
        assert refused("drain", f"--pid={launcher}", env=environ(folder)) == text
        assert "found no run of yours with pid 1 " in refused("drain", "--pid=1", env=environ(folder))
    assert "found no run of yours in " in refused("drain", env=environ(folder)), "what it left behind is no run"


def test_of_one_that_answers_and_one_that_does_not_one_has_to_be_named(
    folder: Path, closing: list[Agent | Scripted]
) -> None:
    here = Agent(folder, "a")
    closing.append(here)
    with silent_door(folder):
        assert "found 2 agents: choose one by --run-id=job7 --pid=11 (running); a run in " in refused(
            "drain", env=environ(folder)
        )
        assert here.told == []
        assert run_order("drain", ["--pid=11", "--no-wait"], environ(folder)) == 0


@pytest.mark.usefixtures("impatient")
def test_one_who_drips_has_no_more_time_than_one_who_is_silent(folder: Path) -> None:
    def drip() -> None:
        client, _ = listening.accept()
        with client:
            try:
                while not over.wait(0.05):
                    client.sendall(b"x")
            except OSError:
                return

    over = threading.Event()
    with silent_door(folder) as listening:
        thread = threading.Thread(target=drip)
        thread.start()
        begun = time.monotonic()
        with pytest.raises(NotAnswered, match="no answer within") as caught:
            ask(Door(str(folder / "planaria-stuck" / "http"), os.geteuid()), "GET", "/v1/status")
        assert caught.value.is_silent
        assert time.monotonic() - begun < 20.0
        over.set()
        thread.join(30)


def test_who_hangs_up_is_asked_again_before_it_is_said_to_have_ended(
    closing: list[Agent | Scripted], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listening, port = listening_socket()
    far = Scripted(listening, reply(200, STATUS), reply(202, {}), None, None, reply(200, STATUS), None)
    closing.append(far)
    assert run_order("drain", [f"--port={port}"], environ(folder, **TOKEN)) == 0
    assert len(far.asked) == 6, "it was gone only when it refused"
    assert capfd.readouterr().out == "run far has ended on this node\n"


def test_one_who_only_hangs_up_has_not_ended(closing: list[Agent | Scripted], folder: Path) -> None:
    listening, port = listening_socket()
    closing.append(Scripted(listening, reply(200, STATUS), reply(202, {}), *[None] * 1000))
    assert run_order("drain", [f"--port={port}", "--timeout=0.5"], environ(folder, **TOKEN)) == 1


# Other users.


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> str:
    """Be one who may look everywhere and whose own no folder of this test is; return whose they are."""
    name = owner_runs._user_name(os.geteuid())
    monkeypatch.setattr(owner_runs, "ROOT", 4000777)
    monkeypatch.setattr(os, "geteuid", lambda: 4000777)
    return name


def test_root_does_not_touch_runs_of_others_unless_it_names_one(
    folder: Path, closing: list[Agent | Scripted], as_root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = Agent(folder, "a")
    closing.append(theirs)
    text = refused("stop", env=environ(folder))
    assert text.startswith(f"planaria stop found no run of yours in {folder} or /tmp; there are folders of {as_root}, ")
    assert theirs.told == []
    assert run_order("stop", ["--run-id=job7", "--no-wait"], environ(folder)) == 0
    assert capfd.readouterr().out == f"run job7 of user {as_root} was told to stop\n"


@pytest.mark.usefixtures("as_root")
def test_the_pid_of_another_users_launcher_is_the_kernels_word(folder: Path, closing: list[Agent | Scripted]) -> None:
    theirs = Agent(folder, "a", pid=11)  # which it claims
    closing.append(theirs)
    assert "found no run of yours with pid 11 " in refused("stop", "--pid=11", env=environ(folder))
    assert run_order("stop", [f"--pid={os.getppid()}", "--no-wait"], environ(folder)) == 0


@pytest.mark.usefixtures("as_root", "impatient")
def test_folders_made_to_keep_root_waiting_do_so_for_a_while_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_runs, "LONGEST_LOOK_S", 0.1)
    with silent_door(folder, "1"), silent_door(folder, "2"):
        text = refused("stop", "--run-id=x", env=environ(folder))
    assert text == "the folders of other users keep planaria waiting: name the run by --pid"


def test_one_who_listens_in_anothers_folder_is_not_spoken_to(folder: Path) -> None:
    with silent_door(folder), pytest.raises(NotAnswered, match="what listens there is not its owner's"):
        ask(Door(str(folder / "planaria-stuck" / "http"), os.geteuid() + 1), "POST", "/v1/stop")
