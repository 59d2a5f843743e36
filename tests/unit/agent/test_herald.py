from __future__ import annotations

import json
import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rounds import LIFE
from scripted_api import Fault, ScriptedApi

from planaria.agent.herald import Herald
from planaria.base.loop import Loop
from planaria.contract import glimpse
from planaria.contract.control import Progress
from planaria.observe.notebook import Notebook
from planaria.testing.store_client import run_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[[str], tuple[Herald, list[str]]]


@pytest.fixture
def make(loop: Loop) -> Iterator[Make]:
    made = []

    def make(url: str) -> tuple[Herald, list[str]]:
        meeting = SimpleNamespace(backend="kubernetes", endpoints=("ours/x",), options={"server": url} if url else {})
        seat = SimpleNamespace(snapshot=lambda: SimpleNamespace(is_leading=True))
        notebook = Notebook(9)
        notebook.take({"name": "planaria.restart", "timestamp": 1, "metadata": {"round": 3}})
        observer = SimpleNamespace(journal=SimpleNamespace(notebook=notebook))
        reports = {0: (Progress(7), loop.now())}
        driver: Any = SimpleNamespace(life=LIFE, progress=reports, seat=seat, observer=observer)
        job: Any = SimpleNamespace(meeting=meeting, environment={})
        said: list[str] = []
        made.append(Herald(loop, "job-run", job, driver, said.append))
        return made[-1], said

    yield make
    for herald in made:
        herald.close()


def test_a_record_is_merged_into_the_config_map(api: ScriptedApi, loop: Loop, make: Make) -> None:
    herald, said = make(api.url)
    herald.begin()
    run_until(loop, lambda: "data" in api.objects["configmaps"])
    data = api.objects["configmaps"]["data"]
    assert json.loads(data["progress"])["step"] == 7
    host, events = glimpse.read(data["events"])
    assert (host, [one["name"] for one in events]) == (os.uname().nodename, ["planaria.restart"])
    assert said == []


def test_what_goes_wrong_is_said_once(api: ScriptedApi, loop: Loop, make: Make) -> None:
    api.faults += [Fault("PATCH", "configmaps", 422)] * 2
    herald, said = make(api.url)
    herald.begin()
    run_until(loop, lambda: said)
    herald._done("the same again")
    assert len(said) == 1
    assert "scripted 422; training goes on" in said[0]
    herald._done("")
    herald._done("another time")
    assert len(said) == 2


def test_without_a_way_to_the_api_server_it_is_said_and_nothing_is_tried(loop: Loop, make: Make) -> None:
    herald, said = make("")
    herald.begin()
    assert len(said) == 1
    assert "KUBERNETES_SERVICE_HOST" in said[0]


def test_an_api_server_that_never_answers_does_not_hold_up_the_loop(loop: Loop, make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        herald, said = make(f"http://127.0.0.1:{silent.getsockname()[1]}")
        herald.begin()
        turns: list[bool] = []
        connection, _ = silent.accept()
        for number in range(3):
            loop.call_soon(lambda: turns.append(True))
            run_until(loop, lambda number=number: len(turns) > number, within_s=4.0)
        herald.close()
        connection.close()
        assert said == []
